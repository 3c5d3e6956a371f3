"""A picture of a static page as the numbers that the page's script draws it from."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from traces.pages import Across, Band, Dots, Line, Mark, Note, Picture, Rule, Scale
from traces.pages.chart import MOST_DOTS, MOST_POINTS, thinned

Floats = NDArray[np.float64]
IN_US = {"µs": 1.0, "ms": 1e3, "s": 1e6, "min": 6e7, "h": 3.6e9}
"""Units of time that an axis may have: a page puts pictures of several answers, each in its own, on one axis."""
DIGITS = 5
"""Digits that a screen shows nothing more of."""


def documents_of(pictures: Mapping[str, Picture]) -> list[dict[str, object]]:
    """Return pictures by name as a list that JSON can hold: axes and marks, NaN as None."""
    return [
        {
            "name": name,
            "title": each.title,
            "x": _axis(each.x),
            "y": _axis(each.y),
            "marks": [_mark(mark) for mark in each.marks],
        }
        for name, each in pictures.items()
    ]


def _axis(scale: Scale) -> dict[str, object]:
    return {
        "label": scale.label,
        "low": scale.low,
        "high": scale.high,
        "is_log": scale.is_log,
        "ticks": [list(each) for each in scale.ticks],
        "in_us": IN_US.get(scale.label),
    }


def _mark(mark: Mark) -> dict[str, object]:
    """Return a mark by its kind."""
    match mark:
        case Line() | Dots():
            is_line = isinstance(mark, Line)
            x, y = thinned(mark.x, mark.y, most=MOST_POINTS if is_line else MOST_DOTS)
            label = (mark.label or mark.name) if isinstance(mark, Line) else mark.name
            steps = mark.steps if isinstance(mark, Line) else False
            kind = "line" if is_line else "dots"
            return {
                "kind": kind,
                "name": mark.name,
                "label": label,
                "x": _short(x),
                "y": _short(y),
                "steps": steps,
            }
        case Band():
            return {
                "kind": "band",
                "name": mark.name,
                "x": _short(mark.x),
                "low": _short(mark.low),
                "high": _short(mark.high),
            }
        case Across():
            return {
                "kind": "across",
                "name": mark.name,
                "y": _short(mark.y),
                "low": _short(mark.low),
                "high": _short(mark.high),
            }
        case Note():
            return {"kind": "note", "text": mark.text, "at": mark.at}
        case Rule():
            return {
                "kind": "rule",
                "name": mark.name,
                "start": list(mark.start),
                "end": list(mark.end),
                "label": mark.label,
            }


def _short(values: Floats) -> list[float | None]:
    """Return numbers with ``DIGITS`` digits, None for what is none."""
    known = np.isfinite(values)
    sizes = np.abs(np.where(known & (values != 0), values, 1.0))
    factor = 10.0 ** (DIGITS - 1 - np.floor(np.log10(sizes)))
    short = np.round(np.where(known, values, 0.0) * factor) / factor
    return [each if is_known else None for each, is_known in zip(short.tolist(), known.tolist(), strict=True)]
