"""The rooms know each other only along the arrows of docs/architecture.md."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ARROWS = {
    "traces": set(),
    "sim": set(),
    "observe": {"traces"},
    "replay": {"traces", "sim"},
    "calibrate": {"traces", "sim", "replay"},
    "vtwin": {"traces", "sim", "observe", "replay", "calibrate"},
}
# What sim may use: arithmetic and types. No files, no clock, no logging, no randomness that is consumed.
SIM_MODULES = {
    "__future__",
    "abc",
    "collections",
    "collections.abc",
    "dataclasses",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "importlib",
    "itertools",
    "math",
    "operator",
    "types",
    "typing",
}
# Except: the cache of machine code is a folder, and a run says what it cost. No outcome depends on either.
SIM_EXCEPTIONS = {"sim/compile.py": {"hashlib", "os", "pathlib", "sys"}, "sim/simulation.py": {"time"}}
SIM_CALLS_FORBIDDEN = {"open", "print", "input", "breakpoint"}


def imported_modules(source: str, *, package: str) -> Iterator[str]:
    """Yield the dotted name of every module that ``source`` imports, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield package if node.level else str(node.module)
        elif isinstance(node, ast.Call) and _called_name(node) in {"import_module", "__import__"}:
            yield from (arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant))


def _called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def sources_of(room: str) -> dict[str, str]:
    """Return the source of every file of a room by its path from the root."""
    files = [ROOT / "vtwin.py"] if room == "vtwin" else sorted((ROOT / room).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in files}


def foreign_rooms(source: str, *, room: str) -> set[str]:
    tops = {name.split(".")[0] for name in imported_modules(source, package=room)}
    return (tops & set(ARROWS)) - ARROWS[room] - {room}


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_imports_only_along_the_arrows(room: str) -> None:
    wrong = {name: foreign_rooms(source, room=room) for name, source in sources_of(room).items()}
    assert {name: rooms for name, rooms in wrong.items() if rooms} == {}


def test_every_room_has_files_to_look_at() -> None:
    assert all(sources_of(room) for room in ARROWS)


def test_sim_imports_no_files_no_clock_and_no_logging() -> None:
    wrong = {
        (name, module)
        for name, source in sources_of("sim").items()
        for module in imported_modules(source, package="sim")
        if module not in SIM_MODULES | SIM_EXCEPTIONS.get(name, set())
        and module.split(".")[0] not in {"numba", "numpy", "sim"}
    }
    assert wrong == set()


def test_sim_opens_and_prints_nothing() -> None:
    wrong = {
        (name, node.lineno)
        for name, source in sources_of("sim").items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in SIM_CALLS_FORBIDDEN
    }
    assert wrong == set()


def test_sim_reads_no_clock_but_that_of_its_own_work() -> None:
    read = {
        node.attr
        for source in sources_of("sim").values()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time"
    }
    assert read <= {"thread_time"}


def test_no_room_imports_tests_or_docs() -> None:
    imported = {
        module.split(".")[0]
        for room in ARROWS
        for source in sources_of(room).values()
        for module in imported_modules(source, package=room)
    }
    assert imported.isdisjoint({"tests", "docs"})


@pytest.mark.parametrize("room", ARROWS)
def test_no_room_has_the_name_of_a_standard_module(room: str) -> None:
    assert room not in sys.stdlib_module_names


@pytest.mark.parametrize(
    "source",
    [
        "import replay",
        "from replay.config import load_config",
        "def f():\n    from replay import load_config",
        "if TYPE_CHECKING:\n    import replay.cli as c",
        "import importlib\nimportlib.import_module('replay.cli')",
    ],
)
def test_an_arrow_that_is_not_drawn_is_seen(source: str) -> None:
    assert foreign_rooms(source, room="traces") == {"replay"}
