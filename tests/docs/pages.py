"""Find the pages, cut them into blocks and links, and turn a page's blocks into one bash script."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FILE_NAME = re.compile(r"# ([\w.-]+\.yaml)\b")
MODULE_NAME = re.compile(r"# (\S+\.py)\n")
ROOMS = "traces|sim|observe|replay|calibrate"
PATH = re.compile(rf"`((?:{ROOMS}|tests|docs)/[\w./-]*|(?:vtwin|lazy_dataclasses)\.py)`")
PYTHON_NAME = re.compile(rf"`((?:{ROOMS})(?:\.\w+)+)`")
TEST_NAME = re.compile(r"`(test_\w+)(…?)`")
LANGUAGES = {"console", "python", "yaml", "sh", "text", "json", "csv", "diff"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: where it begins (its first line of text, from 1), its language, its text."""

    page: Path
    line: int
    language: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a console block and what the page says that it prints ('' where it says nothing)."""

    line: int
    text: str
    printed: str


def pages() -> list[Path]:
    """Return every page of the documentation."""
    first = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*first, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    text = page.read_text()
    return [
        Block(page=page, line=text.count("\n", 0, found.start()) + 2, language=found[1], text=found[2])
        for found in FENCE.finditer(text)
    ]


def links_of(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield the file and the anchor ('' for none) of every link that leads to a place in this project."""
    text = FENCE.sub("", page.read_text())
    for target in LINK.findall(text):
        if "://" not in target and not target.startswith("mailto:"):
            file, _, anchor = target.partition("#")
            yield (page.parent / file).resolve() if file else page, anchor


def paths_of(page: Path) -> list[str]:
    """Return every path of this project that the text of a page names in backticks."""
    return PATH.findall(FENCE.sub("", page.read_text()))


def python_names_of(page: Path) -> list[str]:
    """Return every dotted name of the five packages that the text of a page names in backticks."""
    return PYTHON_NAME.findall(FENCE.sub("", page.read_text()))


def named_tests(page: Path) -> list[str]:
    """Return a pattern for every test that the text of a page names in backticks; ``…`` stands for any ending."""
    named = TEST_NAME.findall(FENCE.sub("", page.read_text()))
    return [f"def {name}\\w*" if ending else f"def {name}\\(" for name, ending in named]


def rows_below(page: Path, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, its head left out; empty if there is no such heading."""
    _, _, below = page.read_text().partition(f"\n## {heading}\n")
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    lines = table[0].splitlines()[2:] if table else []
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as they are made from their words."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a console block; a line that ends in a backslash goes on in the next."""
    commands: list[Command] = []
    lines = iter(enumerate(block.text.splitlines(), start=block.line))
    for number, line in lines:
        if line.startswith("$ "):
            text = line[2:]
            while text.endswith("\\"):
                text += "\n" + next(lines)[1]
            commands.append(Command(line=number, text=text, printed=""))
        elif commands:
            last = commands.pop()
            commands.append(Command(line=last.line, text=last.text, printed=f"{last.printed}{line}\n"))
    return commands


def script_of(
    page: Path, blocks: list[Block], *, python: str = f"{shlex.quote(sys.executable)} -P -"
) -> tuple[str, dict[str, str]]:
    """Return a bash script that runs the blocks, and what each file under ``.printed/`` must then hold.

    ``python``: a command that runs the Python on its stdin.

    The script writes the place that it is at into ``.at``, so that a failure can be located.
    """
    script = ["set -euo pipefail", "mkdir .printed"]
    expected: dict[str, str] = {}
    for block in blocks:
        if block.language == "console":
            for command in commands_of(block):
                printed = f".printed/{command.line}"
                expected |= {printed: command.printed} if command.printed else {}
                script += [_at(page, command.line), f"{{ {command.text}\n}} > {printed}"]
        elif block.language == "python" and (named := MODULE_NAME.match(block.text)):
            script += [_at(page, block.line), f"cat > {named[1]} <<'PYTHON'\n{block.text}PYTHON"]
        elif block.language == "python":
            script += [
                _at(page, block.line),
                f"{python} <<'PYTHON'\n{block.text}PYTHON",
            ]
        elif block.language == "yaml" and (named := FILE_NAME.match(block.text)):
            script += [_at(page, block.line), f"cat > {named[1]} <<'YAML'\n{block.text}YAML"]
    return "\n".join(script) + "\n", expected


def matches(printed: str, expected: str) -> bool:
    """Return whether a command printed what the page says, ``…`` standing for anything."""
    parts = (re.escape(part) for part in _trimmed(expected).split("…"))
    return re.fullmatch(".*?".join(parts), _trimmed(printed), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _at(page: Path, line: int) -> str:
    return f"echo {shlex.quote(f'{page.relative_to(ROOT)}:{line}')} > .at"
