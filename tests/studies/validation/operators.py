"""Operators measured on real GPUs: how well regressions predict points that they have not seen.

Four tables: every operator of two models from Vidur's profiles and of two models per GPU from tables of vLLM kernels;
matrix products put together from the shapes around them; heads from half as many at twice the batch; and what a batch
of prompts takes, told from single prompts by Vidur's rule and by ours, against the batches that were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.predictor.measured import OperatorTable, ProfileQuery, operator_table
from calibrate.predictor.prefill import prefill_points, prefill_times
from calibrate.predictor.profiles.matmuls import curves_of
from calibrate.predictor.profiles.sources import read_profiles
from calibrate.predictor.training import train_operator
from replay.model import read_model_config
from replay.model.matmuls.curves import between
from replay.model.matmuls.products import Matmul

LLAMA_70B, QWEN_7B = "meta-llama/Llama-2-70b-hf", "Qwen/Qwen2.5-7B-Instruct"
VIDUR = "vidur_profiling"
KERNELS = "aiconfigurator_ops"

PROFILES: tuple[tuple[str, str, str, int, tuple[str, ...]], ...] = (
    (
        "A100, Llama-2-70B TP2 (Vidur)",
        LLAMA_70B,
        "A100",
        2,
        (
            f"{VIDUR}/profiling/compute/a100/{LLAMA_70B}",
            f"{VIDUR}/historic/a100_attention_llama2-70b_tp2.csv",
            f"{VIDUR}/profiling/network/a100_dgx",
            f"{VIDUR}/historic/a100_cpu_overheads.csv",
        ),
    ),
    ("A30, Qwen2-7B TP1 (Vidur's columns)", QWEN_7B, "A30", 1, (f"{VIDUR}/fork_AKafakA",)),
    *(
        (f"{gpu}, {name} TP{tp} (vLLM kernels)", model, gpu, tp, (f"{KERNELS}/{gpu.lower()}_sxm",))
        for gpu in ("A100", "H100", "H200")
        for name, model, tp in (
            ("Llama-3.1-8B", "meta-llama/Llama-3.1-8B", 1),
            ("Llama-3.1-70B", "meta-llama/Llama-3.1-70B", 4),
            ("Mixtral-8x7B", "mistralai/Mixtral-8x7B-Instruct-v0.1", 2),
        )
    ),
)


def operators_table(data: Path) -> str:
    """Return errors on held-out points for every operator of every profile."""
    lines = [
        "| profile | operator | regression | points | unseen | mean | median | p90 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for title, model, gpu, tp, places in PROFILES:
        wanted = ProfileQuery(shape=read_model_config(model), gpu=gpu, tp=tp)
        for table in read_profiles([data / place for place in places], wanted).tables.values():
            report = train_operator(table).report
            score = report.score
            unseen = f"{score.num_points} held out" if score.is_held_out else "5 folds"
            lines.append(
                f"| {title} | {table.operator} | {report.estimator} | {report.num_points:,} | {unseen} "
                f"| {score.mape:.1%} | {score.median:.1%} | {score.p90:.1%} |"
            )
    return "\n".join(lines)


def _errors(predicted: np.ndarray, measured: np.ndarray) -> str:
    errors = predicted / measured - 1
    size = np.abs(errors)
    return f"{len(errors):,} | {np.median(size):.1%} | {np.quantile(size, 0.9):.1%} | {errors.mean():+.1%}"


def shapes_table(data: Path) -> str:
    """Return errors of matrix products whose (n, k) is left out and put together from its neighbours."""
    lines = ["| GPU | precision | products | median | p90 | bias |", "|---|---|---|---|---|---|"]
    for gpu, version in (("A100", "0.14.0"), ("H100", "0.24.0"), ("H200", "0.24.0")):
        table = pd.read_parquet(data / KERNELS / f"{gpu.lower()}_sxm/gemm/vllm/{version}/gemm_perf.parquet")
        table = table.assign(time_us=table["latency"] * 1e3)
        for dtype in sorted(set(table["gemm_dtype"])):
            curves = curves_of(table[table["gemm_dtype"] == dtype])
            found = list(_left_out_shapes(curves))
            predicted, measured = (np.concatenate(each) for each in zip(*found, strict=True))
            lines.append(f"| {gpu} | {dtype} | {_errors(predicted, measured)} |")
    return "\n".join(lines)


def _left_out_shapes(curves: dict) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (predicted, measured) of every inner shape from 1024 on, its whole row and column of the grid unseen."""
    for n, k in curves:
        sizes = sorted({each for each, _ in curves})
        widths = sorted({each for _, each in curves})
        if n < 1024 or k < 1024 or n == sizes[-1] or k == widths[-1]:
            continue
        others = {(a, b): curve for (a, b), curve in curves.items() if a != n and b != k}
        (tokens, times), _ = between(Matmul(operator="left out", n=n, k=k, mix=()), others)
        both, mine, theirs = np.intersect1d(tokens, curves[n, k][0], return_indices=True)
        if len(both):
            yield times[mine], curves[n, k][1][theirs]


