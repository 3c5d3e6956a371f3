"""vLLM's ``max_num_seqs`` has one word, seats: in pages, in help and in messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

import vtwin
from tests.docs.commands import commands_of

ROOT = Path(__file__).parents[2]
ROOMS = ("calibrate", "observe", "replay", "sim", "traces")
OTHER = re.compile(r"KV slots|slots for tokens|slots for the drafting|drafting model's slots|slots=True")
"""vLLM's own slots, for tokens in KV blocks; and Python's."""
WORD = re.compile(r"\bslots?\b", re.IGNORECASE)
CODE = re.compile(r"^```.*?^```|``.*?``|`[^`\n]*`|\]\([^)]*\)", re.DOTALL | re.MULTILINE)


def said_otherwise(text: str) -> list[str]:
    """Return the lines that have the other word, code aside."""
    plain = OTHER.sub("", CODE.sub("", text))
    return [line.strip() for line in plain.splitlines() if WORD.search(line)]


def messages(path: Path) -> Iterator[str]:
    """Yield a module's texts of several words that are no docstrings."""
    tree = ast.parse(path.read_text())
    bare = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)) or id(node) in bare:
            continue
        if " " in node.value.strip():
            yield node.value


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_a_page_says_seats(page: Path) -> None:
    assert said_otherwise(page.read_text()) == []


def test_messages_say_seats() -> None:
    found = {
        path.name: lines
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if "slot" in path.read_text()
        and (lines := [x for text in messages(path) for x in said_otherwise(text)])
    }
    assert found == {}


def test_help_says_seats() -> None:
    root = typer.main.get_command(vtwin.build_app(vtwin.COMMANDS))
    texts = {
        path: [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]
        for path, command in commands_of(root, "vtwin")
    }
    assert {
        path: said_otherwise("\n".join(each))
        for path, each in texts.items()
        if said_otherwise("\n".join(each))
    } == {}
