"""What a run changes of its process is as before when it has ended: the collector, open files."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator

import pytest

from observe.executor import tuned_for_a_run


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
