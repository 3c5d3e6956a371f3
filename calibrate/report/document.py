"""report.json: a calibration's results, as the versioned document that other programs read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from calibrate.findings import Calibration, Compared
from calibrate.fit.objective.coefficients import UNITS
from calibrate.fit.result import Fit
from calibrate.fit.uncertainty import Coefficient
from calibrate.gate.verdict import Verdict
from calibrate.report.findings_json import (
    Json,
    calibration_rates_json,
    gate_json,
    metrics_json,
    origin_json,
    rate_curve_json,
    saturation_json,
    steps_json,
    stratum_json,
    suggested_run_json,
    worst_json,
)
from calibrate.report.suggested_runs import suggested_runs
from calibrate.report.warnings import warnings_of
from calibrate.verdict_text import verdict_text
from traces import mean_rate_per_s, tool_version

SCHEMA_VERSION = 1


def document_of(
    calibration: Calibration, *, command: str, verdict: Verdict | None = None, now: datetime | None = None
) -> Json:
    """Return the report as JSON values: numbers, text, lists, mappings and null; no NaN."""
    options, warned = calibration.options, warnings_of(calibration)
    found: Json = {
        "schema_version": SCHEMA_VERSION,
        "verdict": None if verdict is None else verdict.outcome,  # only a gate gives one
        "verdict_text": verdict_text(calibration, has_warnings=bool(warned)),
        "gate": None if verdict is None else gate_json(verdict),
        "fit": None if calibration.fit is None else fit_json(calibration.fit),
        "in_sample": metrics_json(calibration.in_sample),
        "holdout": metrics_json(calibration.holdout),
        "held_out_by": calibration.unseen,
        "noise_floor": metrics_json(calibration.noise_floor) or None,
        "repeats": []
        if calibration.noise is None
        else [list(couple) for couple in calibration.noise.couples],
        "rates": calibration_rates_json(calibration),
        "equivalence": {name: asdict(each) for name, each in calibration.equivalence.items()} or None,
        "error_origin": origin_json(calibration.origin),
        "bands": {name: asdict(band) for name, band in calibration.bands.items()} or None,
        "run_to_run": None if calibration.pairs.again is None else asdict(calibration.options.run_to_run),
        "worst": [worst_json(each) for each in calibration.worst],
        "reveals": [suggested_run_json(each) for each in suggested_runs(calibration)],
        "of_saturated": calibration.held_out.of_saturated,
        "network": None if options.network is None else asdict(options.network),
        "slo_us": dict(options.slo_us) or None,
        "excluded": calibration.excluded,
        "strata": [stratum_json(stratum) for stratum in calibration.strata],
        "traces": [trace_json(each) for each in calibration.traces],
        "config": config_json(calibration),
        "rate_curve": rate_curve_json(calibration.rate_curve),
        "pace_today": None if calibration.pace_today is None else asdict(calibration.pace_today),
        "beyond_load": None if calibration.beyond is None else asdict(calibration.beyond),
        "warnings": list(warned),
        "cautions": list(warned),  # its name in earlier reports
        "notes": list(calibration.notes),
        "provenance": provenance_json(calibration, command=command, now=now or datetime.now(UTC)),
    }
    return found


def coefficients_json(coefficients: Iterable[Coefficient]) -> Json:
    """Return coefficients with intervals, units, priors and why the traces do not determine them, by name."""
    return {
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
        for each in coefficients
    }


def fit_json(fit: Fit) -> Json:
    """Return the fit: coefficients with intervals, correlations by name, the condition number."""
    names = fit.names
    return {
        "model": fit.model,
        "coefficients": coefficients_json(fit.coefficients),
        "blackbox": coefficients_json(fit.blackbox) or None,
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
        "candidates": [asdict(each) for each in fit.candidates],
    }


def trace_json(compared: Compared) -> Json:
    """Return the compared traces: which, how many of their requests, and why the others are missing."""
    header, pairs = compared.source.trace.header, compared.pairs
    arrival = pairs.requests["arrival_us"].to_numpy(np.float64)
    span_us = float(np.ptp(arrival)) if len(pairs) > 1 else 0.0
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
        "arrival_rate_per_s": mean_rate_per_s(arrival, header.rate_per_s),
        "saturation": saturation_json(compared.saturation),
        "load": None
        if compared.judged is None
        else {"verdict": compared.judged.verdict, **compared.judged.facts},
        "steps": steps_json(compared.steps),
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
    """Return everything needed to reproduce the report."""
    import platform
    from importlib.metadata import version

    bootstrap = calibration.bootstrap
    return {
        "tool": "vtwin",
        "tool_version": tool_version(),
        "command": command,
        "created_at": now.isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in ("numpy", "numba", "scipy", "pandas")},
        "pair_by": calibration.options.pair_by,
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
