"""What a queue waits for, where that is neither a seat nor KV blocks: the cause that, taken away, ends the wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import replay
from replay import load_config
from replay.cluster.waiting_causes import IN_WORDS
from replay.simulation.simulated_run import Run
from replay.twin.twin_config import TwinConfig, with_pools
from traces import Header, Trace, make_trace

TWIN = """\
engine:
  {max_num_seqs: 64, async_scheduling: false, max_num_batched_tokens: 2048, num_gpu_blocks: 20000, max_model_len: 16384}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 10000, beta1: 20, beta2: 100}}
"""
FOUR = "cluster:\n  instances: 4\n  routing: {policy: round-robin}\n"


def load(
    num: int, per_s: float, *, prompt: int, output: int, **columns: Callable[[int], np.ndarray]
) -> Trace:
    """Return Poisson arrivals of requests that are all alike but for some columns."""
    gaps = np.random.default_rng(1).exponential(1e6 / per_s, num)
    return make_trace(
        Header(tool="vtwin", mode="generated"),
        {
            "request_id": [str(i) for i in range(num)],
            "arrival_time_us": np.cumsum(gaps).astype(np.int64),
            "input_tokens": np.full(num, prompt),
            "output_tokens": np.full(num, output),
            **{name: make(num) for name, make in columns.items()},
        },
    )


def adapters(num: int) -> np.ndarray:
    return np.random.default_rng(2).choice(list("abcdef"), num)


def all_true(num: int) -> np.ndarray:
    return np.ones(num, np.bool_)


def one_image(num: int) -> np.ndarray:
    return np.full(num, "0:300")


def of_300_tokens(num: int) -> np.ndarray:
    return np.full(num, 300)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Engine settings, a load that waits for one of them, the settings without which it does not."""

    engine: dict[str, int]
    trace: Trace
    without: dict[str, int]


CASES = {
    "adapter": Case(
        engine={"max_loras": 1},
        trace=load(1500, 12.0, prompt=200, output=50, adapter=adapters),
        without={"max_loras": 6},
    ),
    "grammar": Case(
        engine={"guided_compile_us": 2_000_000},
        trace=load(1000, 5.0, prompt=200, output=50, guided=all_true),
        without={"guided_compile_us": 0},
    ),
    "token budget": Case(
        engine={"max_num_batched_tokens": 256},
        trace=load(800, 4.0, prompt=3000, output=5),
        without={"max_num_batched_tokens": 8192},
    ),
    "encoder": Case(
        engine={"max_num_encoder_input_tokens": 300, "encoder_cache_size": 8192},
        trace=load(1500, 65.0, prompt=320, output=5, images=one_image, image_tokens=of_300_tokens),
        without={"max_num_encoder_input_tokens": 8192, "encoder_cache_size": 8192},
    ),
    "seats": Case(
        engine={"max_num_seqs": 4},
        trace=load(1000, 5.5, prompt=200, output=60),
        without={"max_num_seqs": 64},
    ),
}


MORE = {
    "seats": {"max_num_seqs": 128},
    "KV blocks": {"num_gpu_blocks": 40_000},
    "token budget": {"max_num_batched_tokens": 8192},
}
"""Twice as much, or more, of what a queue may wait for."""
DISAGGREGATED = """\
cluster:
  pools:
    - {name: prefill, role: prefill, instances: 2}
    - {name: decode, role: decode, instances: 2}
  disaggregation: {decider: always, kv_bandwidth_gbps: %g, kv_base_latency_us: 50, kv_bytes_per_token: 131072}
"""


def with_engine(twin: TwinConfig, settings: dict[str, int]) -> TwinConfig:
    return with_pools(
        twin,
        [replace(pool, engine=replace(pool.engine, **settings)) for pool in twin.cluster.pools],  # type: ignore[arg-type]
    )


def queued_us(run: Run) -> float:
    mean = run.summary["queue_us"]["mean"]
    assert mean is not None
    return mean


