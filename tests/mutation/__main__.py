"""``python -m tests.mutation``: change the product at random, one thing at a time, and run the tests of its room.

A copy of the checkout is changed, never the checkout. Exit code 1 where more than a tenth of a room's changes live.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutation.changes import Change, changes_of
from tests.mutation.rooms import ROOMS, Room

LEAST = 0.9
"""This share of a room's changes must be noticed."""
NOT_COPIED = shutil.ignore_patterns(".venv", ".git", "__pycache__", "vtwin-*", ".mypy_cache", ".ruff_cache")


def main() -> int:
    """Run what was asked for; return the exit code."""
    asked = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    asked.add_argument("--each", type=int, default=12, help="changes of each room")
    asked.add_argument("--only", default="", help="rooms whose name has this in it")
    asked.add_argument("--seed", type=int, default=1, help="of the draw")
    asked.add_argument("--timeout", type=float, default=300, help="s; longer is noticed")
    options = asked.parse_args()
    rows, is_enough = [], True
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "vtwin"
        shutil.copytree(Path.cwd(), place, ignore=NOT_COPIED)
        for name, room in ROOMS.items():
            if options.only not in name:
                continue
            noticed, number = _tried(
                place, room, each=options.each, seed=options.seed, timeout=options.timeout
            )
            rows.append(f"| {name} | {noticed} of {number} |")
            is_enough &= noticed >= LEAST * number
    print("\n".join(["| room | noticed |", "|---|---|", *rows]))
    return 0 if is_enough else 1


def drawn(place: Path, room: Room, *, each: int, seed: int) -> list[tuple[Path, Change]]:
    """Return so many changes of a room, drawn among all of them."""
    modules = sorted(path for pattern in room.modules for path in place.glob(pattern))
    every = [(path, change) for path in modules for change in changes_of(path.read_text())]
    return random.Random(seed).sample(every, min(each, len(every)))


def _tried(place: Path, room: Room, *, each: int, seed: int, timeout: float) -> tuple[int, int]:
    """Return how many changes were noticed, of how many; each is told."""
    noticed, chosen = 0, drawn(place, room, each=each, seed=seed)
    for path, change in chosen:
        before = path.read_text()
        path.write_text(change.source)
        is_noticed = not _passes(place, room, timeout=timeout)
        path.write_text(before)
        noticed += is_noticed
        print(
            f"{'noticed' if is_noticed else 'LIVES  '} {path.relative_to(place)}:{change.line} {change.function}: "
            f"{change.before} -> {change.after}",
            flush=True,
        )
    return noticed, len(chosen)


def _passes(place: Path, room: Room, *, timeout: float) -> bool:
    """Return whether a room's tests pass in the copy."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", *room.tests]
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
