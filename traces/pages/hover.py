"""Tooltips of a chart of lines: the lines' values at the pointer, as the browser's own tooltip."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from lazy_dataclasses import dataclass

import numpy as np

from traces.pages.marks import Line
from traces.pages.scale import Scale

STRIPS = 48
"""A chart's width is cut into this many strips, each with a tooltip of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """The tooltip between two values of x."""

    start: float
    end: float
    text: str


def hints_of(lines: Sequence[Line], *, x: Scale, y: Scale) -> list[Hint]:
    """Return a hint per strip of the chart's width: x in its middle, and each line's value there.

    A line has no value beyond its ends, nor where its x runs backwards. A strip without a value has no hint.
    """
    told = [line for line in lines if len(line.x) > 1 and bool((np.diff(line.x) >= 0).all())]
    edges = _edges(x)
    found = []
    for start, end in pairwise(edges):
        middle = float(np.sqrt(start * end)) if x.is_log else (start + end) / 2
        values = [(line.label or line.name, _value(line, middle)) for line in told]
        known = [(name, y.write(_short(value))) for name, value in values if np.isfinite(value)]
        if known:
            shown = ", ".join(f"{name} {value}" if len(told) > 1 else value for name, value in known)
            unit = "" if not y.label or y.label in shown else f" {y.label}"
            found.append(Hint(start=start, end=end, text=f"{_place(middle, x)}: {shown}{unit}"))
    return found


def _edges(x: Scale) -> list[float]:
    spaced = np.geomspace if x.is_log else np.linspace
    return [float(edge) for edge in spaced(x.low, x.high, STRIPS + 1)]


def _value(line: Line, at: float) -> float:
    """Return a line's value at a place, NaN beyond its ends."""
    if not line.x[0] <= at <= line.x[-1]:
        return float("nan")
    if line.steps:
        return float(line.y[np.searchsorted(line.x, at, side="right") - 1])
    return float(np.interp(at, line.x, line.y))


def _place(value: float, x: Scale) -> str:
    """Return a value of x with its label: ``12.5 s`` where that is a unit, ``arrival, s 12.5`` where it is more."""
    text = x.write(_short(value))
    if not x.label:
        return text
    return f"{text} {x.label}" if len(x.label.split()) == 1 else f"{x.label} {text}"


def _short(value: float) -> float:
    """Return a value with four significant digits."""
    return float(f"{value:.4g}")
