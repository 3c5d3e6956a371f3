"""Logs of simulated servers: the steps whose coefficients are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from replay import TwinConfig, simulate_trace
from sim import batch_of_steps
from traces import Trace
from traces.steps import LoggedSteps

START_US = 1_795_000_000_000_000


def logged_steps(load: Trace, server: TwinConfig, *, whole: bool = False) -> LoggedSteps:
    """Return what a server says of its steps: with contexts and whole durations, or as vLLM logs them, with ends."""
    steps = simulate_trace(load, server, record="steps")[1].steps()
    sums = batch_of_steps(steps)
    ends = np.array([step.t + step.dur for step in steps], np.float64) + START_US
    logged = LoggedSteps(
        engine=np.zeros(len(steps)),
        number=np.arange(len(steps), dtype=np.float64),
        prefill_requests=sums.num_prefill_seqs.astype(np.float64),
        prefill_tokens=sums.num_prefill_tokens.astype(np.float64),
        decode_requests=sums.num_decode_tokens.astype(np.float64),
        decode_tokens=sums.num_decode_tokens.astype(np.float64),
        duration_us=np.array([step.dur for step in steps], np.float64),
        end_us=ends,
    )
    if not whole:
        return logged
    computed = sums.num_prefill_tokens
    cached = sums.prefill_context_tokens - computed
    return replace(
        logged,
        is_whole=True,
        prefill_cached=cached.astype(np.float64),
        decode_context=sums.decode_context_tokens.astype(np.float64),
        prompt_variance=np.array(
            [_variance([n for _, n, _, kind in step.sched if kind == "p"]) for step in steps]
        ),
    )


def _variance(lengths: list[int]) -> float:
    return float(np.var(lengths)) if lengths else 0.0
