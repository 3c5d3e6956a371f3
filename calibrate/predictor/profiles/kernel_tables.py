"""Operator tables of measured vLLM kernels, as ai-dynamo/aiconfigurator collects them (Parquet, latency in ms).

They hold kernels by their dimensions, not models: the ones that a model's layers are made of are picked here, and
where a matrix product of its very shape was not measured, it is put together from the shapes around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.predictor.components import WINDOWED
from calibrate.predictor.measured import (
    Complaint,
    MissingRows,
    OperatorTable,
    ProfileError,
    ProfileQuery,
    nearest_name,
    nearest_row,
    operator_table,
    shown,
)
from calibrate.predictor.profiles.latent_modules import MODULES, latent_decode, latent_prefill
from calibrate.predictor.profiles.matmuls import matmul_table, undisturbed
from calibrate.predictor.profiles.other_heads_windows import windowed_decodes, windowed_prompts
from calibrate.predictor.profiles.profile_cells import sound_cells
from calibrate.predictor.profiles.state_profiles import state_tables
from replay.model.matmuls import (
    How,
    LayerKind,
    Matmul,
    kinds_of_layers,
    mixed,
    needed_matmuls,
    table_precisions,
)
from traces import cut

US_PER_MS = 1000.0
BYTES_PER_ELEMENT = 2
"""All-reduce tables count elements of bfloat16."""

_OF_A_MODULE = ("batch_size", "isl", "step", "num_heads", "kv_cache_dtype", "gemm_type")
_OF_STATES = (
    *("phase", "batch_size", "seq_len", "num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim", "d_conv"),
    "kernel_source",
)
NEEDED: Mapping[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k", "gemm_dtype"),
    "context_attention": (
        "batch_size",
        "isl",
        "num_heads",
        "num_key_value_heads",
        "head_dim",
        "kv_cache_dtype",
    ),
    "generation_attention": (
        "batch_size",
        "isl",
        "step",
        "num_heads",
        "num_key_value_heads",
        "head_dim",
        "kv_cache_dtype",
    ),
    **{
        f"{prefix}_{phase}_module": (*_OF_A_MODULE, *(("model",) if modules[0].model else ()))
        for prefix, modules in MODULES.items()
        for phase in ("context", "generation")
    },
    "gdn": _OF_STATES,
    "kda": _OF_STATES,
    "pre": ("num_tokens", "hc_mult", "hidden_size"),
    "post": ("num_tokens", "hc_mult", "hidden_size"),
    "moe": (
        "num_tokens",
        "hidden_size",
        "inter_size",
        "topk",
        "num_experts",
        "moe_tp_size",
        "moe_ep_size",
        "moe_dtype",
        "distribution",
    ),
    "all_reduce": ("num_gpus", "message_size"),
}
"""Columns of each kind of table, `op_name` and `latency` besides; the first of `op_name` says which it is."""
OPTIONAL = ("window_size", "kernel_source")
"""Columns that are read where a table has them."""

DISTRIBUTIONS = ("power_law_1.01", "power_law_1.2", "balanced")
"""How unevenly tokens go to experts, the one that is taken first first: real routers are not balanced."""


def read_kernels(path: Path, wanted: ProfileQuery) -> tuple[list[OperatorTable], list[Complaint]]:
    """Return the operators that one Parquet table has for the model wanted, and why it lacks others of its kind.

    Nothing where it is no such table. Raises ProfileError, one line, on a table without a needed column.
    """
    table = _checked(path)
    if table is None:
        return [], []
    name = str(table["op_name"].iloc[0])
    found: list[OperatorTable] = []
    complaints: list[Complaint] = []
    for kind, operator, read in _readers(name, table, path, wanted):
        try:
            found += [
                replace(each, operator=_named(each.operator, kind)) if kind else each for each in read()
            ]
        except MissingRows as error:
            complaints.append(Complaint(kind=kind, text=str(error), operator=operator))
    return found, complaints


def _named(operator: str, kind: LayerKind) -> str:
    """Return an operator's name among those of all kinds of layers."""
    if operator.endswith(WINDOWED):
        return kind.operator(operator.removesuffix(WINDOWED)) + WINDOWED
    return kind.operator(operator)


