"""The same input gives the same bytes: twice in a process, in another one, and without the compiler."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from sim import Blackbox, EngineConfig, Extended, Outcomes
from tests.sim.strategies import Case, requests_of

ROOT = Path(__file__).parents[2]


def hard_case(*, is_async: bool, latency: Blackbox, num_requests: int) -> Case:
    """Return a case with preemptions, shared prefixes and ties, the same in every process."""
    rng = np.random.default_rng(5)
    rows = [
        {
            "arrival_us": int(rng.integers(0, 40)) * 100,
            "prompt": int(rng.integers(1, 60)),
            "output": int(rng.integers(1, 40)),
            "priority": int(rng.integers(0, 3)),
            "hash_ids": list(range(int(rng.integers(0, 4)))),
        }
        for _ in range(num_requests)
    ]
    config = EngineConfig(
        num_gpu_blocks=24,
        block_size=8,
        max_num_seqs=6,
        max_num_batched_tokens=48,
        max_model_len=120,
        scheduling_policy="priority",
        async_scheduling=is_async,
    )
    return Case(requests=requests_of(rows), config=config, latency=latency)


def digest(num_requests: int) -> str:
    """Return a digest of every column, token time and gap that the engine gives, for several hard cases."""
    found = hashlib.sha256()
    for latency in (
        Blackbox(alpha0="3.5", alpha2="0.7", beta0=100, beta1="1.25", beta2=2),
        Extended(beta0=100, beta1=1.25, beta3=0.01, beta4=0.001, kappa=0.2, tau_s=0.01),
    ):
        for is_async in (False, True):
            case = hard_case(is_async=is_async, latency=latency, num_requests=num_requests)
            simulation = case.run(record="tokens")
            assert simulation.num_preemptions > 0
            columns = [getattr(simulation.outcomes, field.name) for field in fields(Outcomes)]
            gaps = case.run(record="spans").inter_token_latencies()
            for column in (
                *columns,
                *simulation.tokens(),
                gaps.mean_us,
                gaps.p99_us,
                gaps.gaps_us,
                gaps.counts,
            ):
                found.update(np.ascontiguousarray(column).tobytes())
    return found.hexdigest()


def digest_elsewhere(num_requests: int, **environment: str) -> str:
    """Return the digest from a new process."""
    program = f"from tests.sim.test_determinism import digest; print(digest({num_requests}))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_another_process_gives_the_same_bytes(hash_seed: str) -> None:
    assert digest_elsewhere(150, PYTHONHASHSEED=hash_seed) == digest(150)


def test_the_engine_as_plain_python_gives_the_same_bytes() -> None:
    assert digest_elsewhere(15, NUMBA_DISABLE_JIT="1") == digest(15)


def test_a_simulation_changes_nothing_of_what_it_is_given() -> None:
    case = hard_case(is_async=True, latency=Blackbox(beta0=10), num_requests=50)
    patient = replace(
        case.requests,
        deadline_us=case.requests.arrival_us + 5000,
        max_tokens=case.requests.output_tokens + 3,
        is_guided=case.requests.priority == 0,
        encoder_tokens=case.requests.prompt_tokens // 2,
        adapter=case.requests.priority,
    )
    case = replace(case, requests=patient).under(max_loras=2, guided_mask_us=3.5, encoder_token_us=1.5)
    before = [np.copy(getattr(case.requests, field.name)) for field in fields(case.requests)]
    first, second = case.run(), case.run()
    for field, column in zip(fields(case.requests), before, strict=True):
        np.testing.assert_array_equal(getattr(case.requests, field.name), column)
    for field in fields(Outcomes):
        assert getattr(first.outcomes, field.name).tobytes() == getattr(second.outcomes, field.name).tobytes()
