"""Small drawings of how times add up: bars of parts one after another, each part coloured by its class."""

from __future__ import annotations

from collections.abc import Sequence

from traces.pages.markup import Markup, element, listed, size_of

BAR_WIDTH, BAR_HEIGHT, GAP = 300, 9, 3

Parts = Sequence[tuple[str, float]]
"""(CSS class, length) one after another; lengths that are not positive are not drawn."""


def bars(rows: Sequence[Parts], *, end: float, label: str) -> Markup:
    """Return bars below each other on one scale from 0 to ``end``; ``label`` is for readers who cannot see them."""
    height = len(rows) * (BAR_HEIGHT + GAP) - GAP
    drawn = [
        bar
        for number, parts in enumerate(rows)
        for bar in _bar(parts, end=end, top=number * (BAR_HEIGHT + GAP))
    ]
    kind = {"class": "bars", "role": "img", "aria-label": label}
    return element("svg", kind | size_of(BAR_WIDTH, height), *drawn)


def _bar(parts: Parts, *, end: float, top: float) -> list[Markup]:
    found, at = [], 0.0
    for name, length in parts:
        width = max(length, 0.0) / end * BAR_WIDTH if end > 0 else 0.0
        if width > 0:
            place = {"x": f"{at:.1f}", "y": f"{top:g}", "width": f"{width:.1f}", "height": str(BAR_HEIGHT)}
            found.append(element("rect", {"class": name} | place))
        at += width
    return found


def legend(names: Sequence[tuple[str, str]]) -> Markup:
    """Return (CSS class, meaning) pairs as a line with a swatch before each."""
    return listed((element("span", {"class": "key"}, _swatch(name), meaning) for name, meaning in names), " ")


def _swatch(name: str) -> Markup:
    size = {"width": "11", "height": "11"}
    drawn = element("rect", {"class": name} | size)
    return element("svg", {"class": "swatch"} | size | {"aria-hidden": "true"}, drawn)
