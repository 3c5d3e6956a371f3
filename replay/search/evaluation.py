"""One rate, simulated: the value of each latency limit, and whether all are met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from replay.search.load import Load
from replay.verdict.growth import Growth, customers_of, growth_of, piles_up
from replay.verdict.judge import UNDER_WAY, WAITING
from sim import InterTokenLatencies, Outcomes, Status
from traces import MOST_FAILED, RunLimit, latencies_us

if TYPE_CHECKING:
    from sim import Record

Floats = NDArray[np.float64]

SETTLING = 0.2
"""Share of the requests, the first to arrive, that is not measured: they find an empty server, or empty caches. With
four servers behind a cache-aware router, latencies are steady only after 4,000 requests."""
NUM_PARTS = 5
"""Into this many stretches of time a single run is cut for the interval."""
FAILED = "failed"
THROUGHPUT = "throughput"
"""The limit that breaks when more requests arrive than are answered."""
TOO_SHORT = "too short to tell"
GROWN = 0.02
"""A server in which a larger share of the requests piles up falls behind; a smaller one is chance."""
CHANCE = 1.2
"""What piles up in a new server that is about to keep up, ``piles_up(1, generations)``, may be exceeded by this."""
CURVE = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of simulating a rate.

    ``values_us``: by limit, of all runs together; ``parts_us``: of each seed's run, or of a single run's stretches.
    ``failed_frac``: of the measured requests, those without an answer. ``curve_us``: by metric, (median, 99th
    percentile). ``growths``: of each run, the share of the arrived requests that piled up in the server,
    ``waiting_frac`` before they began; ``generations`` of requests had passed by then; ``under_way_frac``: of all,
    those under way when the last one came (``replay.verdict.growth``).
    """

    rate_per_s: float
    values_us: dict[str, float]
    parts_us: dict[str, list[float]]
    failed_frac: float
    output_tokens_per_s: float
    num_preemptions: int
    curve_us: dict[str, tuple[float, float]]
    growths: tuple[float, ...]
    waiting_frac: float
    generations: int
    under_way_frac: float

    @property
    def growth_frac(self) -> float:
        """The share of the arrived requests that piled up: the mean over the runs."""
        return float(np.mean(self.growths))

    @property
    def is_behind(self) -> bool:
        """Whether more requests arrive than are answered."""
        is_growing = self.growth_frac > max(GROWN, CHANCE * piles_up(1.0, self.generations))
        return is_growing or self.has_queue

    @property
    def has_queue(self) -> bool:
        """Whether a queue grows in front of a full server."""
        return self.waiting_frac > WAITING

    @property
    def is_too_short(self) -> bool:
        """Whether the runs are too short to tell whether the server keeps up."""
        return not self.is_behind and self.under_way_frac > UNDER_WAY

    @property
    def served_per_s(self) -> float:
        """The rate of answers."""
        return self.rate_per_s * (1 - self.growth_frac)

    def ratios(self, limits: Sequence[RunLimit]) -> dict[str, float]:
        """Return by limit its value over what is allowed; where nothing was answered, infinity."""
        found = {each.name: _over(self.values_us[each.name], each.limit_us) for each in limits}
        if self.failed_frac > MOST_FAILED:
            found[FAILED] = self.failed_frac / MOST_FAILED
        if self.is_behind:
            found[THROUGHPUT] = 1 + self.growth_frac
        return found

    def is_undecided(self, limits: Sequence[RunLimit]) -> bool:
        """Whether no limit is broken, and longer runs might break one."""
        return self.is_too_short and max(self.ratios(limits).values(), default=0.0) <= 1

    def worst_latency(self, limits: Sequence[RunLimit]) -> float:
        """Return the largest value over what is allowed, of all runs together."""
        return max((_over(self.values_us[each.name], each.limit_us) for each in limits), default=0.0)

    def worst_of_part(self, part: int, limits: Sequence[RunLimit]) -> float:
        """Return the largest value over what is allowed of one part."""
        return max((_over(self.parts_us[each.name][part], each.limit_us) for each in limits), default=0.0)

    def meets(self, limits: Sequence[RunLimit]) -> bool:
        """Say whether every limit is met, the server keeps up, and the runs are long enough to say so."""
        return not self.is_too_short and max(self.ratios(limits).values(), default=0.0) <= 1

    def worst(self, limits: Sequence[RunLimit]) -> str:
        """Return the limit whose value is the largest share of what is allowed."""
        ratios = self.ratios(limits)
        if self.is_undecided(limits):
            return TOO_SHORT
        if not ratios:
            return THROUGHPUT
        return max(ratios, key=lambda name: ratios[name])