def _checked(path: Path) -> pd.DataFrame | None:
    """Return a table with its times in µs, None where it is none of operators."""
    try:
        table = pd.read_parquet(path)
    except Exception as error:  # damaged bytes raise whatever the library comes upon
        raise ProfileError(f"{path}: not a Parquet table that can be read ({cut(str(error))})") from error
    if list(table.columns).count("op_name") != 1 or table.empty:
        return None
    name = str(table["op_name"].iloc[0])
    if name not in NEEDED:
        return None
    also = [column for column in OPTIONAL if column in table.columns]
    table = sound_cells(table, path, needed=("op_name", *NEEDED[name], "latency", *also), times=("latency",))
    if not (table["latency"] > 0).all():
        row = int(np.flatnonzero(~(table["latency"] > 0))[0])
        raise ProfileError(
            f"{path}: column 'latency': got {table['latency'].iloc[row]}, expected ms > 0 (row {row + 1})"
        )
    return table.assign(time_us=table["latency"] * US_PER_MS)


_Read = Callable[[], list[OperatorTable]]


def _readers(
    name: str, table: pd.DataFrame, path: Path, wanted: ProfileQuery
) -> Iterator[tuple[LayerKind | None, str | None, _Read]]:
    """Yield what reads operators of the model, or of one kind of its layers, and which it is where it is one."""
    if name == "gemm":
        for product in needed_matmuls(wanted.shape, tp=wanted.tp, are_modules_measured=True):
            yield None, product.operator, partial(_product, product, table, path)
    elif name in _OF_MODEL:
        yield None, name, partial(_OF_MODEL[name], table, path, wanted)
    else:
        how, read = _OF_LAYERS[name]
        for kind in kinds_of_layers(wanted.shape):
            if kind.how == how:
                yield kind, None, partial(read, table, path, replace(wanted, shape=kind.shape))


def _product(product: Matmul, table: pd.DataFrame, path: Path) -> list[OperatorTable]:
    return [matmul_table(product, table, path)]