def batches_table(data: Path) -> str:
    """Return errors of what a batch of equal prompts takes, told from single prompts, on the batches measured."""
    lines = ["| GPU, vLLM | rule | batches | median | p90 | bias |", "|---|---|---|---|---|---|"]
    for gpu, version in (("A100", "0.14.0"), ("H100", "0.14.0"), ("H100", "0.24.0"), ("H200", "0.22.0")):
        rules = {
            "Vidur's: root of the sum of squares": _root_rule,
            "the launch once, the rest per prompt": _prompts_rule,
            "vtwin's: the geometric mean of both": _our_rule,
        }
        found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in rules}
        for singles, batches, measured in _batches(data, gpu, version):
            for name, rule in rules.items():
                found[name].append((rule(singles, batches), measured))
        for name, parts in found.items():
            predicted, measured = (np.concatenate(each) for each in zip(*parts, strict=True))
            lines.append(f"| {gpu}, {version} | {name} | {_errors(predicted, measured)} |")
    return "\n".join(lines)


def _batches(data: Path, gpu: str, version: str) -> Iterator[tuple[OperatorTable, np.ndarray, np.ndarray]]:
    """Yield (single prompts as Vidur measures them, batches as (number, tokens each), their µs) for sets of heads."""
    path = data / KERNELS / f"{gpu.lower()}_sxm/attention/vllm/{version}/context_attention_perf.parquet"
    table = pd.read_parquet(path)
    table = table[(table["kv_cache_dtype"] == "bfloat16") & (table["head_dim"] == 128) & (table["isl"] >= 16)]
    if "window_size" in table.columns:
        table = table[table["window_size"] == 0]
    for heads, kv_heads in ((32, 8), (8, 1), (16, 2), (16, 4), (64, 8), (8, 8)):
        rows = table[(table["num_heads"] == heads) & (table["num_key_value_heads"] == kv_heads)]
        one, many = rows[rows["batch_size"] == 1], rows[rows["batch_size"] > 1]
        many = many[many["batch_size"] * many["isl"] <= 32_768]
        singles = operator_table(
            "attn_prefill",
            {"kv": 0.0 * one["isl"], "chunk": one["isl"]},
            one["latency"] * 1e3,
            source=str(path),
        )
        yield singles, many[["batch_size", "isl"]].to_numpy(float), many["latency"].to_numpy() * 1e3


def _single(singles: OperatorTable) -> Callable[[np.ndarray], np.ndarray]:
    return lambda tokens: np.interp(tokens, singles.points[:, 1], singles.time_us)


def _root_rule(singles: OperatorTable, batches: np.ndarray) -> np.ndarray:
    return _single(singles)(batches[:, 1] * np.sqrt(batches[:, 0]))


def _prompts_rule(singles: OperatorTable, batches: np.ndarray) -> np.ndarray:
    launch = singles.time_us[0]
    return launch + batches[:, 0] * (_single(singles)(batches[:, 1]) - launch)


def _our_rule(singles: OperatorTable, batches: np.ndarray) -> np.ndarray:
    points = np.column_stack([batches[:, 0] * batches[:, 1], (batches[:, 1] + 1) / 2])
    asked = prefill_points(singles, points)
    return prefill_times(singles, points, _single(singles)(asked[:, 1]))


def heads_table(data: Path) -> str:
    """Return errors of attention told from half the heads at twice the batch."""
    lines = ["| GPU, vLLM | attention | points | median | p90 | bias |", "|---|---|---|---|---|---|"]
    for gpu, version in (("A100", "0.14.0"), ("H100", "0.24.0"), ("H200", "0.22.0")):
        for kind in ("context", "generation"):
            table = pd.read_parquet(
                data / KERNELS / f"{gpu.lower()}_sxm/attention/vllm/{version}/{kind}_attention_perf.parquet"
            )
            table = table[(table["kv_cache_dtype"] == "bfloat16") & (table["head_dim"] == 128)]
            if "window_size" in table.columns:
                table = table[table["window_size"] == 0]
            keys = ["num_heads", "num_key_value_heads", "batch_size", "isl", "step"]
            times = table.groupby(keys)["latency"].median().reset_index()
            halves = times.assign(
                num_heads=times["num_heads"] * 2,
                num_key_value_heads=times["num_key_value_heads"] * 2,
                batch_size=times["batch_size"] // 2,
            )[times["batch_size"] % 2 == 0]
            both = times.merge(halves, on=keys, suffixes=("", "_told"))
            lines.append(
                f"| {gpu}, {version} | {kind} | "
                f"{_errors(both['latency_told'].to_numpy(), both['latency'].to_numpy())} |"
            )
    return "\n".join(lines)


def table(data: Path) -> str:
    """Return all four tables."""
    parts = {
        "Operators, points held out": operators_table,
        "Matrix products of shapes left out": shapes_table,
        "Batches of prompts told from single prompts": batches_table,
        "Attention told from half the heads at twice the batch": heads_table,
    }
    return "\n\n".join(f"### {title}\n\n{make(data)}" for title, make in parts.items())
