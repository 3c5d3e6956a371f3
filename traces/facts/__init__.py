"""The parts of an answer, declared once, and the one place that writes them: terminal, JSON, Markdown, page.

A question turns its answer into ``Fact``s, a list for each thing that it compares, and these into parts for readers:
terms, tables, columns side by side. ``traces.facts.written`` lays them out.
"""

from __future__ import annotations

from traces.facts.answer import AlignedRows, AnswerPart, SideBySide, TermRows, Verbatim
from traces.facts.fact import Fact, count, four_digits_ms, frac, mark, of_limit, per_s, whole
from traces.facts.notebook_answer import NotebookAnswer
from traces.facts.pasted import PastedForm, csv_text, refuse_two_forms, say_pasted
from traces.facts.written import (
    columns_of,
    document,
    head_of,
    json_text,
    markdown_table,
    markdown_text,
    row_of,
    say_answer,
    say_json,
    terminal_lines,
)

__all__ = [
    "AlignedRows",
    "AnswerPart",
    "Fact",
    "NotebookAnswer",
    "PastedForm",
    "SideBySide",
    "TermRows",
    "Verbatim",
    "columns_of",
    "count",
    "csv_text",
    "document",
    "four_digits_ms",
    "frac",
    "head_of",
    "json_text",
    "mark",
    "markdown_table",
    "markdown_text",
    "of_limit",
    "per_s",
    "refuse_two_forms",
    "row_of",
    "say_answer",
    "say_json",
    "say_pasted",
    "terminal_lines",
    "whole",
]