def _heads(wanted: ProfileQuery) -> dict[str, float]:
    attention = wanted.shape.attention
    return {
        "num_heads": max(1, attention.num_heads // wanted.tp),
        "num_key_value_heads": max(1, attention.num_kv_heads // wanted.tp),
        "head_dim": attention.head_dim,
    }


def _attention_rows(
    table: pd.DataFrame, path: Path, wanted: ProfileQuery, *, window: int = 0
) -> tuple[pd.DataFrame, float, tuple[str, ...]]:
    """Return the rows of a model's heads, by how much they must be widened, and what to say of it.

    ``window``: those of attention within so many keys; 0: of all.

    Heads are independent of each other: where a table has half as many heads and KV heads, twice the batch is the
    same work. Where it has no such row either, the nearest number of query heads per KV head stands in.
    """
    if "window_size" in table.columns:
        table = table[table["window_size"] == window]
    table = table[table["kv_cache_dtype"] == _kv_dtype(wanted)]
    heads = _heads(wanted)
    if table.empty:
        raise MissingRows(f"{path}: column 'kv_cache_dtype': no rows of {_kv_dtype(wanted)!r}")
    for divisor in (1, 2, 4, 8, 16, 32):
        part = {name: value / (1 if name == "head_dim" else divisor) for name, value in heads.items()}
        rows = table[(table[list(part)].astype(float) == pd.Series(part)).all(axis=1)]
        if not rows.empty:
            note = f"{path.name}: {shown(part)} at {divisor} times the batch for {shown(heads)}"
            return rows, float(divisor), (note,) if divisor > 1 else ()
    same = table[
        (table["num_key_value_heads"] == heads["num_key_value_heads"])
        & (table["head_dim"] == heads["head_dim"])
    ]
    if not same.empty:
        return _between_heads(same, path, heads)
    near = nearest_row(heads, table[list(heads)].drop_duplicates().to_numpy(float))
    off = {name: value for name, value in heads.items() if near[name] != value}
    raise MissingRows(f"{path}: no rows of {shown(off)} (nearest: {shown({n: near[n] for n in off})})")


def _between_heads(
    same: pd.DataFrame, path: Path, heads: dict[str, float]
) -> tuple[pd.DataFrame, float, tuple[str, ...]]:
    """Return rows for a number of query heads between two measured ones, linear in it."""
    have = np.sort(same["num_heads"].unique())
    low, high = have[have < heads["num_heads"]], have[have > heads["num_heads"]]
    axes = [c for c in ("batch_size", "isl", "step") if c in same.columns]
    if not len(low) or not len(high):
        near = float(high[0] if len(high) else low[-1])
        raise MissingRows(
            f"{path}: no rows of num_heads={heads['num_heads']:g} (nearest: num_heads={near:g})"
        )
    below, above = (
        same[same["num_heads"] == each].groupby(axes)["time_us"].median() for each in (low[-1], high[0])
    )
    share = (heads["num_heads"] - low[-1]) / (high[0] - low[-1])
    mixed = (below * (1 - share) + above * share).dropna().rename("time_us").reset_index()
    note = f"{path.name}: num_heads={heads['num_heads']:g} between {low[-1]} and {high[0]}"
    return mixed, 1.0, (note,)


def _kv_dtype(wanted: ProfileQuery) -> str:
    return "fp8" if wanted.shape.kv_dtype_bytes == 1 else "bfloat16"


def _prefill(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    """Return prefill attention by the keys that a query sees on average, (isl + 1) / 2, and the tokens of the step.

    Of layers with a window by the keys that it would see without.
    """

    def made(operator: str, found: _Rows) -> OperatorTable:
        rows, divisor, notes = found
        rows = rows[rows["batch_size"] % divisor == 0]
        features = {
            "keys": (rows["isl"] + 1) / 2,
            "tokens": rows["batch_size"] / divisor * rows["isl"],
        }
        return operator_table(operator, features, rows["time_us"], source=str(path), notes=notes)

    return _full_and_windowed("attn_prefill", made, table, path, wanted)


def _decode(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    """Return decode attention by sequences and the KV entries of each, those outside a window included."""

    def made(operator: str, found: _Rows) -> OperatorTable:
        rows, divisor, notes = found
        rows = rows[rows["batch_size"] % divisor == 0]
        features = {"batch": rows["batch_size"] / divisor, "keys": rows["step"] + rows["isl"]}
        return operator_table(operator, features, rows["time_us"], source=str(path), notes=notes)

    return _full_and_windowed("attn_decode", made, table, path, wanted)


_Rows = tuple[pd.DataFrame, float, tuple[str, ...]]
"""Rows, by how much they must be widened, and what to say of them."""


def _full_and_windowed(
    operator: str,
    made: Callable[[str, _Rows], OperatorTable],
    table: pd.DataFrame,
    path: Path,
    wanted: ProfileQuery,
) -> list[OperatorTable]:
    """Return attention to all keys, and within the model's window where that was measured.

    Where it was measured with other heads alone, it is put together; where it was not at all, it is left out.
    """
    full = _attention_rows(table, path, wanted)
    tables = [made(operator, full)]
    if wanted.shape.num_windowed_layers and "window_size" in table.columns:
        try:
            within: _Rows | None = _attention_rows(table, path, wanted, window=wanted.shape.window)
        except MissingRows:
            within = _put_together(operator, full, table, path, wanted)
        if within is not None:
            tables.append(made(operator + WINDOWED, within))
    return tables


def _put_together(
    operator: str, full: _Rows, table: pd.DataFrame, path: Path, wanted: ProfileQuery
) -> _Rows | None:
    """Return rows within the window, by what it takes other heads of the same width; None: nobody measured it."""
    rows, divisor, notes = full
    heads, window = _heads(wanted), wanted.shape.window
    others = table[(table["kv_cache_dtype"] == _kv_dtype(wanted)) & (table["head_dim"] == heads["head_dim"])]
    if operator == "attn_decode":
        within = windowed_decodes(
            rows, others, kv_heads=heads["num_key_value_heads"] / divisor, window=window
        )
    else:
        within = windowed_prompts(rows, others, heads=heads["num_heads"] / divisor, window=window)
    if within is None:
        return None
    note = f"{path.name}: a window of {window} as with other heads of {heads['head_dim']:g}"
    return within, divisor, (*notes, note)


def _experts(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    shape, experts = wanted.shape, wanted.shape.experts
    if experts is None:
        return []
    sizes: dict[str, float] = {
        "hidden_size": experts.hidden_size or shape.hidden_size,
        "inter_size": experts.intermediate_size,
        "topk": experts.num_per_token,
        "num_experts": experts.num_experts,
        "moe_tp_size": wanted.tp // wanted.expert_ranks,
        "moe_ep_size": wanted.expert_ranks,
    }
    curves, notes = [], []
    for precision, share in shape.precisions_of("moe", shape.expert_precision):
        names = table_precisions(precision, of_experts=True)
        rows, dtype = _experts_in(table, path, names, sizes)
        have = set(rows["distribution"])
        distribution = next((d for d in DISTRIBUTIONS if d in have), sorted(have)[0])
        fastest = rows[rows["distribution"] == distribution].groupby("num_tokens")["time_us"].min()
        curves.append(((fastest.index.to_numpy(float), fastest.to_numpy(float)), share))
        said = dtype if dtype == names[0] else f"{names[0]} as {dtype}"
        notes.append(f"{path.name}: experts in {said}, tokens to them as {distribution}")
    tokens, times = mixed(curves)
    return [operator_table("moe", {"tokens": tokens}, times, source=str(path), notes=tuple(notes))]


def _experts_in(
    table: pd.DataFrame, path: Path, names: tuple[str, ...], sizes: dict[str, float]
) -> tuple[pd.DataFrame, str]:
    """Return the rows of experts of these sizes in the first of several precisions that has them, and which it is."""
    have = {str(each) for each in table["moe_dtype"]}
    known = [name for name in names if name in have]
    if not known:
        near_name = nearest_name(names[0], have)
        raise MissingRows(f"{path}: column 'moe_dtype': no rows of {names[0]!r} (nearest: {near_name!r})")
    is_size = (table[list(sizes)].astype(float) == pd.Series(sizes)).all(axis=1)
    for name in known:
        rows = table[is_size & (table["moe_dtype"] == name)]
        if not rows.empty:
            return rows, name
    measured = table[table["moe_dtype"] == known[0]][list(sizes)].drop_duplicates().to_numpy(float)
    near = nearest_row(sizes, measured)
    off = {name: value for name, value in sizes.items() if near[name] != value}
    raise MissingRows(
        f"{path}: no rows of {shown(off)} in {known[0]} (nearest: {shown({n: near[n] for n in off})})"
    )


def _connections(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    """Return what mixes several hidden states before and behind both parts of a layer, as it was measured together."""
    shape = wanted.shape
    if shape.residual_streams < 2:
        return []
    sizes = {"hc_mult": shape.residual_streams, "hidden_size": shape.hidden_size}
    rows = table[(table[list(sizes)] == pd.Series(sizes)).all(axis=1)]
    if rows.empty:
        raise MissingRows(f"{path}: no rows of {shown({k: float(v) for k, v in sizes.items()})}")
    return [
        operator_table(
            f"connections_{name}", {"tokens": part["num_tokens"]}, part["time_us"], source=str(path)
        )
        for name, part in rows.groupby("op_name", sort=True)
    ]


def _all_reduce(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    if wanted.tp == 1:
        return []
    rows = table[table["num_gpus"] == wanted.tp]
    if rows.empty:
        near = min({int(n) for n in table["num_gpus"]}, key=lambda n: abs(n - wanted.tp))
        raise MissingRows(f"{path}: column 'num_gpus': no rows of {wanted.tp} (nearest: {near})")
    if "kernel_source" in rows.columns and rows["kernel_source"].str.contains("graph").any():
        rows = rows[rows["kernel_source"].str.contains("graph")]  # vLLM's decode steps run in CUDA graphs
    fastest = rows.groupby("message_size")["time_us"].min().reset_index()
    elements, times = undisturbed(*fastest.to_numpy(np.float64).T)
    sizes = {"bytes": elements * BYTES_PER_ELEMENT}
    return [operator_table(name, sizes, times, source=str(path)) for name in wanted.all_reduces]


_OF_MODEL: Mapping[str, Callable[[pd.DataFrame, Path, ProfileQuery], list[OperatorTable]]] = {
    "moe": _experts,
    "all_reduce": _all_reduce,
    "pre": _connections,
    "post": _connections,
}
_OF_LAYERS: Mapping[str, tuple[How, Callable[[pd.DataFrame, Path, ProfileQuery], list[OperatorTable]]]] = {
    "context_attention": ("heads", _prefill),
    "generation_attention": ("heads", _decode),
    "gdn": ("state", state_tables),
    "kda": ("state", state_tables),
    **{f"{prefix}_context_module": ("module", latent_prefill) for prefix in MODULES},
    **{f"{prefix}_generation_module": ("module", latent_decode) for prefix in MODULES},
}
"""What reads the operators of the model, or of its layers of a kind; by a table's ``op_name``."""
