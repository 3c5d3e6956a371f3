"""The recipes of CONTRIBUTING.md as data: the files that each lists, and the example's changes to them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import FENCE, ROOT

PAGE = ROOT / "CONTRIBUTING.md"
NEW = "/dev/null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an example does to a file: hunks of what stands there and what shall; of a new file one, of nothing."""

    path: str
    is_new: bool
    hunks: tuple[tuple[str, str], ...]

    def applied(self, text: str) -> str:
        """Return a file's text after the change. Raises ValueError where what a hunk changes is not there once."""
        for before, after in self.hunks:
            if not self.is_new and text.count(before) != 1:
                raise ValueError(f"{self.path}: got {text.count(before)} places, expected one:\n{before}")
            text = after if self.is_new else text.replace(before, after)
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe: its heading, the files of its list (``<name>`` stands for any name), and its example."""

    heading: str
    files: tuple[str, ...]
    changes: tuple[Change, ...]

    def unlisted(self) -> list[str]:
        """Return what example and list do not have in common; a name in the list comes before a pattern."""
        changed = [change.path for change in self.changes]
        left = [file for file in changed if file not in self.files]
        patterns = [each for each in self.files if each not in changed]
        for each in list(patterns):
            pattern = re.sub(r"<\w+>", r"\\w[\\w.-]*", each.replace(".", r"\."))
            found = [file for file in left if re.fullmatch(pattern, file)]
            if len(found) == 1:
                left.remove(found[0])
                patterns.remove(each)
        return left + patterns


def recipes() -> list[Recipe]:
    """Return every recipe of the page, in its order."""
    sections = PAGE.read_text().split("\n### ")[1:]
    return [_recipe(*section.split("\n", 1)) for section in sections]


def write(changes: tuple[Change, ...], folder: Path) -> None:
    """Make an example's changes in a copy of the project."""
    for change in changes:
        path = folder / change.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(change.applied("" if change.is_new else (ROOT / change.path).read_text()))


def restore(changes: tuple[Change, ...], folder: Path) -> None:
    """Take an example's changes back in a copy of the project."""
    for change in changes:
        if change.is_new:
            (folder / change.path).unlink(missing_ok=True)
        else:
            (folder / change.path).write_text((ROOT / change.path).read_text())


def _recipe(heading: str, text: str) -> Recipe:
    blocks = "".join(found[2] for found in FENCE.finditer(text) if found[1] == "diff")
    return Recipe(
        heading=heading,
        files=tuple(re.findall(r"^\d+\. `([^`]+)`", FENCE.sub("", text), re.MULTILINE)),
        changes=tuple(_change(*found) for found in _files_of(blocks)),
    )


def _files_of(diff: str) -> list[tuple[str, str, str]]:
    return re.findall(r"^--- (\S+)\n\+\+\+ (\S+)\n@@\n((?:(?!--- ).*\n)*)", diff, re.MULTILINE)


def _change(before: str, path: str, text: str) -> Change:
    hunks = [hunk.splitlines(keepends=True) for hunk in text.split("@@\n")]
    return Change(
        path=path, is_new=before == NEW, hunks=tuple((_of(hunk, "-"), _of(hunk, "+")) for hunk in hunks)
    )


def _of(lines: list[str], side: str) -> str:
    """Return the lines of a hunk as they are before (``-``) or after (``+``) it."""
    return "".join(line[1:] for line in lines if line[0] in (" ", side))
