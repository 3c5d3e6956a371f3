"""The wheel holds the five rooms and the console script, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = {"observe", "replay", "calibrate", "sim", "traces"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names of the files in a wheel that is built from a copy of this tree, as `make wheel` builds it."""
    source = tmp_path_factory.mktemp("source") / "vtwin"
    leave = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "vtwin-*")
    shutil.copytree(ROOT, source, ignore=leave)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    (built,) = (source / "dist").glob("*.whl")
    return ZipFile(built).namelist()


def test_the_top_level_is_the_five_rooms_two_modules_and_the_metadata(wheel: list[str]) -> None:
    top = {name.split("/")[0] for name in wheel}
    (metadata,) = (name for name in top if name.endswith(".dist-info"))
    assert top - {metadata} == ROOMS | {"vtwin.py", "lazy_dataclasses.py"}


def test_every_room_says_that_it_is_typed(wheel: list[str]) -> None:
    assert {name for name in wheel if name.endswith("py.typed")} == {f"{room}/py.typed" for room in ROOMS}


def test_every_file_of_a_room_is_in_the_wheel(wheel: list[str]) -> None:
    ours = {path for room in ROOMS for path in (ROOT / room).rglob("*") if path.is_file()}
    missing = {str(path.relative_to(ROOT)) for path in ours if "__pycache__" not in path.parts} - set(wheel)
    assert missing == set()


def test_the_licence_and_the_notice_travel_with_the_wheel(wheel: list[str]) -> None:
    assert {name.split("/")[-1] for name in wheel if "/licenses/" in name} == {"LICENSE", "NOTICE"}
