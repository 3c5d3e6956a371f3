"""What the extended model says of logged steps: the clock's slow state carried through the log's own times."""

from __future__ import annotations

import math

import numpy as np

from calibrate.steps.step_series import StepSeries
from sim import Extended
from sim.latency import throttled_us
from traces.statistics.bootstrap import Floats

US_PER_S = 1e6


def predicted_us(model: Extended, series: StepSeries) -> Floats:
    """Return how long each step takes by the model, without scatter, float64 µs [n]."""
    if model.kappa == 0:
        return model.slowed_us(series.batch, np.ones(len(series)))
    compute = model.compute_us(series.batch)
    alone = model.slowed_us(series.batch, np.ones(len(series)))
    return model.slowed_us(series.batch, np.array(_slowdowns(model, series, compute, alone)))


def _slowdowns(model: Extended, series: StepSeries, compute: Floats, alone: Floats) -> list[float]:
    """Return the factor on each step's computing, from the share of time spent computing before it."""
    tau_us, kappa, u0 = model.tau_s * US_PER_S, model.kappa, model.u0
    duty, before, found = 0.0, -math.inf, []
    columns = (series.begin_us, series.end_us, compute, alone)
    for begin, end, compute_us, usual_us in zip(*(each.tolist() for each in columns), strict=True):
        start = max(end - usual_us, before) if math.isnan(begin) else begin  # NaN: it may have waited
        duty *= math.exp(min(before - start, 0.0) / tau_us)
        slowdown = throttled_us(compute_us, duty, kappa, u0, tau_us) / compute_us if compute_us > 0 else 1.0
        took_us = max(end - start, 1.0)
        faded = math.exp(-took_us / tau_us)
        duty = duty * faded + (1.0 - faded) * min(1.0, compute_us * slowdown / took_us)
        found.append(slowdown)
        before = end
    return found
