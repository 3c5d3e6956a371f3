"""What grammars cost, from two runs that are equal but for them: with guided requests, and without.

A twin simulates both. What it gets wrong of the plain run it gets wrong of the guided one, too, so that only the change
from one run to the other counts: of each request, by how many µs TTFT and TPOT grew, observed and simulated. Two
numbers are found, ``engine.guided_compile_us``, which a guided request waits before it can run, and
``engine.guided_mask_us``, which each guided request adds to every step it is in, so to its neighbours' tokens, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrate.compare.bootstrap import Estimate, Floats, block_length, draw_counts, interval
from traces.errors import TraceError

if TYPE_CHECKING:
    from replay import TwinConfig
    from traces import Trace

METRICS = ("ttft_us", "tpot_us")
NAMES = ("guided_compile_us", "guided_mask_us")
STARTS_US = ((0.0, 1e4, 1e5, 1e6), (0.0, 30.0, 300.0, 3000.0))
"""Of each cost where the search may start; the best of all pairs does."""
MIN_PAIRS = 20
REACHES = (2.0, 0.5, 0.2, 0.1)
"""How far around the best so far the next simulations are, times the cost."""
LEAST_REACH_US = (2000.0, 10.0)
NUM_POINTS = 32
ROUNDS = 8
REPLICATES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedCost:
    """What was found, µs; ``unexplained_us``: median change of TTFT and TPOT that is left over."""

    compile_us: Estimate
    mask_us: Estimate
    num_pairs: int
    num_guided: int
    unexplained_us: dict[str, float]


def fit_guided(plain: Trace, guided: Trace, config: TwinConfig, *, seed: int = 0) -> GuidedCost:
    """Return what grammars cost in ``guided``, a run of the same requests as ``plain``.

    Raises TraceError for traces that are not equal but for guided requests.
    """
    changes = Changes.of(plain, guided, config)
    starts = [np.array([compile_us, mask_us]) for compile_us in STARTS_US[0] for mask_us in STARTS_US[1]]
    costs = min(starts, key=lambda at: float(np.sum(np.abs(changes.left(at)))))
    for reach in REACHES:
        surface = Surface.around(costs, changes, reach=reach, seed=seed)
        costs = np.maximum(surface.best(np.ones(changes.num_pairs)), 0.0)
    estimates = _estimates(surface, costs, seed=seed)
    return GuidedCost(
        compile_us=estimates[0],
        mask_us=estimates[1],
        num_pairs=changes.num_pairs,
        num_guided=changes.num_guided,
        unexplained_us={
            name: float(np.median(part * scale))
            for name, part, scale in zip(METRICS, changes.left(costs), changes.scales, strict=True)
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What is left of each change as a plane over the two costs, [METRICS x requests] at ``centre``, and its slopes.

    When a request arrives within a step is chance, and so is a part of each simulated change; a plane through many
    simulations has less of it than a difference of two.
    """

    centre: Floats
    level: Floats
    slopes: Floats
    num_pairs: int

    @staticmethod
    def around(centre: Floats, changes: Changes, *, reach: float, seed: int) -> Surface:
        """Return the plane through simulations at costs up to ``reach`` x the centre away, or ``LEAST_REACH_US``."""
        width = np.maximum(reach * centre, np.array(LEAST_REACH_US))
        generator = np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), 8101]))
        points = np.maximum(centre + width * generator.uniform(-1, 1, size=(NUM_POINTS, len(NAMES))), 0.0)
        left = np.stack([changes.left(point).ravel() for point in points])
        design = np.column_stack([np.ones(NUM_POINTS), points - centre])
        plane = np.linalg.lstsq(design, left, rcond=None)[0]
        return Surface(centre=centre, level=plane[0], slopes=plane[1:].T, num_pairs=changes.num_pairs)

    def best(self, counts: Floats) -> Floats:
        """Return the costs that leave the least, each request taken ``counts`` times, far-off ones weighing less."""
        weight, costs = np.tile(counts, len(METRICS)), self.centre
        for _ in range(ROUNDS):
            left = self.level + self.slopes @ (costs - self.centre)
            robust = weight / np.sqrt(1 + left**2)
            normal = self.slopes.T @ (robust[:, None] * self.slopes) + 1e-15 * np.eye(len(NAMES))
            costs = self.centre - np.linalg.solve(normal, self.slopes.T @ (robust * self.level))
        return np.asarray(costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """By how much latencies grew from the plain run to the guided one, observed: µs, [METRICS, requests].

    ``plain_us``: the simulated plain run's latencies; ``rows``: the requests that both runs finished.
    """

    guided: Trace
    config: TwinConfig
    observed: Floats
    plain_us: Floats
    rows: NDArray[np.int64]
    scales: Floats
    num_guided: int

    @staticmethod
    def of(plain: Trace, guided: Trace, config: TwinConfig) -> Changes:
        """Return the changes between two runs. Raises TraceError where they are not equal but for guided requests."""
        with_grammar = guided.column("guided").fillna(False).to_numpy(bool)
        _check_alike(plain, guided, num_guided=int(with_grammar.sum()))
        before, after = _latencies(plain), _latencies(guided)
        plain_us = _simulated(plain, config, (0, 0.0))
        known = np.isfinite(before[0]) & np.isfinite(after[0]) & np.isfinite(plain_us[0])
        rows = np.flatnonzero(known)
        if len(rows) < MIN_PAIRS or not with_grammar[rows].any():
            raise TraceError(
                f"guided: got {len(rows)} requests that both runs finished, {int(with_grammar[rows].sum())} of them "
                f"guided, expected at least {MIN_PAIRS}, some of them guided"
            )
        observed = after[:, rows] - before[:, rows]
        spread = np.array([_spread(part) for part in observed])
        return Changes(
            guided=guided,
            config=config,
            observed=observed,
            plain_us=plain_us[:, rows],
            rows=rows,
            scales=spread,
            num_guided=int(with_grammar[rows].sum()),
        )

    @property
    def num_pairs(self) -> int:
        """How many requests both runs finished."""
        return len(self.rows)

    def left(self, costs_us: Floats) -> Floats:
        """Return what the simulated changes leave of the observed ones, in typical sizes: [METRICS, requests]."""
        costs = (round(float(costs_us[0])), float(costs_us[1]))
        simulated = _simulated(self.guided, self.config, costs)[:, self.rows]
        off = self.observed - (simulated - self.plain_us)
        return np.asarray(np.nan_to_num(off / self.scales[:, None]))


def _check_alike(plain: Trace, guided: Trace, *, num_guided: int) -> None:
    same = len(plain) == len(guided) and bool(
        (plain.requests["request_id"].to_numpy() == guided.requests["request_id"].to_numpy()).all()
    )
    if not same:
        raise TraceError(
            "guided: got two traces of different requests, expected the same ones in the same order"
        )
    if num_guided == 0:
        raise TraceError(
            "guided: got a trace without guided requests, expected some (observe --guided SCHEMA.json)"
        )
    if plain.column("guided").fillna(False).any():
        raise TraceError("guided: got a plain run with guided requests, expected none")


def _latencies(trace: Trace) -> Floats:
    from traces import request_metrics

    metrics = request_metrics(trace)
    return np.stack([metrics[name].to_numpy(dtype=np.float64) for name in METRICS])


def _simulated(trace: Trace, config: TwinConfig, costs: tuple[int, float]) -> Floats:
    """Return the latencies that a twin with these costs gives."""
    from replay import simulate_trace

    engine = replace(config.engine, guided_compile_us=costs[0], guided_mask_us=costs[1])
    return _latencies(simulate_trace(trace, replace(config, engine=engine), record="none")[0])


def _spread(values: Floats) -> float:
    """Return the typical size of changes around their middle, at least a microsecond."""
    known = values[np.isfinite(values)]
    middle = np.median(known) if len(known) else 0.0
    return max(1.4826 * float(np.median(np.abs(known - middle))) if len(known) else 0.0, 1.0)


def _estimates(surface: Surface, costs: Floats, *, seed: int) -> list[Estimate]:
    """Return both costs with intervals: the best of requests drawn anew in blocks."""
    block = max(block_length(part) for part in surface.level.reshape(len(METRICS), -1))
    counts = draw_counts(surface.num_pairs, block, replicates=REPLICATES, seed=seed, stream=8100)
    drawn = np.array([np.maximum(surface.best(row.astype(np.float64)), 0.0) for row in counts])
    return [interval(value, drawn[:, i]) for i, value in enumerate(costs.tolist())]
