"""A table of shares as coloured cells over time: a row per instance, a column per stretch of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.pages.markup import Markup, element, size_of
from traces.pages.scale import Scale

Floats = NDArray[np.float64]

MOST_ROWS = 64
MOST_COLUMNS = 60
MOST_CELLS = 2000
"""The most cells of a picture: more would show nothing more, and each carries its text."""
LEVELS = 20
"""Number of distinct shades; neighbours of one shade are still separate cells, each with its value."""
LEFT, RIGHT, TOP, BOTTOM = 66.0, 10.0, 26.0, 38.0
TALLEST, LOWEST = 24.0, 5.0
"""The highest and the lowest row, in pixels."""
BODY = 300.0
"""Height that the rows share, in pixels, within these bounds."""
LEAST_LABEL = 13.0
"""A row's name needs this many pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """``values`` [rows, columns], NaN where nothing is known; ``ends``: of the columns, on ``x``, ascending from 0.

    ``most``: the value of the darkest cell. ``text`` writes a value.
    """

    title: str
    names: Sequence[str]
    values: Floats
    ends: Floats
    x: Scale
    most: float
    text: Callable[[float], str]
    label: str = ""
    width: int = 520


def heat_map(picture: HeatMap) -> Markup:
    """Return the picture as an SVG element. Too many rows or columns are averaged with their neighbours."""
    names, values, ends = _coarse(picture)
    tall = min(max(BODY / max(len(names), 1), LOWEST), TALLEST)
    height = TOP + tall * len(names) + BOTTOM
    right = picture.width - RIGHT
    edges = LEFT + np.append(0.0, picture.x.place(ends)) * (right - LEFT)
    times = _times(ends)
    cells = []
    for row, name in enumerate(names):
        for column in range(len(ends)):
            value = values[row, column]
            if not np.isfinite(value):
                continue
            level = _level(float(value), picture.most)
            said = f"{name} · {times[column]} to {times[column + 1]} {picture.x.label} · {picture.text(float(value))}"
            place = {
                "x": f"{edges[column]:.1f}",
                "y": f"{TOP + row * tall:.1f}",
                "width": f"{edges[column + 1] - edges[column]:.1f}",
                "height": f"{tall - 1:.1f}",
                "fill-opacity": f"{level:.2g}",
            }
            cells.append(element("rect", place, element("title", {}, said)))
    kind = {"class": "chart", "role": "img", "aria-label": picture.title}
    body = element("g", {"class": "heat"}, *cells)
    texts = _texts(picture, names, tall=tall, height=height)
    return element("svg", kind | size_of(picture.width, round(height)), body, *texts)


def _level(value: float, most: float) -> float:
    """Return the shade of a value, 0.04 to 1 in steps."""
    share = min(max(value / most, 0.0), 1.0) if most > 0 else 0.0
    return 0.04 + 0.96 * round(share * LEVELS) / LEVELS


def _coarse(picture: HeatMap) -> tuple[list[str], Floats, Floats]:
    """Return names, values and ends, reduced to the rows and columns that a picture can take."""
    names, values = list(picture.names), picture.values
    if len(names) > MOST_ROWS:
        groups = np.array_split(np.arange(len(names)), MOST_ROWS)
        values = np.stack([values[group].mean(axis=0) for group in groups])
        names = [f"{picture.names[group[0]]} to {picture.names[group[-1]]}" for group in groups]
    columns = min(MOST_COLUMNS, MOST_CELLS // max(len(names), 1), values.shape[1])
    groups = np.array_split(np.arange(values.shape[1]), max(columns, 1))
    widths = np.diff(picture.ends, prepend=0.0)
    merged = [
        np.average(values[:, group], axis=1, weights=np.maximum(widths[group], 1e-12)) for group in groups
    ]
    return names, np.stack(merged, axis=1), picture.ends[[group[-1] for group in groups]]


def _times(ends: Floats) -> list[str]:
    """Return the edges of the columns as text, with enough digits to distinguish them."""
    gap = float(ends[-1]) / max(len(ends), 1) if len(ends) else 1.0
    digits = 0 if gap >= 2 else 1 if gap >= 0.2 else 2 if gap >= 0.02 else 3
    return [f"{value:,.{digits}f}" for value in np.append(0.0, ends)]


def _texts(picture: HeatMap, names: Sequence[str], *, tall: float, height: float) -> list[Markup]:
    """Return the title, the rows' names if they have room, the time's ticks and the meaning of the colours."""
    every = max(1, int(np.ceil(LEAST_LABEL / tall)))
    bottom, right = height - BOTTOM, picture.width - RIGHT
    found = [element("text", {"class": "title", "x": "0", "y": "13"}, picture.title)]
    if picture.label:
        found.append(_text("label", right, "13", picture.label))
    for row in range(0, len(names), every):
        y = TOP + (row + 0.5) * tall + 4
        found.append(_text("tick", LEFT - 7, f"{y:.1f}", _short(names[row])))
    for value, text in picture.x.ticks:
        x = LEFT + float(picture.x.place(np.array([value]))[0]) * (right - LEFT)
        found.append(_text("tick", round(x, 1), f"{bottom + 15:.1f}", text, anchor="middle"))
    found.append(_text("label", right, f"{bottom + 31:.1f}", picture.x.label))
    return found


def _text(name: str, x: float, y: str, text: str, *, anchor: str = "end") -> Markup:
    return element("text", {"class": name, "x": f"{x:g}", "y": y, "text-anchor": anchor}, text)


LONGEST_NAME = 10


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
