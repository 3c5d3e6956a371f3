"""The marks of a chart: lines, dots, bands and reference lines, as values and not as pixels."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line through points in order; ``steps`` holds each value until the next point.

    ``label``: its name in tooltips, by default its CSS class.
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
    """A straight reference line from one point to another; ``label`` is written beside it."""

    start: tuple[float, float]
    end: tuple[float, float]
    name: str = "reference"
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A few words in the plot's right corner, ``at`` its top or its bottom."""

    text: str
    at: Literal["top", "bottom"] = "top"


Mark = Line | Dots | Band | Across | Rule | Note
