"""Small drawings of how times add up: bars of parts one after another, each part coloured by its class."""

from __future__ import annotations

from collections.abc import Sequence

BAR_WIDTH, BAR_HEIGHT, GAP = 300, 9, 3

Parts = Sequence[tuple[str, float]]
"""(CSS class, length) one after another; what is not positive is not drawn."""


def bars(rows: Sequence[Parts], *, end: float, label: str) -> str:
    """Return bars below each other on one scale from 0 to ``end``; ``label`` is for those who cannot see them."""
    height = len(rows) * (BAR_HEIGHT + GAP) - GAP
    drawn = "".join(
        _bar(parts, end=end, top=number * (BAR_HEIGHT + GAP)) for number, parts in enumerate(rows)
    )
    size = f'viewBox="0 0 {BAR_WIDTH} {height}" width="{BAR_WIDTH}" height="{height}"'
    return f'<svg class="bars" role="img" aria-label="{label}" {size}>{drawn}</svg>'


def _bar(parts: Parts, *, end: float, top: float) -> str:
    found, at = [], 0.0
    for name, length in parts:
        width = max(length, 0.0) / end * BAR_WIDTH if end > 0 else 0.0
        if width > 0:
            found.append(
                f'<rect class="{name}" x="{at:.1f}" y="{top:g}" width="{width:.1f}" height="{BAR_HEIGHT}"/>'
            )
        at += width
    return "".join(found)


def legend(names: Sequence[tuple[str, str]]) -> str:
    """Return (CSS class, what it means) as a line of markup with a swatch before each."""
    return " ".join(
        f'<span class="key"><svg class="swatch" width="11" height="11" aria-hidden="true">'
        f'<rect class="{name}" width="11" height="11"/></svg>{meaning}</span>'
        for name, meaning in names
    )
