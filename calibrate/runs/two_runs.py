"""Two runs compared: the load of each, its results, and how certain a difference is.

Neither is the reference. If both had the same requests, these are redrawn together for the intervals, so that effects
common to a request cancel; else each run is redrawn separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibrate.run_to_run.server_pace import recorded_spreads
from traces import (
    Saturation,
    cut_short_note,
    finding_lines,
    finished_ok,
    mean_rate_per_s,
    prompt_tokens,
    reading_notes,
    request_metrics,
    saturation_of,
    send_or_arrival_us,
    without_warmup,
)
from traces.statistics.bootstrap import (
    MIN_REQUESTS,
    REPLICATES,
    Estimate,
    Floats,
    block_length,
    generator_of,
    interval,
    over_resamples,
    quantile_rows,
    weighted_sums,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces import RunSpread, Trace

    Int64s = NDArray[np.int64]

METRICS = ("ttft_us", "tpot_us", "e2e_us", "queue_us")
STATISTICS = ("mean", "p50", "p90", "p99")
QUANTILES = np.array([0.5, 0.9, 0.99])
STREAMS = (971, 972, 973)
SAME = 0.02
"""Loads and lengths that differ by a smaller share count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSide:
    """One side: its name, its load and what it served. Rates per second, None where there is none."""

    name: str
    mode: str
    num_requests: int
    num_ok: int
    offered_per_s: float | None
    served_per_s: float | None
    output_tokens_per_s: float | None
    mean_prompt_tokens: float
    mean_output_tokens: float
    saturation: Saturation


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A statistic of both runs, and B's over A's minus 1 with its interval."""

    metric: str
    statistic: str
    a: float
    b: float
    change: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoRuns:
    """The comparison. ``is_paired``: both had the same requests. ``notes``: reasons why the two are hard to compare.

    ``noise_floors``: what `observe --repeat` measured of either server from run to run; the intervals have it in them.
    """

    a: OneSide
    b: OneSide
    is_paired: bool
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    noise_floors: tuple[RunSpread, ...] = ()

    @property
    def both_saturated(self) -> bool:
        """Whether both served what they could, so that throughput is capacity."""
        return self.a.saturation.state == self.b.saturation.state == "saturated"


def compare_runs(names: tuple[str, str], traces: tuple[Trace, Trace], *, seed: int = 42) -> TwoRuns:
    """Return the comparison of two runs, without their warm-up."""
    kept = tuple(without_warmup(trace) for trace in traces)
    a, b = (_run(name, trace, seed=seed) for name, trace in zip(names, kept, strict=True))
    *orders, is_paired = _orders(kept[0], kept[1])
    tables = [_latencies(trace, order) for trace, order in zip(kept, orders, strict=True)]
    floors = recorded_spreads(traces)
    differences: list[Difference] = []
    for metric in METRICS:
        sides = [table[metric] for table in tables]
        if is_paired:
            known = np.isfinite(sides[0]) & np.isfinite(sides[1])
            sides = [side[known] for side in sides]
        differences += _differences(
            metric,
            [side[np.isfinite(side)] for side in sides],
            floors=floors,
            seed=seed,
            is_paired=is_paired,
        )
    return TwoRuns(
        a=a,
        b=b,
        is_paired=is_paired,
        differences=tuple(differences),
        noise_floors=tuple(floors),
        notes=(
            *(
                f"{name}: {said}"
                for name, trace in zip(names, traces, strict=True)
                for said in finding_lines(trace)
            ),
            *_of_files((a, b), traces),
            *_notes(a, b, is_paired=is_paired, cut=[cut_short_note(trace) for trace in traces]),
        ),
    )


def _of_files(sides: tuple[OneSide, OneSide], traces: tuple[Trace, Trace]) -> list[str]:
    """Return what is to know of the files that the runs are from."""
    return [
        f"{side.name}: {line}"
        for side, trace in zip(sides, traces, strict=True)
        for line in reading_notes(trace)
    ]


def _run(name: str, trace: Trace, *, seed: int) -> OneSide:
    sent = np.sort(send_or_arrival_us(trace).astype(np.float64))
    ok = finished_ok(trace)
    last = trace.column("last_token_time_us").fillna(trace.column("last_chunk_time_us"))
    ends = last.to_numpy(np.float64, na_value=np.nan)[ok]
    outputs = trace.column("output_tokens").to_numpy(np.float64, na_value=np.nan)[ok]
    source = trace.header.source
    shows_load = source is None or source.load_unknown is None
    span_s = (float(np.nanmax(ends)) - sent[0]) / 1e6 if len(ends) and shows_load else 0.0
    is_paced = trace.header.closed_loop is not None or not shows_load
    offered = None if is_paced else mean_rate_per_s(sent, trace.header.rate_per_s)
    return OneSide(
        name=name,
        mode=trace.header.mode or "unknown",
        num_requests=len(trace),
        num_ok=int(ok.sum()),
        offered_per_s=offered,
        served_per_s=float(ok.sum() / span_s) if span_s > 0 else None,
        output_tokens_per_s=float(outputs.sum() / span_s)
        if span_s > 0 and not np.isnan(outputs).any()
        else None,
        mean_prompt_tokens=float(prompt_tokens(trace).mean()),
        mean_output_tokens=float(np.nanmean(outputs)) if np.isfinite(outputs).any() else float("nan"),
        saturation=saturation_of(trace, seed=seed),
    )


def _orders(a: Trace, b: Trace) -> tuple[Int64s, Int64s, bool]:
    """Return each run's rows in order of time, and whether both had the same requests: then B's follow A's by name."""
    by_time = [np.argsort(send_or_arrival_us(trace), kind="stable") for trace in (a, b)]
    place = {name: row for row, name in enumerate(b.requests["request_id"])}
    names = a.requests["request_id"].to_numpy()[by_time[0]]
    if len(a) != len(b) or len(place) < len(b) or not all(name in place for name in names):
        return by_time[0], by_time[1], False
    rows = np.array([place[name] for name in names], np.int64)
    if (prompt_tokens(a)[by_time[0]] != prompt_tokens(b)[rows]).any():
        return by_time[0], by_time[1], False
    return by_time[0], rows, True


