"""The CPU's time: what async scheduling hides, and the kernels that no CUDA graph starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sim
from replay import TwinConfig, requests_from_trace, simulate_trace
from sim import Blackbox, EngineConfig, Extended, InvalidConfig
from tests.calibrate.known_servers import workload

MODEL = Blackbox(alpha0=1000, beta0=6000, beta1=20, beta2=100)
SYNC = EngineConfig(max_num_seqs=32, async_scheduling=False)
TRACE = workload(60, rate=6, seed=3, prompt=(400, 0.8))


def steps_of(engine: EngineConfig, model: Blackbox = MODEL) -> dict[str, np.ndarray]:
    """Return the engine's own record: of every step its tokens and how long it took."""
    found = sim.simulate(
        requests_from_trace(TRACE, block_size=engine.block_size), engine, model, record="steps"
    )
    sums, lasts = found.step_batches()
    return {"prefill": sums.num_prefill_tokens, "decode": sums.num_decode_tokens, "us": lasts}


def ends(engine: EngineConfig, model: Blackbox = MODEL) -> list[int]:
    run, _ = simulate_trace(TRACE, TwinConfig(engine=engine, latency=model), record="none")
    return [int(value) for value in run.requests["last_token_time_us"]]


@pytest.mark.parametrize("model", [MODEL, Extended(alpha0=1000, beta0=6000, beta1=20, beta2=100, floor=3000)])
def test_a_host_time_is_a_longer_step_without_async_scheduling_and_none_with_it(model: Blackbox) -> None:
    with_host = replace(SYNC, host_step_us=2000.0)
    assert ends(with_host, model) == ends(SYNC, replace(model, beta0=8000))
    hidden = replace(SYNC, async_scheduling=True)
    assert ends(replace(hidden, host_step_us=2000.0, host_prefill_us=9000.0), model) == ends(hidden, model)


def test_steps_with_prompts_have_their_own_host_time() -> None:
    steps = steps_of(replace(SYNC, host_step_us=2000.0, host_prefill_us=9000.0))
    has_prompt = steps["prefill"] > 0
    model_us = 6000 + 20 * steps["prefill"] + 100 * steps["decode"]
    assert has_prompt.any()
    assert (~has_prompt).any()
    assert (steps["us"] == model_us + 2000 + 9000 * has_prompt).all()


@pytest.mark.parametrize(("asked", "limit"), [(0, 64), (200, 200)])
def test_steps_beyond_the_graphs_last_as_long_as_their_launch(asked: int, limit: int) -> None:
    engine = replace(SYNC, launch_us=20_000.0, max_cudagraph_capture_size=asked)
    assert engine.num_graph_tokens == limit
    steps = steps_of(engine)
    tokens = steps["prefill"] + steps["decode"]
    model_us = 6000 + 20 * steps["prefill"] + 100 * steps["decode"]
    assert (steps["us"] == np.where(tokens > limit, np.maximum(model_us, 20_000), model_us)).all()
    assert (steps["us"] == 20_000).any()


def test_without_graphs_every_step_lasts_as_long_as_its_launch() -> None:
    engine = replace(SYNC, launch_us=20_000.0, enforce_eager=True, max_cudagraph_capture_size=200)
    assert engine.num_graph_tokens == 0
    steps = steps_of(engine)
    model_us = 6000 + 20 * steps["prefill"] + 100 * steps["decode"]
    assert (steps["us"] == np.maximum(model_us, 20_000)).all()


def test_a_negative_time_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="launch_us: got -1"):
        replace(SYNC, launch_us=-1.0)
