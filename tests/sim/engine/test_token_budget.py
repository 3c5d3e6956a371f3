"""The token budget of a step, to its last token."""

from __future__ import annotations

import numpy as np

from sim import Blackbox, EngineConfig, Requests, simulate

STEP_US = 1000


def test_a_running_request_gets_the_last_token_of_the_budget() -> None:
    """Two that decode leave one token of three to a prompt, which so takes a step per token."""
    engine = EngineConfig(
        max_num_seqs=3, max_num_batched_tokens=3, num_gpu_blocks=100, async_scheduling=False
    )
    requests = Requests(
        arrival_us=np.zeros(3, np.int64),
        prompt_tokens=np.array([1, 1, 3]),
        output_tokens=np.array([6, 6, 2]),
        priority=np.zeros(3, np.int64),
        hash_offsets=np.zeros(4, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )
    outcomes = simulate(requests, engine, Blackbox(beta0=STEP_US)).outcomes
    assert (outcomes.first_token_us // STEP_US).tolist() == [1, 1, 3]
    assert (outcomes.last_token_us // STEP_US).tolist() == [6, 6, 4]
