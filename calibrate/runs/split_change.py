"""A change between two runs split into load, server and chance, with a twin of the server.

The twin serves both runs' requests at their own times. The ratio of its two answers is the load's part of a change; the
rest is the server's: (1 + change) = (1 + load) x (1 + server). An error that the twin makes in both runs alike cancels;
one that it makes in one of them counts as the server's. Chance is an interval: requests are redrawn, observed and
simulated together, and a server's pace differs a little from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from calibrate.run_to_run.run_errors import METRICS, STATISTICS, own_errors, statistics_of
from calibrate.run_to_run.server_pace import RunToRun, recorded_spreads, run_to_run
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

    from calibrate.compare.pair import Pairs
    from replay import TwinConfig
    from replay.twin.fitted import HeldOut
    from traces import Trace

STREAMS = (981, 982, 983)
LEAST = 0.02
"""A part below this is none: two draws of one load differ by as much, and a good twin is off by as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPart:
    """One statistic's change, B over A minus 1, and its parts; intervals are of 90 %, None with few requests.

    ``own_error``: of the twin in this statistic, a fraction; a server's part below it is none. ``is_clients``: the
    client was late or limited in a run, so that the statistic is partly its own, and no part is told.
    """

    metric: str
    statistic: str
    change: Estimate
    load: Estimate
    server: Estimate
    own_error: float = LEAST
    is_clients: bool = False

    @property
    def is_servers(self) -> bool:
        """Whether the server's part is more than the twin's own error, and more than chance."""
        value, low, high = self.server.value, self.server.low, self.server.high
        if self.is_clients or value is None or abs(value) < max(LEAST, self.own_error):
            return False
        return low is not None and high is not None and (low > 0 or high < 0)

    @property
    def is_loads(self) -> bool:
        """Whether the load's part is more than a draw's, and more than chance."""
        value, low, high = self.load.value, self.load.low, self.load.high
        if self.is_clients or value is None or abs(value) < LEAST:
            return False
        return low is None or high is None or low > 0 or high < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitChange:
    """The parts by metric and statistic; ``twin``: its file's name.

    ``late``: the runs in which the client was late or limited, by name.
    """

    twin: str
    parts: tuple[SplitPart, ...]
    late: tuple[str, ...] = ()


def split_runs(
    names: tuple[str, str], traces: tuple[Trace, Trace], config: TwinConfig, *, twin: str, seed: int = 42
) -> SplitChange:
    """Return the change from the first run to the second in parts. Raises ConfigError if the twin cannot serve them."""
    from calibrate.findings import NamedTrace, Options
    from calibrate.simulated_side import against_twin

    options = Options(seed=seed)
    a, b = (
        against_twin(NamedTrace(name=name, trace=trace), config, options, role="compared").pairs
        for name, trace in zip(names, traces, strict=True)
    )
    rows = _rows(a, b)
    pace = run_to_run([], stated=RunToRun(), recorded=recorded_spreads(traces))
    parts = [part for metric in METRICS for part in _parts(metric, (a, b), rows, pace=pace, seed=seed)]
    late = tuple(name for name, trace in zip(names, traces, strict=True) if _is_clients(trace))
    parts = [
        replace(
            each,
            own_error=_own_error(each, config.held_out, a),
            is_clients=bool(late) and each.metric == "ttft_us",
        )
        for each in parts
    ]
    return SplitChange(twin=twin, parts=tuple(parts), late=late)


def _is_clients(trace: Trace) -> bool:
    """Return whether the client was late, or set the pace: a TTFT is then partly its own."""
    client = trace.header.client
    return client is not None and bool(client.late or client.limited)


def _own_error(part: SplitPart, fit: HeldOut | None, a: Pairs) -> float:
    """Return the twin's own error in a statistic, a fraction: that its fit found over its runs.

    Of a twin whose file has none: the mean error per request, for a p99 also that of the first run.
    """
    if fit is None:
        return LEAST
    name = part.metric.removesuffix("_us")
    of_runs = getattr(fit, f"{name}_{part.statistic}")
    if of_runs is None:
        of_runs = getattr(fit, name) or 0.0
        if part.statistic == "p99":
            of_runs = max(of_runs, own_errors([a]).get(f"{name}_p99", 0.0))
    return float(max(LEAST, of_runs))


