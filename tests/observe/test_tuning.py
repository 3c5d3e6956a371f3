"""What a run changes of its process is as before when it has ended: the collector, open files, the niceness."""

from __future__ import annotations

import gc
import os
import resource
import threading
from collections.abc import Iterator

import pytest

from observe.executor import NICENESS, put_first, tuned_for_a_run


@pytest.fixture
def thawed() -> Iterator[None]:
    """The suite freezes itself before the first test, and again after this one."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("thawed")
def test_a_run_without_a_collector_leaves_the_collector_as_it_was() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with tuned_for_a_run():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[1]
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


@pytest.mark.usefixtures("thawed")
def test_what_the_caller_had_frozen_stays_frozen() -> None:
    gc.freeze()
    with tuned_for_a_run():
        pass
    assert gc.get_freeze_count() > 0


class System:
    """Keeps the niceness of threads, as the system does, and may refuse to raise one."""

    def __init__(self, niceness: int = 0, *, refuses: bool = False) -> None:
        self.of_threads = {threading.get_native_id(): niceness}
        self._refuses = refuses

    def get(self, which: int, thread: int) -> int:
        assert which == os.PRIO_PROCESS
        return self.of_threads[thread]

    def set(self, which: int, thread: int, niceness: int) -> None:
        assert which == os.PRIO_PROCESS
        if self._refuses:
            raise PermissionError
        self.of_threads[thread] = niceness


@pytest.mark.parametrize(
    ("system", "during"),
    [(System(), NICENESS), (System(refuses=True), None), (System(5), 5), (System(-3), -3)],
    ids=["allowed", "refused", "nice by its user", "raised by its user"],
)
def test_a_run_goes_first_where_it_may_and_its_user_has_not_said_otherwise(
    system: System, during: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(system.of_threads)
    monkeypatch.setattr(os, "getpriority", system.get)
    monkeypatch.setattr(os, "setpriority", system.set)
    with put_first() as niceness:
        assert niceness == during
        assert list(system.of_threads.values()) == [during or 0]
    assert system.of_threads == before


def test_the_niceness_of_this_very_system_is_as_before() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with put_first() as niceness:
        assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == (niceness or 0)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
