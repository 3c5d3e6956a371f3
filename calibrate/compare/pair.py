"""Two traces of the same requests, side by side, and why each request that is missing is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.compare.gaps import Gaps, gaps_of, one_basis
from traces import TraceError
from traces.strict.arguments import TRACE, OneOf, takes

if TYPE_CHECKING:
    from traces import Trace

PairBy = Literal["request_id", "order"]
LATENCIES = ("ttft_us", "ttft_from_due_us", "itl_mean_us", "tpot_us", "e2e_us", "queue_us")
"""The latencies of one request, columns of ``Pairs.observed`` and ``Pairs.simulated``."""
PHASES = ("client_phase_us", "queue_phase_us", "prefill_phase_us", "decode_phase_us")
"""The parts of a request's E2E, further columns of both; NaN if a side does not have them (``phases_of``)."""
KINDS = ("slo_class", "model", "tenant_id")
"""A request's own labels, columns of ``Pairs.requests``; None where it has none."""

OBSERVED_REASONS = {"error": "failed"}
"""Statuses that are named differently among the exclusions; the others have the same name."""
SIMULATED_REASONS = {
    "incomplete": "not_finished_in_simulation",
    "rejected": "rejected_in_simulation",
    "stuck": "stuck_in_simulation",
    "timeout": "timeout_in_simulation",
    "aborted": "aborted_in_simulation",
    "cancelled": "cancelled_in_simulation",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One trace in the form for pairing: ``table`` has a row per request, ``gaps`` count those rows.

    Columns: request_id, arrival_us, prompt_tokens, output_tokens, status, warmup and ``LATENCIES``; where known
    cached_tokens, num_preemptions, ``PHASES`` and ``KINDS``. Missing is NaN (times in µs, float64), None in text.
    ``again``: of a twin, the rows' ``LATENCIES`` in further runs [runs, rows, 6], µs (``calibrate.run_to_run``).
    """

    table: pd.DataFrame
    gaps: Gaps
    again: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Pairs:
    """n requests that both traces finished, in the order the observed ones arrived.

    ``requests``: trace (its number), row (in the observed trace), request_id, arrival_us and
    simulated_arrival_us (each from its trace's start), prompt_tokens, output_tokens,
    simulated_output_tokens, in_flight (others in the observed server at arrival), token_mismatch, ``KINDS``,
    ttft_too_long_us (by how much a late client's may be, at most), and of both sides cached_tokens and
    num_preemptions, NaN where not known.
    ``observed``, ``simulated``: ``LATENCIES`` and ``PHASES`` of both sides, row for row; gaps count the same rows.
    ``excluded``: requests left out, by reason. ``num_token_mismatch``: pairs that were kept although the
    two sides disagree on their token counts. ``again`` [runs, n, 6]: the simulated ``LATENCIES`` in further runs of the
    twin, where one was simulated.
    """

    requests: pd.DataFrame
    observed: pd.DataFrame
    simulated: pd.DataFrame
    observed_gaps: Gaps
    simulated_gaps: Gaps
    excluded: dict[str, int]
    num_token_mismatch: int
    again: NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        """Return the number of pairs, and of the requests left out, in a line."""
        return f"<Pairs: {len(self):,} requests, {sum(self.excluded.values()):,} left out>"

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.requests)


def side_of(trace: Trace) -> Side:
    """Return a trace's requests with their latencies, as ``traces`` defines them."""
    from traces import early_us, is_warmup, prompt_tokens, request_metrics, send_or_arrival_us

    metrics = request_metrics(trace).reset_index(drop=True)
    table = pd.DataFrame(
        {
            "request_id": trace.requests["request_id"].astype(str).to_numpy(),
            "arrival_us": np.asarray(send_or_arrival_us(trace), dtype=np.float64),
            "prompt_tokens": _floats(prompt_tokens(trace)),
            "output_tokens": _floats(trace.column("output_tokens")),
            "status": trace.column("status").astype(object).to_numpy(),
            "warmup": is_warmup(trace),
            "cached_tokens": _floats(
                trace.column("cached_input_tokens").fillna(trace.column("num_cached_tokens"))
            ),
            "num_preemptions": _floats(trace.column("num_preemptions")),
            "ttft_too_long_us": early_us(trace),
        }
    )
    for name in LATENCIES:
        table[name] = metrics[name].to_numpy(dtype=np.float64)
    for name, values in phases_of(trace).items():
        table[name] = values
    for name in KINDS:
        known = trace.column(name)
        table[name] = known.astype(object).where(known.notna(), None).to_numpy()
    return Side(table=table, gaps=gaps_of(trace))


def phases_of(trace: Trace) -> dict[str, NDArray[np.float64]]:
    """Return ``PHASES`` of each request as the server reported them; NaN unless queue, prefill and decode are known.

    The first phase is the rest of E2E: the client, the network, and the way into the engine's queue.
    """
    from traces import request_metrics

    queue, prefill, decode = (
        _floats(trace.column(f"server_{name}_us")) for name in ("queue", "prefill", "decode")
    )
    e2e = request_metrics(trace)["e2e_us"].to_numpy(dtype=np.float64)
    client = e2e - (queue + prefill + decode)
    known = np.isfinite(client)
    values = (client, queue, prefill, decode)
    return {name: np.where(known, value, np.nan) for name, value in zip(PHASES, values, strict=True)}


@takes(observed=TRACE, simulated=TRACE, by=OneOf(("request_id", "order")))
def pair(observed: Trace, simulated: Trace, *, by: PairBy = "request_id") -> Pairs:
    """Return the pairs of the two traces; Raises TraceError if there are none, ConfigError."""
    return pair_sides(side_of(observed), side_of(simulated), by=by)


def pair_sides(observed: Side, simulated: Side, *, by: PairBy = "request_id") -> Pairs:
    """Return the requests that both sides finished, every other one counted by its reason."""
    left, right = _keyed(observed.table, by=by), _keyed(simulated.table, by=by)
    partner = right.get_indexer(left)
    reasons = _reasons(observed.table, simulated.table, partner=partner)
    excluded = Counter(str(reason) for reason in reasons if reason)
    unmatched = int(np.count_nonzero(left.get_indexer(right) < 0))
    if unmatched:
        excluded["unmatched_simulated"] = unmatched
    kept = np.flatnonzero(reasons == "")
    if len(kept) == 0:
        raise TraceError(_nothing_in_common(excluded, by=by))
    kept = kept[np.argsort(observed.table["arrival_us"].to_numpy()[kept], kind="stable")]
    return _assemble(observed, simulated, rows=(kept, partner[kept]), excluded=dict(sorted(excluded.items())))


def concat(parts: Sequence[Pairs]) -> Pairs:
    """Return the pairs of several traces as one, trace after trace; ``requests.trace`` numbers them."""
    excluded: Counter[str] = Counter()
    offsets = np.cumsum([0, *(len(part) for part in parts)])
    for part in parts:
        excluded.update(part.excluded)
    requests = [part.requests.assign(trace=number) for number, part in enumerate(parts)]
    gaps = [one_basis(part.observed_gaps, part.simulated_gaps) for part in parts]
    return Pairs(
        requests=pd.concat(requests, ignore_index=True),
        observed=pd.concat([part.observed for part in parts], ignore_index=True),
        simulated=pd.concat([part.simulated for part in parts], ignore_index=True),
        observed_gaps=Gaps.join([pair[0] for pair in gaps], offsets=offsets),
        simulated_gaps=Gaps.join([pair[1] for pair in gaps], offsets=offsets),
        excluded=dict(sorted(excluded.items())),
        num_token_mismatch=sum(part.num_token_mismatch for part in parts),
        again=_again_of([part.again for part in parts]),
    )


def _again_of(parts: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
    """Return the parts' further runs side by side, as many as the least has; None unless all have some."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    least = min(len(part) for part in known)
    return np.concatenate([_spread_over(part, least) for part in known], axis=1)


def _spread_over(runs: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """Return this many of the runs, evenly."""
    return runs[np.linspace(0, len(runs) - 1, number).round().astype(np.int64)]


def take(pairs: Pairs, chosen: NDArray[np.bool_]) -> Pairs:
    """Return the chosen pairs; earlier exclusions stay counted."""
    return replace(
        pairs,
        requests=pairs.requests[chosen].reset_index(drop=True),
        observed=pairs.observed[chosen].reset_index(drop=True),
        simulated=pairs.simulated[chosen].reset_index(drop=True),
        observed_gaps=pairs.observed_gaps.take(np.flatnonzero(chosen), num_requests=len(pairs)),
        simulated_gaps=pairs.simulated_gaps.take(np.flatnonzero(chosen), num_requests=len(pairs)),
        num_token_mismatch=int(np.count_nonzero(pairs.requests["token_mismatch"].to_numpy()[chosen])),
        again=None if pairs.again is None else pairs.again[:, chosen],
    )


def in_flight_at_arrival(table: pd.DataFrame) -> NDArray[np.int64]:
    """Return how many other requests were in flight when each arrived, of those that finished.

    Of requests that arrive at the same time, those of earlier rows are there first.
    """
    arrival = table["arrival_us"].to_numpy()
    ended = arrival + table["e2e_us"].to_numpy()
    finished = np.isfinite(ended)
    order = np.argsort(arrival, kind="stable")
    started = np.empty(len(table), np.int64)
    started[order] = np.cumsum(finished[order]) - finished[order]
    gone = np.searchsorted(np.sort(ended[finished]), arrival, side="right")
    return np.asarray(np.maximum(started - gone, 0), dtype=np.int64)


def _keyed(table: pd.DataFrame, *, by: PairBy) -> pd.Index[Any]:
    """Return a row's key for pairing: its request_id, or its rank in order of arrival (ties and gaps by row)."""
    if by == "request_id":
        ids: pd.Index[Any] = pd.Index(table["request_id"].to_numpy())
        return ids
    order = np.argsort(table["arrival_us"].to_numpy(), kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return pd.Index(rank)


def _reasons(
    observed: pd.DataFrame, simulated: pd.DataFrame, *, partner: NDArray[np.intp]
) -> NDArray[np.object_]:
    """Return why each observed row is left out ("" where it is kept); the first reason that holds wins."""
    reasons = np.full(len(observed), "", dtype=object)
    matched = np.flatnonzero(partner >= 0)
    in_simulation = np.full(len(observed), "", dtype=object)
    in_simulation[matched] = _by_status(simulated, SIMULATED_REASONS)[partner[matched]]
    no_latency = ~np.isfinite(observed["e2e_us"].to_numpy())
    no_latency[matched] |= ~np.isfinite(simulated["e2e_us"].to_numpy()[partner[matched]])
    for candidate in (
        np.where(observed["warmup"].to_numpy(), "warmup", ""),
        _by_status(observed, OBSERVED_REASONS),
        np.where(partner < 0, "unmatched_observed", ""),
        in_simulation,
        np.where(no_latency, "no_latency", ""),
    ):
        reasons = np.where(reasons == "", candidate.astype(object), reasons)
    return reasons


def _by_status(table: pd.DataFrame, names: dict[str, str]) -> NDArray[np.object_]:
    """Return the reason that a row's status gives, "" for ok and for a status never recorded."""
    statuses = table["status"].where(table["status"].notna(), "ok")
    reasons = ["" if status == "ok" else names.get(str(status), str(status)) for status in statuses]
    return np.array(reasons, dtype=object)


def _nothing_in_common(excluded: Counter[str], *, by: PairBy) -> str:
    """Return the one line that says why no pair is left."""
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(excluded.items())) or "both are empty"
    hint = "" if by == "order" else "; --pair-by order pairs them by arrival instead"
    return f"traces to compare: got no request that both finished ({counts}), expected at least one{hint}"


def _assemble(
    observed: Side,
    simulated: Side,
    *,
    rows: tuple[NDArray[np.intp], NDArray[np.intp]],
    excluded: dict[str, int],
) -> Pairs:
    """Return the kept rows of both sides, side by side."""
    left = observed.table.iloc[rows[0]].reset_index(drop=True)
    right = simulated.table.iloc[rows[1]].reset_index(drop=True)
    mismatch = np.zeros(len(left), dtype=bool)
    for column in ("prompt_tokens", "output_tokens"):
        difference = left[column].to_numpy() - right[column].to_numpy()
        mismatch |= np.nan_to_num(difference) != 0
    requests = pd.DataFrame(
        {
            "trace": 0,
            "row": rows[0],
            "request_id": left["request_id"],
            "arrival_us": left["arrival_us"],
            "simulated_arrival_us": right["arrival_us"],
            "prompt_tokens": left["prompt_tokens"],
            "output_tokens": left["output_tokens"],
            "simulated_output_tokens": right["output_tokens"],
            "in_flight": in_flight_at_arrival(observed.table)[rows[0]],
            "token_mismatch": mismatch,
            "ttft_too_long_us": left.get("ttft_too_long_us", 0.0),
        }
    )
    for column in KINDS:
        requests[column] = left.get(column)
    for column in ("cached_tokens", "num_preemptions"):
        requests[column], requests[f"simulated_{column}"] = (
            left.get(column, np.nan),
            right.get(column, np.nan),
        )
    return Pairs(
        requests=requests,
        observed=left.reindex(columns=[*LATENCIES, *PHASES]),
        simulated=right.reindex(columns=[*LATENCIES, *PHASES]),
        observed_gaps=observed.gaps.take(rows[0], num_requests=len(observed.table)),
        simulated_gaps=simulated.gaps.take(rows[1], num_requests=len(simulated.table)),
        excluded=excluded,
        num_token_mismatch=int(np.count_nonzero(mismatch)),
        again=None if simulated.again is None else simulated.again[:, rows[1]],
    )


def _floats(values: object) -> NDArray[np.float64]:
    """Return a nullable column as float64, NA as NaN."""
    return pd.Series(values, dtype="Float64").to_numpy(dtype=np.float64, na_value=np.nan)