def _latencies(trace: Trace, order: Int64s) -> dict[str, Floats]:
    """Return each latency of all requests, µs, in this order."""
    metrics = request_metrics(trace)
    return {name: metrics[name].to_numpy(np.float64)[order] for name in METRICS}


def _differences(
    metric: str, sides: Sequence[Floats], *, floors: Sequence[RunSpread], seed: int, is_paired: bool
) -> list[Difference]:
    """Return the statistics of one latency; none where a run has none of it."""
    if min(map(len, sides)) == 0:
        return []
    values = [_statistics(side) for side in sides]
    if min(map(len, sides)) < MIN_REQUESTS:
        changes = [Estimate(value=b / a - 1 if a else None) for a, b in zip(*values, strict=True)]
    else:
        streams = (STREAMS[0], STREAMS[0] if is_paired else STREAMS[1])
        block = max(map(block_length, sides)) if is_paired else None
        draws = [
            _redrawn(side, block or block_length(side), seed=seed, stream=stream)
            for side, stream in zip(sides, streams, strict=True)
        ]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = draws[1] / draws[0]
            for place, statistic in enumerate(STATISTICS):
                apart = _apart(f"{metric}.{statistic}", floors, seed=seed)
                if apart is not None:
                    a, b = (each[place] for each in values)
                    # repeats of the same requests show all of a run's chance; else their draw comes on top
                    ratios[:, place] = (b / a if is_paired else ratios[:, place]) * apart
            ratios -= 1
            changes = [
                interval(b / a - 1 if a else np.nan, ratios[:, i])
                for i, (a, b) in enumerate(zip(*values, strict=True))
            ]
    return [
        Difference(metric=metric, statistic=name, a=float(a), b=float(b), change=change)
        for name, a, b, change in zip(STATISTICS, *values, changes, strict=True)
    ]


def _apart(figure: str, floors: Sequence[RunSpread], *, seed: int) -> Floats | None:
    """Return ratios of two runs of one server [replicates], as floors of this figure show them; None without any.

    The log of a ratio scatters by the root of 2 times one run's spread, which is known from few runs: Student's t.
    """
    known = [(each.num_runs - 1, each.spread[figure]) for each in floors if figure in each.spread]
    freedom = sum(worth for worth, _ in known)
    if freedom < 1:
        return None
    spread = np.sqrt(2 * sum(worth * share**2 for worth, share in known) / freedom)
    ratios: Floats = np.exp(spread * generator_of(seed, STREAMS[2]).standard_t(freedom, REPLICATES))
    return ratios


def _statistics(values: Floats) -> Floats:
    return np.concatenate([[values.mean()], np.quantile(values, QUANTILES)])


def _redrawn(values: Floats, block: int, *, seed: int, stream: int) -> Floats:
    """Return the statistics of resamples, [replicates, statistics]."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]

    def statistics(counts: NDArray[np.float32]) -> Floats:
        means = weighted_sums(counts, values) / len(values)
        return np.column_stack([means, quantile_rows(ordered, counts.take(order, axis=1), at=QUANTILES)])

    return over_resamples(statistics, len(values), block, seed=seed, stream=stream)


def _notes(a: OneSide, b: OneSide, *, is_paired: bool, cut: Sequence[str | None]) -> tuple[str, ...]:
    """Return notes on differences between the two runs' loads or outcomes."""
    found = [f"{run.name}: {said}" for run, said in zip((a, b), cut, strict=True) if said is not None]
    if not is_paired:
        found.append(
            "the runs had different requests: each is redrawn by itself, and the intervals are wider"
        )
    for what, one, other, unit in (
        ("offered rates", a.offered_per_s, b.offered_per_s, "requests/s"),
        ("prompts", a.mean_prompt_tokens, b.mean_prompt_tokens, "tokens on average"),
        ("answers", a.mean_output_tokens, b.mean_output_tokens, "tokens on average"),
    ):
        if (one is None) != (other is None):
            if "unclear" in (a.saturation.state, b.saturation.state):
                continue  # a file that does not show its load: said above
            found.append(
                "one run was sent at its own times, the other was paced by answers: their loads differ"
            )
        elif one is not None and other is not None and abs(other - one) > SAME * abs(one):
            found.append(f"{what} differ: {one:.4g} and {other:.4g} {unit}")
    for run in (a, b):
        if run.num_ok < 0.99 * run.num_requests:
            found.append(
                f"{run.name}: {run.num_requests - run.num_ok:,} of {run.num_requests:,} requests failed"
            )
    states = {run.saturation.state for run in (a, b)}
    if "saturated" in states:
        names = " and ".join(run.name for run in (a, b) if run.saturation.state == "saturated")
        found.append(f"overloaded: {names}. TTFT and E2E of an overloaded run tell only how long it was")
    return tuple(found)
