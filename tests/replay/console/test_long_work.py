"""Long work says that it goes on: a line at times where nobody watches a terminal."""

from __future__ import annotations

import threading

import pytest

import replay.console.progress
from replay.console.progress import stepping, working


class AfterTells(threading.Event):
    """A waiter whose time passes at once; the work is over after so many lines."""

    def __init__(self, told: list[str], most: int) -> None:
        super().__init__()
        self.told, self.most = told, most

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - an event has it
        return len(self.told) >= self.most or super().is_set()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(replay.console.progress, "tell", lines.append)
    monkeypatch.setattr(replay.console.progress.sys.stderr, "isatty", lambda: False)
    return lines


def test_work_without_parts_goes_on_to_say_that_it_is_under_way(told: list[str]) -> None:
    replay.console.progress._tell("sizing", AfterTells(told, 3))
    assert told[0] == "sizing …"
    assert told[1:] == ["sizing: 0 s so far"] * 2


def test_a_part_that_takes_long_is_told_while_it_lasts(told: list[str]) -> None:
    shown = replay.console.progress._LinesOfSteps()
    shown.step("ranking", 4, 35)
    shown.tell_until(AfterTells(told, 2))
    shown.step("ranking", 35, 35)
    shown.tell_until(AfterTells(told, 3))
    assert [line.partition(", about")[0] for line in told] == ["ranking: 4 of 35"] * 2 + ["ranking: 35 of 35"]
    assert "left" in told[0]
    assert "left" not in told[2]


def test_quick_work_says_nothing(told: list[str]) -> None:
    with working("sizing"), stepping() as step:
        step("ranking", 1, 2)
    assert told == []
