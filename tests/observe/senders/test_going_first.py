"""A sender goes before other work by the first way that the system allows, and is as before at its end."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from observe.senders import going_first
from observe.senders.going_first import NICENESS, SLICE_NS, put_first, step_back_when_busy

REAL_TIME, NICE, SLICE = "SCHED_RR 1", "niceness -10", "slice 0.1 ms"
CHOSEN = [
    pytest.param({"real time", "niceness", "slice"}, REAL_TIME, id="all allowed"),
    pytest.param({"niceness", "slice"}, NICE, id="no real time"),
    pytest.param({"slice"}, SLICE, id="an ordinary user"),
    pytest.param(set(), None, id="an ordinary user of an older system"),
]


class System:
    """A thread's policy, niceness and slice as the system keeps them; what is not ``allowed`` is refused."""

    def __init__(self, allowed: set[str], *, niceness: int = 0, policy: int = os.SCHED_OTHER) -> None:
        self.state = {"policy": policy, "niceness": niceness, "slice": 0}
        self._allowed = allowed

    def set_policy(self, thread: int, policy: int, given: os.sched_param) -> None:
        assert thread == 0
        assert given.sched_priority == (1 if policy == os.SCHED_RR else 0)
        if policy != os.SCHED_OTHER and "real time" not in self._allowed:
            raise PermissionError
        self.state["policy"] = policy

    def set_niceness(self, which: int, thread: int, niceness: int) -> None:
        assert (which, thread) == (os.PRIO_PROCESS, threading.get_native_id())
        if niceness < self.state["niceness"] and "niceness" not in self._allowed:
            raise PermissionError
        self.state["niceness"] = niceness

    def call(self, number: int, thread: int, attributes: Any, *_: int) -> int:  # noqa: ANN401 - ctypes' buffer
        fields = list(going_first._ATTRIBUTES.unpack(attributes.raw))
        assert (thread, len(attributes)) == (0, 48)
        if number == 314:
            assert fields[0] == 48
            if "slice" not in self._allowed:
                return -1
            self.state["slice"] = fields[5]
        else:
            assert number == 315
            fields[5] = self.state["slice"]
            attributes.raw = going_first._ATTRIBUTES.pack(*fields)
        return 0


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., System]:
    """Have what is tested ask a system of one's own."""

    def made(allowed: set[str], **how: int) -> System:
        system = System(allowed, **how)
        monkeypatch.setattr(os, "sched_getscheduler", lambda _: system.state["policy"])
        monkeypatch.setattr(os, "sched_setscheduler", system.set_policy)
        monkeypatch.setattr(os, "getpriority", lambda *_: system.state["niceness"])
        monkeypatch.setattr(os, "setpriority", system.set_niceness)
        monkeypatch.setattr(going_first.platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(going_first.ctypes, "CDLL", lambda _: type("C", (), {"syscall": system.call}))
        return system

    return made


@pytest.mark.parametrize(("allowed", "said"), CHOSEN)
def test_the_first_way_that_is_allowed_is_taken_and_given_back(
    allowed: set[str], said: str | None, ask: Callable[..., System]
) -> None:
    system = ask(allowed)
    before = dict(system.state)
    with put_first() as scheduling:
        assert scheduling == said
        assert system.state == {
            "policy": os.SCHED_RR if said == REAL_TIME else os.SCHED_OTHER,
            "niceness": NICENESS if said == NICE else 0,
            "slice": SLICE_NS if said == SLICE else 0,
        }
    assert system.state == before


@pytest.mark.parametrize(
    ("how", "said"),
    [({"niceness": 5}, "niceness 5"), ({"niceness": -3}, "niceness -3"), ({"policy": 3}, "policy 3")],
    ids=["nice", "raised", "batch"],
)
def test_what_its_user_has_set_is_kept(how: dict[str, int], said: str, ask: Callable[..., System]) -> None:
    system = ask({"real time", "niceness", "slice"}, **how)
    before = dict(system.state)
    with put_first() as scheduling:
        assert (scheduling, system.state) == (said, before)
    assert system.state == before


def test_a_slice_that_the_system_did_not_take_is_not_said(
    ask: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = ask({"slice"})
    monkeypatch.setattr(System, "call", lambda *_: 0)  # as before Linux 6.12: no error, and nothing done
    monkeypatch.setattr(going_first.ctypes, "CDLL", lambda _: type("C", (), {"syscall": system.call}))
    with put_first() as scheduling:
        assert scheduling is None


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "resting"])
async def test_only_a_thread_that_computes_without_rest_steps_back(
    busy: bool, ask: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = ask({"real time", "niceness"})
    monkeypatch.setattr(going_first, "_LOOK_S", 0.001)
    share = 0.95 if busy else 0.85
    clocks = SimpleNamespace(monotonic=time.monotonic, thread_time=lambda: share * time.monotonic())
    monkeypatch.setattr(going_first, "time", clocks)
    before = dict(system.state)
    with put_first():
        watching = asyncio.ensure_future(step_back_when_busy())
        await asyncio.wait([watching], timeout=10 if busy else 0.05)
        assert watching.done() is busy
        assert system.state["policy"] == (os.SCHED_OTHER if busy else os.SCHED_RR)
        assert system.state["niceness"] == (NICENESS if busy else 0)
        watching.cancel()
    assert system.state == before


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system itself")
def test_this_very_system_is_as_before_and_threads_of_the_run_are_as_its_own() -> None:
    def now() -> tuple[int, int]:
        return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = now()
    seen: list[tuple[int, int]] = []
    with put_first():
        thread = threading.Thread(target=lambda: seen.append(now()))
        thread.start()
        thread.join()
        assert seen == [now()]
    assert now() == before
