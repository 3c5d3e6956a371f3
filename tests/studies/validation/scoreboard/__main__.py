"""``make scoreboard``: every tool on the same measured servers; the tables go into docs/comparison.md.

Other tools' answers are recorded (``answers/``), and asked for with ``tools/*_answers.py``. A tool more is a module in
``tools`` with a function like theirs, and a line in ``TOOLS``. Ten minutes of CPU; ``--only`` writes one section.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.studies.validation.scoreboard import bounds, inferencex, published_servers
from tests.studies.validation.scoreboard.board import Board, losses, markdown
from tests.studies.validation.scoreboard.points import all_points, broken, default_data, noise, read_scored
from tests.studies.validation.scoreboard.tools import (
    aiconfigurator_answers,
    aisimulate_answers,
    inferencex_answers,
    profiled_answers,
    vtwin_answers,
)
from tests.studies.validation.scoreboard.tools.recorded import Answers
from tests.studies.validation.silicon import Prepared

TOOLS: Mapping[str, Callable[[Sequence[Prepared]], Answers]] = {
    "AISimulate": aisimulate_answers.answers,
    "aiconfigurator": aiconfigurator_answers.answers,
    "roofline": vtwin_answers.roofline,
    "physics": vtwin_answers.learned,
    "profiled": profiled_answers.answers,
    "physics, family unseen": vtwin_answers.family_unseen,
    "physics, GPU unseen": vtwin_answers.gpu_unseen,
    "profiled, family unseen": profiled_answers.family_unseen,
    "profiled, GPU unseen": profiled_answers.gpu_unseen,
}
EVERYWHERE = ("AISimulate", "aiconfigurator", "roofline", "physics")
"""Tools that any point may be asked of: a row is of the points that all of them answered."""
OTHERS = {
    "Physics learned again without the model's family": (*EVERYWHERE, "physics, family unseen"),
    "Physics learned again without the GPU": (*EVERYWHERE, "physics, GPU unseen"),
    "Points that profiled reaches, its way in learned again without the model's family, and without the GPU": (
        *("roofline", "physics", "profiled", "profiled, family unseen", "profiled, GPU unseen"),
    ),
}
"""Further tables: the tools whose common points they are of."""
BOUNDS = (
    "`model compare` says a bound below which nine of ten errors lie. Does it hold where it was not made? Each family, "
    "or GPU, in turn: the bound of the class's other points, and the share of its own within it."
)
PAGE = Path(__file__).parents[4] / "docs" / "comparison.md"
MARKS = "<!-- {}: written by `make scoreboard` -->", "<!-- end of {} -->"


def page_of(data: Path) -> str:
    """Return the section of the page between the marks, all of it counted here."""
    ready = read_scored(data)
    measured = all_points(data)
    bad = broken(ready, measured)
    answers = {name: ask(ready) for name, ask in TOOLS.items()}
    shown = {name: answers[name] for name in TOOLS if "unseen" not in name}
    board = Board(points=[each.point for each in ready], answers=shown, everywhere=EVERYWHERE)
    sound = board.without(bad)
    said = "; ".join(f"{count} {why}" for why, count in Counter(bad.values()).most_common())
    asked = ", ".join(f"{name} {len(answers[name])}" for name in TOOLS)
    return "\n".join(
        [
            f"Points: {len(ready)}, of which broken by a rule: {len(bad)} ({said}). Answered: {asked}.",
            "",
            f"Sound points that all of {', '.join(EVERYWHERE)} answered ({len(sound.common())}):",
            "",
            markdown(sound, noise(measured)),
            "",
            losses(sound),
            "",
            f"All points, the broken ones too ({len(board.common())}):",
            "",
            markdown(board),
            "",
            *(line for name, tools in OTHERS.items() for line in _among(sound, name, tools, answers)),
            BOUNDS,
            "",
            bounds.markdown(sound.points, answers),
        ]
    )


def _among(sound: Board, title: str, tools: Sequence[str], answers: Mapping[str, Answers]) -> list[str]:
    """Return the table of the points that some tools answered; nothing where there are none."""
    board = Board(points=sound.points, answers={tool: answers[tool] for tool in tools}, everywhere=tools)
    return [f"{title} ({len(board.common())}):", "", markdown(board), ""] if board.common() else []


def _inferencex(data: Path) -> str:
    inferencex_answers.ask_ours(data)
    return inferencex.markdown()


def _published(data: Path) -> str:
    published_servers.measure(data)
    return published_servers.markdown()


SECTIONS = {"scoreboard": page_of, "inferencex": _inferencex, "llmservingsim": _published}
"""What stands between marks of a name."""


def section(name: str) -> tuple[str, str, str]:
    """Return the page before, between and after the marks of a section."""
    begin, end = (mark.format(name) for mark in MARKS)
    before, _, rest = PAGE.read_text().partition(f"{begin}\n")
    text, _, after = rest.partition(f"\n{end}")
    assert after, f"{PAGE} has no marks of {name}"
    return f"{before}{begin}\n", text, f"\n{end}{after}"


def main() -> None:
    """Write the sections, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--only", choices=SECTIONS)
    options = parser.parse_args()
    for name, make in SECTIONS.items():
        if options.only in (None, name):
            text = make(options.data)
            before, _, after = section(name)
            PAGE.write_text(before + text + after)
            print(text, end="\n\n")


if __name__ == "__main__":
    main()
