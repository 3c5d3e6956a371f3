"""``--after``: requests behind those of a run before, which leave caches and routers warm and are not measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay import TwinConfig, run
from replay.twin.twin_config import with_cluster
from sim import Blackbox, EngineConfig
from tests.traces.made import small_trace
from traces import ClosedLoop, ConfigError, Trace, is_warmup, read_trace
from traces.workload import behind, workload_of
from traces.workload.recorded.run_before import PAUSE_US

TWIN = TwinConfig(
    engine=EngineConfig(max_num_seqs=8, num_gpu_blocks=10_000, max_model_len=4096, block_size=16),
    latency=Blackbox(beta0=1000, beta1=10, beta2=10),
)


def requests(hashes: list[str], *, at: list[int]) -> Trace:
    n = len(hashes)
    trace = small_trace(
        request_id=[str(number) for number in range(n)],
        input_tokens=[16 * len(text.split()) + 1 for text in hashes],
        output_tokens=[3] * n,
        arrival_time_us=at,
        send_time_us=at,
        first_chunk_time_us=[time + 5_000 for time in at],
        last_chunk_time_us=[time + 9_000 for time in at],
        prefix_hashes=hashes,
    )
    return trace.with_header(hash_block_size=16)


BEFORE = requests(["a b", "c d e"], at=[0, 2_000_000])
LOAD = requests(["a b x", "z", "c d e f g"], at=[1_000, 20_000, 500_000])


def test_the_run_before_comes_first_and_the_load_a_pause_behind_its_end() -> None:
    joined, begin_us = behind(LOAD, BEFORE)
    assert begin_us == 2_009_000 + PAUSE_US
    assert is_warmup(joined).tolist() == [True, True, False, False, False]
    assert joined.cells("request_id").values.tolist() == ["before/0", "before/1", "0", "1", "2"]
    moved = [begin_us + time for time in (1_000, 20_000, 500_000)]
    for name in ("arrival_time_us", "send_time_us"):
        assert joined.cells(name).values.tolist() == [0, 2_000_000, *moved]
    firsts = joined.cells("first_chunk_time_us")
    assert firsts.is_known.tolist() == [False, False, True, True, True]
    assert firsts.values[2:].tolist() == [time + 5_000 for time in moved]
    assert len(LOAD) == 3
    assert LOAD.cells("arrival_time_us").values[0] == 1_000


@pytest.mark.parametrize("instances", [1, 3])
def test_the_load_finds_what_the_run_before_left_and_what_it_shares_itself(instances: int) -> None:
    twin = with_cluster(TWIN, instances=instances, routing="cache-aware")
    cold = run(workload_of(LOAD), twin).trace.cells("num_cached_tokens").filled(0).tolist()
    warm = run(behind(workload_of(LOAD), BEFORE)[0], twin).trace.cells("num_cached_tokens").filled(0)
    assert cold == [0, 0, 0]
    assert warm.tolist() == [0, 0, 32, 0, 48]


def test_a_run_before_that_shares_nothing_changes_no_latency() -> None:
    other = requests(["k l", "m"], at=[0, 40_000])
    alone = run(workload_of(LOAD), TWIN).trace
    joined = run(behind(workload_of(LOAD), other)[0], TWIN).trace
    for name in ("content_first_time_us", "last_token_time_us"):
        took = [each.cells(name).values - each.cells("arrival_time_us").values for each in (alone, joined)]
        np.testing.assert_array_equal(took[0], took[1][2:])


@pytest.mark.parametrize(
    ("load", "before", "told"),
    [
        (LOAD.with_header(closed_loop=ClosedLoop(concurrency=2)), BEFORE, "got a closed loop"),
        (LOAD, BEFORE.with_header(closed_loop=ClosedLoop(concurrency=2)), "got a closed loop"),
        (LOAD, BEFORE.with_header(hash_block_size=32), "got hash_block_size 32, expected 16"),
        (
            LOAD,
            BEFORE.with_columns(parent_request_id=[None, "0"], session_id=["s", "s"], round_index=[0, 1]),
            "got sessions that branch",
        ),
    ],
)
def test_what_cannot_stand_behind_each_other_is_refused(load: Trace, before: Trace, told: str) -> None:
    with pytest.raises(ConfigError, match=f"--after: {told}"):
        behind(load, before)


def test_the_command_measures_what_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(
        "engine: {max_num_seqs: 8, num_gpu_blocks: 9000, max_model_len: 4096}\n"
        "latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, "
        "beta0: 9000, beta1: 50, beta2: 1}}\n"
        "cluster: {instances: 2, routing: {policy: cache-aware}}\n"
    )
    load = "--rate 5 --num-requests 30 --prompt-tokens 99 --prefix-tokens 640 --output-tokens 9"
    for name, seed in (("first", 1), ("second", 2)):
        assert vtwin.main(["trace", "synth", *load.split(), "--seed", str(seed), "--output", name]) == 0
    asked = ["replay", "second", "--config", "twin.yaml", "--json"]
    capsys.readouterr()
    documents = []
    for more in ([], ["--after", "first"]):
        assert vtwin.main([*asked, *more]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    cold, warm = documents
    assert warm["measured"]["num_requests"] == len(read_trace("second")) == 30
    assert warm["num_warmup"] == 30
    assert warm["request_throughput"] == pytest.approx(cold["request_throughput"], rel=0.2)
    assert warm["ttft_us"]["mean"] < cold["ttft_us"]["mean"]
    assert vtwin.main([*asked, "--after", "first", "--measure", "1s:"]) == 2
    assert "--after: cannot be combined with --measure" in capsys.readouterr().err
