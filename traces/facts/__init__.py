"""What an answer consists of, declared once, and the one place that writes it: terminal, JSON, Markdown, page.

A question makes ``Fact``s of its answer, a list of them for each thing that it compares; ``traces.facts.written`` lays
them out.
"""

from __future__ import annotations

from traces.facts.fact import Fact, count, four_digits_ms, frac, mark, of_limit, per_s, whole
from traces.facts.written import (
    aligned,
    columns_of,
    document,
    head_of,
    markdown_table,
    row_of,
    say_answer,
    say_json,
    side_by_side,
    term_lines,
)

__all__ = [
    "Fact",
    "aligned",
    "columns_of",
    "count",
    "document",
    "four_digits_ms",
    "frac",
    "head_of",
    "mark",
    "markdown_table",
    "of_limit",
    "per_s",
    "row_of",
    "say_answer",
    "say_json",
    "side_by_side",
    "term_lines",
    "whole",
]
