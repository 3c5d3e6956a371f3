"""Pages that stand alone: one HTML file, no request to anywhere, light and dark, on screen and on paper.

``Page`` is a page's content, ``render`` turns it into HTML, ``inline`` and ``element`` add markup to text, ``chart``
draws a picture as SVG whose colours follow the page.
"""

from __future__ import annotations

from traces.pages.bars import bars, legend
from traces.pages.chart import Picture, chart
from traces.pages.heat import MOST_ROWS, HeatMap, heat_map
from traces.pages.hover import Hint
from traces.pages.marks import Across, Band, Dots, Line, Mark, Note, Rule
from traces.pages.markup import Markup, bold, code, element, inline, listed, size_of
from traces.pages.page_parts import (
    Cell,
    Code,
    Figure,
    Figures,
    FoldedText,
    Headline,
    Page,
    PageSection,
    PageTable,
    Part,
    Prose,
    Terms,
    render,
    whisker,
)
from traces.pages.scale import Scale, linear, logarithmic, scale_of

__all__ = [
    "MOST_ROWS",
    "Across",
    "Band",
    "Cell",
    "Code",
    "Dots",
    "Figure",
    "Figures",
    "FoldedText",
    "Headline",
    "HeatMap",
    "Hint",
    "Line",
    "Mark",
    "Markup",
    "Note",
    "Page",
    "PageSection",
    "PageTable",
    "Part",
    "Picture",
    "Prose",
    "Rule",
    "Scale",
    "Terms",
    "bars",
    "bold",
    "chart",
    "code",
    "element",
    "heat_map",
    "inline",
    "legend",
    "linear",
    "listed",
    "logarithmic",
    "render",
    "scale_of",
    "size_of",
    "whisker",
]
