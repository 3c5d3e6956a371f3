"""Intervals on the page: those of the document, below their percentiles, and narrower of more requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replay.explore.interval_rows import METRICS
from replay.explore.knobs import turned
from replay.explore.state_answers import StateAnswers
from tests.replay.explore.test_as_the_command import beginning, printed
from traces import in_unit, unit_of
from traces.workload import WorkloadOptions

ROWS = [f"  {percent} within, {metric}" for metric in METRICS for percent in ("p50", "p99")]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> StateAnswers:
    return beginning("drawn", tmp_path_factory.mktemp("page"))


def column_of(answers: StateAnswers, **state: str) -> tuple[dict[str, str], str]:
    """Return the table's column of a state, and its command."""
    turn = next(each for each in answers.turn(state) if each is not None)
    assert isinstance(turn["column"], dict)
    return turn["column"], str(turn["command"])


def test_each_interval_is_the_document_s(answers: StateAnswers, capsys: pytest.CaptureFixture[str]) -> None:
    column, command = column_of(answers, num_requests="3000")
    document = json.loads(printed(command, capsys)[1])
    names = list(column)
    for metric, key in METRICS.items():
        known, unit = document["p99_precision"][key], unit_of(document[key]["p50"])
        for percent, low, high in (("p50", "p50_low", "p50_high"), ("p99", "low", "high")):
            row = f"  {percent} within, {metric}"
            assert names[names.index(f"{metric} {percent}") + 1] == row
            ends = [in_unit(known[each], unit) for each in (low, high) if known[each] is not None]
            assert column[row] == (
                f"{ends[0]} to {ends[1]} {unit}" if len(ends) == 2 else f"{ends[0]} {unit} or more"
            )
            assert known[low] <= document[key][percent] <= (known[high] or float("inf"))


def test_more_requests_know_it_better(answers: StateAnswers) -> None:
    few, many = (
        turned(answers.begin, {"num_requests": number}).run().summary["p99_precision"]["e2e_us"]
        for number in ("3000", "20000")
    )
    assert few is not None
    assert many is not None
    for low, high in (("p50_low", "p50_high"), ("low", "high")):
        wide, narrow = (each[high] - each[low] for each in (few, many))  # type: ignore[literal-required]
        assert 0 < narrow < wide


def test_of_few_requests_nothing_is_told(answers: StateAnswers) -> None:
    column, _ = column_of(answers, num_requests="30")
    assert [column[each] for each in ROWS] == ["-"] * len(ROWS)


def test_without_answers_there_is_no_interval(answers: StateAnswers) -> None:
    column, _ = column_of(answers, max_model_len="10")
    assert [column[each] for each in ROWS] == ["-"] * len(ROWS)


def test_users_have_a_sharper_answer_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replay.explore.state_answers.SHARPER", 2000)
    answers = beginning("users", tmp_path)
    (sharper,) = [each for each in answers.further({}) if each is not None]
    assert (sharper["kind"], sharper["num_requests"]) == ("sharper", 2000)
    assert isinstance(sharper["column"], dict)
    assert " to " in sharper["column"]["  p99 within, E2E"]


def test_what_has_an_end_of_its_own_has_none(tmp_path: Path) -> None:
    from replay.explore.asked_run import AskedRun

    config = beginning("drawn", tmp_path).begin.asked.config
    load = WorkloadOptions(batch=10, waves=3, prompt_tokens=90, output_tokens=5)
    assert list(StateAnswers(AskedRun(config=config, workload=load), None).further({})) == [None]
