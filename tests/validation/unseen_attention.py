"""Attention that ``predictor train`` puts together: numbers of heads that were left out, windows cut from all keys.

``python -m tests.validation.unseen_attention``, with VTWIN_DATA: median and 90th percentile of the absolute error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.interpolate import LinearNDInterpolator

from calibrate.predictor.profiles.latent_modules import between_heads

GPUS = ("H100", "B200", "H200")
HEADS = ("num_heads", "num_key_value_heads", "head_dim", "kv_cache_dtype")
WINDOWS = (128, 1024, 8192)
MOST_SHAPES = 60


def read(root: Path, gpu: str, place: str) -> pd.DataFrame:
    """Return a table of kernels, times in µs."""
    rows = pd.read_parquet(root / "aiconfigurator_ops" / f"{gpu.lower()}_sxm" / place)
    return rows.assign(time_us=rows["latency"] * 1e3)


def left_out_heads(root: Path, gpu: str, name: str) -> np.ndarray:
    """Return the ratios of times between neighbouring numbers of heads to measured ones, none of an end."""
    path = Path(f"mla/vllm/0.24.0/{name}_perf.parquet")
    found, axes = [], ["batch_size", "isl", "step"]
    table = read(root, gpu, str(path))
    table = table[table["kv_cache_dtype"] == "bfloat16"]
    for _, rows in table.groupby("gemm_type"):
        for heads in sorted(rows["num_heads"].unique())[1:-1]:
            told, _ = between_heads(rows[rows["num_heads"] != heads], path, int(heads))
            measured = rows[rows["num_heads"] == heads].groupby(axes)["time_us"].min()
            both = pd.concat(
                [told.set_index(axes)["time_us"], measured], axis=1, keys=["told", "measured"]
            ).dropna()
            found.append((both["told"] / both["measured"]).to_numpy())
    return np.concatenate(found)


def cut_decodes(root: Path, gpu: str, window: int) -> np.ndarray:
    """Return the ratios of full attention over a window's keys to attention with that window, of longer contexts."""
    table = read(root, gpu, "attention/vllm/0.24.0/generation_attention_perf.parquet")
    keys = [*HEADS, "batch_size"]
    full = {key: rows.sort_values("step") for key, rows in table[table["window_size"] == 0].groupby(keys)}
    found = []
    for key, rows in table[table["window_size"] == window].groupby(keys):
        longer = rows[rows["step"] + 1 > window]
        if key in full and len(longer):
            told = np.interp(window, full[key]["step"] + 1, full[key]["time_us"])
            found.append(told / longer["time_us"].to_numpy())
    return np.concatenate(found)


def cut_prompts(root: Path, gpu: str, window: int) -> np.ndarray:
    """Return the same of prompts, whose queries see half of the prompt on average, or the window."""
    table = read(root, gpu, "attention/vllm/0.24.0/context_attention_perf.parquet")
    full = dict(list(table[table["window_size"] == 0].groupby(list(HEADS))))
    found = []
    for key, rows in list(table[table["window_size"] == window].groupby(list(HEADS)))[:MOST_SHAPES]:
        longer = rows[rows["isl"] > window]
        if key not in full or longer.empty:
            continue
        known = full[key]
        points = np.column_stack([known["batch_size"] * known["isl"], (known["isl"] + 1) / 2])
        surface = LinearNDInterpolator(np.log(points), np.log(known["time_us"].to_numpy()))
        asked = np.column_stack(
            [longer["batch_size"] * longer["isl"], np.minimum((longer["isl"] + 1) / 2, window)]
        )
        ratios = np.exp(surface(np.log(asked))) / longer["time_us"].to_numpy()
        found.append(ratios[np.isfinite(ratios)])
    return np.concatenate(found)


def rows_of(root: Path) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield what was put together, and its ratios on each GPU."""
    for name in ("mla_context_module", "mla_generation_module"):
        yield f"{name}, heads left out", [left_out_heads(root, gpu, name) for gpu in GPUS]
    for window in WINDOWS:
        yield f"decodes, window of {window:,}", [cut_decodes(root, gpu, window) for gpu in GPUS]
        yield f"prompts, window of {window:,}", [cut_prompts(root, gpu, window) for gpu in GPUS]


def main() -> None:
    """Print the table of the page on latency models."""
    print(f"| put together | {' | '.join(GPUS)} |\n|---|--:|--:|--:|")
    for name, ratios in rows_of(Path(os.environ["VTWIN_DATA"])):
        off = [np.abs(each - 1) for each in ratios]
        cells = [f"{100 * np.median(each):.1f} / {100 * np.quantile(each, 0.9):.0f}" for each in off]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
