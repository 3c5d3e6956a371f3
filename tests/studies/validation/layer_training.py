"""What ``predictor train`` learns of layers of states, sparse and compressed attention, and several widths of heads.

``python -m tests.studies.validation.layer_training``, with VTWIN_DATA: for each operator that mixes tokens, and what
else these layers have, the median and 90th percentile of the absolute error at points that were used neither to
choose nor to fit a regression; then the same of heads that were left out, a whole shape, and put together from
others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.predictor.components import WINDOWED
from calibrate.predictor.measured import ProfileError, ProfileQuery
from calibrate.predictor.profiles.latent_modules import between_heads
from calibrate.predictor.profiles.sources import read_profiles
from calibrate.predictor.profiles.state_profiles import HEADS, TABLES, layer_times, rows_of_heads
from calibrate.predictor.training import train_operator
from replay.model import read_model_config
from tests.studies.validation.unseen_attention import GPUS, read

SERVERS = (
    ("Qwen--Qwen3.5-397B-A17B", 8),
    ("moonshotai--Kimi-K3", 8),
    ("deepseek-ai--DeepSeek-V3.2", 8),
    ("zai-org--GLM-5", 8),
    ("sgl-project--DeepSeek-V4-Flash-FP8", 4),
    ("google--gemma-4-26B-A4B", 1),
    ("XiaomiMiMo--MiMo-V2-Flash", 4),
)
"""Models as files of VTWIN_DATA/model_configs name them, and how many GPUs share a layer."""
SHOWN = ("attn_prefill", "attn_decode", "state_prefill", "state_decode", "connections")
"""Operators whose names begin so."""
MODULES = {
    "dsa": ("sparse_attention", ["model", "kv_cache_dtype", "gemm_type"]),
    "msa": ("msa", ["kv_cache_dtype", "gemm_type"]),
    "dsv4_csa": ("sparse_attention", ["model"]),
    "dsv4_hca": ("sparse_attention", ["model"]),
}
"""By the prefix of its tables, a module's folder, and the columns by which its rows are of one kind."""
AXES = ["batch_size", "isl", "step"]


def errors(told: pd.Series, measured: pd.Series) -> np.ndarray:
    """Return absolute relative errors at the points that both have."""
    both = pd.concat([told, measured], axis=1, keys=["told", "measured"]).dropna()
    return np.abs((both["told"] / both["measured"]).to_numpy() - 1)


def left_out_modules(root: Path, gpu: str, name: str) -> np.ndarray:
    """Return errors of a module's numbers of heads, each between its neighbours, none of an end."""
    place, kinds = MODULES[name.removesuffix("_context_module").removesuffix("_generation_module")]
    table = read(root, gpu, f"{place}/vllm/0.24.0/{name}_perf.parquet")
    table = table[table["step"] == 0] if "context" in name else table
    found = [np.zeros(0)]
    for _, rows in table.groupby(kinds):
        for heads in sorted(rows["num_heads"].unique())[1:-1]:
            told, _ = between_heads(rows[rows["num_heads"] != heads], Path(name), int(heads))
            measured = rows[rows["num_heads"] == heads].groupby(AXES)["time_us"].min()
            found.append(errors(told.set_index(AXES)["time_us"], measured))
    return np.concatenate(found)


def left_out_states(root: Path, gpu: str, name: str, phase: str) -> np.ndarray:
    """Return errors of a recurrence's numbers of heads, each put together from others as ``predictor train`` does."""
    (path,) = (root / "aiconfigurator_ops" / f"{gpu.lower()}_sxm").glob(f"*/vllm/*/{name}_perf.parquet")
    rows = pd.read_parquet(path).assign(time_us=lambda table: table["latency"] * 1e3)
    axes, found = ["phase", "batch_size", "seq_len"], [np.zeros(0)]
    (layer,) = (each for each, table in TABLES.items() if table == name)
    for key, part in rows.groupby(HEADS):
        heads = dict(zip(HEADS, map(float, key), strict=True))
        others = rows[(rows[HEADS].astype(float) != pd.Series(heads)).any(axis=1)]
        told = rows_of_heads(others, path, heads, name=layer)
        if told is not None:
            both = errors(
                told[0].set_index(axes)["time_us"].loc[[phase]], layer_times(part).set_index(axes)["time_us"]
            )
            found.append(both)
    return np.concatenate(found)


def trained(root: Path, gpu: str) -> dict[str, str]:
    """Return, by model and operator, the error at points held out of what training chose, as a cell."""
    found = {}
    for model, tp in SERVERS:
        shape = read_model_config(root / "model_configs" / f"{model}.json")
        wanted = ProfileQuery(shape=shape, gpu=gpu, tp=tp)
        try:
            tables = read_profiles([root / "aiconfigurator_ops" / f"{gpu.lower()}_sxm"], wanted).tables
        except ProfileError as error:
            print(f"{gpu}: {error}", file=sys.stderr)
            continue
        all_windows = {f"{name}_window" for name in SHOWN}  # of these a step has what was measured within
        for name, table in tables.items():
            if name.startswith(SHOWN) and not (name in all_windows and f"{name}{WINDOWED}" in tables):
                report = train_operator(table).report
                cell = f"{100 * report.score.median:.1f} / {100 * report.score.p90:.0f}"
                found[f"{model.partition('--')[2]}, {tp} GPUs: {name}"] = f"{cell} ({report.estimator})"
    return found


def left_out() -> Iterator[tuple[str, Callable[[Path, str], np.ndarray]]]:
    """Yield what is left out, and what returns its errors."""
    for name in ("gdn", "kda"):
        for phase in ("context", "generation"):
            yield (
                f"{name}, {phase}",
                lambda r, g, n=name, p=phase: left_out_states(r, g, n, p),
            )
    for prefix in MODULES:
        for phase in ("context", "generation"):
            module = f"{prefix}_{phase}_module"
            yield module, lambda r, g, m=module: left_out_modules(r, g, m)


def main() -> None:
    """Print both tables of the page on latency models."""
    root = Path(os.environ["VTWIN_DATA"])
    cells: Mapping[str, dict[str, str]] = {gpu: trained(root, gpu) for gpu in GPUS}
    print(f"| operator | {' | '.join(GPUS)} |\n|---|--:|--:|--:|")
    for name in dict.fromkeys(name for each in cells.values() for name in each):
        print(f"| {name} | {' | '.join(cells[gpu].get(name, '-') for gpu in GPUS)} |")
    print_left_out(root)


def print_left_out(root: Path) -> None:
    """Print the table of heads that were left out."""
    print(f"\n| heads left out | {' | '.join(GPUS)} |\n|---|--:|--:|--:|")
    for name, put in left_out():
        off = [put(root, gpu) for gpu in GPUS]
        shown = [
            f"{100 * np.median(e):.1f} / {100 * np.quantile(e, 0.9):.0f}" if len(e) else "-" for e in off
        ]
        print(f"| {name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