def _rows(a: Pairs, b: Pairs) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
    """Return each run's rows in order of time, of the same requests in one order, and whether they are the same."""
    orders = [np.argsort(side.requests["arrival_us"].to_numpy(np.float64), kind="stable") for side in (a, b)]
    columns = ("request_id", "prompt_tokens", "output_tokens")
    first, second = (list(zip(*(side.requests[name] for name in columns), strict=True)) for side in (a, b))
    place = {key: row for row, key in enumerate(second)}
    if len(first) != len(second) or len(place) < len(second) or not all(key in place for key in first):
        return orders[0], orders[1], False
    return orders[0], np.array([place[first[row]] for row in orders[0]], np.int64), True


def _parts(
    metric: str,
    sides: tuple[Pairs, Pairs],
    rows: tuple[NDArray[np.int64], NDArray[np.int64], bool],
    *,
    pace: RunToRun,
    seed: int,
) -> list[SplitPart]:
    """Return a metric's mean and p99 in parts; none where either run has no value on both sides."""
    *orders, is_paired = rows
    values = [_values(side, metric, order) for side, order in zip(sides, orders, strict=True)]
    known = [np.isfinite(each).all(axis=0) for each in values]
    if is_paired:
        known = [known[0] & known[1]] * 2
    values = [each[:, kept] for each, kept in zip(values, known, strict=True)]
    if min(each.shape[1] for each in values) == 0:
        return []
    a, b = (
        np.array([statistics_of(row) for row in each]) for each in values
    )  # [observed and simulated, statistics]
    if min(each.shape[1] for each in values) < MIN_REQUESTS:
        return [_part(metric, name, a[:, i], b[:, i], None, None) for i, name in enumerate(STATISTICS)]
    block = max(block_length(each[0]) for each in values)
    streams = (STREAMS[0], STREAMS[0] if is_paired else STREAMS[1])
    redrawn = [
        _redrawn(each, block, seed=seed, stream=stream) for each, stream in zip(values, streams, strict=True)
    ]
    apart = generator_of(seed, STREAMS[2]).normal(0.0, np.sqrt(2) * pace.deviation, REPLICATES)
    redrawn[1][0] *= np.exp(apart)[:, None]
    return [
        _part(metric, name, a[:, i], b[:, i], redrawn[0][:, :, i], redrawn[1][:, :, i])
        for i, name in enumerate(STATISTICS)
    ]


def _values(side: Pairs, metric: str, order: NDArray[np.int64]) -> Floats:
    """Return a metric of all requests, µs: [observed and simulated, requests]."""
    both = [frame[metric].to_numpy(np.float64)[order] for frame in (side.observed, side.simulated)]
    return np.array(both)


def _redrawn(values: Floats, block: int, *, seed: int, stream: int) -> Floats:
    """Return the statistics of resamples, drawn together: [observed and simulated, replicates, statistics]."""
    number = values.shape[1]
    orders = np.argsort(values, axis=1, kind="stable")

    def statistics(counts: NDArray[np.float32]) -> Floats:
        found = np.empty((len(counts), len(values), len(STATISTICS)))
        for side, (row, order) in enumerate(zip(values, orders, strict=True)):
            found[:, side, 0] = weighted_sums(counts, row) / number
            found[:, side, 1:] = quantile_rows(row[order], counts.take(order, axis=1), at=np.array([0.99]))
        return found

    return over_resamples(statistics, number, block, seed=seed, stream=stream).swapaxes(0, 1)


def _part(
    metric: str, statistic: str, a: Floats, b: Floats, drawn_a: Floats | None, drawn_b: Floats | None
) -> SplitPart:
    """Return one statistic's parts; ``a``, ``b``: observed and simulated, ``drawn``: likewise of resamples."""
    change, load, server = _ratios(a, b)
    if drawn_a is None or drawn_b is None:
        estimates = [
            Estimate(value=None if np.isnan(each) else float(each)) for each in (change, load, server)
        ]
    else:
        drawn = _ratios(drawn_a, drawn_b)
        estimates = [
            interval(float(value), each) for value, each in zip((change, load, server), drawn, strict=True)
        ]
    return SplitPart(
        metric=metric, statistic=statistic, change=estimates[0], load=estimates[1], server=estimates[2]
    )


def _ratios(a: Floats, b: Floats) -> Sequence[Floats]:
    """Return B over A minus 1 as observed, as simulated (the load), and the one over the other (the server)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        change, load = b / a
        return [np.where(np.isfinite(each), each - 1, np.nan) for each in (change, load, change / load)]
