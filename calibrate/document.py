"""report.json: what a calibration found, as the versioned document that other programs read."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.bootstrap import Estimate
from calibrate.errors import MetricErrors, Throughput
from calibrate.fit import Fit
from calibrate.gate import Check, Verdict
from calibrate.judge import Calibration, Compared
from calibrate.problem import UNITS
from calibrate.strata import Stratum

SCHEMA_VERSION = 1

Json = dict[str, Any]


def document_of(
    calibration: Calibration, *, command: str, verdict: Verdict | None = None, now: datetime | None = None
) -> Json:
    """Return the report as JSON values: numbers, text, lists, mappings and null; no NaN."""
    found: Json = {
        "schema_version": SCHEMA_VERSION,
        "verdict": None if verdict is None else verdict.outcome,  # only a gate gives one
        "gate": None if verdict is None else gate_json(verdict),
        "fit": None if calibration.fit is None else fit_json(calibration.fit),
        "in_sample": metrics_json(calibration.in_sample),
        "holdout": metrics_json(calibration.holdout),
        "held_out_by": calibration.unseen,
        "noise_floor": None,
        "throughput": {
            "in_sample": throughput_json(calibration.in_sample_throughput),
            "holdout": throughput_json(calibration.holdout_throughput),
        },
        "excluded": calibration.excluded,
        "strata": [stratum_json(stratum) for stratum in calibration.strata],
        "traces": [trace_json(each) for each in calibration.traces],
        "config": config_json(calibration),
        "notes": list(calibration.notes),
        "provenance": provenance_json(calibration, command=command, now=now or datetime.now(UTC)),
    }
    return found


def gate_json(verdict: Verdict) -> Json:
    """Return why the verdict is what it is: obstacles to any comparison, and every check."""
    return {
        "obstacles": list(verdict.obstacles),
        "checks": [check_json(check) for check in verdict.checks],
    }


def check_json(check: Check) -> Json:
    """Return one limit, the error that was held against it, and what came out."""
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
    }


def estimate_json(estimate: Estimate) -> Json:
    """Return {value, low, high}."""
    return asdict(estimate)


def metrics_json(errors: dict[str, MetricErrors]) -> Json:
    """Return the errors by metric, times in µs."""
    return {
        name: {
            "n": each.n,
            "observed": each.observed,
            "simulated": each.simulated,
            "error": {key: estimate_json(value) for key, value in each.error.items()},
            "rel_error": {key: estimate_json(value) for key, value in each.rel_error.items()},
            "mape": estimate_json(each.mape),
            "bias": estimate_json(each.bias),
            "pearson_r": estimate_json(each.pearson_r),
            "ks": estimate_json(each.ks),
            "basis": each.basis,
            "block": each.block,
        }
        for name, each in errors.items()
    }


def throughput_json(rates: Throughput) -> Json:
    """Return both rates of both sides and their relative error."""

    def side(pair: tuple[float | None, float | None]) -> Json:
        observed, simulated = pair
        known = observed and simulated is not None
        rel_error = (simulated or 0.0) / observed - 1 if known and observed else None
        return {"observed": observed, "simulated": simulated, "rel_error": rel_error}

    return {
        "request_throughput": side(rates.request_per_s),
        "output_token_throughput": side(rates.output_token_per_s),
    }


def fit_json(fit: Fit) -> Json:
    """Return the fit: coefficients with intervals, correlations by name, the condition number."""
    names = fit.names
    return {
        "model": fit.model,
        "coefficients": {
            each.name: {
                "value": each.value,
                "low": each.low,
                "high": each.high,
                "unit": UNITS[each.name],
                "fitted": each.fitted,
                "identifiable": each.identifiable,
                "reason": each.reason,
                "prior": None if each.prior is None else {**asdict(each.prior), "leads": each.is_prior_led},
            }
            for each in fit.coefficients
        },
        "correlation": {
            row: {column: float(fit.correlation[i, j]) for j, column in enumerate(names)}
            for i, row in enumerate(names)
        },
        "condition_number": fit.condition_number if math.isfinite(fit.condition_number) else None,
        "loss": fit.loss,
        "noise": fit.noise,
        "n": fit.num_requests,
        "converged": fit.converged,
        "method": fit.method,
        "seconds": round(fit.seconds, 3),
        "async_scheduling": fit.config.engine.async_scheduling,
        "schedule": None if fit.schedule is None else asdict(fit.schedule),
    }


def stratum_json(stratum: Stratum) -> Json:
    """Return one kind of requests with its errors."""
    return {
        "by": stratum.by,
        "low": stratum.low,
        "high": stratum.high,
        "n": stratum.n,
        "mape": {name: estimate_json(each) for name, each in stratum.mape.items()},
        "bias": {name: estimate_json(each) for name, each in stratum.bias.items()},
    }


def trace_json(compared: Compared) -> Json:
    """Return what was compared: which trace, how many of its requests, and why the others are missing."""
    header, pairs = compared.source.trace.header, compared.pairs
    span_us = float(np.ptp(pairs.requests["arrival_us"].to_numpy())) if len(pairs) > 1 else 0.0
    server = header.server
    return {
        "name": compared.source.name,
        "role": compared.role,
        "mode": header.mode,
        "digest": compared.source.digest,
        "num_requests": len(compared.source.trace),
        "num_pairs": len(pairs),
        "num_token_mismatch": pairs.num_token_mismatch,
        "excluded": pairs.excluded,
        "arrival_span_us": span_us,
        "arrival_rate_per_s": (len(pairs) - 1) / span_us * 1e6 if span_us else None,
        "server": {
            "model": server.model,
            "version": server.version,
            "gpu": server.gpu,
            "system_fingerprint": server.system_fingerprint,
        },
        "notes": list(compared.notes),
    }


def config_json(calibration: Calibration) -> Json | None:
    """Return the twin's configuration, None where two traces were compared without one."""
    import yaml

    from replay import dump_config

    if calibration.config is None:
        return None
    parsed: Json = yaml.safe_load(dump_config(calibration.config))
    return parsed


def provenance_json(calibration: Calibration, *, command: str, now: datetime) -> Json:
    """Return what it takes to get the same report again."""
    import platform
    from importlib.metadata import version

    bootstrap = calibration.bootstrap
    return {
        "tool": "vtwin",
        "tool_version": version("vtwin"),
        "command": command,
        "created_at": now.isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in ("numpy", "numba", "scipy", "pandas")},
        "pair_by": calibration.pair_by,
        "intervals": {
            "method": "moving-block bootstrap over requests in order of arrival, percentiles",
            "level": bootstrap.level,
            "replicates": bootstrap.replicates,
            "seed": bootstrap.seed,
        },
    }


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
