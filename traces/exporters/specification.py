"""A specification that describes a trace: lengths, classes, and arrivals by window; and its errors.

Rows with the same client, tenant, class, model, adapter, prefix group and streaming become a client. Its lengths are
the recorded ones, as quantiles if there are many; its rate is that of each window; its gaps' coefficient of variation
is measured without the changing rate: on a clock that runs at the rate of arrivals. Properties that a specification
cannot express (which prompt had which answer, sharing by hashes) are lost, and a note says so.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import yaml

from traces.errors import TraceError
from traces.metrics import prompt_tokens
from traces.trace import Trace
from traces.trace_summary import summarize_trace
from traces.workload.basics import DEFAULT_SEED
from traces.workload.model import CV_RANGE, SloClass
from traces.workload.recorded.from_trace import workload_of
from traces.workload.recorded.served_lengths import as_sent, lengths_differ
from traces.workload.spec.spec_read import parse_spec
from traces.workload.synthesis import synth

Ints = npt.NDArray[np.int64]

MAX_LENGTHS: Final = 100
"""Different lengths of a client that are written as they are; more become this many quantiles."""

MAX_WINDOWS: Final = 24
REQUESTS_PER_WINDOW: Final = 100
"""With fewer requests in a window its rate is not known well: the standard error of 100 is 10 %."""

MAX_CLIENTS: Final = 1000
LIKE_POISSON: Final = (0.9, 1.1)
"""Coefficients of variation that are written as Poisson's."""

