"""A prefill and a decode engine are two of vLLM's, on every recording; and the comparison would tell if not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.pair.__main__ import cases_in, main
from tests.conformance.pair.compare import PairRecording, compare_pair, read_pair
from tests.conformance.pair.draw import cases, text_of

RECORDINGS = Path(__file__).parent / "recordings"


@pytest.mark.parametrize("case", cases_in([RECORDINGS]), ids=lambda case: case.name)
def test_every_step_on_both_sides_every_block_and_every_transfer_is_vllm_s(case: Path) -> None:
    assert compare_pair(read_pair(case)) is None


def test_the_recordings_are_those_that_are_drawn() -> None:
    assert [case.name for case in cases_in([RECORDINGS])] == sorted(cases())
    for name, (config, rows) in cases().items():
        texts = text_of(config, rows)
        assert {file: (RECORDINGS / name / file).read_text() for file in texts} == texts


def test_the_recordings_reach_what_they_are_for() -> None:
    recordings = {case.name: read_pair(case) for case in cases_in([RECORDINGS])}

    def preemptions(name: str, role: str) -> int:
        return sum(len(step["preempted"]) for step in recordings[name].steps[role])

    assert len(recordings) >= 8
    assert sum(recording.config.pools[1].engine.async_scheduling for recording in recordings.values()) >= 4
    assert preemptions("04_decode_kv_pressure", "decode") > 0
    assert preemptions("13_async_decode_kv_pressure", "decode") > 0
    assert preemptions("14_async_prefill_kv_pressure", "prefill") > 0
    assert preemptions("17_blocks_reserved_for_prefills", "decode") > 0
    assert preemptions("18_async_prefill_preempts_in_flight", "prefill") > 0
    assert any(
        step["P"] > 0 and step["waiting"] > 0 for step in recordings["03_chunked_prefill"].steps["prefill"]
    )
    hits = [hit for step in recordings["06_prefix_hits"].steps["prefill"] for hit in step["hits"] if hit[1]]
    assert len(hits) > 10
    blocks = {int(row["blocks"]) * 16 for row in recordings["06_prefix_hits"].transfers}
    prompts = set(recordings["06_prefix_hits"].requests.prompt_tokens)
    assert min(blocks) < min(prompts)  # a part was in the decode side's own cache


# -- the comparison can fail ------------------------------------------------------------------------------


@pytest.fixture
def small() -> PairRecording:
    return read_pair(RECORDINGS / "09_prompts_of_whole_blocks")


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_step_that_differs_is_named_with_its_side(small: PairRecording, role: str) -> None:
    small.steps[role][7]["free"] += 1
    assert str(compare_pair(small)).startswith(f"{role}: step 7, free: recorded ")


@pytest.mark.parametrize("name", ["start_us", "end_us", "blocks"])
def test_a_transfer_that_differs_is_named(small: PairRecording, name: str) -> None:
    small.transfers[3][name] += "1"
    assert f"transfer's {name}: recorded" in str(compare_pair(small))


def test_a_token_that_comes_at_another_time_is_named(small: PairRecording) -> None:
    small.outcomes[3]["first_token_us"] += "1"
    assert str(compare_pair(small)).startswith("request 3, first_token_us: recorded ")


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(RECORDINGS / "09_prompts_of_whole_blocks")]) == 0
    assert capsys.readouterr().out == "09_prompts_of_whole_blocks: identical, 26 + 41 steps, 60 transfers\n"
    assert main([str(tmp_path)]) == 3
