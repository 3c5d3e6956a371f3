"""Attention that ``predictor train`` puts together: heads that were left out; windows, by both of its rules.

``python -m tests.studies.validation.unseen_attention``, with VTWIN_DATA: median and 90th percentile of the absolute
error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.interpolate import LinearNDInterpolator

from calibrate.predictor.profiles.latent_modules import between_heads
from calibrate.predictor.profiles.other_heads_windows import Floats, windowed_decodes, windowed_prompts

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


def cut_decodes(root: Path, gpu: str, window: int) -> tuple[Floats, Floats]:
    """Return ratios to attention with a window, of longer contexts: of full attention over its keys; put together."""
    table = read(root, gpu, "attention/vllm/0.24.0/generation_attention_perf.parquet")
    cut, told = [], []
    for own, others, measured in left_out_windows(table, window):
        longer = measured[measured["step"] + 1 > window]
        whole = {batch: rows.sort_values("step") for batch, rows in own.groupby("batch_size")}
        made = windowed_decodes(
            own, others, kv_heads=float(own["num_key_value_heads"].iloc[0]), window=window
        )
        assert made is not None
        within = made.groupby(["batch_size", "step"])["time_us"].median()
        for batch, rows in longer.groupby("batch_size"):
            if batch in whole:
                keys, times = whole[batch]["step"] + 1, whole[batch]["time_us"]
                cut.append(np.interp(window, keys, times) / rows["time_us"].to_numpy())
                known = within.loc[batch]
                told.append(
                    np.interp(rows["step"], known.index.to_numpy(float), known) / rows["time_us"].to_numpy()
                )
    return np.concatenate(cut), np.concatenate(told)


def cut_prompts(root: Path, gpu: str, window: int) -> tuple[Floats, Floats]:
    """Return the same of prompts, whose queries see half of the prompt on average, or the window."""
    table = read(root, gpu, "attention/vllm/0.24.0/context_attention_perf.parquet")
    cut, told = [], []
    for own, others, measured in left_out_windows(table, window):
        longer = measured[measured["isl"] > window]
        points = np.column_stack([own["batch_size"] * own["isl"], (own["isl"] + 1) / 2])
        surface = LinearNDInterpolator(np.log(points), np.log(own["time_us"].to_numpy()))
        asked = np.column_stack(
            [longer["batch_size"] * longer["isl"], np.minimum((longer["isl"] + 1) / 2, window)]
        )
        ratios = np.exp(surface(np.log(asked))) / longer["time_us"].to_numpy()
        cut.append(ratios[np.isfinite(ratios)])
        made = windowed_prompts(own, others, heads=float(own["num_heads"].iloc[0]), window=window)
        assert made is not None
        both = longer.merge(made, on=["batch_size", "isl"], suffixes=("", "_told"))
        told.append((both["time_us_told"] / both["time_us"]).to_numpy())
    return np.concatenate(cut), np.concatenate(told)


def left_out_windows(
    table: pd.DataFrame, window: int
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]]:
    """Yield of shapes whose heads are left out: their rows of all keys, other heads' rows, their rows with the window.

    At most MOST_SHAPES, drawn at random, that other heads of the same width and cache were measured beside.
    """
    groups = dict(list(table.groupby(["head_dim", "kv_cache_dtype"])))
    shapes = [key for key, _ in table[table["window_size"] == window].groupby(list(HEADS))]
    drawn = np.random.default_rng(0).permutation(len(shapes))[:MOST_SHAPES]
    for heads, kv_heads, width, cache in (shapes[number] for number in drawn):
        alike = groups[(width, cache)]
        is_own = (alike["num_heads"] == heads) & (alike["num_key_value_heads"] == kv_heads)
        own, measured = (alike[is_own & (alike["window_size"] == each)] for each in (0, window))
        others = alike[~is_own]
        if len(own) and (others["window_size"] == window).any():
            yield own, others, measured


def rows_of(root: Path) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield what was put together, and its ratios on each GPU."""
    for name in ("mla_context_module", "mla_generation_module"):
        yield f"{name}, heads left out", [left_out_heads(root, gpu, name) for gpu in GPUS]
    for window in WINDOWS:
        for name, put in (("decodes", cut_decodes), ("prompts", cut_prompts)):
            found = [put(root, gpu, window) for gpu in GPUS]
            yield f"{name}, window of {window:,}: as over all keys", [cut for cut, _ in found]
            yield f"{name}, window of {window:,}: heads left out", [told for _, told in found]


def main() -> None:
    """Print the table of the page on latency models."""
    print(f"| put together | {' | '.join(GPUS)} |\n|---|--:|--:|--:|")
    for name, ratios in rows_of(Path(os.environ["VTWIN_DATA"])):
        off = [np.abs(each - 1) for each in ratios]
        cells = [f"{100 * np.median(each):.1f} / {100 * np.quantile(each, 0.9):.0f}" for each in off]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
