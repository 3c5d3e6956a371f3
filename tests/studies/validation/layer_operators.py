"""Operators of layers against what they took on GPUs: the forms of ``replay.model.operator_forms`` and their constants.

``python -m tests.studies.validation.layer_operators``: the errors of the page on latency models, from the rows that
ship (``layer_operators.parquet``). With VTWIN_DATA: ``--fit`` finds the constants on H100 and B200 anew and prints
them, ``--cross`` has the errors of each quarter of the shapes seen by constants of the other three (forms are chosen
by it), ``--pack`` draws the rows that ship, ``--full`` has the errors over all rows. Shapes are held out, one in four
by a hash of what is not a length or a batch; of the H200 nothing is fitted.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from replay.model import Gpu, find_gpu
from replay.model.operator_forms import TERMS, Form, forms
from tests.studies.validation import layer_work as work

Floats = NDArray[np.float64]

EXTRACT = Path(__file__).with_name("layer_operators.parquet")
GPUS = ("H100", "B200", "H200")
FITTED = GPUS[:2]
MOST_ROWS, ROWS_THAT_SHIP = 6000, 150
HELD_OUT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Where an operator's rows are: the table, which of its rows, what tells its shapes apart.

    ``kernels``: a regular expression of the kernels' names. ``beside``: a table whose times of a shape are added.
    ``blackwell``: constants that differ there. ``is_timed_from_python``: rows are left out whose work takes less at the
    GPU's peak than the host did for the smallest.
    """

    table: str
    work: Callable[[pd.DataFrame, Gpu], work.Work]
    shape: tuple[str, ...]
    only: Mapping[str, tuple[str, ...]]
    host: bool = False
    kernels: str = ""
    beside: str = ""
    blackwell: tuple[str, ...] = ()
    is_timed_from_python: bool = False


def _measured(
    table: str,
    does: Callable[[pd.DataFrame, Gpu], work.Work],
    *shape: str,
    only: Mapping[str, tuple[str, ...]] | None = None,
    kernels: str = "",
    blackwell: tuple[str, ...] = (),
) -> Measured:
    return Measured(
        table=table, work=does, shape=shape, only=only or {}, kernels=kernels, blackwell=blackwell
    )


GDN, KDA = "linear_attention/vllm/0.24.0/gdn_perf", "kda/vllm/0.1.dev19262/kda_perf"
SPARSE, MLA, MSA = (f"{each}/vllm/0.24.0/{{}}" for each in ("sparse_attention", "mla", "msa"))
HEADS = ("num_heads", "num_key_value_heads", "head_dim", "kv_cache_dtype")
STATES = ("num_v_heads", "num_k_heads")
MODULE = ("num_heads", "gemm_type", "kv_cache_dtype")
EXPERTS = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
FULL, WINDOWED = ("0",), ("128", "1024", "8192")
PROMPTS = "^(?!.*decode)"
"""On Blackwell a prompt of one token goes through the kernel of decodes."""
FASTEST_V3 = ("FLASH_ATTN", "TRTLLM_RAGGED")
SKEWED = ("power_law_1.01", "power_law_1.2")
MOE, GEMM = "moe/vllm/0.24.0/moe_perf", "gemm/vllm/0.24.0/gemm_perf"
SCALED = "quantize/vllm/0.24.0/scale_matrix_perf"
ATTENTION, DECODES = (
    "attention/vllm/0.24.0/context_attention_perf",
    "attention/vllm/0.24.0/generation_attention_perf",
)

