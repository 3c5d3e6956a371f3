"""The way into and out of the engine, given the steps: from the requests' TTFT, in a few simulations of the traces."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from calibrate.fit.objective.coefficients import decimals_of
from calibrate.fit.objective.fit_trace import LOSS_METRICS, FitTrace
from calibrate.fit.objective.objective import FitObjective
from calibrate.fit.pipeline import SPARE_DECIMALS
from calibrate.fit.refinement import descend
from calibrate.fit.search import Report
from calibrate.fit.uncertainty import Coefficient, coefficients_of, flat_surface, uncertainty
from traces import TraceError
from traces.statistics.bootstrap import Floats

if TYPE_CHECKING:
    from replay import TwinConfig
    from sim import Blackbox

NAMES = ("alpha0", "alpha1", "alpha3")
START_US = {"alpha0": 1000.0, "alpha1": 1.0, "alpha3": 20.0}
"""Where the search begins, and the size of its steps."""
MOST_RUNS = 12
MIN_TTFT = 20
TTFT = LOSS_METRICS.index("ttft_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class WayIn:
    """The latency model with its ways in, and their ``coefficients``. ``noise``: relative, of a request's latencies."""

    latency: Blackbox
    coefficients: tuple[Coefficient, ...]
    correlation: Floats
    loss: float
    noise: Floats
    num_requests: int


def fit_way_in(
    traces: Sequence[FitTrace], config: TwinConfig, latency: Blackbox, *, seed: int, report: Report
) -> WayIn:
    """Return what the requests' TTFT says of the way in, the steps being as ``latency`` has them.

    Raises TraceError for fewer than ``MIN_TTFT`` requests.
    """
    only_first = tuple(_ttft_of(each) for each in traces)
    number = sum(each.num_used for each in only_first)
    if number < MIN_TTFT:
        raise TraceError(
            f"--steps: got {number} requests with a TTFT, expected at least {MIN_TTFT} beside the steps"
        )
    start = np.array([START_US[name] for name in NAMES])
    objective = FitObjective(traces=only_first, engine=config.engine, names=NAMES, base=latency, scale=start)
    theta = start
    for _ in range(2):  # once more with the noise as measured
        objective = objective.with_noise_of(objective.simulate(theta))
        loss, theta = descend(
            objective, theta, report=lambda loss: report("the way in", loss), max_runs=MOST_RUNS
        )
    spread = uncertainty(objective, theta, surface=flat_surface(objective, theta, seed=seed), seed=seed)
    found = coefficients_of(NAMES, theta, spread=spread, scale=start, priors={})
    values = {each.name: round(each.value, decimals_of(each.name) - SPARE_DECIMALS) for each in found}
    return WayIn(
        latency=replace(latency, **values),
        coefficients=tuple(found),
        correlation=spread.correlation,
        loss=loss,
        noise=objective.with_noise_of(objective.on(tuple(traces)).simulate(theta)).noise,
        num_requests=number,
    )


def _ttft_of(trace: FitTrace) -> FitTrace:
    """Return a trace of which only the TTFT takes part in the loss."""
    rows = np.arange(len(LOSS_METRICS)) == TTFT
    return replace(trace, observed_us=np.where(rows[:, None], trace.observed_us, np.nan))
