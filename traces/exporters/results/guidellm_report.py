"""A run as guidellm's ``benchmarks.json`` has it: one benchmark, its metrics and its requests.

Source of the format: guidellm 0.8 schemas/statistics.py (a percentile is the smallest value that so many reach),
schemas/base/request_stats.py and benchmark/schemas/generative/metrics.py. Rates are of the whole run, where guidellm
has their distribution over time: their mean is the same.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.exporters.results.exported_run import ExportedRun

_GROUPS: Final = ("successful", "errored", "incomplete")
_PERCENTILES: Final = {
    **{"p001": 0.001, "p01": 0.01, "p05": 0.05, "p10": 0.1, "p25": 0.25, "p50": 0.5},
    **{"p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999},
}


def guidellm_report(run: ExportedRun) -> dict[str, Any]:
    """Return the report of a run."""
    groups = [_group(run, row) for row in range(len(run))]
    totals = {name: groups.count(name) for name in _GROUPS} | {"total": len(run)}
    rows = {name: [_request(run, at) for at, group in enumerate(groups) if group == name] for name in _GROUPS}
    model = run.header.server.model if run.header.server is not None else None
    return {
        "metadata": {"version": 2, "guidellm_version": None, "written_by": "vtwin"},
        "args": {"model": model},
        "benchmarks": [
            {
                "type_": "generative_benchmark",
                "config": {"strategy": _strategy(run)},
                "scheduler_metrics": {"requests_made": totals},
                "metrics": {"request_totals": totals, **_metrics(run)},
                "requests": {**rows, "total": None},
                "start_time": _unix(run, 0.0),
                "end_time": _unix(run, run.duration),
                "duration": run.duration,
                "warmup_duration": 0.0,
                "cooldown_duration": 0.0,
            }
        ],
    }


def _group(run: ExportedRun, row: int) -> str:
    if run.ok[row]:
        return "successful"
    return "incomplete" if run.status[row] in ("aborted", "incomplete", "stuck") else "errored"


def _strategy(run: ExportedRun) -> dict[str, Any]:
    if run.header.closed_loop is not None:
        users = run.header.closed_loop.concurrency
        return {"type_": "concurrent", "streams": users, "max_concurrency": users}
    return {"type_": "poisson", "rate": run.header.rate_per_s}


def _unix(run: ExportedRun, seconds: float) -> float:
    """Return a Unix time; one that counts from 0 where the run has no date."""
    return (run.header.start_unix_us or 0) / 1e6 + seconds


def _metrics(run: ExportedRun) -> dict[str, Any]:
    seconds = run.duration or math.inf
    output = int(run.output.sum())
    prompt = int(run.prompt[run.ok].sum())
    behind = np.array([gap for gaps in run.gaps for gap in gaps])
    per_token = np.where(run.output > 0, run.e2e / np.maximum(run.output, 1), np.nan)
    values: dict[str, NDArray[np.float64]] = {
        "requests_per_second": np.array([run.ok.sum() / seconds]),
        "request_concurrency": np.array([np.nansum(run.e2e) / seconds]),
        "request_latency": run.e2e,
        "prompt_token_count": run.prompt[run.ok].astype(np.float64),
        "output_token_count": run.output[run.ok].astype(np.float64),
        "total_token_count": (run.prompt + run.output)[run.ok].astype(np.float64),
        "time_to_first_token_ms": run.ttft * 1e3,
        "time_per_output_token_ms": per_token * 1e3,
        "inter_token_latency_ms": behind * 1e3 if len(behind) else run.tpot * 1e3,
        "prompt_tokens_per_second": np.array([prompt / seconds]),
        "output_tokens_per_second": np.array([output / seconds]),
        "tokens_per_second": np.array([(prompt + output) / seconds]),
    }
    return {name: {"successful": _distribution(found)} for name, found in values.items()}


def _distribution(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return the figures of a distribution, zeros of nothing."""
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        known = np.zeros(1)
    found, counts = np.unique(known, return_counts=True)
    ranks = {name: max(math.ceil(share * len(known) - 1e-9) - 1, 0) for name, share in _PERCENTILES.items()}
    percentiles = {name: float(known[rank]) for name, rank in ranks.items()}
    return {
        "mean": float(known.mean()),
        "median": percentiles["p50"],
        "mode": float(found[counts.argmax()]),
        "variance": float(known.var()),
        "std_dev": float(known.std()),
        "min": float(known[0]),
        "max": float(known[-1]),
        "count": int((~np.isnan(values)).sum()),
        "total_sum": float(known.sum()),
        "percentiles": percentiles,
        "pdf": None,
    }


def _request(run: ExportedRun, row: int) -> dict[str, Any]:
    start, output = float(run.start[row]), int(run.output[row])
    answered = bool(run.ok[row])
    first = _unix(run, start + float(run.ttft[row])) if answered else None
    end = _unix(run, start + float(run.e2e[row])) if answered else None
    timings = {
        "targeted_start": _unix(run, start),
        "request_start": _unix(run, start),
        "first_request_iteration": first,
        "first_token_iteration": first,
        "last_token_iteration": end,
        "last_request_iteration": end,
        "request_iterations": len(run.gaps[row]) + 1 if answered else 0,
        "token_iterations": len(run.gaps[row]) + 1 if answered else 0,
        "request_end": end,
    }
    return {
        "type_": "generative_request_stats",
        "request_id": str(row),
        "info": {
            "request_id": str(row),
            "status": run.status[row],
            "timings": timings,
            "error": run.error[row],
        },
        "prompt_tokens": int(run.prompt[row]),
        "output_tokens": output if answered else None,
        "request_start_time": timings["request_start"],
        "request_end_time": end,
        "request_latency": float(run.e2e[row]) if answered else None,
        "time_to_first_token_ms": float(run.ttft[row]) * 1e3 if answered else None,
        "time_per_output_token_ms": float(run.e2e[row]) * 1e3 / output if answered and output else None,
        "inter_token_latency_ms": float(run.tpot[row]) * 1e3 if answered and output > 1 else None,
    }
