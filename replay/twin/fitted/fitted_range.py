"""The loads and lengths that a twin was fitted on, and by which factor a run goes beyond them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from lazy_dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import yaml
from numpy.typing import NDArray

from traces import fewest_beyond
from traces.strict.yaml_nodes import scalar_of, shown

if TYPE_CHECKING:
    from traces import Trace
    from traces.strict.section import Section

Range = tuple[float, float]
Floats = NDArray[np.float64]

BEYOND = 1.1
"""A smaller factor beyond the fitted range gives no warning: draws of one load differ by as much."""
ENOUGH = 20
"""With this many requests an instance's rate is taken from its own times."""
INNER = (1, 99)
"""Percentiles used as the shortest and the longest: a single request makes no range."""
NAMES = {
    "rate_per_s": ("load", "requests/s"),
    "prompt_tokens": ("prompts", "tokens"),
    "output_tokens": ("outputs", "tokens"),
    "concurrency": ("concurrency", "running"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedRange:
    """The range of the fitted traces, or of a run; None where it is not known.

    ``rate_per_s``: mean request rates, of runs whose requests were not sent at once and not paced by answers. Its end
    is the fitted load: report, warnings, curves and TWIN.yaml all name this number. Only finished requests count, and
    of a trace that was fitted in part only those that were. ``lasting``, of a fit alone: those of these rates that the
    server kept up with, and that a long run keeps within ``concurrency``. Up to there the twin is trusted.
    ``prompt_tokens``, ``output_tokens`` and ``concurrency`` (requests that run when one is sent; those that are known
    to queue are not among them): 1st to 99th percentile. Of fitted traces the ends are those of the percentiles' own
    intervals: a few requests show less than the 99th percentile of many draws of the same load.
    """

    rate_per_s: Range | None = None
    prompt_tokens: Range | None = None
    output_tokens: Range | None = None
    concurrency: Range | None = None
    lasting: Range | None = None

    def lines(self) -> list[str]:
        """Return the range as lines of TWIN.yaml's latency section."""
        rows = [(each.name, getattr(self, each.name)) for each in fields(self)]
        return [
            "  fitted_range:",
            *(f"    {name}: [{low!r}, {high!r}]" for name, (low, high) in _known(rows)),
        ]

    def within(self, seats: int) -> FittedRange:
        """Return the range of a server with so many seats (``max_num_seqs``): no more requests run at once.

        A trace without queue times, as vLLM's are, does not say which of the requests in flight waited.
        """
        if self.concurrency is None:
            return self
        low, high = self.concurrency
        return replace(self, concurrency=(min(low, float(seats)), min(high, float(seats))))

    def is_empty(self) -> bool:
        """Return whether nothing is known."""
        return all(getattr(self, each.name) is None for each in fields(self))


def _known(rows: Iterable[tuple[str, Range | None]]) -> list[tuple[str, Range]]:
    return [(name, each) for name, each in rows if each is not None]


def range_of(
    traces: Iterable[Trace], chosen: Iterable[NDArray[np.bool_] | None], *, is_fitted: bool = False
) -> FittedRange:
    """Return the range that observed or simulated traces span together; ``chosen``: rows of each, None for all.

    ``is_fitted``: a twin is fitted to them, and other loads are held against it.
    """
    inner = _widened if is_fitted else _inner
    return union([_of_one(trace, rows, inner=inner) for trace, rows in zip(traces, chosen, strict=True)])


def range_of_run(trace: Trace) -> FittedRange:
    """Return the range of one server's run; of a cluster's that of its fullest instances.

    A twin is fitted to one server: the load of several servers together is not its load.
    """
    if "instance" not in trace.table:
        return range_of([trace], [None])
    from traces import finished_ok

    codes, names = trace.cells("instance").codes()
    kept = np.flatnonzero(finished_ok(trace) & (codes >= 0))
    by_instance = kept[np.argsort(codes[kept], kind="stable")]
    ends = np.cumsum(np.bincount(codes[kept], minlength=len(names)))[:-1]
    served = _Served.of(trace)
    span_us = float(np.ptp(served.start[kept])) if len(kept) else 0.0
    return union(
        [served.range_of(rows, span_us=span_us) for rows in np.split(by_instance, ends) if len(rows)]
    )


def union(parts: Sequence[FittedRange]) -> FittedRange:
    """Return from the lowest to the highest of several ranges."""
    spans: dict[str, Range | None] = {}
    for each in fields(FittedRange):
        known = [span for part in parts if (span := getattr(part, each.name)) is not None]
        spans[each.name] = (min(low for low, _ in known), max(high for _, high in known)) if known else None
    return FittedRange(**spans)


def extrapolation_note(fitted: FittedRange | None, run: FittedRange, *, where: str = "") -> str | None:
    """Return the line that says by which factors a run goes beyond the fitted range; None where it does not.

    ``where``: which of several the range is of.
    """
    if fitted is None:
        return None
    found = ways_beyond(fitted, run)
    place = f", {where}" if where else ""
    return f"extrapolated beyond the fit{place}: {', '.join(found)}" if found else None


def ways_beyond(fitted: FittedRange, run: FittedRange) -> list[str]:
    """Return each way in which a run goes beyond the fitted range, with its factor."""
    found = []
    for name, (what, unit) in NAMES.items():
        seen, asked = getattr(fitted, name), getattr(run, name)
        if seen is None or asked is None or seen[1] <= 0 or asked[1] < BEYOND * seen[1]:
            continue
        factor = asked[1] / seen[1]
        found.append(f"{what} by a factor {factor:.1f} ({asked[1]:.4g} {unit}, fitted up to {seen[1]:.4g})")
    return found


def note_of_runs(
    fitted: FittedRange | None, runs: Sequence[FittedRange], *, is_cluster: bool = False
) -> str | None:
    """Return the one line for a run, or for a twin's variants: of the one that goes the furthest."""
    instance = "on the fullest instance" if is_cluster else ""
    variant = f"in the furthest of {len(runs)} variants" if len(runs) > 1 else ""
    return extrapolation_note(
        fitted, union(runs), where=", ".join(each for each in (instance, variant) if each)
    )


def read_fitted_range(latency: Section | None) -> FittedRange | None:
    """Return ``latency.fitted_range``; raises ConfigError on what is not pairs of numbers."""
    section = None if latency is None else latency.section("fitted_range")
    if section is None:
        return None
    section.refuse_unknown([each.name for each in fields(FittedRange)])
    return FittedRange(**{each.name: _pair(section, each.name) for each in fields(FittedRange)})


def _pair(section: Section, key: str) -> Range | None:
    if key not in section:
        return None
    nodes = section.items(key, expected="[low, high]")
    values = [scalar_of(node) if isinstance(node, yaml.ScalarNode) else None for node in nodes]
    numbers = [float(each) for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(values) != 2 or len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1] < np.inf:
        section.fail(
            key,
            got=f"[{', '.join(map(shown, nodes))}]",
            expected="[low, high], two numbers, 0 <= low <= high",
        )
    return numbers[0], numbers[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """What a range is of, by request: times in µs, NaN where not known. ``is_paced``: answers set the rate.

    ``queued``: for how long it did not run yet, 0 where that is not known.
    """

    start: Floats
    e2e: Floats
    queued: Floats
    prompts: Floats
    outputs: Floats
    is_paced: bool

    @classmethod
    def of(cls, trace: Trace) -> _Served:
        """Return it of a trace."""
        from traces import prompt_tokens, request_latencies, send_or_arrival_us

        latencies = request_latencies(trace)
        return cls(
            start=np.asarray(send_or_arrival_us(trace), np.float64),
            e2e=latencies["e2e_us"],
            queued=np.nan_to_num(latencies["queue_us"], nan=0.0),
            prompts=prompt_tokens(trace).astype(np.float64),
            outputs=trace.cells("output_tokens").floats(),
            is_paced=trace.header.closed_loop is not None or bool(trace.cells("session_id").is_known.any()),
        )

    def range_of(self, rows: NDArray[np.int64], *, span_us: float) -> FittedRange:
        """Return the range of an instance's requests.

        ``span_us``: the time in which the whole run was sent, used if an instance has few requests.
        """
        start, e2e = self.start[rows], self.e2e[rows]
        rate = _rate(start, e2e) if len(rows) >= ENOUGH else _rate_over(len(rows), span_us)
        return FittedRange(
            rate_per_s=None if self.is_paced else rate,
            prompt_tokens=_inner(self.prompts[rows]),
            output_tokens=_inner(self.outputs[rows]),
            concurrency=_inner(_running(start, start + self.queued[rows], start + e2e)),
        )


def _of_one(
    trace: Trace, rows: NDArray[np.bool_] | None, *, inner: Callable[[Floats], Range | None]
) -> FittedRange:
    """Return the span of one trace's finished requests."""
    from traces import finished_ok

    ok = finished_ok(trace)
    kept = ok if rows is None else ok & rows
    if not kept.any():
        return FittedRange()
    served = _Served.of(trace)
    start, e2e = served.start, served.e2e
    begun, end = (
        (start + served.queued)[ok],
        (start + e2e)[ok],
    )  # of one that failed nobody knows when it ended
    return FittedRange(
        rate_per_s=None if served.is_paced else _rate(start[kept], e2e[kept]),
        prompt_tokens=inner(served.prompts[kept]),
        output_tokens=inner(served.outputs[kept]),
        concurrency=inner(_running(start[kept], begun, end)),
    )


def _rate_over(number: int, span_us: float) -> Range | None:
    """Return the rate of this many requests in a time, twice."""
    if span_us <= 0:
        return None
    rate = _rounded(number / span_us * 1e6)
    return rate, rate


def open_loop_rate(start_us: Floats, e2e_us: Floats) -> float | None:
    """Return the mean rate of requests sent at ``start_us``, requests/s: the gaps over the time that they take.

    ``e2e_us``: how long each took, NaN where not known. None where almost all were sent before the first was answered:
    requests sent at once are no rate.
    """
    span = float(np.ptp(start_us)) if len(start_us) > 1 else 0.0
    answered = e2e_us[np.isfinite(e2e_us)]
    if span <= (float(np.median(answered)) if len(answered) else 0.0):
        return None
    return (len(start_us) - 1) / span * 1e6


def _rate(start_us: Floats, e2e_us: Floats) -> Range | None:
    """Return the mean request rate twice, None where there is none."""
    rate = open_loop_rate(start_us, e2e_us)
    return None if rate is None else (_rounded(rate), _rounded(rate))


def _running(start: Floats, begun: Floats, end: Floats) -> Floats:
    """Return, per request, how many have begun and not ended when it is sent, itself included if it runs at once."""
    done, known = np.sort(end[np.isfinite(end)]), np.sort(begun)
    counts = np.searchsorted(known, start, side="right") - np.searchsorted(done, start, side="right")
    return np.asarray(np.maximum(counts, 1), np.float64)


def _inner(values: NDArray[np.float64]) -> Range | None:
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return None
    low, high = (_rounded(float(value)) for value in np.percentile(known, INNER))
    return low, high


def _widened(values: NDArray[np.float64]) -> Range | None:
    """Return the outer ends of the intervals of the 1st and 99th percentile: order statistics, with 95 % each."""
    known = np.sort(values[np.isfinite(values)])
    if len(known) == 0:
        return None
    beyond = int(fewest_beyond(len(known)))
    if beyond < 1:
        return _rounded(float(known[0])), _rounded(max(float(known[-1]), _ninety_ninth_of_few(known)))
    return _rounded(float(known[beyond - 1])), _rounded(float(known[-beyond]))


def _ninety_ninth_of_few(ordered: Floats) -> float:
    """Return the 99th percentile that the largest of a few values point to, at the upper end of what they leave open.

    Weissman's estimate by Hill's tail index of the ``k`` = √n largest ("Estimation of parameters and large quantiles
    based on the k largest observations", 1978), the index one standard error larger. The largest value if there are
    fewer than ``ENOUGH``.
    """
    n = len(ordered)
    k = int(np.sqrt(n))
    if n < ENOUGH or ordered[-k - 1] <= 0:
        return float(ordered[-1])
    index = float(np.log(ordered[-k:] / ordered[-k - 1]).mean()) * (1 + 1 / np.sqrt(k))
    return float(ordered[-k - 1] * (k / (0.01 * n)) ** index)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
