"""The folders of tests mirror the rooms: what tests a module is found where the module is."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.test_imports import PACKAGES, ROOT

SEVERAL = 2
"""Modules, ``__init__`` left out, from which on a folder has tests of its own."""
MOST_TESTS = 15
"""Modules of tests in one folder, its sub-folders left out: as many as a room may have modules."""
TESTED_ELSEWHERE = {
    "calibrate/commands": "its commands with what they find: tests/calibrate/fit, tests/calibrate/flags",
    "replay/model/towers": "with the towers that they time: tests/replay/model/vision",
    "replay/config": "with the flags that it reads: tests/replay/twin/start, tests/replay/test_replay_cli.py",
    "replay/twin/server": "parts of one file, read as a whole: tests/replay/twin/test_config.py",
    "replay/serve/apis": "asked over HTTP, as other requests are: tests/replay/serve/test_apis.py",
    "sim/cluster/run/beginning": "every run begins with it: tests/sim/cluster, tests/sim/test_per_request.py",
    "sim/engine/beginning": "every engine begins with it: tests/sim/test_per_request.py, tests/conformance",
    "sim/engine/kv_transfer": "between two engines: tests/sim/cluster/transfer, tests/conformance/pair",
}
"""Rooms without a folder of tests, and where their tests are."""


def modules_in(folder: Path) -> list[Path]:
    """Return the modules of tests of one folder, its sub-folders left out; none where there is no folder."""
    return sorted(folder.glob("test_*.py"))


def rooms_without_tests(root: Path) -> set[str]:
    """Return every folder of product code with several modules whose path below ``tests`` holds no test."""
    rooms = {path.parent for package in PACKAGES for path in (root / package).rglob("*.py")}
    return {
        room.relative_to(root).as_posix()
        for room in rooms
        if sum(path.name != "__init__.py" for path in room.glob("*.py")) >= SEVERAL
        and not modules_in(root / "tests" / room.relative_to(root))
    }


def folders_of_no_room(root: Path) -> set[str]:
    """Return every folder of tests of a package that the package has no folder for."""
    folders = {path.parent for package in PACKAGES for path in (root / "tests" / package).rglob("test_*.py")}
    names = {folder.relative_to(root / "tests").as_posix() for folder in folders}
    return {name for name in names if not (root / name).is_dir()}


def crowded(root: Path) -> dict[str, int]:
    """Return the folders that hold more modules of tests than may be, and how many."""
    number = Counter(path.parent.relative_to(root).as_posix() for path in (root / "tests").rglob("test_*.py"))
    return {folder: tests for folder, tests in number.items() if tests > MOST_TESTS}


def test_a_room_of_several_modules_has_a_folder_of_tests_or_a_reason() -> None:
    assert rooms_without_tests(ROOT) == set(TESTED_ELSEWHERE)


def test_a_reason_names_tests_that_are_there() -> None:
    named = {room: re.findall(r"tests/[\w/.]+", reason) for room, reason in TESTED_ELSEWHERE.items()}
    assert all(named.values())
    assert [path for paths in named.values() for path in paths if not (ROOT / path).exists()] == []


def test_a_folder_of_tests_is_that_of_a_room() -> None:
    assert folders_of_no_room(ROOT) == set()


def test_no_folder_holds_more_tests_than_a_glance_takes_in() -> None:
    assert crowded(ROOT) == {}


def test_a_module_of_tests_is_found_by_its_name_alone() -> None:
    number = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, files in number.items() if files > 1] == []


def written(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        (("tests/sim/test_a.py", "tests/sim/inner/test_b.py"), set()),
        (("tests/sim/test_a.py", "tests/sim/test_b.py"), {"sim/inner"}),
        (("tests/sim/inner/test_b.py",), {"sim"}),
        (("tests/sim/test_a.py", "tests/sim/inner/made.py"), {"sim/inner"}),
    ],
)
def test_a_room_without_tests_is_seen(tmp_path: Path, tests: tuple[str, ...], expected: set[str]) -> None:
    rooms = ("sim/a.py", "sim/c.py", "sim/inner/b.py", "sim/inner/d.py", "sim/single/e.py")
    assert rooms_without_tests(written(tmp_path, *rooms, *tests)) == expected


def test_a_folder_of_no_room_and_a_crowd_are_seen(tmp_path: Path) -> None:
    many = [f"tests/sim/old/test_{number}.py" for number in range(MOST_TESTS + 1)]
    root = written(tmp_path, "sim/a.py", *many)
    assert folders_of_no_room(root) == {"sim/old"}
    assert crowded(root) == {"tests/sim/old": MOST_TESTS + 1}
    Path(root / many[0]).unlink()
    assert crowded(root) == {}
