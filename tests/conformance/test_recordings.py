"""The engine is vLLM's scheduler, on every recording there is; and the comparison would tell if it were not."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.conformance.__main__ import cases_in, main, results_of
from tests.conformance.compare import compare
from tests.conformance.recording import Recording, read_json_lines, read_recording
from tests.conformance.ways import difference_of_ways
from tests.examples import THOROUGH

RECORDINGS = Path(__file__).parent / "recordings"
SMALL = RECORDINGS / "20_output1_and_ties"
WITH_BLOCKS = RECORDINGS / "22_async_resumed_whole_blocks"
FIELDS = (
    *("step", "t", "dur", "P", "D", "sched", "preempted", "hits", "finished"),
    *("running", "waiting", "free", "t_end", "free_end"),
    *("exec_start", "exec_end", "block_ids", "free_queue"),
)


def all_recordings() -> list[Any]:
    """Return (case, results, is async) of every recording, as parameters."""
    found = []
    for case in cases_in([RECORDINGS]):
        every = {results_of(case, is_async=is_async) for is_async in (False, True)} - {None}
        for results, is_async in sorted(every):
            name = f"{case.name}-{'async' if is_async else 'sync'}"
            found.append(pytest.param(case, results, is_async, id=name))
    return found


@pytest.mark.parametrize(("case", "results", "is_async"), all_recordings())
def test_every_step_and_outcome_is_vllm_s(case: Path, results: Path, is_async: bool) -> None:
    recording = read_recording(case, results, is_async=is_async)
    assert compare(recording) is None
    if (
        THOROUGH or crc32(case.name.encode()) % 3 == 0
    ):  # a third by day: the ways are walked on drawn cases, too
        assert difference_of_ways(recording, with_jumps=False) is None  # jumps are compared already


def test_the_recordings_are_all_there() -> None:
    names = [parameters.id for parameters in all_recordings()]
    assert sum(name.endswith("-sync") for name in names) >= 20
    assert sum(name.endswith("-async") for name in names) >= 12


# -- the comparison can fail ------------------------------------------------------------------------------


def small() -> Recording:
    return read_recording(SMALL, SMALL, is_async=False)


def with_blocks() -> Recording:
    return read_recording(WITH_BLOCKS, WITH_BLOCKS, is_async=True)


def mutated(value: object) -> object:
    """Return a value of the same kind that is not the same."""
    if isinstance(value, int):
        return value + 1
    if isinstance(value, dict):
        return {key: [10**6] for key in value}
    return [*value, 10**6] if isinstance(value, list) else f"{value}1"


@pytest.mark.parametrize(
    "key",
    FIELDS,
)
def test_a_step_that_differs_in_one_field_is_named_with_both_sides(key: str) -> None:
    recording = with_blocks()
    theirs = recording.steps[7][key]
    recording.steps[7][key] = mutated(theirs)
    assert compare(recording) == f"step 7, {key}: recorded {mutated(theirs)}, vtwin {theirs}"


def test_two_entries_in_another_order_are_a_difference() -> None:
    recording = small()
    number = next(i for i, step in enumerate(recording.steps) if len(step["sched"]) > 1)
    recording.steps[number]["sched"].reverse()
    assert str(compare(recording)).startswith(f"step {number}, sched: recorded")


def test_a_step_too_many_or_too_few_is_a_difference() -> None:
    recording = small()
    last = recording.steps.pop()
    number = len(recording.steps)
    assert compare(recording) == f"number of steps: recorded {number}, vtwin {number + 1}"
    recording.steps.extend([last, last])
    assert compare(recording) == f"number of steps: recorded {number + 2}, vtwin {number + 1}"


@pytest.mark.parametrize(
    "name",
    ["status", "n_out", "first_sched_us", "first_token_us", "completion_us", "preemptions", "cached_first"],
)
def test_an_outcome_that_differs_is_named_with_both_sides(name: str) -> None:
    recording = small()
    theirs = recording.outcomes[3][name]
    recording.outcomes[3][name] = mutated(theirs)
    assert compare(recording) == f"request 3, {name}: recorded {mutated(theirs)}, vtwin {theirs}"


# -- the command ------------------------------------------------------------------------------------------


def change_steps(case: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Rewrite a recording's steps, unzipped as another recorder may have them."""
    zipped = case / "steps.jsonl.gz"
    steps = read_json_lines(zipped)
    change(steps)
    (case / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    zipped.unlink()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the small case in a folder of its own."""
    return Path(shutil.copytree(SMALL, tmp_path / "cases" / SMALL.name))


def test_identical_cases_are_exit_code_0(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(copy)]) == 0
    assert capsys.readouterr().out == "20_output1_and_ties (sync): identical, 33 steps\n"
    assert main([str(copy.parent), "--async"]) == 0
    assert capsys.readouterr().out == "20_output1_and_ties (async): identical, 46 steps\n"


def test_steps_that_carry_exec_start_are_compared_as_async(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("steps.jsonl.gz", "requests.csv"):
        shutil.move(copy / "async" / name, copy / name)
    assert main([str(copy)]) == 0
    assert main([str(copy), "--async"]) == 0
    assert capsys.readouterr().out == "20_output1_and_ties (async): identical, 46 steps\n" * 2


def test_a_difference_is_exit_code_1_and_other_cases_are_still_compared(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(copy, copy.parent / "30_copy")
    change_steps(copy, lambda steps: steps[5].update(free=7))
    assert main([str(copy.parent)]) == 1
    assert capsys.readouterr().out == (
        "20_output1_and_ties (sync): step 5, free: recorded 7, vtwin 1994\n"
        "30_copy (sync): identical, 33 steps\n"
    )


def test_wrong_usage_is_exit_code_2() -> None:
    for arguments in ([], ["--nonsense", str(SMALL)]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2


def test_nothing_to_compare_is_exit_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 3
    assert main([str(tmp_path / "absent")]) == 3
    (tmp_path / "config.json").write_text("{}")  # a case that nobody recorded
    assert main([str(tmp_path)]) == 3
    assert capsys.readouterr().err.count("nothing to compare") == 3


def test_sync_recordings_are_nothing_to_compare_as_async(copy: Path) -> None:
    shutil.rmtree(copy / "async")
    assert main([str(copy), "--async"]) == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", "{"),
        ("config.json", '{"block_size": 0}'),
        ("requests.csv", "idx\n0\n"),
        ("trace.jsonl", "no json\n"),
        ("steps.jsonl.gz", "not zipped"),
    ],
)
def test_a_recording_that_cannot_be_read_is_exit_code_3_and_one_line(
    copy: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    (copy / name).write_text(text)
    assert main([str(copy)]) == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(copy) in error


def test_other_files_beside_a_recording_are_passed_over(copy: Path) -> None:
    (copy / "notes.txt").write_text("taken on a Monday")
    (copy.parent / "PROVENANCE.md").write_text("elsewhere")
    (copy.parent / "empty").mkdir()
    (copy / "steps.jsonl").write_bytes(gzip.decompress((copy / "steps.jsonl.gz").read_bytes()))
    (copy / "steps.jsonl.gz").unlink()
    assert main([str(copy.parent)]) == 0
