"""A run as genai-perf's ``profile_export_genai_perf.json`` has it: the figures of each metric, no requests.

aiperf's ``profile_export_aiperf.json`` has the same metrics under the same names and units.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.exporters.results.exported_run import ExportedRun

_PERCENTILES: Final = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def genai_perf_summary(run: ExportedRun) -> dict[str, Any]:
    """Return each metric with its unit and figures; rates have an average alone."""
    seconds = run.duration or math.inf
    second = np.array([gaps[0] if gaps else math.nan for gaps in run.gaps])
    model = run.header.server.model if run.header.server is not None else None
    return {
        "request_throughput": {"unit": "requests/sec", "avg": run.ok.sum() / seconds},
        "request_latency": _figures("ms", run.e2e * 1e3),
        "request_count": {"unit": "count", "avg": float(run.ok.sum())},
        "time_to_first_token": _figures("ms", run.ttft * 1e3),
        "time_to_second_token": _figures("ms", second * 1e3),
        "inter_token_latency": _figures("ms", run.tpot * 1e3),
        "output_token_throughput": {"unit": "tokens/sec", "avg": float(run.output.sum()) / seconds},
        "output_token_throughput_per_user": _figures("tokens/sec/user", 1 / run.tpot),
        "output_sequence_length": _figures("tokens", run.output[run.ok].astype(np.float64)),
        "input_sequence_length": _figures("tokens", run.prompt[run.ok].astype(np.float64)),
        "input_config": {"model_names": [] if model is None else [model], "written_by": "vtwin"},
    }


def _figures(unit: str, values: NDArray[np.float64]) -> dict[str, Any]:
    """Return a metric's unit and figures; the unit alone where nothing was measured."""
    known = values[np.isfinite(values)]
    if not len(known):
        return {"unit": unit}
    return {
        "unit": unit,
        "avg": float(known.mean()),
        **{f"p{percent}": float(np.percentile(known, percent)) for percent in _PERCENTILES},
        "min": float(known.min()),
        "max": float(known.max()),
        "std": float(known.std()),
    }
