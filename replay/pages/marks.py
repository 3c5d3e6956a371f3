"""What is drawn in a chart: lines, dots, bands and reference lines, as values and not as pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line through points in order; ``steps`` holds each value until the next point.

    ``label``: what a pointer over the chart calls it, its name where empty.
    """

    x: Floats
    y: Floats
    name: str
    steps: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """Points on their own."""

    x: Floats
    y: Floats
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The area between two lines."""

    x: Floats
    low: Floats
    high: Floats
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """The area between two lines that both rise with ``y``: a band around a distribution function."""

    low: Floats
    high: Floats
    y: Floats
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A straight reference line from one point to another."""

    start: tuple[float, float]
    end: tuple[float, float]
    name: str = "reference"


Mark = Line | Dots | Band | Across | Rule