OPERATORS: Mapping[str, Measured] = {
    "gated delta, prompt": _measured(
        GDN,
        work.recurrence_prompt,
        *STATES,
        kernels="^chunk_gated_delta_rule_flashinfer$",
        blackwell=("launch_us",),
    ),
    "gated delta, decode": _measured(
        GDN,
        work.recurrence_decode,
        *STATES,
        kernels="^fused_recurrent_gated_delta_rule_packed_decode$",
    ),
    "Kimi delta, prompt": _measured(KDA, work.recurrence_prompt, *STATES, kernels="^flashkda_fwd$"),
    "Kimi delta, decode": _measured(KDA, work.recurrence_decode, *STATES, kernels="^fused_kda_decode$"),
    "short convolution, prompt": _measured(GDN, work.convolution, *STATES, kernels="^causal_conv1d_fn$"),
    "short convolution, decode": _measured(GDN, work.convolution, *STATES, kernels="^causal_conv1d_update$"),
    "attention, prompt": _measured(
        ATTENTION, work.attention_prompt, *HEADS, only={"window_size": FULL}, kernels=PROMPTS
    ),
    "attention, decode": _measured(
        DECODES,
        work.attention_decode,
        *HEADS,
        only={"window_size": FULL},
        blackwell=("launch_us", "wave_us"),
    ),
    "windowed attention, prompt": _measured(
        ATTENTION, work.attention_prompt, *HEADS, only={"window_size": WINDOWED}, kernels=PROMPTS
    ),
    "windowed attention, decode": _measured(
        DECODES,
        work.attention_decode,
        *HEADS,
        only={"window_size": WINDOWED},
        blackwell=("launch_us", "wave_us"),
    ),
    "latent attention, prompt": _measured(
        MLA.format("mla_context_module_perf"),
        work.latent_prompt,
        *MODULE,
        only={"kernel_source": FASTEST_V3},
        blackwell=("launch_us",),
    ),
    "latent attention, decode": _measured(
        MLA.format("mla_generation_module_perf"), work.latent_decode, *MODULE, blackwell=("launch_us",)
    ),
    "absorbed projection": _measured("mla_bmm/vllm/0.24.0/mla_bmm_perf", work.absorbed, "num_heads"),
    "sparse latent attention, prompt": replace(
        _measured(SPARSE.format("dsa_context_module_perf"), work.sparse_prompt, "model", *MODULE), host=True
    ),
    "sparse latent attention, decode": _measured(
        SPARSE.format("dsa_generation_module_perf"), work.sparse_decode, "model", *MODULE
    ),
    "block-sparse attention, prompt": _measured(
        MSA.format("msa_context_module_perf"),
        work.block_sparse_prompt,
        *MODULE,
        blackwell=("launch_us", "tensor", "vector"),
    ),
    "block-sparse attention, decode": _measured(
        MSA.format("msa_generation_module_perf"), work.block_sparse_decode, *MODULE
    ),
    "index scores": _measured(SPARSE.format("dsv4_paged_mqa_logits_module_perf"), work.index_scores, "isl"),
    "experts in bfloat16": _measured(
        MOE,
        work.routed,
        *EXPERTS,
        only={"moe_dtype": ("bfloat16",), "distribution": SKEWED},
        blackwell=("launch_us",),
    ),
    "experts in FP8": _measured(
        MOE, work.routed, *EXPERTS, only={"moe_dtype": ("fp8_block",), "distribution": SKEWED}
    ),
    "experts in MXFP4": _measured(
        MOE,
        work.routed,
        *EXPERTS,
        only={"moe_dtype": ("w4a16_mxfp4",), "distribution": SKEWED},
        kernels="^(?!.*marlin)",
        blackwell=("launch_us", "products"),
    ),
    "experts in MXFP4, Marlin": _measured(
        MOE,
        work.routed,
        *EXPERTS,
        only={"moe_dtype": ("w4a16_mxfp4",), "distribution": SKEWED},
        kernels="marlin",
        blackwell=("products",),
    ),
    "vision encoder's attention": _measured(
        "encoder_attention/vllm/0.24.0/encoder_attention_perf", work.encoder, "num_heads", "head_dim"
    ),
    "FP8 quantization, scale given": _measured(SCALED, work.quantize, "k"),
    "FP8 quantization, finding the scale": replace(
        _measured("quantize/vllm/0.24.0/computescale_perf", work.quantize, "k"), beside=SCALED
    ),
    "hyper-connections, before": _measured(
        "mhc/vllm/0.24.0/mhc_module_perf", work.hyper_connections, "num_tokens", only={"op_name": ("pre",)}
    ),
    "hyper-connections, after": _measured(
        "mhc/vllm/0.24.0/mhc_module_perf", work.hyper_connections, "num_tokens", only={"op_name": ("post",)}
    ),
    "product in bfloat16": _measured(GEMM, work.product, "n", "k", only={"gemm_dtype": ("bfloat16",)}),
    "product in FP8": _measured(GEMM, work.product_in_fp8, "n", "k", only={"gemm_dtype": ("fp8",)}),
    "product in FP8 by block": replace(
        _measured(GEMM, work.product_by_block, "n", "k", only={"gemm_dtype": ("fp8_block",)}),
        is_timed_from_python=True,
    ),
}
"""By the names of ``replay/model/operators.yaml``."""


