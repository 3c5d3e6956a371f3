"""The random differential test's own parts: what it draws, how it shrinks, how it counts, and the recorder."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim import DEFAULT_VERSION
from sim.cluster import LiveCluster
from tests.conformance import ways
from tests.conformance.case_files import is_recorded, keep_only_recordings_of, write_case
from tests.conformance.conventions import DEFAULTS, output_token_id, prompt_token_ids
from tests.conformance.coverage import Coverage, events_of
from tests.conformance.draw import ROUND, TRAITS, Case, draw, traits_of
from tests.conformance.random_run import drawn, of_version
from tests.conformance.recorder import recording
from tests.conformance.recording import case_of, read_recording
from tests.conformance.shrink import shrink, with_rows
from tests.conformance.ways import difference_of_ways

RECORDINGS = Path(__file__).parent / "recordings"


def test_every_value_of_every_trait_has_its_share_of_each_round() -> None:
    assert all(sum(shares.values()) == ROUND for shares in TRAITS.values())
    for first in (0, 3 * ROUND):
        drawn = [traits_of(7, first + i) for i in range(ROUND)]
        for trait, shares in TRAITS.items():
            assert Counter(traits[trait] for traits in drawn) == shares


def test_200_cases_have_every_value_20_times_a_half_async_and_a_half_sharing() -> None:
    assert all(5 * share >= 20 for shares in TRAITS.values() for share in shares.values())
    assert TRAITS["scheduling"]["async"] == ROUND // 2
    assert TRAITS["sharing"]["nothing"] <= ROUND // 2


def test_a_case_is_a_function_of_seed_and_index() -> None:
    assert draw(3, 17) == draw(3, 17)
    assert draw(3, 17).rows != draw(4, 17).rows


@pytest.mark.parametrize("index", range(0, 2 * ROUND, 3))
def test_a_drawn_case_is_one_that_vllm_takes(index: int) -> None:
    case = draw(11, index)
    settings = case.settings
    assert settings["max_num_batched_tokens"] >= settings["max_num_seqs"]
    assert (
        settings["enable_chunked_prefill"] or settings["max_num_batched_tokens"] >= settings["max_model_len"]
    )
    assert settings["long_prefill_token_threshold"] <= settings["max_model_len"]
    arrivals = [row["arrival_us"] for row in case.rows]
    assert arrivals == sorted(arrivals)
    assert all(len(prompt_token_ids(row, i)) > 0 for i, row in enumerate(case.rows))
    assert all(row["output_len"] > 0 for row in case.rows)


def test_a_case_beyond_the_cache_is_one() -> None:
    cases = [draw(11, i) for i in range(ROUND)]
    beyond = [case for case in cases if case.traits["kv_cache"].endswith("beyond")]
    assert len(beyond) == 8
    for case in beyond:
        size = (case.settings["num_gpu_blocks"] - 1) * case.settings["block_size"]
        longest = max(len(prompt_token_ids(row, i)) + row["output_len"] for i, row in enumerate(case.rows))
        assert longest > size


def test_what_still_fails_is_made_as_small_as_it_can_be() -> None:
    wanted = {"sharing": "turns", "lengths": "mixed", "scheduling": "async", "policy": "priority"}
    case = next(case for i in range(400) if wanted.items() <= (case := draw(5, i)).traits.items())
    assert max(row["output_len"] for row in case.rows) > 7

    def fails(candidate: Case) -> bool:
        longest = max(row["output_len"] for row in candidate.rows)
        return longest >= 7 and bool(candidate.settings["async_scheduling"])

    smallest = shrink(case, fails)
    assert [row["output_len"] for row in smallest.rows] == [7]
    assert prompt_token_ids(smallest.rows[0], 0) == prompt_token_ids({"prompt_len": 1}, 0)
    assert smallest.settings["async_scheduling"]
    assert smallest.settings["policy"] == "fcfs"
    assert smallest.settings["beta1"] == "0"


def test_shrinking_gives_up_after_so_many_trials() -> None:
    asked = []

    def fails(candidate: Case) -> bool:
        asked.append(candidate)
        return True

    shrink(draw(5, 1), fails, most_trials=9)
    assert len(asked) == 9


def test_outputs_in_a_prompt_stay_those_of_their_request_when_another_is_dropped() -> None:
    rows = [
        {"arrival_us": 0, "prompt_len": 3, "output_len": 2},
        {"arrival_us": 1, "prompt_len": 3, "output_len": 2},
        {
            "arrival_us": 2,
            "output_len": 1,
            "prompt_token_ids": [5, output_token_id(0, 1), output_token_id(1, 0)],
        },
    ]
    case = replace(draw(1, 0), rows=rows)
    ids = with_rows(case, [1, 2]).rows[1]["prompt_token_ids"]
    assert ids[0] == 5
    assert ids[2] == output_token_id(0, 0)
    own = range(output_token_id(0, 0), output_token_id(9, 0))
    assert ids[1] not in own  # nobody's any more


def test_results_of_another_case_do_not_count(tmp_path: Path) -> None:
    case = draw(1, 0)
    write_case(case, tmp_path)
    assert not is_recorded(case, tmp_path)
    for name in ("requests.csv", "steps.jsonl.gz"):
        (tmp_path / name).write_text("results")
    assert is_recorded(case, tmp_path)
    assert not is_recorded(draw(2, 0), tmp_path)
    write_case(draw(2, 0), tmp_path)
    assert not is_recorded(draw(2, 0), tmp_path)


def test_results_of_another_recorder_do_not_count(tmp_path: Path) -> None:
    case, directory = draw(1, 0), tmp_path / "case"
    write_case(case, directory)
    keep_only_recordings_of("one", tmp_path)
    for name in ("requests.csv", "steps.jsonl.gz"):
        (directory / name).write_text("results")
    keep_only_recordings_of("one", tmp_path)
    assert is_recorded(case, directory)
    keep_only_recordings_of("another", tmp_path)
    assert not is_recorded(case, directory)


# -- what a run covered -----------------------------------------------------------------------------------


def test_what_happened_in_vllm_is_counted_from_its_recording() -> None:
    case = RECORDINGS / "12_priority"
    events = events_of(read_recording(case, case, is_async=False))
    assert events["preemptions"] == 35
    assert events["simultaneous arrivals"] == events["stuck"] == events["rejected"] == 0
    case = RECORDINGS / "13_max_model_len"
    events = events_of(read_recording(case, case, is_async=False))
    assert events["rejected"] == 37
    assert events["clamped"] > 0


def test_a_run_that_covered_too_little_says_what() -> None:
    coverage = Coverage(num_cases=200)
    lines = coverage.shortages()
    assert "preemptions: in 0 cases, expected a fifth" in lines
    assert "policy: priority in 0 cases, expected 20" in lines
    assert Coverage().shortages() == []


# -- ways through the engine ------------------------------------------------------------------------------


def test_a_way_that_ends_elsewhere_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    case = RECORDINGS / "20_output1_and_ties"
    recorded = read_recording(case, case, is_async=False)
    assert difference_of_ways(recorded) is None
    submit = ways.submit

    def late(live: LiveCluster, recording: ways.Recording, number: int) -> None:
        arrival_us = np.where(np.arange(60) == 7, 25_000, recording.requests.arrival_us)
        submit(live, replace(recording, requests=replace(recording.requests, arrival_us=arrival_us)), number)

    monkeypatch.setattr(ways, "submit", late)
    assert str(difference_of_ways(recorded)).startswith(
        "served: request 7, arrival_us: 25000, step by step 20000"
    )


# -- the recorder -----------------------------------------------------------------------------------------


@pytest.mark.skipif(
    "VLLM_PYTHON" not in os.environ or "VLLM_MODEL" not in os.environ,
    reason="VLLM_PYTHON and VLLM_MODEL name no vLLM to record with",
)
def test_the_recorder_makes_the_recordings_that_are_here(tmp_path: Path) -> None:
    names = ["11_full_hit", "16_growth_over_kv", "20_output1_and_ties"]
    with recording(tmp_path / "vllm.log") as recorder:
        if recorder.version != "0.32.0":
            pytest.skip(f"the recordings are of vLLM 0.32.0, this is {recorder.version}")
        for name in names:
            (tmp_path / name).mkdir()
            for file in ("config.json", "trace.jsonl"):
                shutil.copy(RECORDINGS / name / file, tmp_path / name)
            assert "error" not in recorder.record(tmp_path / name)
        refused = tmp_path / "refused"
        shutil.copytree(tmp_path / names[0], refused)
        (refused / "config.json").write_text('{"max_num_seqs": 9, "max_num_batched_tokens": 8}')
        assert "greater than or equal to max_num_seqs" in recorder.record(refused)["error"]
    for name in names:
        ours, theirs = tmp_path / name, RECORDINGS / name
        assert (ours / "requests.csv").read_text() == (theirs / "requests.csv").read_text()
        ours_steps, theirs_steps = (
            [json.loads(line) for line in gzip.decompress((at / "steps.jsonl.gz").read_bytes()).splitlines()]
            for at in (ours, theirs)
        )
        for step in ours_steps:
            step.pop("failed")  # the older recordings do not count what did not fit
        assert ours_steps == theirs_steps


def test_most_cases_with_checkpoints_save_states_in_all_groups_and_all_are_simulated() -> None:
    kinds = ("groups", "drafts", "checkpoints")
    cases = [drawn(13, i, kinds if i % 2 else ("groups", "checkpoints")) for i in range(ROUND)]
    for version in ("0.29.0", DEFAULT_VERSION, "0.33.0"):
        given = [of_version(case, version) for case in cases]
        groups = [case_of(DEFAULTS | case.settings, case.rows)[0].kv_cache_groups for case in given]
        states = [[group for group in each if group.mode == "align"] for each in groups]
        saving = [all(group.num_prefill_checkpoint_blocks for group in each) for each in states if each]
        assert 0.6 < np.mean(saving) < 1
    before = [of_version(case, "0.28.0").settings["groups"] for case in cases]
    assert not any("num_prefill_checkpoint_blocks" in group for groups in before for group in groups)


def test_most_cases_with_units_can_be_hit_inside_a_block_and_all_are_simulated() -> None:
    kinds = ("groups", "units", "drafts")
    cases = [drawn(13, i, kinds[: 2 + i % 2]) for i in range(ROUND)]
    configs = [case_of(DEFAULTS | case.settings, case.rows)[0] for case in cases]
    assert np.mean([config.matches_inside_blocks for config in configs]) > 0.8
    assert not all(config.matches_inside_blocks for config in configs)
