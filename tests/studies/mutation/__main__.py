"""Change the product at random, one thing at a time, and run the tests of its room.

``python -m tests.studies.mutation``.

A copy of the checkout is changed, never the checkout. Exit code 1 where more than a tenth of a room's changes live.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.studies.mutation.changes import Change, changes_of
from tests.studies.mutation.rooms import ROOMS, Room

LEAST = 0.9
"""This share of a room's changes must be noticed."""
LIBRARIES = (
    "numpy",
    "pandas",
    "numba",
    "hypothesis",
    "orjson",
    "yaml",
    "typer",
    "aiohttp",
    "pyarrow",
    "scipy.optimize",
)
"""Imported once, before the forks; they may bring others with them."""
IMPORTED_BEFORE = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
NOT_COPIED = shutil.ignore_patterns(".venv", ".git", "__pycache__", "vtwin-*", ".mypy_cache", ".ruff_cache")


def main() -> int:
    """Run what was asked for; return the exit code."""
    asked = argparse.ArgumentParser(prog="python -m tests.studies.mutation", description=__doc__)
    asked.add_argument("--each", type=int, default=12, help="changes of each room")
    asked.add_argument("--only", default="", help="rooms whose name has this in it")
    asked.add_argument("--seed", type=int, default=1, help="of the draw")
    asked.add_argument("--timeout", type=float, default=300, help="s; longer is noticed")
    options = asked.parse_args()
    for name in LIBRARIES:
        importlib.import_module(name)
    rows, alive, is_enough = [], [], True
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "vtwin"
        shutil.copytree(Path.cwd(), place, ignore=NOT_COPIED)
        for name, room in ROOMS.items():
            if options.only not in name:
                continue
            chosen = drawn(place, room, each=options.each, seed=options.seed)
            lived = _survivors(place, room, chosen, timeout=options.timeout)
            rows.append(f"| {name} | {len(chosen)} | {len(chosen) - len(lived)} |")
            alive += lived
            is_enough &= len(chosen) - len(lived) >= LEAST * len(chosen)
    print("\n".join(["| room | drawn | noticed |", "|---|---|---|", *rows, "", *alive]))
    return 0 if is_enough else 1


def drawn(place: Path, room: Room, *, each: int, seed: int) -> list[tuple[Path, Change]]:
    """Return so many changes of a room, drawn among all of them."""
    modules = sorted(path for pattern in room.modules for path in place.glob(pattern))
    every = [(path, change) for path in modules for change in changes_of(path.read_text())]
    return random.Random(seed).sample(every, min(each, len(every)))


def _survivors(
    place: Path, room: Room, chosen: Sequence[tuple[Path, Change]], *, timeout: float
) -> list[str]:
    """Return a line for each change that no test noticed; every change is told as it is tried.

    Raises RuntimeError where the room's tests fail without a change: they would "notice" everything.
    """
    started = time.perf_counter()
    with _written_anew(sorted({path for path, _ in chosen})):
        if how := _fails(place, room, timeout=timeout, keeps_bytecode=True):
            raise RuntimeError(f"the tests fail without a change ({how}): {' '.join(room.tests)}")
    print(f"without a change: {time.perf_counter() - started:.0f} s", flush=True)
    lived = []
    for path in {path for path, _ in chosen}:
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    for path, change in chosen:
        started = time.perf_counter()
        before = path.read_text()
        path.write_text(change.source)
        how = _fails(place, room, timeout=timeout)
        path.write_text(before)
        where = (
            f"{path.relative_to(place)}:{change.line} {change.function}: {change.before} -> {change.after}"
        )
        print(f"{how or 'LIVES':8} {time.perf_counter() - started:4.0f} s  {where}", flush=True)
        if not how:
            lived.append(where)
    return lived


@contextmanager
def _written_anew(paths: Sequence[Path]) -> Iterator[None]:
    """Write modules as a change would, only without one: a test that minds the layout must not count as noticing."""
    before = [path.read_text() for path in paths]
    for path, text in zip(paths, before, strict=True):
        path.write_text(ast.unparse(ast.parse(text)))
    try:
        yield
    finally:
        for path, text in zip(paths, before, strict=True):
            path.write_text(text)


def _fails(place: Path, room: Room, *, timeout: float, keeps_bytecode: bool = False) -> str:
    """Return how a room's tests fail in the copy: ``noticed``, or ``too long``; nothing where they pass.

    A fork runs them: it has the libraries, which take longer to import than many a test, and nothing of the product.
    ``keeps_bytecode``: for later runs, which compile the changed modules' folders alone.
    """
    trying = multiprocessing.get_context("fork").Process(
        target=_run_tests, args=(place, room.tests), kwargs={"keeps_bytecode": keeps_bytecode}
    )
    trying.start()
    trying.join(timeout)
    if trying.exitcode is None:
        os.killpg(trying.pid or 0, signal.SIGKILL)
        trying.join()
        return "too long"
    return "noticed" if trying.exitcode else ""


def _run_tests(place: Path, tests: Sequence[str], *, keeps_bytecode: bool) -> None:
    """Run tests of a copy of the checkout, up to the first that fails; exit with pytest's code."""
    os.setsid()
    os.chdir(place)
    os.environ |= {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "" if keeps_bytecode else "1"}
    sys.dont_write_bytecode = not keeps_bytecode
    sys.path[:] = [
        str(place),
        *(each for each in sys.path if each not in ("", str(Path(__file__).parents[3]))),
    ]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    with Path(os.devnull).open("w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    sys.exit(int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-n", "0", *IMPORTED_BEFORE, *tests])))


if __name__ == "__main__":
    sys.exit(main())
