"""Results on the errors, as JSON values: numbers, text, lists, mappings and null; no NaN."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from calibrate.compare.engine_steps import StepErrors
from calibrate.compare.metric_errors import MetricErrors
from calibrate.compare.phases import PHASE_NAMES, Origin
from calibrate.compare.rates import Rate
from calibrate.compare.served import RateCurve, RatePoint
from calibrate.compare.strata import Stratum
from calibrate.compare.worst_requests import WorstRequest
from calibrate.findings import Calibration
from calibrate.gate.checks import Check
from calibrate.gate.verdict import Verdict
from calibrate.report.suggested_runs import SuggestedRun
from traces import Saturation
from traces.statistics.bootstrap import Estimate

Json = dict[str, Any]


def gate_json(verdict: Verdict) -> Json:
    """Return the reasons of the verdict: obstacles to any comparison, and every check."""
    return {
        "obstacles": list(verdict.obstacles),
        "unknown_flags": list(verdict.unknown_flags),
        "checks": [check_json(check) for check in verdict.checks],
    }


def rate_curve_json(curve: RateCurve | None) -> Json | None:
    """Return the twin's latency over the rate, and what was observed of it; latencies as [median, p99], µs."""
    if curve is None:
        return None
    return {
        "trace": curve.trace,
        "capacity_per_s": curve.capacity_per_s,
        "fitted_to_per_s": curve.fitted_to_per_s,
        "simulated": [_point_json(each) for each in curve.points],
        "observed": {name: _point_json(each) for name, each in curve.observed.items()},
        "not_drawn": dict(curve.elsewhere),
    }


def _point_json(point: RatePoint) -> Json:
    known = {
        f"{name}_us": [None if math.isnan(value) else value for value in values]
        for name, values in point.latencies_us.items()
    }
    return {"rate_per_s": point.rate_per_s, **known}


def check_json(check: Check) -> Json:
    """Return one limit, the error that was compared with it, and the outcome."""
    return {
        **asdict(check.limit),
        "stratum": check.stratum,
        "n": check.n,
        "error": None if check.estimate is None else estimate_json(check.estimate),
        "outcome": check.outcome,
        "warned": check.warned,
        "reason": check.reason,
        "baseline": None if check.before is None else estimate_json(check.before),
        "drift": check.drift,
        "excused": check.excused,
        "set_aside": check.is_set_aside,
    }


def estimate_json(estimate: Estimate) -> Json:
    """Return {value, low, high}."""
    return asdict(estimate)


def metrics_json(errors: Mapping[str, MetricErrors]) -> Json:
    """Return the errors by metric, times in µs."""
    return {
        name: {
            "n": each.n,
            "num_ratios": each.num_ratios,
            "observed": each.observed,
            "simulated": each.simulated,
            "error": {key: estimate_json(value) for key, value in each.error.items()},
            "rel_error": {key: estimate_json(value) for key, value in each.rel_error.items()},
            **{
                key: estimate_json(getattr(each, key))
                for key in ("mape", "bias", "pearson_r", "spearman_r", "ks", "wasserstein_us")
            },
            "mape_expected": None if each.mape_expected is None else estimate_json(each.mape_expected),
            "basis": each.basis,
            "block": each.block,
        }
        for name, each in errors.items()
    }


def rates_json(rates: Mapping[str, Rate]) -> Json:
    """Return a run's rates by name."""
    return {name: asdict(rate) for name, rate in rates.items()}


def calibration_rates_json(calibration: Calibration) -> Json:
    """Return the rates of every part: in sample, held out, the noise floor's, and the capacity of saturated runs."""
    noise = calibration.noise
    return {
        "in_sample": rates_json(calibration.fitted_on.rates),
        "holdout": rates_json(calibration.held_out.rates),
        "noise_floor": None if noise is None else rates_json(noise.accuracy.rates),
        "capacity": rates_json(calibration.held_out.capacity) or None,
    }


def stratum_json(stratum: Stratum) -> Json:
    """Return one kind of requests with its errors."""
    return {
        "by": stratum.by,
        "low": stratum.low,
        "high": stratum.high,
        "value": stratum.value,
        "n": stratum.n,
        "mape": {name: estimate_json(each) for name, each in stratum.mape.items()},
        "bias": {name: estimate_json(each) for name, each in stratum.bias.items()},
    }


def origin_json(origin: Origin | None) -> Json | None:
    """Return the error of E2E by phase: a mean request's times in µs, and shares of the observed E2E."""
    if origin is None:
        return None
    return {
        "basis": origin.basis,
        "n": origin.n,
        "phases": {name.removesuffix("_phase_us"): asdict(phase) for name, phase in origin.phases.items()},
    }


def worst_json(worst: WorstRequest) -> Json:
    """Return one of the worst requests, its phases by name."""
    found = asdict(worst)
    for side in ("observed_phases", "simulated_phases"):
        found[side] = dict(zip(phase_keys(len(found[side])), found[side], strict=True))
    return found


def phase_keys(number: int) -> tuple[str, ...]:
    """Return the names of this many phases of a request: all four, first token and rest, or E2E alone."""
    names = {
        len(PHASE_NAMES): tuple(name.removesuffix("_phase_us") for name in PHASE_NAMES),
        2: ("ttft", "rest"),
    }
    return names.get(number, ("e2e",))


def saturation_json(saturation: Saturation) -> Json:
    """Return whether a run was overloaded, and by which numbers."""
    return asdict(saturation)


def steps_json(steps: StepErrors | None) -> Json | None:
    """Return how far single steps of the engine's log are from the twin's."""
    if steps is None:
        return None
    return {
        "n": len(steps.steps),
        **{key: getattr(steps, key) for key in ("mape", "bias", "pearson_r", "time_error")},
    }


def suggested_run_json(run: SuggestedRun) -> Json:
    """Return a run that would determine coefficients that the traces do not."""
    return {
        "coefficients": list(run.coefficients),
        "shows": run.shows,
        "command": run.command,
    }
