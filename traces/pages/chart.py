"""Pictures as SVG: a frame of two axes and a few kinds of marks, coloured by the page's own style sheet.

Drawn here in some lines rather than by a plotting library, because then a mark has a class instead of a
colour, text stays text, and a thousand dots are one path of a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.pages.hover import Hint, hints_of
from traces.pages.marks import Across, Band, Dots, Line, Mark, Note, Rule
from traces.pages.markup import Markup, element, inline, size_of
from traces.pages.scale import Scale

Floats = NDArray[np.float64]

MOST_POINTS = 400
"""A line of more points than this shows nothing more at the width of a page."""
MOST_DOTS = 1500
DIGIT_WIDTH = 6.6
"""The width of a digit in the ticks' numbers, in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 46.0, 10.0, 26.0, 38.0
"""Room around the plot for ticks, title and label, in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a picture shows: ``title`` above it, ``marks`` drawn in order, whose names are CSS classes.

    ``hints``: the tooltips; the values of its lines if there are none.
    """

    title: str
    x: Scale
    y: Scale
    marks: Sequence[Mark]
    hints: Sequence[Hint] = ()
    width: int = 520
    height: int = 300

    def svg(self) -> Markup:
        """Return the picture as an SVG element."""
        frame = _Frame(self)
        drawn = (frame.draw(mark) for mark in self.marks)
        body = [*frame.grid(), *drawn, *frame.texts(), *frame.hints()]
        kind = {"class": "chart", "role": "img", "aria-label": self.title}
        return element("svg", kind | size_of(self.width, self.height), *body)


def chart(
    *,
    title: str,
    x: Scale,
    y: Scale,
    marks: Sequence[Mark],
    hints: Sequence[Hint] = (),
    width: int = 520,
    height: int = 300,
) -> Markup:
    """Return a ``Picture`` of these as an SVG element."""
    return Picture(title=title, x=x, y=y, marks=marks, hints=hints, width=width, height=height).svg()


