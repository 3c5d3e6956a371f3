"""Settings and columns that cannot be are refused: the name, what was given, what was expected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim import Blackbox, EngineConfig, InvalidConfig, Status, simulate
from tests.sim.strategies import requests_of

REFUSED: list[tuple[str, object, str]] = [
    ("max_num_seqs", 0, "max_num_seqs: got 0, expected an integer >= 1"),
    ("max_num_seqs", True, "max_num_seqs: got True, expected an integer >= 1"),
    ("max_num_batched_tokens", -5, "max_num_batched_tokens: got -5, expected an integer >= 1"),
    ("block_size", 16.0, "block_size: got 16.0, expected an integer >= 1"),
    ("max_model_len", "8k", "max_model_len: got '8k', expected an integer >= 1"),
    ("num_gpu_blocks", -1, "num_gpu_blocks: got -1, expected an integer >= 0"),
    (
        "num_gpu_blocks",
        1,
        "num_gpu_blocks: got 1, expected >= 2 (block 0 is the null block), or 0: unbounded",
    ),
    (
        "long_prefill_token_threshold",
        -1,
        "long_prefill_token_threshold: got -1, expected an integer >= 0",
    ),
    ("enable_prefix_caching", 1, "enable_prefix_caching: got 1, expected true or false"),
    ("async_scheduling", None, "async_scheduling: got None, expected true or false"),
    ("watermark", 1.0, "watermark: got 1.0, expected a fraction in [0, 1)"),
    ("watermark", "0.1", "watermark: got '0.1', expected a fraction in [0, 1)"),
    ("watermark", float("nan"), "watermark: got nan, expected a fraction in [0, 1)"),
    ("priority_age_weight", -1.0, "priority_age_weight: got -1.0, expected a number >= 0"),
    (
        "scheduling_policy",
        "lifo",
        "scheduling_policy: got 'lifo', expected one of fcfs, priority, sjf, reverse-priority",
    ),
    (
        "priority_scoring",
        "slo",
        "priority_scoring: got 'slo', expected one of constant, slo-based, inverted-slo",
    ),
    ("frontend", "grpc", "frontend: got 'grpc', expected one of openai, none"),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
def test_a_setting_that_cannot_be_is_refused_in_one_line(name: str, value: object, message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        EngineConfig(**{name: value})  # type: ignore[arg-type]
    assert str(error.value) == message


def test_the_defaults_are_vllm_s() -> None:
    config = EngineConfig()
    assert (config.max_num_batched_tokens, config.max_num_seqs, config.block_size) == (2048, 256, 16)
    assert config.enable_prefix_caching
    assert config.enable_chunked_prefill
    assert config.scheduler_reserve_full_isl
    assert (config.watermark, config.scheduling_policy) == (0.0, "fcfs")


ONE = requests_of([{"arrival_us": 0, "prompt": 3, "output": 2, "hash_ids": [0, 1]}])


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("prompt_tokens", [], "requests.prompt_tokens: got 0 values, expected 1"),
        ("priority", [0, 0], "requests.priority: got 2 values, expected 1"),
        ("hash_offsets", [0], "requests.hash_offsets: got 1 values, expected 2"),
        (
            "hash_offsets",
            [0, 3],
            "requests.hash_offsets: got places that are not within the 2 hash_ids, expected so",
        ),
        (
            "hash_offsets",
            [2, 0],
            "requests.hash_offsets: got places that are not within the 2 hash_ids, expected so",
        ),
        ("hash_ids", [0, -1], "requests.hash_ids: got -1, expected dense integers >= 0"),
    ],
)
def test_columns_that_do_not_fit_are_refused_in_one_line(column: str, value: list[int], message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        simulate(replace(ONE, **{column: np.array(value, np.int64)}), EngineConfig(), Blackbox())
    assert str(error.value) == message


def test_no_requests_are_no_steps() -> None:
    simulation = simulate(requests_of([]), EngineConfig(), Blackbox(beta0=5), record="spans")
    assert (simulation.num_steps, simulation.duration_us, len(simulation.outcomes.status)) == (0, 0, 0)
    assert np.isnan(simulation.inter_token_latencies().pooled_mean_us())


def test_a_prompt_that_is_refused_makes_no_table_longer() -> None:
    huge = requests_of(
        [{"arrival_us": 0, "prompt": 10**9, "output": 2}, {"arrival_us": 0, "prompt": 3, "output": 2}]
    )
    config = EngineConfig(max_num_seqs=2, max_model_len=100)
    simulation = simulate(huge, config, Blackbox(beta0=5))
    assert simulation.outcomes.status.tolist() == [Status.REJECTED, Status.OK]
    assert simulation.written.state.block_table.shape == (2, 8)
