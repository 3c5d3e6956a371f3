"""What grammars cost, from two runs that are equal but for them: with guided requests, and without.

A twin simulates both. What it gets wrong of the plain run it gets wrong of the guided one, too, so that only the change
from one run to the other counts: of each request, by how much TTFT and TPOT grew, observed and simulated. Two numbers
are found, ``engine.guided_compile_us``, which a guided request waits before it can run, and
``engine.guided_mask_us``, which each guided request adds to every step it is in, so to its neighbours' tokens, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibrate.compare.bootstrap import Estimate, Floats, block_length, draw_counts, interval
from traces.errors import TraceError

if TYPE_CHECKING:
    from replay import TwinConfig
    from traces import Trace

METRICS = ("ttft_us", "tpot_us")
NAMES = ("guided_compile_us", "guided_mask_us")
UNITS_US = (100.0, 1.0)
"""Below which a cost counts as none: the search goes by log(1 + cost / unit)."""
STARTS = ((0.0, 1e4, 1e5), (0.0, 30.0, 300.0))
"""µs of each cost where the search may start; the best of all pairs does."""
MIN_PAIRS = 20
STEP = 0.02
"""By how much the search's coordinates move for a slope: 2 % of a cost, several µs of a step."""
REPLICATES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedCost:
    """What was found, µs; ``unexplained``: median change of TTFT and TPOT, as a fraction, that is left over."""

    compile_us: Estimate
    mask_us: Estimate
    num_pairs: int
    num_guided: int
    unexplained: dict[str, float]


def fit_guided(plain: Trace, guided: Trace, config: TwinConfig, *, seed: int = 0) -> GuidedCost:
    """Return what grammars cost in ``guided``, a run of the same requests as ``plain``.

    Raises TraceError for traces that are not equal but for guided requests.
    """
    changes = Changes.of(plain, guided, config)
    starts = [np.log1p([c / UNITS_US[0], m / UNITS_US[1]]) for c in STARTS[0] for m in STARTS[1]]
    start = min(starts, key=lambda at: float(np.sum(np.abs(changes.left(at)))))
    found = least_squares(
        changes.left, start, loss="soft_l1", bounds=(0.0, 20.0), diff_step=STEP, max_nfev=40
    )
    best = np.asarray(found.x, np.float64)
    estimates = _estimates(changes, best, seed=seed)
    return GuidedCost(
        compile_us=estimates[0],
        mask_us=estimates[1],
        num_pairs=changes.num_pairs,
        num_guided=changes.num_guided,
        unexplained={
            name: float(np.median(part * scale))
            for name, part, scale in zip(
                METRICS, np.split(changes.left(best), 2), changes.scales, strict=True
            )
            if len(part)
        },
    )


def costs_of(at: Floats) -> tuple[int, float]:
    """Return (compile, mask) in µs at a place of the search."""
    compile_us, mask_us = np.expm1(at) * np.array(UNITS_US)
    return round(float(compile_us)), float(mask_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """By how much latencies grew from the plain run to the guided one, observed: log ratios of [METRICS, requests].

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
        plain_us = _simulated(plain.with_columns(guided=None), config, (0, 0.0))
        known = np.isfinite(before[0]) & np.isfinite(after[0]) & np.isfinite(plain_us[0])
        rows = np.flatnonzero(known)
        if len(rows) < MIN_PAIRS or not with_grammar[rows].any():
            raise TraceError(
                f"guided: got {len(rows)} requests that both runs finished, {int(with_grammar[rows].sum())} of them "
                f"guided, expected at least {MIN_PAIRS}, some of them guided"
            )
        observed = _growth(after[:, rows], before[:, rows])
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

    def left(self, at: Floats) -> Floats:
        """Return what the simulated changes leave of the observed ones, in typical sizes: [METRICS x requests]."""
        simulated = _simulated(self.guided, self.config, costs_of(at))[:, self.rows]
        off = self.observed - _growth(simulated, self.plain_us)
        return np.asarray(np.nan_to_num(off / self.scales[:, None]).ravel())


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


def _growth(after_us: Floats, before_us: Floats) -> Floats:
    """Return log(after / before), NaN where one of them is not known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(after_us / before_us)
    return np.where(np.isfinite(ratio), ratio, np.nan)


def _simulated(trace: Trace, config: TwinConfig, costs: tuple[int, float]) -> Floats:
    """Return the latencies that a twin with these costs gives."""
    from replay import simulate_trace

    engine = replace(config.engine, guided_compile_us=costs[0], guided_mask_us=costs[1])
    return _latencies(simulate_trace(trace, replace(config, engine=engine), record="none")[0])


def _spread(values: Floats) -> float:
    """Return the typical size of changes around their middle, at least a thousandth."""
    known = values[np.isfinite(values)]
    middle = np.median(known) if len(known) else 0.0
    return max(1.4826 * float(np.median(np.abs(known - middle))) if len(known) else 0.0, 1e-3)


def _estimates(changes: Changes, best: Floats, *, seed: int) -> list[Estimate]:
    """Return both costs with intervals: requests drawn anew in blocks, the search one step on from the best."""
    left = changes.left(best)
    slopes = np.stack([_slope(changes, best, axis) for axis in range(len(NAMES))], axis=1)
    off = left.reshape(len(METRICS), -1)
    counts = draw_counts(
        changes.num_pairs, block_length(off[0]), replicates=REPLICATES, seed=seed, stream=8100
    )
    robust = 1 / np.sqrt(1 + left**2)
    places = []
    for row in counts:
        weight = np.tile(row.astype(np.float64), len(METRICS)) * robust
        normal = slopes.T @ (weight[:, None] * slopes) + 1e-9 * np.eye(len(NAMES))
        places.append(best - np.linalg.solve(normal, slopes.T @ (weight * left)))
    drawn = np.expm1(np.clip(np.array(places), 0.0, 20.0)) * np.array(UNITS_US)
    return [interval(value, drawn[:, i]) for i, value in enumerate(costs_of(best))]


def _slope(changes: Changes, best: Floats, axis: int) -> Floats:
    """Return how what is left changes with one of the costs."""
    up, down = best.copy(), best.copy()
    up[axis], down[axis] = best[axis] + 5 * STEP, max(best[axis] - 5 * STEP, 0.0)
    return np.asarray((changes.left(up) - changes.left(down)) / (up[axis] - down[axis]))
