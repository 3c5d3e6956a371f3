"""Pages at one desk: each one's newest question is answered, in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from replay.explore import desk as desks
from replay.explore.asked_run import AskedRun
from replay.explore.desk import Desk, OpenPage
from replay.explore.question_process import DONE, Begun
from traces.workload import WorkloadOptions


class Asked:
    """In place of a process: what it was asked, and an answer when the test says so."""

    def __init__(self, _begun: Begun, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self.tell = tell
        self.states: list[str] = []
        self.given_up = 0

    def ask(self, _what: str, state: Mapping[str, str]) -> None:
        self.states.append(state["rate"])

    def answer(self) -> None:
        self.tell({"kind": "answer"})
        self.tell({"kind": DONE})

    def cancel(self) -> None:
        self.given_up += 1

    def rest(self) -> None: ...

    def go_on(self) -> None: ...


class AtDesk:
    """A desk, and what its pages were told: (page, kind, number of the question)."""

    def __init__(self) -> None:
        self.desk = Desk(Begun(asked=AskedRun(config=Path("twin.yaml"), workload=WorkloadOptions(rate=5))))
        self.turns: Any = self.desk._turns
        self.further: Any = self.desk._further
        self.told: list[tuple[str, str, int]] = []

    def page(self, name: str) -> OpenPage:
        async def send(text: str) -> None:
            said = orjson.loads(text)
            self.told.append((name, said["kind"], said["turn"]))

        return self.desk.join(send)

    async def heard(self) -> list[tuple[str, str, int]]:
        await asyncio.sleep(0.02)
        told, self.told = self.told, []
        return told


@pytest.fixture
def at_desk(monkeypatch: pytest.MonkeyPatch) -> AtDesk:
    monkeypatch.setattr(desks, "QuestionProcess", Asked)
    monkeypatch.setattr(desks, "FOLLOWS_AFTER_S", 0.001)
    return AtDesk()


async def test_two_pages_that_ask_at_once_are_both_answered(at_desk: AtDesk) -> None:
    desk, one, other = at_desk.desk, at_desk.page("one"), at_desk.page("other")
    desk.ask(one, "turn", 1, {"rate": "1"})
    desk.ask(other, "turn", 1, {"rate": "2"})
    desk.ask(other, "turn", 2, {"rate": "3"})  # in place of its own that waits
    assert at_desk.turns.states == ["1"]
    at_desk.turns.answer()
    at_desk.turns.answer()
    assert at_desk.turns.states == ["1", "3"]
    told = await at_desk.heard()
    assert [each[1:] for each in told if each[0] == "one"] == [("answer", 1), (DONE, 1)]
    assert [each[1:] for each in told if each[0] == "other"] == [("answer", 2), (DONE, 2)]
    # what follows: the newest first, then the other
    at_desk.further.tell({"kind": DONE})
    assert await at_desk.heard() == [("other", "complete", 2)]
    at_desk.further.tell({"kind": DONE})
    assert await at_desk.heard() == [("one", "complete", 1)]
    assert at_desk.further.states == ["3", "1"]


async def test_a_page_that_turns_on_and_on_does_not_keep_others_waiting(at_desk: AtDesk) -> None:
    desk, one, other = at_desk.desk, at_desk.page("one"), at_desk.page("other")
    desk.ask(one, "turn", 1, {"rate": "1"})
    desk.ask(one, "turn", 2, {"rate": "2"})  # alone, it takes the place of its own
    desk.ask(other, "turn", 1, {"rate": "8"})
    desk.ask(one, "turn", 3, {"rate": "3"})
    assert at_desk.turns.states == ["1", "2", "8"]
    desk.ask(one, "turn", 4, {"rate": "4"})
    at_desk.turns.answer()
    at_desk.turns.answer()
    assert at_desk.turns.states == ["1", "2", "8", "4"]
    told = [each for each in await at_desk.heard() if each[1] == "answer"]
    assert sorted(told, reverse=True) == [
        ("other", "answer", 1),
        ("one", "answer", 4),
    ]


async def test_a_page_that_leaves_makes_room(at_desk: AtDesk) -> None:
    desk, one, other = at_desk.desk, at_desk.page("one"), at_desk.page("other")
    desk.ask(one, "turn", 1, {"rate": "1"})
    desk.ask(other, "turn", 1, {"rate": "2"})
    desk.leave(one)
    assert (at_desk.turns.states, at_desk.turns.given_up) == (["1", "2"], 1)
    at_desk.turns.answer()
    assert [each[0] for each in await at_desk.heard()] == ["other", "other"]
    desk.leave(other)
    at_desk.further.tell({"kind": DONE})
    assert await at_desk.heard() == []