_ALIKE: Final = ("client_id", "tenant_id", "slo_class", "model", "adapter", "prefix_group", "streaming")


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A specification, and by how much a trace drawn from it differs from the original: ``errors`` are fractions."""

    text: str
    errors: dict[str, float]
    notes: tuple[str, ...]


def describe_as_specification(trace: Trace) -> Description:
    """Return the specification of a trace's requests.

    Raises TraceError for a trace of sessions, or of more clients than a specification should name.
    """
    served = workload_of(trace)
    workload = as_sent(served)
    if workload.column("session_id").notna().any() and (workload.column("round_index") > 0).any():
        raise TraceError(
            "session_id: got sessions of several rounds, expected requests alone: a specification has one number "
            "of rounds (--like draws sessions whole)"
        )
    document = _document(workload)
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=110)
    again = synth(parse_spec(text, source="the description"), seed=DEFAULT_SEED)
    errors = _errors(workload, again)
    notes = _losses(workload)
    if (difference := lengths_differ(served)) is not None:
        notes = (f"lengths are those that were asked for; the server had {difference}", *notes)
    said = ", ".join(f"{name} {error:+.1%}" for name, error in errors.items())
    lines = [
        f"# {len(workload):,} requests of a trace, described. Drawn with seed {DEFAULT_SEED} it differs by:",
        f"# {said}",
        *(f"# {note}" for note in notes),
    ]
    return Description(text="\n".join([*lines, text]), errors=errors, notes=notes)


def _document(workload: Trace) -> dict[str, Any]:
    requests = workload.requests.assign(**{name: workload.column(name) for name in _ALIKE})
    keys = requests[list(_ALIKE)].astype(object).fillna("")
    codes, alike = pd.factorize(pd.MultiIndex.from_frame(keys))
    closed = workload.header.closed_loop
    if closed is not None:
        codes, alike = np.zeros(len(requests), dtype=np.int64), alike[:1]
    if len(alike) > MAX_CLIENTS:
        raise TraceError(f"client_id: got {len(alike):,} kinds of requests, expected at most {MAX_CLIENTS}")
    document: dict[str, Any] = {"version": "2", "seed": DEFAULT_SEED}
    edges = np.zeros(0, dtype=np.int64)
    if closed is None:
        edges = _edges(workload)
        document |= {"aggregate_rate": 0, "horizon": int(edges[-1])}
    else:
        document |= {"num_requests": len(workload)}
    targets = workload.header.goodput_slo_targets
    if targets:
        document["goodput_slo_targets"] = {
            name: {
                key: getattr(it, key)
                for key in ("ttft_ms", "itl_ms", "e2e_ms")
                if getattr(it, key) is not None
            }
            for name, it in targets.items()
        }
    clients = []
    for code, name in enumerate(_names([str(kind[0]) for kind in alike])):
        rows = requests[codes == code]
        client = _who(rows, name=name) | _lengths(rows)
        if closed is not None:
            client |= {"concurrency": closed.concurrency, "think_time_us": closed.think_time_us}
        else:
            client |= _arrivals(rows["arrival_time_us"].to_numpy(dtype=np.int64), edges)
        clients.append(client)
    return document | {"clients": clients}


def _edges(workload: Trace) -> Ints:
    """Return the windows' edges in µs, all of one length, the last at the last arrival."""
    last = max(int(workload.column("arrival_time_us").max()), 1)
    number = int(np.clip(len(workload) // REQUESTS_PER_WINDOW, 1, MAX_WINDOWS))
    return np.unique(np.rint(np.linspace(0, last, number + 1)).astype(np.int64))


def _names(clients: list[str]) -> list[str]:
    """Return the names, numbered if two are equal or one is empty."""
    return [
        name if name and clients.count(name) == 1 else f"{name or 'client'}-{number}"
        for number, name in enumerate(clients)
    ]


def _who(rows: pd.DataFrame, *, name: str) -> dict[str, Any]:
    """Return a client's id, tenant, class, model, adapter, prefix group and limits, without empty keys."""
    first = rows.iloc[0]
    client: dict[str, Any] = {"id": name}
    for column in ("tenant_id", "slo_class", "model", "adapter", "prefix_group"):
        if pd.notna(first[column]):
            client[column] = str(first[column])
    if client.get("slo_class") not in (None, *SloClass.__args__):  # type: ignore[attr-defined] # a Literal has them
        del client["slo_class"]
    if "prefix_group" in client:
        client["prefix_length"] = int(rows["prefix_length"].mode().iloc[0])
    if pd.notna(first["streaming"]):
        client["streaming"] = bool(first["streaming"])
    return client | _limits(rows)


def _limits(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the usual timeout and target of the requests, where most have one."""
    limits = {}
    if (
        "deadline_us" in rows.columns
        and (allowed := (rows["deadline_us"] - rows["arrival_time_us"]).dropna()).size
    ):
        limits["timeout"] = int(allowed.median())
    if "slo_target_us" in rows.columns and (target := rows["slo_target_us"].dropna()).size:
        limits["slo_target_us"] = int(target.median())
    return limits


def _lengths(rows: pd.DataFrame) -> dict[str, Any]:
    return {
        "input_distribution": _distribution(rows["input_tokens"].to_numpy(dtype=np.int64)),
        "output_distribution": _distribution(rows["output_tokens"].to_numpy(dtype=np.int64)),
    }


def _distribution(tokens: Ints) -> dict[str, Any]:
    """Return the lengths as a constant, as counts of each length, or as the means of equal parts of them."""
    tokens = np.maximum(tokens, 1)
    values, counts = np.unique(tokens, return_counts=True)
    if values.size == 1:
        return {"type": "constant", "params": {"value": int(values[0])}}
    if values.size > MAX_LENGTHS:
        parts = np.array_split(np.sort(tokens), MAX_LENGTHS)
        means = np.rint([part.mean() for part in parts]).astype(np.int64)
        values, place = np.unique(means, return_inverse=True)
        counts = np.bincount(place, weights=[part.size for part in parts]).astype(np.int64)
    pairs = zip(values.tolist(), counts.tolist(), strict=True)
    return {"type": "empirical", "params": {int(value): int(count) for value, count in pairs}}


def _arrivals(due: Ints, edges: Ints) -> dict[str, Any]:
    """Return the gaps' family and the rate of each window."""
    counts = np.histogram(np.minimum(due, edges[-1]), bins=edges)[0]
    rates = counts / np.diff(edges) * 1e6
    windows = [
        {"start_us": int(start), "end_us": int(end), "trace_rate": float(f"{rate:.6g}")}
        for start, end, rate in zip(edges[:-1], edges[1:], rates, strict=True)
    ]
    return {"arrival": _family(_cv(np.sort(due), edges, counts)), "lifecycle": {"windows": windows}}


def _cv(due: Ints, edges: Ints, counts: Ints) -> float:
    """Return the gaps' coefficient of variation on the clock of expected arrivals; 1 where it cannot be told."""
    expected = np.interp(due, edges, np.concatenate([[0], np.cumsum(counts)]))
    gaps = np.diff(expected)
    return float(gaps.std() / gaps.mean()) if gaps.size >= 2 and gaps.mean() > 0 else 1.0


def _family(cv: float) -> dict[str, Any]:
    low, high = CV_RANGE
    if cv < low:
        return {"process": "constant"}
    if LIKE_POISSON[0] <= cv <= LIKE_POISSON[1]:
        return {"process": "poisson"}
    return {"process": "gamma", "cv": float(f"{min(cv, high):.4g}")}


# ── its errors


def _errors(trace: Trace, again: Trace) -> dict[str, float]:
    """Return by how much figures of the drawn trace differ from the original's, as fractions of the latter."""
    before, after = _figures(trace), _figures(again)
    return {name: after[name] / value - 1 for name, value in before.items() if value and name in after}


def _figures(trace: Trace) -> dict[str, float]:
    prompts = prompt_tokens(trace)
    outputs = trace.column("output_tokens").to_numpy(dtype=np.int64)
    figures = {"requests": float(len(trace))}
    for name, lengths in (("prompt", prompts), ("output", outputs)):
        figures |= {f"{name} mean": float(lengths.mean()), f"{name} p99": float(np.quantile(lengths, 0.99))}
    cv = summarize_trace(trace).gap_cv
    return figures if cv is None else figures | {"CV of the gaps": cv}


def _losses(trace: Trace) -> tuple[str, ...]:
    """Return what the description leaves out, a line each."""
    notes = []
    prompts, outputs = prompt_tokens(trace), trace.column("output_tokens").to_numpy(dtype=np.int64)
    if len(trace) > 2 and prompts.std() > 0 and outputs.std() > 0:
        together = float(np.corrcoef(prompts, outputs)[0, 1])
        notes.append(f"prompts and outputs are drawn apart: their correlation of {together:.2f} is lost")
    if trace.column("prefix_hashes").notna().any():
        ceiling = summarize_trace(trace).prefix_hit_ceiling_frac or 0.0
        notes.append(f"block hashes are lost: {ceiling:.1%} of prompt tokens could be found in a cache")
    told = trace.column("slo_class").dropna().unique()
    strange = [name for name in told if name not in SloClass.__args__]  # type: ignore[attr-defined]
    if strange:
        notes.append(f"slo_class {', '.join(map(str, strange))}: no class of a specification, left out")
    if trace.header.closed_loop is not None and len(told) > 1:
        notes.append("a closed loop has one client: classes and tenants after the first are lost")
    return tuple(notes)
