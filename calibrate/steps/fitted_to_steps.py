"""A twin fitted to a server's steps, and to its requests for what lies outside of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from calibrate.fit.objective.coefficients import COEFFICIENTS, coefficients_in
from calibrate.fit.objective.fit_trace import LATENCIES, FitTrace
from calibrate.fit.objective.priors import Prior
from calibrate.fit.pipeline import held_coefficient
from calibrate.fit.result import Fit
from calibrate.fit.search import Report
from calibrate.steps.step_fit import StepFit, fit_steps
from calibrate.steps.step_logs import StepLogs
from calibrate.steps.way_in import fit_way_in
from sim import Blackbox

if TYPE_CHECKING:
    from replay import TwinConfig

METHOD = "moving-block bootstrap of the steps' times, and of the requests for the way in"


def steps_of(logs: StepLogs, config: TwinConfig, *, priors: Mapping[str, Prior], seed: int) -> StepFit:
    """Return the steps' coefficients; the ways in and out are those of the configured model."""
    base = Blackbox(
        **{name: getattr(config.latency, name) for name in COEFFICIENTS if name.startswith("alpha")}
    )
    return fit_steps(logs.series, base, priors=priors, seed=seed)


def fit_to_steps(
    logs: StepLogs,
    traces: Sequence[FitTrace],
    config: TwinConfig,
    *,
    priors: Mapping[str, Prior],
    seed: int,
    report: Report | None,
) -> Fit:
    """Return the twin whose steps take what the logs say, and whose way in explains the traces' TTFT."""
    begun = time.monotonic()
    tell: Report = report or (lambda _stage, _loss: None)
    steps = steps_of(logs, config, priors=priors, seed=seed)
    tell("the steps", steps.loss)
    way_in = fit_way_in(traces, config, steps.model, seed=seed, report=tell)
    found = (*way_in.coefficients, *steps.coefficients)
    fitted = {each.name: each for each in found}
    correlation = np.eye(len(found))
    outside = len(way_in.coefficients)
    correlation[:outside, :outside], correlation[outside:, outside:] = way_in.correlation, steps.correlation
    return Fit(
        config=replace(config, latency=way_in.latency),
        coefficients=tuple(
            fitted.get(name) or held_coefficient(name, way_in.latency)
            for name in coefficients_in(way_in.latency)
        ),
        names=tuple(each.name for each in found),
        correlation=correlation,
        condition_number=steps.condition_number,
        loss=way_in.loss,
        noise=dict(zip(LATENCIES, way_in.noise.tolist(), strict=False)),
        num_requests=way_in.num_requests,
        converged=steps.converged,
        method=METHOD,
        seconds=time.monotonic() - begun,
    )