@pytest.mark.parametrize("cause", CASES)
@pytest.mark.parametrize("is_cluster", [False, True])
def test_a_queue_waits_for_what_ends_its_wait_when_there_is_more_of_it(
    tmp_path: Path, cause: str, is_cluster: bool
) -> None:
    case = CASES[cause]
    (tmp_path / "twin.yaml").write_text(TWIN + (FOUR if is_cluster else ""))
    twin, trace = load_config(tmp_path / "twin.yaml"), case.trace
    if is_cluster:
        trace = trace.with_columns(arrival_time_us=trace.column("arrival_time_us") // 4)
    run = replay.run(trace, with_engine(twin, case.engine))
    assert queued_us(replay.run(trace, with_engine(twin, case.without))) < 0.25 * queued_us(run)
    assert run.usage.waits_for == cause
    assert run.waiting is None or run.waiting.endswith(f"for {IN_WORDS.get(run.usage.waits_for, cause)}")
    assert is_cluster or run.waiting is not None


@pytest.mark.parametrize("more", MORE)
def test_what_waits_for_the_encoder_is_not_helped_by_more_of_anything_else(tmp_path: Path, more: str) -> None:
    """A step encodes one image of 300 tokens; the load is more than a step can begin of them one by one."""
    case = CASES["encoder"]
    (tmp_path / "twin.yaml").write_text(TWIN)
    twin = with_engine(load_config(tmp_path / "twin.yaml"), case.engine)
    run = replay.run(case.trace, twin)
    helped = replay.run(case.trace, with_engine(twin, MORE[more]))
    assert run.summary["verdict"] == helped.summary["verdict"] == "overloaded"
    assert queued_us(helped) > 0.9 * queued_us(run)


def disaggregated(folder: Path, gbps: float, settings: dict[str, int]) -> Run:
    """Simulate a load whose prompts' KV is 1.05 gigabytes per second, over two links."""
    (folder / "twin.yaml").write_text(TWIN + DISAGGREGATED % gbps)
    twin = with_engine(load_config(folder / "twin.yaml"), settings)
    return replay.run(load(600, 8.0, prompt=1000, output=50), twin)


def ttft_us(run: Run) -> float:
    mean = run.summary["ttft_us"]["mean"]
    assert mean is not None
    return mean


def test_what_waits_for_kv_to_move_is_helped_by_faster_links_and_by_nothing_else(tmp_path: Path) -> None:
    run = disaggregated(tmp_path, 0.5, {})
    assert run.usage.waits_for == "KV transfer"
    assert run.summary["verdict"] == "overloaded"
    assert run.waiting is not None
    assert run.waiting.endswith("for the KV of their prompts to arrive")
    for settings in MORE.values():
        assert ttft_us(disaggregated(tmp_path, 0.5, settings)) > 0.9 * ttft_us(run)
    faster = disaggregated(tmp_path, 2.0, {})
    assert ttft_us(faster) < 0.1 * ttft_us(run)
    assert (faster.summary["verdict"], faster.waiting) == ("stable", None)


def test_a_cluster_s_problem_names_what_its_requests_wait_for_beside_a_free_seat(tmp_path: Path) -> None:
    """Nobody is behind the head of a queue here: all but those of one adapter are passed over."""
    case = CASES["adapter"]
    (tmp_path / "twin.yaml").write_text(TWIN + FOUR)
    trace = case.trace.with_columns(arrival_time_us=case.trace.column("arrival_time_us") // 4)
    run = replay.run(trace, with_engine(load_config(tmp_path / "twin.yaml"), case.engine))
    assert run.of_cluster is not None
    (found,) = [each for each in run.of_cluster["pathologies"] if "free seat" in each["text"]]
    assert found["name"] == "no adapter place"
    assert found["text"].endswith("beside a free seat: for a place for their adapter (engine.max_loras)")


def test_a_grammar_that_compiles_is_no_problem_of_a_cluster(tmp_path: Path) -> None:
    case = CASES["grammar"]
    (tmp_path / "twin.yaml").write_text(TWIN + FOUR)
    run = replay.run(case.trace, with_engine(load_config(tmp_path / "twin.yaml"), case.engine))
    assert run.of_cluster is not None
    assert run.of_cluster["pathologies"] == []
    assert run.summary["verdict"] == "stable"
