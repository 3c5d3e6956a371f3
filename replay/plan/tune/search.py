"""The search among candidates: each is measured only as far as it takes to know that it is not among the best.

All candidates get the same requests. A candidate is first simulated at the rate that it would have to beat; most fail
there and are done. The others are searched from that rate upwards. The best few are then measured with all draws, for
intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from replay.plan.capacity import TOLERANCE, Capacity, find_capacity, highest_above, reach_of
from replay.plan.tune.candidates import Candidate
from traces.run_slo import RunLimit

if TYPE_CHECKING:
    from traces import Trace


ALIKE = 0.02
"""Servers whose rates differ by less count as alike: another draw of the requests would put them in another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What came of a search. ``best``: the best few, best first, each with its capacity; ``own``: the file's server.

    ``num_tried``: candidates simulated, the file's own included. ``num_alike``: of them, those as good as the best.
    """

    own: tuple[Candidate, Capacity]
    best: tuple[tuple[Candidate, Capacity], ...]
    num_tried: int
    num_alike: int
    is_per_gpu: bool

    @property
    def gain(self) -> float | None:
        """Return the best candidate's rate (per GPU where their number varies) over the file's own, minus 1."""
        if not self.best:
            return None
        mine = score(*self.own, is_per_gpu=self.is_per_gpu)
        return score(*self.best[0], is_per_gpu=self.is_per_gpu) / mine - 1 if mine > 0 else None

    @property
    def gain_interval(self) -> tuple[float, float] | None:
        """Return the gain's 90 % interval, from the ratio for each draw of the requests; None with a single draw."""
        if self.gain is None:
            return None
        mine, others = self.own[1], self.best[0][1]
        if not (mine.is_by_seeds and mine.of_parts and others.of_parts):
            return None
        reach = reach_of(np.log(others.of_parts) - np.log(mine.of_parts))
        return (1 + self.gain) * float(np.exp(-reach)) - 1, (1 + self.gain) * float(np.exp(reach)) - 1


def search(
    traces: Sequence[Trace],
    candidates: Sequence[Candidate],
    limits: Sequence[RunLimit],
    *,
    keep: int,
    tell: Callable[[int], None] = lambda _: None,
) -> Tuned:
    """Return the best ``keep`` of the candidates, the first of which is the file's own server.

    ``tell``: called with the number of candidates that are done. Where GPUs differ in number, the rate per GPU counts.
    Of candidates that are alike, the one with fewer changes is better, then the smaller limits.
    """
    is_per_gpu = len({each.num_gpus for each in candidates}) > 1
    found: list[tuple[float, Candidate]] = []
    for number, candidate in enumerate(candidates):
        divisor = (candidate.num_gpus or 1) if is_per_gpu else 1
        least = _to_beat(found, keep) * divisor
        rate = highest_above(traces[0], candidate.twin, limits, least=least)
        if rate is not None:
            found.append((rate / divisor, candidate))
        tell(number + 1)
    kept = [candidate for _, candidate in _ranked(found)[:keep]]
    top = max((rate for rate, _ in found), default=0.0)
    measured = [(each, find_capacity(traces, each.twin, limits, with_binding=False)) for each in kept]
    own = next((each for each in measured if not each[0].settings), None) or (
        candidates[0],
        find_capacity(traces, candidates[0].twin, limits, with_binding=False),
    )
    capacities = {id(each): capacity for each, capacity in measured}
    rates = [
        (score(*each, is_per_gpu=is_per_gpu), each[0]) for each in measured if each[1].rate_per_s is not None
    ]
    return Tuned(
        own=own,
        best=tuple((each, capacities[id(each)]) for _, each in _ranked(rates)),
        num_tried=len(candidates),
        num_alike=sum(rate >= top * (1 - ALIKE) for rate, _ in found),
        is_per_gpu=is_per_gpu,
    )


def score(candidate: Candidate, capacity: Capacity, *, is_per_gpu: bool) -> float:
    """Return the rate that counts, requests/s (per GPU); 0 where no rate is within the SLO."""
    return (capacity.rate_per_s or 0.0) / ((candidate.num_gpus or 1) if is_per_gpu else 1)


def _to_beat(found: Sequence[tuple[float, Candidate]], keep: int) -> float:
    """Return the rate from which on a candidate may be kept, or is as good as the best; 0 while there is room."""
    rates = sorted((rate for rate, _ in found), reverse=True)
    if len(rates) < keep:
        return 0.0
    return min(rates[keep - 1] * (1 - TOLERANCE), rates[0] * (1 - ALIKE))


def _ranked(found: Sequence[tuple[float, Candidate]]) -> list[tuple[float, Candidate]]:
    """Return them best first; of those that are like the best of the rest, the plainest."""
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
