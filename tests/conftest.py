"""Which tests run together, and which first: the longest, so that no worker is left alone with them at the end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

LONG = (
    "tests/test_validate.py",
    "tests/test_end_to_end.py",
    "tests/test_docs.py",
    "tests/sim/cluster/test_operations.py",
    "tests/replay/plan/fleet/test_fleet_command.py",
    "tests/replay/plan/test_capacity.py",
    "tests/calibrate/test_fit.py",
    "tests/observe/test_processes.py",
)
"""Files whose tests take tens of seconds, in this order before all others."""
PAGE = "test_the_code_of_a_page_runs_and_prints_what_the_page_says"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests, and keep a file on one worker, which makes its fixtures once; a documented page is alone."""
    items.sort(key=lambda item: _place(item, LONG))
    for item in items:
        name = item.nodeid if PAGE in item.nodeid else _file(item)
        item.add_marker(pytest.mark.xdist_group(name))


def _place(item: pytest.Item, long: Sequence[str]) -> int:
    file = _file(item)
    return long.index(file) if file in long else len(long)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
