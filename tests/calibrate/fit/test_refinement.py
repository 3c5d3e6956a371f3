"""The refinement follows a valley in which two coefficients stand in for each other, over a rugged loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest

from calibrate.fit.initial_guess import natural_scale
from calibrate.fit.objective.coefficients import FITTED
from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.objective.many_runs import loss_around
from calibrate.fit.objective.objective import FitObjective
from calibrate.fit.objective.simulated_trace import SimulatedTrace
from calibrate.fit.refinement import Refined, refine, restarted, surroundings
from calibrate.fit.response_surface import reach_around, sample_shaped, sample_surface
from calibrate.fit.uncertainty import flat_surface, uncertainty
from sim import Blackbox, EngineConfig, Extended
from tests.calibrate.known_servers import ENGINE, GUESS, observed, workload
from traces.statistics.bootstrap import Floats

TRUTH = np.array([4000.0, 9000.0, 20.0])
NAMES = ("beta0", "floor", "beta1")
RUGGED = 0.04
NUM_REQUESTS = 200
NUM_STARTS = 15


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Valley(FitObjective):
    """Steps of requests alone: beta0 + hypot(floor, beta1 x tokens), and a staircase that no slope follows."""

    tokens: Floats
    rugged: float = RUGGED

    def simulate(self, theta: Floats) -> list[SimulatedTrace]:
        beta0, floor, beta1 = theta
        phase = np.sin(np.outer(np.arange(1, len(self.tokens) + 1), theta).sum(axis=1) * 7.7)
        lasts = (beta0 + np.hypot(floor, beta1 * self.tokens)) * np.exp(self.rugged * phase)
        rows = np.stack([lasts, *[np.full(len(lasts), np.nan)] * 3])
        return [SimulatedTrace(latency_us=rows, timeline=self.traces[0].observed_timeline)]


def valley(*, seed: int, rugged: float = RUGGED) -> Valley:
    generator = np.random.default_rng(seed)
    tokens = np.exp(generator.uniform(np.log(50), np.log(1500), NUM_REQUESTS))
    lasts = TRUTH[0] + np.hypot(TRUTH[1], TRUTH[2] * tokens)
    trace = fit_trace(observed(workload(NUM_REQUESTS, rate=5, seed=1)), GUESS, name="a")
    requests = dataclasses.replace(trace.requests, prompt_tokens=tokens.astype(np.int64))
    seen = lasts * np.exp(0.03 * generator.normal(size=NUM_REQUESTS))
    observed_us = np.stack([seen, *[np.full(NUM_REQUESTS, np.nan)] * 3])
    return Valley(
        traces=(dataclasses.replace(trace, requests=requests, observed_us=observed_us),),
        engine=EngineConfig(),
        names=NAMES,
        base=Extended(),
        scale=np.array([15_000.0, 15_000.0, 30.0]),
        noise=np.full(4, 0.03),
        tokens=tokens,
        rugged=rugged,
    )


def refined(objective: Valley, start: Sequence[float]) -> Refined:
    """Return what a fit takes for the optimum: where a restart, and the surfaces around its end, lead to."""

    def quiet(_stage: str, _loss: float) -> None:
        return None

    again = restarted(refine(objective, np.array(start), report=quiet), report=quiet)
    return surroundings(again.refined, seed=3).at


@pytest.fixture(scope="module", params=[(9000.0, 3500.0, 17.5), (500.0, 12_500.0, 21.5)])
def end(request: pytest.FixtureRequest) -> tuple[Floats, list[Refined]]:
    """An end of the valley, and where the refinement leads from 15 starts within 1 % of it.

    The last bit of a loss decides which step of the staircase a search ends on: one place says little, the median of
    many does not depend on the machine's arithmetic.
    """
    start = np.array(cast("tuple[float, float, float]", request.param))
    near = start * (1 + 0.01 * np.random.default_rng(7).uniform(-1, 1, size=(NUM_STARTS, len(start))))
    return start, [refined(valley(seed=5), each.tolist()) for each in near]


def test_from_both_ends_of_a_valley_the_loss_comes_down_to_its_bottom(
    end: tuple[Floats, list[Refined]],
) -> None:
    start, found = end
    smooth = valley(seed=5, rugged=0.0)  # without the staircase
    bottom = loss_around(smooth, refined(smooth, TRUTH.tolist()).theta)
    assert loss_around(smooth, start) > 1.2 * bottom
    assert np.median([loss_around(smooth, each.theta) for each in found]) < 1.15 * bottom


def test_from_both_ends_of_a_valley_the_refinement_moves_towards_the_truth(
    end: tuple[Floats, list[Refined]],
) -> None:
    start, found = end
    assert abs(np.median([each.theta[0] for each in found]) - TRUTH[0]) < 0.7 * abs(start[0] - TRUTH[0])


def test_shaped_points_find_the_slopes_also_where_a_limit_cuts_them_off() -> None:
    objective = valley(seed=6, rugged=0.0)
    at = np.array([300.0, 9000.0, 20.0])
    root = np.linalg.cholesky(
        np.array([[4e4, -3e4, 0.0], [-3e4, 4e4, 0.0], [0.0, 0.0, 0.01]])
    )  # beta0 is cut off at 0
    surface = sample_shaped(objective, at, root=3 * root, seed=1)
    step = np.array([1.0, 1.0, 1e-3])
    exact = np.stack(
        [
            (
                objective.residuals(objective.simulate(at + d))[0][0]
                - objective.residuals(objective.simulate(at))[0][0]
            )
            / d.max()
            for d in np.diag(step)
        ]
    )
    assert surface.slopes[0][:, 0] / objective.scale[:, None] == pytest.approx(exact, rel=0.1, abs=1e-5)
    assert surface.means[0][0] == pytest.approx(objective.residuals(objective.simulate(at))[0][0], abs=0.05)


def test_points_far_enough_off_give_blackbox_narrow_intervals_that_hold() -> None:
    truth, names = np.array([4000.0, 5.0, 12000.0, 60.0, 500.0]), (*FITTED[:2], *FITTED[3:])
    traces = tuple(
        fit_trace(observed(workload(60, rate=rate, seed=rate), noise=0.08, seed=rate), GUESS, name=str(rate))
        for rate in (3, 9)
    )
    objective = FitObjective(
        traces=traces, engine=ENGINE, names=names, base=Blackbox(), scale=natural_scale(traces, names)
    )
    objective = objective.with_noise_of(objective.simulate(truth))
    near = sample_surface(objective, truth, reach=reach_around(objective, truth, relative=0.02), seed=1)
    low, high, too_low, too_high = (
        end
        for surface in (flat_surface(objective, truth, seed=1), near)
        for end in np.quantile(
            uncertainty(objective, truth, surface=surface, seed=1).replicates, [0.05, 0.95], axis=0
        )
    )
    beta0, beta1, beta2 = ((high - low) / truth)[2:]
    assert beta0 < 0.02
    assert max(beta1, beta2) < 0.15
    assert np.all((high - low)[2:] < 0.6 * (too_high - too_low)[2:])
    assert np.all((low <= truth) & (truth <= high))
