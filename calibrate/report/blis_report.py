"""The comparison in the fields of BLIS's calibration report (inference-sim f90a1e3), its quality labels included.

Its conventions, not ours: percentage errors have no sign, ITL is of each request's mean, and the labels come from fixed
cut-offs of MAPE and Pearson's R.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrate.findings import Calibration
from traces.statistics.bootstrap import Floats

Json = dict[str, Any]

PERCENTILES = {"median": 50, "p50": 50, "p90": 90, "p95": 95, "p99": 99}
QUALITY = (("excellent", 0.10, 0.95), ("good", 0.20, 0.85), ("fair", 0.35, 0.70))
"""The word for a MAPE below and a Pearson's R above; else poor."""
METRICS = {"e2e": "e2e_us", "itl": "itl_mean_us", "ttft": "ttft_us"}
TTFT_THRESHOLD = 0.15
LEAST_FOR_R = 3
HIT_TOLERANCE_PP = 5.0
"""The last three are BLIS's own cut-offs."""
LIMITATIONS = (
    "Written by vtwin: the simulation is vtwin's, the fields and their definitions are BLIS's.",
    "Percentage errors are of magnitudes; quality labels come from fixed cut-offs and ignore noise.",
)


def blis_report(calibration: Calibration) -> Json:
    """Return the document; times in µs, fractions as fractions."""
    pairs = calibration.pairs
    metrics = {}
    for name, column in METRICS.items():
        real, simulated = (side[column].to_numpy() for side in (pairs.observed, pairs.simulated))
        known = np.isfinite(real) & np.isfinite(simulated)
        if known.any():
            metrics[name] = blis_metric(real[known], simulated[known])
    report: Json = {
        "trace_info": {
            "num_requests": sum(len(each.source.trace) for each in calibration.traces),
            "warm_up_excluded": calibration.excluded.get("warmup", 0),
            "matched_pairs": len(pairs),
            "token_mismatches": pairs.num_token_mismatch,
        },
        "metrics": metrics,
        "config_match": {},
        "known_limitations": list(LIMITATIONS),
    }
    if "ttft" in metrics:
        mape = metrics["ttft"]["request_level"]["mape"]
        report["ttft_tolerance"] = {
            "mape": mape,
            "threshold": TTFT_THRESHOLD,
            "within": mape <= TTFT_THRESHOLD,
        }
    return report | _rates(calibration)


def blis_metric(real: Floats, simulated: Floats) -> Json:
    """Return one metric as BLIS reports it, from each request's two values."""
    level: Json = {}
    for name, values in {"mean": (real.mean(), simulated.mean()), **_percentiles(real, simulated)}.items():
        observed, predicted = float(values[0]), float(values[1])
        error = predicted - observed
        level[f"real_{name}"], level[f"sim_{name}"] = observed, predicted
        level[f"{name}_error"] = error
        level[f"{name}_percent_error"] = abs(error) / observed if observed else 0.0
    told = real != 0
    mape = float(np.mean(np.abs(simulated - real)[told] / real[told])) if told.any() else 0.0
    varies = len(real) >= LEAST_FOR_R and np.ptp(real) > 0 and np.ptp(simulated) > 0
    r = float(np.corrcoef(real, simulated)[0, 1]) if varies else 0.0
    bias = float(np.sum(simulated - real))
    return {
        "workload_level": level,
        "request_level": {
            "mape": mape,
            "pearson_r": r,
            "bias_direction": "over-predict" if bias > 0 else "under-predict" if bias < 0 else "neutral",
            "quality": quality(mape, r),
        },
        "count": len(real),
    }


def quality(mape: float, r: float) -> str:
    """Return BLIS's word for a MAPE and a Pearson's R."""
    return next((word for word, most, least in QUALITY if mape < most and r > least), "poor")


def _percentiles(real: Floats, simulated: Floats) -> dict[str, tuple[float, float]]:
    return {
        name: (float(np.percentile(real, at)), float(np.percentile(simulated, at)))
        for name, at in PERCENTILES.items()
    }


def _rates(calibration: Calibration) -> Json:
    """Return goodput and cache hits where they were compared."""
    rates = calibration.held_out.rates
    found: Json = {}
    good, share = rates.get("goodput"), rates.get("good_frac")
    if good is not None and share is not None:
        found["goodput"] = {
            "default": {
                "count": good.n,
                "real_slo_attainment": share.observed,
                "sim_slo_attainment": share.simulated,
                "real_goodput_rps": good.observed,
                "sim_goodput_rps": good.simulated,
            }
        }
    hits = rates.get("prefix_hit_frac")
    if hits is not None and hits.error.value is not None:
        difference = 100 * abs(hits.error.value)
        found["hit_rate"] = {
            "real_hit_rate": hits.observed,
            "sim_hit_rate": hits.simulated,
            "abs_error_pp": difference,
            "tolerance_pp": HIT_TOLERANCE_PP,
            "within": difference <= HIT_TOLERANCE_PP,
            "source": hits.basis,
        }
    return found
