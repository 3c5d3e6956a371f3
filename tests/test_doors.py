"""A package is entered by its doors: the ``__init__`` of a room, which lists what the room offers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.test_imports import PACKAGES, ROOT, import_nodes, sources_of

OPEN = (
    *("traces.strict", "traces.console", "traces.facts", "traces.pages"),
    *("traces.statistics", "sim.fleet", "calibrate.validate"),
)
"""Rooms of small tools, formulas and data that other packages use module by module."""


def past_a_door(source: str, *, package: str) -> Iterator[str]:
    """Yield what a module of ``package`` imports from another package other than by a door or from an open room."""
    for node in import_nodes(source):
        if isinstance(node, ast.ImportFrom):
            if _is_foreign(str(node.module), package):
                yield from (
                    f"{node.module}.{alias.name}"
                    for alias in node.names
                    if alias.name not in offered_by(str(node.module))
                    and f"{node.module}.{alias.name}" not in OPEN
                )
        elif isinstance(node, ast.Import):
            yield from (
                alias.name for alias in node.names if _is_foreign(alias.name, package) and "." in alias.name
            )


def _is_foreign(module: str, package: str) -> bool:
    is_open = any(module == room or module.startswith(f"{room}.") for room in OPEN)
    return module.split(".", maxsplit=1)[0] in set(PACKAGES) - {package} and not is_open


def offered_by(module: str) -> list[str]:
    """Return the names that a door lists; none of a module that is no door."""
    if not (ROOT / Path(*module.split(".")) / "__init__.py").is_file():
        return []
    return list(getattr(import_module(module), "__all__", []))


@pytest.mark.parametrize("package", [*PACKAGES, "vtwin"])
def test_one_package_imports_another_by_its_doors(package: str) -> None:
    past = {
        name: sorted(past_a_door(source, package=package)) for name, source in sources_of(package).items()
    }
    assert {name: modules for name, modules in past.items() if modules} == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from sim.config import EngineConfig", ["sim.config.EngineConfig"]),
        ("def f():\n    from traces.metrics import token_gaps", ["traces.metrics.token_gaps"]),
        ("import traces.metrics", ["traces.metrics"]),
        ("from traces import conversion", ["traces.conversion"]),
        ("from traces import Trace\nfrom sim.latency import Blackbox\nimport traces", []),
        ("from traces import pages", []),
        ("from traces.strict.tell import say\nfrom sim.fleet.sizing import size_pool", []),
        ("from replay.twin.twin_config import TwinConfig", []),
    ],
)
def test_a_way_past_a_door_is_seen(source: str, expected: list[str]) -> None:
    assert list(past_a_door(source, package="replay")) == expected


DOORS = sorted(
    path.relative_to(ROOT).parent.as_posix().replace("/", ".")
    for package in PACKAGES
    for path in (ROOT / package).rglob("__init__.py")
    if "\n__all__ = " in path.read_text()
)


def lists_of(door: str) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Return a lazy door's ``__all__``, its table of homes, and what the type checker sees of them."""
    tree = ast.parse((ROOT / Path(*door.split(".")) / "__init__.py").read_text())
    shown = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for block in tree.body
        if isinstance(block, ast.If)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    module = import_module(door)
    homes: dict[str, str | tuple[str, str]] = getattr(module, "_HOMES", {})
    found = {
        name: f"{home}.{name}" if isinstance(home, str) else ".".join(home) for name, home in homes.items()
    }
    return list(module.__all__), found, shown


@pytest.mark.parametrize("door", DOORS)
def test_a_door_opens_what_it_lists(door: str) -> None:
    offered, homes, shown = lists_of(door)
    assert offered == sorted(set(offered), key=offered.index)
    for name in offered:
        assert getattr(import_module(door), name, None) is not None, name
    if homes:
        assert homes == shown
        assert set(homes) == set(offered)
        folder = ROOT / Path(*door.split("."))
        taken = [name for name in offered if (folder / name).is_dir() or (folder / f"{name}.py").is_file()]
        assert not taken, "a module of that name would take the place of what the door offers"


@pytest.mark.parametrize("door", DOORS)
def test_who_looks_around_in_a_room_sees_its_door(door: str) -> None:
    module = import_module(door)
    if hasattr(module, "_HOMES"):
        assert dir(module) == sorted(module.__all__)


def test_every_package_has_a_door() -> None:
    assert set(PACKAGES) <= set(DOORS)
