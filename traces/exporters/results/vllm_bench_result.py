"""A run as ``vllm bench serve --save-result --save-detailed`` writes it.

Source of the format: vLLM 0.32 benchmarks/serve.py: rates count answered requests over the run's duration; ITL pools
the times between events; percentiles interpolate; a request that failed has 0 output tokens and no times.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.exporters.results.exported_run import ExportedRun

_PERCENTILES: Final = (50, 90, 95, 99)


def vllm_bench_result(run: ExportedRun) -> dict[str, Any]:
    """Return the result of a run: its figures, then its requests, a value each in parallel lists."""
    return {**_said(run), **_rates(run), **_latencies(run), **_details(run)}


def _said(run: ExportedRun) -> dict[str, Any]:
    """Return what the run was asked to do."""
    header = run.header
    start_us, client = header.start_unix_us, header.client
    users = None if header.closed_loop is None else header.closed_loop.concurrency
    return {
        "date": "" if start_us is None else f"{datetime.fromtimestamp(start_us / 1e6, UTC):%Y%m%d-%H%M%S}",
        "endpoint_type": "vllm",
        "backend": "vllm",
        "label": None if header.mode == "real" else "simulated by vtwin",
        "model_id": header.server.model if header.server is not None else None,
        "tokenizer_id": header.server.model if header.server is not None else None,
        "num_prompts": len(run),
        "request_rate": "inf" if header.rate_per_s is None else header.rate_per_s,
        "max_concurrency": users if users is not None or client is None else client.max_concurrency,
    }


def _rates(run: ExportedRun) -> dict[str, Any]:
    seconds = run.duration or math.inf
    answered = int(run.ok.sum())
    prompt, output = int(run.prompt[run.ok].sum()), int(run.output.sum())
    tokens, requests = _peaks(run)
    return {
        "duration": run.duration,
        "completed": answered,
        "failed": len(run) - answered,
        "total_input_tokens": prompt,
        "total_output_tokens": output,
        "request_throughput": answered / seconds,
        "output_throughput": output / seconds,
        "total_token_throughput": (prompt + output) / seconds,
        "max_output_tokens_per_s": tokens,
        "max_concurrent_requests": requests,
    }


def _peaks(run: ExportedRun) -> tuple[float, int]:
    """Return the most events, and the most requests in flight, of any second from the first answered request on."""
    if not run.ok.any():
        return 0.0, 0
    start, end = run.start[run.ok], (run.start + run.e2e)[run.ok]
    origin = start.min()
    events = np.concatenate(
        [
            run.start[row] + run.ttft[row] + np.cumsum([0.0, *run.gaps[row]])
            for row in np.flatnonzero(run.ok).tolist()
        ]
    )
    seconds = np.bincount((events - origin).astype(np.int64))
    first, last = (start - origin).astype(np.int64), (end - origin).astype(np.int64)
    changes = np.zeros(int(last.max()) + 2, np.int64)
    np.add.at(changes, first, 1)
    np.add.at(changes, last + 1, -1)
    return float(seconds.max()), int(np.cumsum(changes).max())


def _latencies(run: ExportedRun) -> dict[str, float]:
    pooled = np.array([gap for gaps in run.gaps for gap in gaps])
    by_name = {"ttft": run.ttft, "tpot": run.tpot, "itl": pooled, "e2el": run.e2e}
    return {key: value for name, values in by_name.items() for key, value in _figures(name, values).items()}


def _figures(name: str, seconds: NDArray[np.float64]) -> dict[str, float]:
    """Return a latency's mean, median, standard deviation and percentiles, in ms; 0 where none was measured."""
    known = seconds[~np.isnan(seconds)] * 1e3
    known = known if len(known) else np.zeros(1)
    return {
        f"mean_{name}_ms": float(known.mean()),
        f"median_{name}_ms": float(np.median(known)),
        f"std_{name}_ms": float(known.std()),
        **{f"p{percent}_{name}_ms": float(np.percentile(known, percent)) for percent in _PERCENTILES},
    }


def _details(run: ExportedRun) -> dict[str, list[Any]]:
    return {
        "input_lens": run.prompt.tolist(),
        "output_lens": run.output.tolist(),
        "ttfts": np.nan_to_num(run.ttft).tolist(),
        "itls": run.gaps,
        "start_times": run.start.tolist(),
        "generated_texts": [""] * len(run),
        "errors": [words or "" for words in run.error],
    }
