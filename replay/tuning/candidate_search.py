"""The search among candidates: each is simulated only until it is known not to be among the best.

All candidates get the same requests. A candidate is first simulated at the rate that it would have to beat; most fail
there and are done. The others are searched from that rate upwards. Where runs were too short to tell, all get more
requests. The best few are then measured with all draws, for intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from replay.capacity.capacity import (
    BURSTS,
    MOST_TRIES,
    NUM_MEASURED,
    Capacity,
    capacity_of_draws,
    num_drawn,
    searched,
)
from replay.capacity.capacity_by_pace import GainAtPaces, gain_at_paces
from replay.console.progress import Step
from replay.numbers.t_interval import half_width
from replay.search.beyond_fit import beyond_fit
from replay.search.highest import TOLERANCE, HighestRate, highest_above
from replay.search.workload_draws import Drawing
from replay.tuning.candidates import Border, BorderValue, Candidate, Candidates
from traces import RunLimit
from traces.facts import NotebookAnswer

if TYPE_CHECKING:
    from traces import Trace


ALIKE = 0.01
"""Servers whose rates for the same requests differ by less count as alike: other requests may order them otherwise."""

NUM_CLEAR = 60_000
"""The best few are measured with this many requests, of all seeds together, where that makes the gain clear;"""
FEWEST_SEEDS = 4
"""Where a run needs more requests than its share of these, fewer seeds are drawn, but so many."""
CLEAR = 0.5
"""its 90 % interval is then at most this share of it wide."""
ROUNDING = 1e-9
"""A rate that is just alike stays so when it is divided by a price and multiplied again."""
MOST_WIDER = 16
"""The grid is made wider this often, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneAsked:
    """The question behind a search: all servers, the limits, and what a reader needs to know."""

    candidates: Candidates
    limits: tuple[RunLimit, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tuned(NotebookAnswer):
    """The result of a search. ``best``: the best few, best first, each with its capacity; ``own``: the file's server.

    ``num_tried``: candidates simulated, the file's own included. ``num_alike``: of them, those as good as the best.
    ``asks``: how many requests a run must have, where these were too few to rank servers by; else 0. ``border``: the
    settings of the best that lie at the end of the values tried. ``num_ranked_with``: requests by which all were
    ranked; ``num_beyond``: servers beyond the first grid's border. ``beyond_fit``: how far the best goes beyond what
    its twin was fitted on; ``at_paces``: how its gain moves with the twin's pace, None where the twin does not say.
    ``asked``: of one that a user asked for.
    """

    drawn_by: ClassVar[str] = "replay.drawn_answers:of_tuned"
    told_by: ClassVar[str] = "replay.tuning.text:tuning_document"

    own: tuple[Candidate, Capacity]
    best: tuple[tuple[Candidate, Capacity], ...]
    num_tried: int
    num_alike: int
    is_per_gpu: bool
    asks: int = 0
    border: tuple[BorderValue, ...] = ()
    num_ranked_with: int = 0
    num_beyond: int = 0
    beyond_fit: str | None = None
    at_paces: GainAtPaces | None = None
    asked: TuneAsked | None = None

    def __str__(self) -> str:
        """Return the servers with their capacities, a line each: the file's own, then the best."""
        lines = [f"as it is: {self.own[1]}"]
        for candidate, capacity in self.best:
            changed = ", ".join(map(str, candidate.settings)) or "as it is"
            lines.append(f"best {len(lines)}, {changed}: {capacity}")
        return "\n".join(lines)

    @property
    def objective(self) -> Literal["requests_per_s", "requests_per_s_per_gpu", "requests_per_price"]:
        """What is highest of the best server."""
        if not self.is_per_gpu:
            return "requests_per_s"
        return "requests_per_s_per_gpu" if self.own[0].price_per_hour is None else "requests_per_price"

    @property
    def gain(self) -> float | None:
        """Return the best candidate's rate (per GPU where their number varies) over the file's own, minus 1."""
        if not self.best:
            return None
        mine = score(*self.own, is_per_gpu=self.is_per_gpu)
        return score(*self.best[0], is_per_gpu=self.is_per_gpu) / mine - 1 if mine > 0 else None

    @property
    def gain_interval(self) -> tuple[float, float] | None:
        """Return the gain's 90 % interval, from the ratio for each draw of the requests; None with a single draw.

        As wide as a capacity's, plus ``TOLERANCE``: each of the two rates is found that far below its true value, at
        most. Without this, five of ten intervals held the true gain (docs/validation.md). The pace, as independent of
        the draws, is in it as in a capacity's: of both servers at once, so that most of it cancels.
        """
        if self.gain is None:
            return None
        mine, others = self.own[1], self.best[0][1]
        if not (mine.is_by_seeds and mine.of_parts and others.of_parts):
            return None
        reach = BURSTS * half_width(np.log(others.of_parts) - np.log(mine.of_parts)) + TOLERANCE
        moved = (0.0, 0.0) if self.at_paces is None else (self.at_paces.down, self.at_paces.up)
        below, above = (math.hypot(reach, each) for each in moved)
        return (1 + self.gain) * math.exp(-below) - 1, (1 + self.gain) * math.exp(above) - 1


def search(
    traces: Sequence[Trace],
    candidates: Sequence[Candidate],
    limits: Sequence[RunLimit],
    *,
    keep: int,
    drawing: Drawing | None = None,
    tell: Step = lambda _what, _done, _total: None,
    border: Border | None = None,
) -> Tuned:
    """Return the best ``keep`` of the candidates, the first of which is the file's own server.

    ``border``: gives more candidates as long as the best lies on the border of those that there are. ``drawing``: draws
    the workload with as many requests as it takes; None: the given ones are all there are. ``tell``: called with each
    step's progress. Where GPUs differ in number, or servers in price, the rate per GPU, or for the
    price, counts. Of candidates that are alike, the one with fewer changes is better, then the smaller limits.
    """
    is_per_gpu, num_first = len({each.amount for each in candidates}) > 1, len(candidates)
    asked_of = _Ranking(limits=limits, keep=keep, is_per_gpu=is_per_gpu, drawing=drawing, tell=tell)
    trace, ranks, candidates = _widened(traces[0], candidates, asked_of, border)
    measured = _measured(trace, traces, candidates[0], ranks, limits, keep=keep, drawing=drawing, tell=tell)
    (_, own), *others = measured
    best = _with_capacities(others, is_per_gpu=is_per_gpu)
    top = max((rate for rate, _ in ranks.found), default=0.0)
    asked = max(ranks.undecided, *(each.requests_to_last for _, each in best if each.is_too_short), 0)
    beyond, at_paces = _of_fit((candidates[0], own), best, traces, limits, drawing=drawing, tell=tell)
    return Tuned(
        own=(candidates[0], own),
        best=best,
        num_tried=len(candidates),
        num_ranked_with=len(trace),
        num_beyond=len(candidates) - num_first,
        beyond_fit=beyond,
        at_paces=at_paces,
        num_alike=sum(rate >= top * (1 - ALIKE) for rate, _ in ranks.found),
        is_per_gpu=is_per_gpu,
        asks=asked if asked > max(each.num_requests for _, each in measured) else 0,
        border=() if border is None or not best else tuple(border.of(best[0][0])),
    )


def _with_capacities(
    measured: Sequence[tuple[Candidate, Capacity]], *, is_per_gpu: bool
) -> tuple[tuple[Candidate, Capacity], ...]:
    """Return the candidates that have a capacity with it, best first."""
    able = [(each, found) for each, found in measured if found.rate_per_s is not None]
    capacities = {id(each): found for each, found in able}
    rates = [(score(each, found, is_per_gpu=is_per_gpu), each) for each, found in able]
    return tuple((each, capacities[id(each)]) for _, each in _ranked(rates))


def _of_fit(
    own: tuple[Candidate, Capacity],
    best: Sequence[tuple[Candidate, Capacity]],
    traces: Sequence[Trace],
    limits: Sequence[RunLimit],
    *,
    drawing: Drawing | None,
    tell: Step,
) -> tuple[str | None, GainAtPaces | None]:
    """Return how far the best goes beyond what its twin was fitted on, and how its gain moves with the twin's pace."""
    if not best:
        return None, None
    candidate, found = best[0]
    beyond = None if found.rate_per_s is None else beyond_fit(traces[0], candidate.twin, found.rate_per_s)
    pace = candidate.twin.pace
    if pace is None or candidate is own[0]:
        return beyond, None
    tell("the gain with all steps longer and shorter", 0, 1)
    delta = pace.of(is_beyond=beyond is not None)
    servers = (own[0].twin, own[1]), (candidate.twin, found)
    return beyond, gain_at_paces(*servers, traces, limits, delta=delta, drawing=drawing)


def _measured(
    trace: Trace,
    traces: Sequence[Trace],
    own: Candidate,
    ranks: Ranks,
    limits: Sequence[RunLimit],
    *,
    keep: int,
    drawing: Drawing | None,
    tell: Step,
) -> list[tuple[Candidate, Capacity]]:
    """Return the file's own server and then the best few, each measured with all draws.

    Draws are first shorter: they do where the best is the file's own or clearly better.
    """
    kept = ranks.best(keep)
    full = [own, *(each for each in kept if each is not own)]
    near = dict(ranks.near)
    if drawing is None:
        found = _measured_with(traces, full, limits, near=near, tell=tell)
        return [(own, found[id(own)]), *((each, found[id(each)]) for each in kept)]
    unranked = {id(each): searched(trace, each.twin, limits) for each in full if id(each) not in near}
    near |= {name: each.found for name, each in unranked.items() if each.found.low is not None}
    asks = max([ranks.asks(keep), *(each.asks for each in unranked.values())])
    least = NUM_CLEAR
    for _ in range(MOST_TRIES):
        number = num_drawn(asks, seeds=drawing.seeds, least=least)
        seeds = min(drawing.seeds, max(FEWEST_SEEDS, math.ceil(least / number)))
        found = _measured_with(drawing(number, seeds), full, limits, near=near, tell=tell)
        rates = [(score(each, found[id(each)], is_per_gpu=True), each) for each in kept]
        best = _ranked(rates)[0][1] if kept else own
        measured = (own, found[id(own)]), (best, found[id(best)])
        is_short = any(each.is_too_short for _, each in measured)
        if _is_clear(*measured) or (least == NUM_MEASURED and not is_short):
            break
        least = least if is_short else NUM_MEASURED
        asks = max(asks, *(each.requests_to_last for each in found.values()))
        near = {
            name: HighestRate(low=each.rate_per_s, broken=None, idle=each.idle)
            for name, each in found.items()
        }
    return [(own, found[id(own)]), *((each, found[id(each)]) for each in kept)]


def _measured_with(
    traces: Sequence[Trace],
    candidates: Sequence[Candidate],
    limits: Sequence[RunLimit],
    *,
    near: Mapping[int, HighestRate],
    tell: Step,
) -> dict[int, Capacity]:
    """Return each candidate's capacity for these draws; ``near``: what fewer requests have found."""
    found = {}
    for number, each in enumerate(candidates):
        tell(
            f"measuring the best with {len(traces)} draws of {len(traces[0]):,} requests",
            number,
            len(candidates),
        )
        found[id(each)] = capacity_of_draws(
            traces,
            each.twin,
            limits,
            with_binding=False,
            with_curve=False,
            near=near.get(id(each)) if len(traces) > 1 else None,
        )
    return found


def _is_clear(own: tuple[Candidate, Capacity], best: tuple[Candidate, Capacity]) -> bool:
    """Return whether more requests would change little: the best is the file's own, or better by far more than chance.

    As sure as ``Tuned.gain_interval``, which is narrow beside the gain then.
    """
    if own[1].is_too_short or best[1].is_too_short:
        return False
    if best[0] is own[0]:
        return True
    tuned = Tuned(own=own, best=(best,), num_tried=2, num_alike=1, is_per_gpu=True)
    if tuned.gain is None or tuned.gain_interval is None:
        return False
    low, high = tuned.gain_interval
    return low > 0 and high - low <= CLEAR * tuned.gain


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The candidates that may be among the best: the rate that counts, the server, how many requests suffice.

    ``near``: what the search for each has found. ``undecided``: how many requests it takes to decide whether others are
    among them; 0 if all are decided.
    """

    found: list[tuple[float, Candidate]]
    asks_of: dict[int, int]
    near: dict[int, HighestRate]
    undecided: int

    def best(self, keep: int) -> list[Candidate]:
        """Return the best few, best first."""
        return [candidate for _, candidate in _ranked(self.found)[:keep]]

    def asks(self, keep: int) -> int:
        """Return how many requests it takes to know the best few, and that there are no others."""
        return max(self.undecided, *(self.asks_of[id(each)] for each in self.best(keep)), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranking:
    """What servers are ranked by, and how many of the best are kept; see ``search``."""

    limits: Sequence[RunLimit]
    keep: int
    is_per_gpu: bool
    drawing: Drawing | None
    tell: Step


def _widened(
    trace: Trace, candidates: Sequence[Candidate], by: _Ranking, border: Border | None
) -> tuple[Trace, Ranks, Sequence[Candidate]]:
    """Return the ranking, with candidates beyond the border until those are not clearly better; and all of them."""
    everyone = list(candidates)
    trace, ranks = _long_enough(trace, everyone, by)
    for _ in range(MOST_WIDER if border is not None else 0):
        if border is None or not ranks.found:
            break
        before = max(rate for rate, _ in ranks.found)
        alike = [each for rate, each in ranks.found if rate >= before * (1 - ALIKE)]
        more = border.beyond(ranks.best(1)[0], alike)
        if not more:
            break
        everyone += more
        ranks = _ranks(trace, more, by, known=ranks)
        if by.drawing is not None and ranks.asks(by.keep) > len(trace):
            trace, ranks = _long_enough(trace, _best_first(everyone, ranks), by)
        if max(rate for rate, _ in ranks.found) < before * (1 + ALIKE):
            break
    return trace, ranks, everyone


def _long_enough(trace: Trace, candidates: Sequence[Candidate], by: _Ranking) -> tuple[Trace, Ranks]:
    """Return one draw, a longer one if it was too short to rank all candidates, and its ranking.

    The longer one is given to the best first: one simulation tells of each other one that it is none of them.
    """
    for _ in range(MOST_TRIES):
        ranks = _ranks(trace, candidates, by)
        candidates = _best_first(candidates, ranks)
        if by.drawing is None or ranks.asks(by.keep) <= len(trace):
            break
        (longer,) = by.drawing(num_drawn(ranks.asks(by.keep), seeds=1, least=0), 1)
        if len(longer) <= len(trace):
            break
        trace = longer
    return trace, ranks


def _ranks(
    trace: Trace, candidates: Sequence[Candidate], by: _Ranking, *, known: Ranks | None = None
) -> Ranks:
    """Return one draw's ranking of the candidates, and of those of which it is known already."""
    found: list[tuple[float, Candidate]] = [] if known is None else list(known.found)
    asks_of: dict[int, int] = {} if known is None else dict(known.asks_of)
    near: dict[int, HighestRate] = {} if known is None else dict(known.near)
    undecided = 0 if known is None else known.undecided
    for number, candidate in enumerate(candidates):
        divisor = candidate.amount if by.is_per_gpu else 1
        least = _to_beat(found, by.keep) * divisor
        alike = _alike(found, divisor) if least > 0 else None
        above = highest_above(trace, candidate.twin, by.limits, least=least, alike=alike)
        if above.rate_per_s is None or above.found is None:
            undecided = max(undecided, above.asks)
        else:
            found.append((above.rate_per_s / divisor, candidate))
            asks_of[id(candidate)], near[id(candidate)] = above.asks, above.found
        more = "" if known is None else " beyond the border"
        by.tell(f"ranking servers{more} with {len(trace):,} requests", number + 1, len(candidates))
    return Ranks(found=found, asks_of=asks_of, near=near, undecided=undecided)


def score(candidate: Candidate, capacity: Capacity, *, is_per_gpu: bool) -> float:
    """Return the rate that counts, requests/s (per GPU, or price); 0 where no rate is within the SLO."""
    return (capacity.rate_per_s or 0.0) / (candidate.amount if is_per_gpu else 1)


def _to_beat(found: Sequence[tuple[float, Candidate]], keep: int) -> float:
    """Return the rate from which a candidate may be kept, or is as good as the best; 0 while there is room."""
    rates = sorted((rate for rate, _ in found), reverse=True)
    if len(rates) < keep:
        return 0.0
    return min(rates[keep - 1] * (1 - TOLERANCE), rates[0] * (1 - ALIKE))


def _alike(found: Sequence[tuple[float, Candidate]], divisor: float) -> tuple[float, float]:
    """Return the rates between which a candidate is as good as the best: which of them is plainest then counts."""
    top = max(rate for rate, _ in found) * divisor
    return top * (1 - ALIKE) * (1 + ROUNDING), top * (1 + TOLERANCE)


def _best_first(candidates: Sequence[Candidate], ranks: Ranks) -> list[Candidate]:
    """Return the candidates, those of the highest rates first."""
    rates = {id(each): rate for rate, each in ranks.found}
    return sorted(candidates, key=lambda each: -rates.get(id(each), 0.0))


def _ranked(found: Sequence[tuple[float, Candidate]]) -> list[tuple[float, Candidate]]:
    """Return the candidates best first; among those that are alike, the one with the fewest changes."""
    left, ranked = list(found), []
    while left:
        top = max(rate for rate, _ in left)
        first = min(
            (each for each in left if each[0] >= top * (1 - ALIKE)), key=lambda each: _plainness(each[1])
        )
        left.remove(first)
        ranked.append(first)
    return ranked


def _plainness(candidate: Candidate) -> tuple[int, int, int]:
    engine = candidate.twin.engine
    return len(candidate.settings), engine.max_num_seqs, engine.max_num_batched_tokens