def _over(value: float, limit: float) -> float:
    return float("inf") if np.isnan(value) else value / limit


@dataclass(slots=True, kw_only=True)
class Evaluator:
    """Simulates loads at any rate, each rate once. The loads are several draws of one workload, or one recorded.

    ``runs``: by rate, what the first loads have measured there already.
    """

    loads: Sequence[Load]
    limits: Sequence[RunLimit]
    seen: dict[float, Evaluation] = field(default_factory=dict)
    runs: dict[float, list[MeasuredRequests]] = field(default_factory=dict)

    @property
    def num_parts(self) -> int:
        """How many values each statistic has: one per draw, or per stretch of a single one."""
        return len(self.loads) if len(self.loads) > 1 else NUM_PARTS

    def at(self, rate_per_s: float) -> Evaluation:
        """Return the evaluation of a rate."""
        if rate_per_s not in self.seen:
            self.seen[rate_per_s] = self._simulated(rate_per_s)
        return self.seen[rate_per_s]

    def kept_per_s(self, rate_per_s: float) -> float:
        """Return how many requests/s are answered while they come at a rate, the mean over the draws."""
        pushed = [load.pushed(rate_per_s) for load in self.loads]
        return float(np.mean([0.0 if each is None else each.answered_per_s for each in pushed]))

    def with_more(self, loads: Sequence[Load]) -> Evaluator:
        """Return one of more draws: at rates that this one has seen, it simulates the new ones only."""
        return Evaluator(loads=[*self.loads, *loads], limits=self.limits, runs=dict(self.runs))

    def _simulated(self, rate_per_s: float) -> Evaluation:
        record: Record = "spans" if any(each.metric == "itl" for each in self.limits) else "none"
        runs = list(self.runs.get(rate_per_s, ()))
        runs += [_measured(load, rate_per_s, record=record) for load in self.loads[len(runs) :]]
        if record == "none":  # gaps between tokens would be too many to keep
            self.runs[rate_per_s] = [replace(run, gaps=_no_gaps) for run in runs]
        parts = runs if len(runs) > 1 else runs[0].stretches(NUM_PARTS)
        whole = _pooled(runs)
        return Evaluation(
            rate_per_s=rate_per_s,
            values_us={each.name: whole.value(each) for each in self.limits},
            parts_us={each.name: [part.value(each) for part in parts] for each in self.limits},
            failed_frac=whole.failed_frac,
            output_tokens_per_s=whole.output_tokens_per_s,
            num_preemptions=whole.num_preemptions,
            curve_us={name: _curve(whole.latencies_us[name]) for name in CURVE},
            growths=tuple(run.growth.growth_frac for run in runs),
            waiting_frac=float(np.mean([run.growth.waiting_frac for run in runs])),
            generations=min(run.growth.generations for run in runs),
            under_way_frac=float(np.mean([run.growth.in_system / run.growth.num_sent for run in runs])),
        )


def _curve(values: Floats) -> tuple[float, float]:
    """Return median and 99th percentile of a latency."""
    known = values[~np.isnan(values)]
    if not len(known):
        return float("nan"), float("nan")
    median, p99 = np.percentile(known, (50, 99))
    return float(median), float(p99)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRequests:
    """A run's measured requests in the order of their arrivals: latencies in µs, NaN where there is none."""

    latencies_us: dict[str, Floats]
    gaps: Callable[[], InterTokenLatencies]
    failed_frac: float
    output_tokens_per_s: float
    num_preemptions: int
    growth: Growth

    def value(self, limit: RunLimit) -> float:
        """Return the statistic that a limit is on, µs. ITL: of all gaps of the run, or of requests' means in a part."""
        if limit.metric == "itl" and "itl" not in self.latencies_us:
            gaps = self.gaps()
            if limit.percent is None:
                return gaps.pooled_mean_us()
            return gaps.pooled_percentiles_us([limit.percent])[0]
        return limit.of(self.latencies_us[limit.metric])

    def stretches(self, number: int) -> list[MeasuredRequests]:
        """Return the run cut into stretches of equally many requests."""
        columns = {**self.latencies_us, "itl": self.latencies_us["tpot"]}
        cut = {name: np.array_split(values, number) for name, values in columns.items()}
        return [
            replace(self, latencies_us={name: parts[part] for name, parts in cut.items()})
            for part in range(number)
        ]