class _Frame:
    """The positions of a chart's values on its canvas."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.left, self.right = LEFT, picture.width - RIGHT
        self.top, self.bottom = TOP, picture.height - BOTTOM

    def across(self, values: Floats) -> Floats:
        """Return pixels from the left."""
        return np.asarray(self.left + self.picture.x.place(values) * (self.right - self.left))

    def up(self, values: Floats) -> Floats:
        """Return pixels from the top."""
        return np.asarray(self.bottom - self.picture.y.place(values) * (self.bottom - self.top))

    def grid(self) -> list[Markup]:
        """Return the lines at the ticks, and the two axes."""
        ys = self.up(np.array([value for value, _ in self.picture.y.ticks]))
        xs = self.across(np.array([value for value, _ in self.picture.x.ticks]))
        lines = "".join(f"M{_n(self.left)} {_n(y)}H{_n(self.right)}" for y in ys)
        notches = "".join(f"M{_n(x)} {_n(self.bottom)}v4" for x in xs)
        across = f"M{_n(self.left)} {_n(self.bottom)}H{_n(self.right)}{notches}"
        return [_path("grid", lines), _path("axis", across)]

    def texts(self) -> list[Markup]:
        """Return the title, the ticks' numbers and the horizontal axis' label."""
        picture = self.picture
        found = [_text(0, 13, picture.title, "title", "start")]
        free_from = -np.inf
        for value, text in picture.x.ticks:
            x = float(self.across(np.array([value]))[0])
            half = DIGIT_WIDTH * len(text) / 2
            if x - half >= free_from:  # a number that would run into its neighbour is left out
                found.append(_text(x, self.bottom + 17, text, "tick", "middle"))
                free_from = x + half + DIGIT_WIDTH
        for value, text in picture.y.ticks:
            y = float(self.up(np.array([value]))[0])
            found.append(_text(self.left - 7, y + 4, text, "tick", "end"))
        found.append(_text(self.right, self.bottom + 33, _told(picture.x), "label", "end"))
        found.append(_text(self.right, 13, _told(picture.y), "label", "end"))
        return found

    def hints(self) -> list[Markup]:
        """Return invisible strips with their texts."""
        high = _n(self.bottom - self.top)
        picture = self.picture
        lines = [mark for mark in picture.marks if isinstance(mark, Line)]
        found = []
        for hint in picture.hints or hints_of(lines, x=picture.x, y=picture.y):
            left, right = self.across(np.array([hint.start, hint.end]))
            at = {"x": _n(left), "y": _n(self.top), "width": _n(right - left), "height": high}
            found.append(element("rect", {"class": "hint"} | at, element("title", {}, hint.text)))
        return found

    def draw(self, mark: Mark) -> Markup:
        """Return a mark as an element."""
        if isinstance(mark, Line):
            return self._line(mark)
        if isinstance(mark, Dots):
            return self._dots(mark)
        if isinstance(mark, Band):
            xs = self.across(mark.x)
            return _area((xs, self.up(mark.high)), (xs, self.up(mark.low)), name=mark.name)
        if isinstance(mark, Across):
            ups = self.up(mark.y)
            return _area((self.across(mark.high), ups), (self.across(mark.low), ups), name=mark.name)
        if isinstance(mark, Note):
            y = self.top + 13 if mark.at == "top" else self.bottom - 7
            return _text(self.right - 4, y, mark.text, "mark", "end")
        return self._rule(mark)

    def _rule(self, mark: Rule) -> Markup:
        xs = self.across(np.array([mark.start[0], mark.end[0]]))
        ys = self.up(np.array([mark.start[1], mark.end[1]]))
        path = _path(f"rule {mark.name}", f"M{_n(xs[0])} {_n(ys[0])}L{_n(xs[1])} {_n(ys[1])}")
        if not mark.label:
            return path
        x, y = float(xs[1]), float(ys[1])
        if ys[0] == ys[1]:  # above the line, below it where the title stands
            return inline(
                path, _text(x - 4, y - 5 if y > self.top + 12 else y + 13, mark.label, "mark", "end")
            )
        has_room = x + DIGIT_WIDTH * len(mark.label) < self.right
        at, anchor = (x + 5, "start") if has_room else (x - 5, "end")
        return inline(path, _text(at, self.bottom - 7, mark.label, "mark", anchor))

    def _line(self, mark: Line) -> Markup:
        x, y = thinned(mark.x, mark.y, most=MOST_POINTS)
        xs, ys = self.across(x), self.up(y)
        if len(xs) == 0:
            return inline()
        start = f"M{_n(xs[0])} {_n(ys[0])}"
        if mark.steps:
            path = "".join(f"H{_n(a)}V{_n(b)}" for a, b in zip(xs[1:], ys[1:], strict=True))
        else:
            path = "".join(f"L{_n(a)} {_n(b)}" for a, b in zip(xs[1:], ys[1:], strict=True))
        return _path(f"line {mark.name}", start + path)

    def _dots(self, mark: Dots) -> Markup:
        known = np.isfinite(mark.x) & np.isfinite(mark.y)
        x, y = thinned(mark.x[known], mark.y[known], most=MOST_DOTS)
        # A line of no length with round ends is a dot; all of them are one path.
        path = "".join(f"M{_n(a)} {_n(b)}h0" for a, b in zip(self.across(x), self.up(y), strict=True))
        return _path(f"dots {mark.name}", path)


def _area(there: tuple[Floats, Floats], back: tuple[Floats, Floats], *, name: str) -> Markup:
    """Return the area between two lines of pixels, the second one drawn backwards."""
    edge = [*zip(*there, strict=True), *reversed([*zip(*back, strict=True)])]
    if not edge:
        return inline()
    path = "L".join(f"{_n(a)} {_n(b)}" for a, b in edge)
    return _path(f"band {name}", f"M{path}Z")


def _path(name: str, course: str) -> Markup:
    return element("path", {"class": name, "d": course})


def thinned(x: Floats, y: Floats, *, most: int) -> tuple[Floats, Floats]:
    """Return at most ``most`` of the points, evenly chosen, the first and last among them."""
    if len(x) <= most:
        return x, y
    chosen = np.unique(np.linspace(0, len(x) - 1, most).round().astype(np.int64))
    return x[chosen], y[chosen]


def _told(axis: Scale) -> str:
    """Return an axis' label, with a note if it does not start at 0 or is not linear."""
    return ", ".join(part for part in (axis.label, axis.remark) if part)


def _n(value: float) -> str:
    """Return a pixel to a tenth, without a needless zero."""
    return f"{value:.1f}".removesuffix(".0")


def _text(x: float, y: float, text: str, name: str, anchor: str) -> Markup:
    if not text:
        return inline()
    return element("text", {"class": name, "x": _n(x), "y": _n(y), "text-anchor": anchor}, text)
