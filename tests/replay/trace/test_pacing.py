"""Rounds without a time of their own are sent after the simulated answers, by one server as by several."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import replay
from traces.workload import WorkloadOptions, trace_from_options

TWIN = """\
engine: {max_num_seqs: 16, max_num_batched_tokens: 2048, max_model_len: 8192, num_gpu_blocks: 4000}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 10, beta2: 50}}
"""
THINK_US = 700_000


@pytest.mark.parametrize("more", ["", "cluster: {instances: 3}\n"], ids=["a server", "three"])
def test_a_round_is_sent_its_think_time_after_the_simulated_answer(tmp_path: Path, more: str) -> None:
    (tmp_path / "twin.yaml").write_text(TWIN + more)
    asked = trace_from_options(
        WorkloadOptions(rate=3, rounds=4, think_time=THINK_US / 1e6, num_requests=40, output_tokens=30)
    )
    later = asked.cells("round_index").values > 0
    assert not asked.cells("arrival_time_us").is_known[later].any()
    done = replay.run(asked, tmp_path / "twin.yaml").trace
    sent, ended = (done.cells(name).values for name in ("send_time_us", "last_chunk_time_us"))
    assert np.array_equal(sent[later], ended[np.flatnonzero(later) - 1] + THINK_US)
