"""States whose load has no capacity, or whose requests are all refused, are answered like any other."""

from __future__ import annotations

import tempfile
from pathlib import Path

import orjson
import pytest

from replay.explore.question_process import _Answering
from replay.explore.state_answers import StateAnswers
from tests.replay.explore.test_as_the_command import beginning


@pytest.fixture
def answers(tmp_path: Path) -> StateAnswers:
    return beginning("drawn", tmp_path)


@pytest.mark.parametrize(
    ("state", "capacity"),
    [
        ({"slo_ttft": "0.1"}, "none: an idle server has ttft_p99 "),
        ({"max_model_len": "10"}, "none: an idle server answers no request"),
    ],
)
def test_the_curve_says_why_there_is_no_capacity(
    answers: StateAnswers, state: dict[str, str], capacity: str
) -> None:
    curve = next(message for message in answers.further({**state, "num_requests": "50"}) if message)
    assert str(curve["capacity"]).startswith(capacity)
    assert curve["figures"] == []


def test_without_a_limit_a_curve_of_nothing_is_none(answers: StateAnswers) -> None:
    state = {"slo_ttft": "", "max_model_len": "10", "num_requests": "50"}
    curve = next(message for message in answers.further(state) if message)
    assert (curve["fault"], curve["figures"]) == ("no request finished at any rate", [])
    assert b"NaN" not in orjson.dumps(curve)


class Faulty:
    """Answers that have a fault of vtwin's own."""

    def to(self, *_question: object) -> None:
        raise IndexError("nothing there")


def test_a_fault_of_vtwin_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("VTWIN_DEBUG", raising=False)
    answering = object.__new__(_Answering)
    answering.answers = Faulty()  # type: ignore[assignment]
    (message,) = answering._messages({"what": "turn", "state": {"rate": "5"}})
    assert message is not None
    assert message["kind"] == "error"
    assert "InternalError: IndexError: nothing there (test_no_capacity.py:" in str(message["text"])
    (kept,) = tmp_path.glob("vtwin-crash-*")
    assert "$ vtwin explore --state rate=5" in kept.read_text()
