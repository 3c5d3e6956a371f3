"""Every command has a function of a door, a row on the page, and a test that compares both."""

from __future__ import annotations

from importlib import import_module

import pytest
import typer.main

import vtwin
from tests.docs.commands import commands_of
from tests.functions import test_files_and_servers
from tests.functions.commands_and_functions import ROWS, rows_on_the_page
from tests.functions.test_documents import DOCUMENTS, named
from tests.functions.test_files_and_servers import WRITTEN


def commands() -> list[str]:
    root = typer.main.get_command(vtwin.build_app(list(vtwin.COMMANDS)))
    return [path.removeprefix("vtwin ") for path, _ in commands_of(root, "vtwin")]


def test_every_command_has_a_row() -> None:
    assert sorted(ROWS) == sorted(commands())


@pytest.mark.parametrize("command", ROWS)
def test_a_door_offers_what_a_row_names(command: str) -> None:
    for function in ROWS[command].functions:
        door, _, name = function.rpartition(".")
        assert name in import_module(door).__all__
        assert callable(getattr(import_module(door), name))


def test_the_page_on_python_has_the_table() -> None:
    assert rows_on_the_page() == [row.cells(command) for command, row in ROWS.items()]


ELSEWHERE = {
    "observe": "test_observe_s_function_tells_what_the_command_prints",
    "selfcheck": "test_selfcheck_s_function_measures_what_the_command_prints",
    "explore": "test_explore_s_function_serves_the_command_s_page",
    "serve": "test_serve_s_function_answers_as_the_command_does",
    "receive": "test_receive_s_function_writes_what_the_command_writes",
}
CHAINS = {"validate", "demo"}
"""Commands that run other commands, one after the other."""


def test_every_command_is_compared_with_its_function() -> None:
    assert {*map(named, DOCUMENTS), *WRITTEN, *ELSEWHERE, *CHAINS} == set(ROWS)
    assert all(callable(getattr(test_files_and_servers, test)) for test in ELSEWHERE.values())
    assert all(ROWS[command].document.startswith("the commands") for command in CHAINS)
