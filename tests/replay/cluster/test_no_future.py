"""A router decides by what it has seen: requests that come later change no decision before them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vtwin
from traces import Header, make_trace, read_trace, select_rows, write_trace

TWIN = """
engine: {{max_num_seqs: 16, max_num_batched_tokens: 2048, num_gpu_blocks: 3000, max_model_len: 8192}}
latency: {{model: blackbox, coefficients: {{alpha0: 2000, alpha1: 0, alpha2: 0, beta0: 9000, beta1: 20, beta2: 20}}}}
cluster:
  instances: 4
  routing: {routing}
compatibility: {rules}
"""
NUM, EARLY = 240, 120


@pytest.mark.parametrize("rules", ["vllm", "blis"])
@pytest.mark.parametrize(
    "routing",
    [
        "{policy: weighted, scorers: {prefix-affinity: 3, queue-depth: 2, kv-utilization: 2}}",
        "{policy: weighted, scorers: {prefix-affinity: 3, active-requests: 1}, prefix_capacity_blocks: 60}",
        "{policy: cache-aware}",
        "{policy: kv-cost}",
    ],
)
def test_requests_that_come_later_change_no_decision(tmp_path: Path, routing: str, rules: str) -> None:
    rng = np.random.default_rng(3)
    prompts = rng.integers(40, 400, NUM)
    # Every second late request repeats the prompt of an early one, whose blocks nobody else has.
    hashes = [[10_000 + 100 * row + place for place in range(prompts[row] // 16)] for row in range(NUM)]
    for row in range(EARLY, NUM, 2):
        twin = int(rng.integers(0, EARLY))
        hashes[row], prompts[row] = hashes[twin], prompts[twin]
    for row in range(20, EARLY, 3):  # and some early ones share their beginning
        hashes[row][:2] = hashes[row - 20][:2]
    trace = make_trace(
        Header(mode="generated", hash_block_size=16),
        {
            "request_id": [str(row) for row in range(NUM)],
            "arrival_time_us": np.arange(NUM) * 15_000,
            "input_tokens": prompts,
            "output_tokens": rng.integers(5, 60, NUM),
            "prefix_hashes": [" ".join(map(str, ids)) or None for ids in hashes],
        },
    )
    (tmp_path / "twin.yaml").write_text(TWIN.format(routing=routing, rules=rules))
    chosen = []
    for name, rows in (("all", NUM), ("early", EARLY)):
        write_trace(select_rows(trace, np.arange(NUM) < rows), tmp_path / name)
        asked = ["replay", str(tmp_path / name), "--config", str(tmp_path / "twin.yaml")]
        assert vtwin.main([*asked, "--output", str(tmp_path / f"{name}-run")]) == 0
        chosen.append(read_trace(tmp_path / f"{name}-run").column("instance").tolist()[:EARLY])
    assert chosen[0] == chosen[1]
