"""The tables: median absolute errors of every tool, by class of model and GPU, on points that all of them answered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.studies.validation.scoreboard.tools.recorded import Answers
from tests.studies.validation.silicon import MODEL_CLASSES, Point

METRICS = ("TTFT", "TPOT")
FEWEST = 5
"""Points from which on a row is shown."""
FAR = 1.25
"""So many times the first tool's error counts as a loss; less is said to be level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What tools answered about measured points. ``everywhere``: the tools whose common points are the rows'."""

    points: Sequence[Point]
    answers: Mapping[str, Answers]
    everywhere: Sequence[str]

    def without(self, ids: Collection[str]) -> Board:
        """Return the board without some points."""
        left = [point for point in self.points if point.id not in ids]
        return Board(points=left, answers=self.answers, everywhere=self.everywhere)

    def common(self) -> list[Point]:
        """Return the points that every tool of ``everywhere`` answered."""
        return [
            point for point in self.points if all(point.id in self.answers[tool] for tool in self.everywhere)
        ]

    def rows(self) -> dict[str, list[Point]]:
        """Return the points by the name of the row: all, classes, and classes on each GPU."""
        rows: dict[str, list[Point]] = {}
        for point in self.common():
            kind = class_of(point)
            for name in ("all", kind, f"{kind}, {point.gpu}"):
                rows.setdefault(name, []).append(point)
        order = sorted(rows, key=lambda name: (name != "all", name.count(","), name))
        return {name: rows[name] for name in order if len(rows[name]) >= FEWEST}

    def medians(self, tool: str, points: Sequence[Point]) -> tuple[int, np.ndarray]:
        """Return how many of the points a tool answered, and its median absolute errors of TTFT and TPOT, %."""
        found = errors_of(self.answers[tool], points)
        return len(found), np.median(np.abs(found), axis=0) if len(found) else np.full(2, np.nan)


def class_of(point: Point) -> str:
    """Return ``dense`` or ``MoE``."""
    return MODEL_CLASSES[point.model].split(",", maxsplit=1)[0]


def errors_of(answers: Answers, points: Sequence[Point]) -> np.ndarray:
    """Return the errors of TTFT and TPOT, %, [n, 2], of the points that were answered."""
    rows = [
        (answers[point.id][0] / point.ttft_ms - 1, answers[point.id][1] / point.tpot_ms - 1)
        for point in points
        if point.id in answers
    ]
    return 100 * np.array(rows).reshape(-1, 2)


def markdown(board: Board, noise: Mapping[tuple[str, str], tuple[int, float, float]] | None = None) -> str:
    """Return the table; ``noise`` beside it. The smallest error of a row is in bold; (n): of so many points only."""
    tools = list(board.answers)
    head = ["points", "n", *tools, *(["noise"] if noise is not None else [])]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name, points in board.rows().items():
        cells = [_cells(board, points, first=_first(board, points), tool=tool) for tool in tools]
        if noise is not None:
            kind, _, gpu = name.partition(", ")
            number, *values = noise.get((kind, gpu), (0, 0.0, 0.0))
            cells.append(f"{values[0]:.1f} / {values[1]:.1f} ({number})" if number else "-")
        lines.append(f"| {name} | {len(points)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _first(board: Board, points: Sequence[Point]) -> list[tuple[str, float]]:
    """Return the tool with the smallest error of TTFT, and of TPOT, among those that answered all points."""
    found = {tool: board.medians(tool, points) for tool in board.answers}
    full = {tool: values for tool, (number, values) in found.items() if number == len(points)}
    return [
        min(((tool, values[side]) for tool, values in full.items()), key=lambda x: x[1]) for side in (0, 1)
    ]


def _cells(board: Board, points: Sequence[Point], *, first: list[tuple[str, float]], tool: str) -> str:
    number, values = board.medians(tool, points)
    if number < FEWEST:
        return "-"
    shown = [
        f"**{value:.1f}**" if first[side][0] == tool else f"{value:.1f}" for side, value in enumerate(values)
    ]
    return " / ".join(shown) + ("" if number == len(points) else f" ({number})")


def losses(board: Board) -> str:
    """Return a line per tool: in how many cells it is first, and where it is clearly not."""
    rows: dict[str, dict[str, Sequence[float]]] = {}
    for name, points in board.rows().items():
        found = {tool: board.medians(tool, points) for tool in board.answers}
        rows[name] = {
            tool: values.tolist() for tool, (number, values) in found.items() if number == len(points)
        }
    return clearly_behind(rows, board.everywhere, METRICS)


def clearly_behind(
    rows: Mapping[str, Mapping[str, Sequence[float]]], tools: Sequence[str], metrics: Sequence[str]
) -> str:
    """Return a line per tool: in how many cells it is first, and where it is clearly not.

    ``rows``: errors by row and tool, one of each metric; empty where a tool did not answer all of a row's points.
    """
    lines = []
    for tool in tools:
        asked, won, lost = 0, 0, []
        for name, found in rows.items():
            for side, metric in enumerate(metrics):
                cells = {each: values[side] for each, values in found.items() if len(values)}
                if tool not in cells:
                    continue
                best = min(cells, key=lambda each: cells[each])
                asked, won = asked + 1, won + (best == tool)
                if cells[tool] > FAR * cells[best]:
                    lost.append(f"{metric} of {name} ({cells[tool]:.1f}; {best} {cells[best]:.1f})")
        where = "; ".join(lost) or "none"
        lines.append(f"- **{tool}**: first in {won} of {asked} cells; clearly behind: {where}.")
    return "\n".join(lines)


def cells(found: Mapping[str, Sequence[float]], tools: Sequence[str]) -> list[str]:
    """Return a row's cells, the smallest error of each metric in bold; a dash where a tool did not answer all."""
    least = np.min([found[tool] for tool in tools if len(found[tool])], axis=0)
    return [
        " / ".join(
            f"**{value:.1f}**" if value == best else f"{value:.1f}"
            for value, best in zip(found[tool], least, strict=False)
        )
        or "-"
        for tool in tools
    ]
