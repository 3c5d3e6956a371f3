"""Pages that stand alone: one HTML file, no request to anywhere, light and dark, on screen and on paper.

``Page`` is what a page says, ``render`` makes it HTML, ``chart`` draws a picture as SVG whose colours
follow the page.
"""

from __future__ import annotations

from replay.pages.chart import Band, Chart, Dots, Line, Rule, chart
from replay.pages.page import (
    Cell,
    Figure,
    Figures,
    Headline,
    Page,
    Part,
    Prose,
    Section,
    Source,
    Table,
    Terms,
    render,
    whisker,
)
from replay.pages.scale import Scale, linear, logarithmic, scale_of

__all__ = [
    "Band",
    "Cell",
    "Chart",
    "Dots",
    "Figure",
    "Figures",
    "Headline",
    "Line",
    "Page",
    "Part",
    "Prose",
    "Rule",
    "Scale",
    "Section",
    "Source",
    "Table",
    "Terms",
    "chart",
    "linear",
    "logarithmic",
    "render",
    "scale_of",
    "whisker",
]
