"""``make scoreboard``: every tool on the same measured servers; the tables go into docs/comparison.md.

Other tools' answers are recorded (``answers/``), and asked for with ``tools/*_answers.py``. A tool more is a module in
``tools`` with a function like theirs, and a line in ``TOOLS``. Five minutes of CPU.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.validation.scoreboard import bounds
from tests.validation.scoreboard.board import Board, losses, markdown
from tests.validation.scoreboard.points import all_points, broken, default_data, noise, read_scored
from tests.validation.scoreboard.tools import (
    aiconfigurator_answers,
    aisimulate_answers,
    profiled_answers,
    vtwin_answers,
)
from tests.validation.scoreboard.tools.recorded import Answers
from tests.validation.silicon import Prepared

TOOLS: Mapping[str, Callable[[Sequence[Prepared]], Answers]] = {
    "AISimulate": aisimulate_answers.answers,
    "aiconfigurator": aiconfigurator_answers.answers,
    "roofline": vtwin_answers.roofline,
    "physics": vtwin_answers.learned,
    "profiled": profiled_answers.answers,
    "physics, family unseen": vtwin_answers.family_unseen,
    "physics, GPU unseen": vtwin_answers.gpu_unseen,
}
EVERYWHERE = ("AISimulate", "aiconfigurator", "roofline", "physics")
"""Tools that any point may be asked of: a row is of the points that all of them answered."""
UNSEEN = ("AISimulate", "aiconfigurator", "roofline", "physics", "physics, family unseen", "physics, GPU unseen")
PAGE = Path(__file__).parents[3] / "docs" / "comparison.md"
BEGIN, END = "<!-- scoreboard: written by `make scoreboard` -->", "<!-- end of scoreboard -->"


def page_of(data: Path) -> str:
    """Return the section of the page between the marks, all of it counted here."""
    ready = read_scored(data)
    measured = all_points(data)
    bad = broken(ready, measured)
    answers = {name: ask(ready) for name, ask in TOOLS.items()}
    shown = {name: answers[name] for name in TOOLS if "unseen" not in name}
    board = Board(points=[each.point for each in ready], answers=shown, everywhere=EVERYWHERE)
    sound = board.without(bad)
    unseen = [
        point
        for point in sound.points
        if all(point.id in answers[name] for name in UNSEEN)
    ]
    held_out = Board(points=unseen, answers={name: answers[name] for name in UNSEEN}, everywhere=UNSEEN)
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
            "Mixtures of experts whose family, or whose GPU, physics was not learned from (the same sound points for all):",
            "",
            markdown(held_out),
            "",
            bounds.markdown(sound.points, answers),
        ]
    )


def main() -> None:
    """Write the section, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=default_data())
    text = page_of(parser.parse_args().data)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, f"{PAGE} has no marks"
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    print(text)


if __name__ == "__main__":
    main()