def read_rows(data: Path, name: str, gpu: str) -> pd.DataFrame:
    """Return an operator's rows on a GPU, at most MOST_ROWS of them, ``time_us`` and ``held_out`` besides."""
    measured = OPERATORS[name]
    place = data / "aiconfigurator_ops" / f"{gpu.lower()}_sxm"
    rows = pd.read_parquet(place / f"{measured.table}.parquet")
    for column, values in measured.only.items():
        rows = rows[rows[column].astype(str).isin(values)]
    if measured.kernels:
        rows = rows[rows["kernel_source"].str.contains(measured.kernels)]
    rows = rows[rows["latency"] > RESOLUTION_MS].assign(time_us=rows["latency"] * 1e3)
    if measured.beside:
        rows = _added(rows, pd.read_parquet(place / f"{measured.beside}.parquet"))
    if measured.is_timed_from_python:
        rows = _longer_than_the_host(rows, measured.work(rows, find_gpu(gpu)))
    rows = rows.sample(min(len(rows), MOST_ROWS), random_state=1).reset_index(drop=True)
    return rows.assign(held_out=_held_out(rows, measured.shape))


def _added(rows: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the time of another table's same shape added."""
    both = rows.merge(other[["m", "k", "latency"]], on=["m", "k"], suffixes=("", "_beside"))
    return both.assign(time_us=both["time_us"] + both["latency_beside"] * 1e3)


def _longer_than_the_host(rows: pd.DataFrame, at_peak: work.Work) -> pd.DataFrame:
    """Return rows whose work takes the GPU, at its peak, as long as the host took for the third with least of it.

    Chosen by work, not by time, so that a row is not in for being slow. Each kernel's launch has its own host time.
    """
    least = rows.assign(at_peak=np.maximum(at_peak["products"], at_peak["weights"]))
    kept = []
    for _, kernel in least.groupby("kernel_source"):
        small = kernel["at_peak"] <= kernel["at_peak"].quantile(LEAST_WORK)
        kept.append(kernel[kernel["at_peak"] >= kernel.loc[small, "time_us"].median()])
    return pd.concat(kept).drop(columns="at_peak")


LEAST_WORK = 0.3
"""The share of a kernel's rows that say what the host takes."""
RESOLUTION_MS = 0.0004
"""Differences of two kernels that are shorter say nothing."""


def _held_out(rows: pd.DataFrame, shape: tuple[str, ...]) -> NDArray[np.bool_]:
    return np.asarray(_drawn(rows, shape, byte=0) == 0)


def _drawn(rows: pd.DataFrame, shape: tuple[str, ...], *, byte: int) -> NDArray[np.int64]:
    """Return the part of the shapes, of HELD_OUT, that each row's is in, by a byte of its hash."""
    keys = rows[list(shape)].astype(str).agg("|".join, axis=1)
    drawn = {key: hashlib.sha256(key.encode()).digest()[byte] % HELD_OUT for key in keys.unique()}
    return np.asarray(keys.map(drawn), np.int64)


def fitted(data: Path, name: str) -> Form:
    """Return an operator's form with the constants that its rows of H100 and B200 have, held-out shapes aside."""
    sides = []
    for gpu in FITTED:
        rows = read_rows(data, name, gpu)
        sides.append((gpu, rows[~rows["held_out"]].reset_index(drop=True)))
    return fit(name, sides)


def fit(name: str, sides: Sequence[tuple[str, pd.DataFrame]]) -> Form:
    """Return an operator's form with the constants that rows of GPUs have: least squares of logarithms, soft."""
    measured = OPERATORS[name]
    known = [
        (find_gpu(gpu), measured.work(rows, find_gpu(gpu)), rows["time_us"].to_numpy()) for gpu, rows in sides
    ]
    keys = ["launch_us", "p", *known[0][1], *(["host_us"] if measured.host else [])]
    start = [START[key] for key in (*keys, *measured.blackwell)]
    bounds = [(1.0, 8.0) if key == "p" else (1e-9, 1e5) for key in (*keys, *measured.blackwell)]

    def off(logs: Floats) -> Floats:
        form = _with(keys, measured.blackwell, np.exp(logs))
        return np.concatenate(
            [
                30 * np.log(form.on(gpu).time_us(work) / us) / np.sqrt(max(len(us), 1))
                for gpu, work, us in known
            ]
        )

    low, high = np.log(np.array(bounds)).T
    found = least_squares(off, np.log(start), loss="soft_l1", f_scale=0.1, max_nfev=100, bounds=(low, high))
    shortened = [float(f"{value:.3g}") if value > 1e-4 else 0.0 for value in np.exp(found.x)]
    return replace(_with(keys, measured.blackwell, np.array(shortened)), name=name)


def _with(keys: Sequence[str], blackwell: Sequence[str], values: Floats) -> Form:
    """Return the form with constants, those of Blackwell behind the others."""
    usual, other = values[: len(keys)].tolist(), values[len(keys) :].tolist()
    return replace(
        BLANK, **dict(zip(keys, usual, strict=True)), blackwell=dict(zip(blackwell, other, strict=True))
    )


def cross_validated(data: Path, name: str) -> dict[str, Floats]:
    """Return by GPU the errors of each quarter of the shapes that are not held out, by constants of the others."""
    measured, found = OPERATORS[name], {gpu: [] for gpu in FITTED}
    sides = {}
    for gpu in FITTED:
        rows = read_rows(data, name, gpu)
        rows = rows[~rows["held_out"]].reset_index(drop=True)
        sides[gpu] = rows, _drawn(rows, measured.shape, byte=1)
    for number in range(HELD_OUT):
        form = fit(name, [(gpu, rows[drawn != number]) for gpu, (rows, drawn) in sides.items()])
        for gpu, (rows, drawn) in sides.items():
            found[gpu].append(errors_of(form, rows[drawn == number].reset_index(drop=True), name, gpu))
    return {gpu: np.concatenate(parts) for gpu, parts in found.items()}


BLANK = Form(name="", formula="", source="", launch_us=0.0)
START = {
    "launch_us": 8.0,
    "p": 2.0,
    "products": 1.5,
    "weights": 1.2,
    "tensor": 2.0,
    "moved": 1.2,
    "vector": 1.0,
}
START |= {"chunk_us": 1.0, "scan": 2.0, "row_us": 0.003, "wave_us": 1.0, "host_us": 1600.0}


def errors(rows: pd.DataFrame, name: str, gpu: str) -> Floats:
    """Return the absolute relative errors of an operator's form on rows."""
    return errors_of(forms()[name], rows, name, gpu)


def errors_of(form: Form, rows: pd.DataFrame, name: str, gpu: str) -> Floats:
    """Return the same of a form with constants of its own."""
    predicted = form.on(find_gpu(gpu)).time_us(OPERATORS[name].work(rows, find_gpu(gpu)))
    return np.asarray(np.abs(predicted / rows["time_us"].to_numpy() - 1))


def packed_rows() -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield (operator, GPU, its rows that ship): of H100 and B200 shapes that the constants have not seen."""
    shipped = pd.read_parquet(EXTRACT)
    for (name, gpu), rows in shipped.groupby(["operator", "gpu"], sort=False):
        yield str(name), str(gpu), rows.dropna(axis=1, how="all").reset_index(drop=True)


def pack(data: Path) -> None:
    """Draw the rows that ship."""
    parts = []
    for name, measured in OPERATORS.items():
        columns = sorted(set(WORK_COLUMNS) | set(measured.shape))
        for gpu in GPUS:
            rows = read_rows(data, name, gpu)
            rows = rows[rows["held_out"]] if gpu in FITTED else rows
            rows = rows.sample(min(len(rows), ROWS_THAT_SHIP), random_state=2)
            kept = rows[[each for each in columns if each in rows.columns]]
            parts.append(kept.assign(operator=name, gpu=gpu, time_us=rows["time_us"].round(3)))
    table = pd.concat(parts, ignore_index=True)
    numbers = table.select_dtypes("number").columns
    table[numbers] = table[numbers].astype("float32")
    table.to_parquet(EXTRACT, compression="zstd", index=False)


WORK_COLUMNS = (
    *(
        "batch_size",
        "isl",
        "step",
        "seq_len",
        "num_tokens",
        "window_size",
        "m",
        "k",
        "n",
        "hidden_size",
        "model",
    ),
    *("head_v_dim", "head_k_dim", "num_heads", "num_k_heads", "num_v_heads", "moe_dtype", "gemm_dtype"),
    *("distribution", "kernel_source"),
)


def errors_table() -> str:
    """Return the table of the page on latency models, from the rows that ship."""
    lines = [
        "| operator | formula | H100, shapes not seen | B200, shapes not seen | H200, not seen |",
        "|---|---|--:|--:|--:|",
    ]
    found = {(name, gpu): errors(rows, name, gpu) for name, gpu, rows in packed_rows()}
    for name in OPERATORS:
        cells = [
            f"{100 * np.median(found[name, gpu]):.0f} / {100 * np.quantile(found[name, gpu], 0.9):.0f}"
            for gpu in GPUS
        ]
        lines.append(f"| {name} | {forms()[name].formula} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _yaml(form: Form) -> str:
    constants = {
        key: getattr(form, key)
        for key in ("launch_us", "p", *TERMS, "host_us")
        if getattr(form, key) or key == "launch_us"
    }
    told = ", ".join(f"{key}: {value:g}" for key, value in constants.items())
    other = ", ".join(f"{key}: {value:g}" for key, value in form.blackwell.items())
    return told + (f", blackwell: {{{other}}}" if other else "")


def main() -> None:
    """Print the table of errors, or what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--fit", "--cross", "--pack", "--full"):
        parser.add_argument(name, action="store_true")
    options = parser.parse_args()
    data = Path(os.environ.get("VTWIN_DATA", "."))
    if options.fit:
        for name in OPERATORS:
            print(f"{name}: {_yaml(fitted(data, name))}", flush=True)
    elif options.cross:
        for name in OPERATORS:
            for gpu, off in cross_validated(data, name).items():
                print(f"{name}, {gpu}: {np.median(off):.1%}, p90 {np.quantile(off, 0.9):.0%}", flush=True)
    elif options.pack:
        pack(data)
    elif options.full:
        for name in OPERATORS:
            for gpu in GPUS:
                rows = read_rows(data, name, gpu)
                off = errors(rows[rows["held_out"]] if gpu in FITTED else rows, name, gpu)
                print(
                    f"{name}, {gpu}: {np.median(off):.1%}, p90 {np.quantile(off, 0.9):.0%}, {len(off)} rows"
                )
    else:
        print(errors_table())


if __name__ == "__main__":
    main()