def _no_gaps() -> InterTokenLatencies:
    """Raise: gaps are kept only while a limit is on them."""
    raise AssertionError("no limit is on the gaps between tokens")


def _pooled(runs: Sequence[MeasuredRequests]) -> MeasuredRequests:
    """Return all runs as one: a percentile of all is nearer to a long run's than the mean of theirs.

    Growth cannot be pooled: the first run's is kept.
    """
    if len(runs) == 1:
        return runs[0]
    return replace(
        runs[0],
        latencies_us={name: np.concatenate([run.latencies_us[name] for run in runs]) for name in CURVE},
        gaps=lambda: _all_gaps([run.gaps() for run in runs]),
        failed_frac=float(np.mean([run.failed_frac for run in runs])),
        output_tokens_per_s=float(np.mean([run.output_tokens_per_s for run in runs])),
        num_preemptions=sum(run.num_preemptions for run in runs),
    )


def _all_gaps(runs: Sequence[InterTokenLatencies]) -> InterTokenLatencies:
    """Return the gaps of all runs together."""
    gaps = np.concatenate([run.gaps_us for run in runs])
    order = np.argsort(gaps, kind="stable")
    return InterTokenLatencies(
        mean_us=np.concatenate([run.mean_us for run in runs]),
        p99_us=np.concatenate([run.p99_us for run in runs]),
        gaps_us=gaps[order],
        counts=np.concatenate([run.counts for run in runs])[order],
    )


def _measured(load: Load, rate_per_s: float, *, record: Record) -> MeasuredRequests:
    """Simulate a load at a rate; the first requests to arrive are simulated and not measured."""
    outcomes, gaps, num_preemptions = load.serve(load.at(rate_per_s), record)
    order = np.argsort(outcomes.arrival_us, kind="stable")
    rows = order[int(SETTLING * len(order)) :]
    ok = outcomes.status[rows] == Status.OK
    growth = growth_of(customers_of(outcomes, load.session))
    return MeasuredRequests(
        latencies_us={name: values[rows] for name, values in _latencies(outcomes).items()},
        gaps=gaps,
        failed_frac=float(1 - ok.mean()),
        output_tokens_per_s=_token_rate(outcomes),
        num_preemptions=num_preemptions,
        growth=NOTHING_CAME if growth is None else growth,
    )


NOTHING_CAME = Growth(
    num_sent=1,
    sent_per_s=0.0,
    in_system=1,
    growth_frac=0.0,
    waiting_frac=0.0,
    generations=0,
    falls_back=True,
    waiting_falls_back=True,
)
"""The growth of a run in which no request was answered: too short to tell."""


def _latencies(outcomes: Outcomes) -> dict[str, Floats]:
    """Return TTFT, TPOT and E2E of all requests, µs, NaN where a request has none."""
    ok = outcomes.status == Status.OK
    ttft, e2e, tpot = latencies_us(
        outcomes.arrival_us.astype(np.float64),
        outcomes.first_token_us.astype(np.float64),
        outcomes.last_token_us.astype(np.float64),
        output_tokens=outcomes.num_output_tokens.astype(np.float64),
    )
    return {name: np.where(ok, values, np.nan) for name, values in zip(CURVE, (ttft, tpot, e2e), strict=True)}


def _token_rate(outcomes: Outcomes) -> float:
    """Return the output tokens per second from the first arrival, which is at 0, to the last answer."""
    span_us = float(outcomes.last_token_us.max(initial=0))
    return float(outcomes.num_output_tokens.sum() / span_us * 1e6) if span_us > 0 else 0.0
