"""How many lines each room of the product has: a number here goes up only with a reason, in the same commit.

``python -m tests.house.test_room_lines`` writes the table as it is today.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from tests.test_imports import ARROWS, ROOT, sources_of

TABLE = Path(__file__).with_name("room_lines.json")
SLACK = 40
"""A room may have so many lines fewer than its number: who deletes more lowers the number, too."""


def room_of(path: str) -> str:
    """Return the package and the folder right below it, in which a module stands."""
    folders = Path(path).parent.parts
    return "/".join(folders[:2]) or path


def lines_of_rooms() -> dict[str, int]:
    """Return the number of lines of each room."""
    found: Counter[str] = Counter()
    for package in ARROWS:
        for path, source in sources_of(package).items():
            found[room_of(path)] += source.count("\n")
    return dict(sorted(found.items()))


def test_no_room_grows_without_a_reason() -> None:
    now, table = lines_of_rooms(), json.loads(TABLE.read_text())
    assert now.keys() == table.keys()
    assert {room: (lines, table[room]) for room, lines in now.items() if lines > table[room]} == {}
    assert {room: (lines, table[room]) for room, lines in now.items() if lines < table[room] - SLACK} == {}


def test_every_module_is_in_one_room() -> None:
    files = [path for package in ARROWS for path in sources_of(package)]
    assert sum(lines_of_rooms().values()) == sum((ROOT / path).read_text().count("\n") for path in files)


if __name__ == "__main__":
    TABLE.write_text(json.dumps(lines_of_rooms(), indent=1) + "\n")
    sys.stdout.write(f"{sum(lines_of_rooms().values()):,} lines\n")
