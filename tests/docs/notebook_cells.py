"""The notebooks of docs/notebooks: their sources are tests/docs/notebooks/*.py, whose cells begin with ``# %%``.

A cell is run by Python itself, in one namespace for all, and what its last expression shows is kept as a notebook
keeps it (docs/decisions/0030-notebooks-without-a-kernel.md).
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import ROOT

SOURCES = Path(__file__).parent / "notebooks"
NOTEBOOKS = ROOT / "docs" / "notebooks"
BEGINS = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NotebookCell:
    """A cell's text: code, or Markdown."""

    text: str
    is_code: bool


def sources() -> list[Path]:
    """Return the files that notebooks are made of."""
    return sorted(SOURCES.glob("*.py"))


def notebook_of(source: Path) -> Path:
    """Return the place of a source's notebook."""
    return NOTEBOOKS / f"{source.stem}.ipynb"


def cells_of(source: Path) -> list[NotebookCell]:
    """Return the cells of a source."""
    _, *parts = BEGINS.split(source.read_text())
    found = []
    for kind, text in zip(parts[::2], parts[1::2], strict=True):
        lines = text.strip("\n")
        if kind:
            lines = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines.splitlines())
        found.append(NotebookCell(lines, is_code=kind is None))
    return found


def outputs_of(cells: Sequence[NotebookCell], *, name: str) -> Iterator[list[dict[str, object]]]:
    """Run the cells in order, and yield what each shows. An exception leaves with the cell's own traceback."""
    known: dict[str, object] = {"__name__": "__main__"}
    count = 0
    for cell in cells:
        count += cell.is_code
        yield _shown(cell.text, known, place=f"{name}, cell {count}", count=count) if cell.is_code else []


def _shown(code: str, known: dict[str, object], *, place: str, count: int) -> list[dict[str, object]]:
    printed, told = io.StringIO(), io.StringIO()
    body = ast.parse(code, place).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    with redirect_stdout(printed), redirect_stderr(told):
        exec(compile(ast.Module(body, type_ignores=[]), place, "exec"), known)  # noqa: S102 - our own cells
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), place, "eval"), known)  # noqa: S307
    shown: list[dict[str, object]] = []
    if printed.getvalue():
        shown.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        shown.append(
            {
                "data": _forms_of(value),
                "execution_count": count,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return shown


def _forms_of(value: object) -> dict[str, object]:
    """Return a value as a notebook keeps it: as HTML if it draws itself, and as text."""
    draw = getattr(value, "_repr_html_", None)
    html = {} if draw is None else {"text/html": _lines(draw())}
    return {**html, "text/plain": _lines(repr(value))}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


@contextmanager
def as_a_user() -> Iterator[None]:
    """Cells may change the folder and make temporary ones, and their warnings are theirs; all of it is undone."""
    folder, environment, temporary = Path.cwd(), dict(os.environ), tempfile.tempdir
    try:
        with tempfile.TemporaryDirectory() as own, warnings.catch_warnings():
            tempfile.tempdir = own
            yield
    finally:
        tempfile.tempdir = temporary
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)


def notebook_text(source: Path) -> str:
    """Return a source as a notebook with its outputs: JSON, nbformat 4.5."""
    cells = cells_of(source)
    count, made = 0, []
    with as_a_user():
        for number, (cell, shown) in enumerate(zip(cells, outputs_of(cells, name=source.stem), strict=True)):
            head = {
                "id": f"{source.stem.replace('_', '-')}-{number}",
                "metadata": {},
                "source": _lines(cell.text),
            }
            count += cell.is_code
            if cell.is_code:
                made.append({"cell_type": "code", "execution_count": count, **head, "outputs": shown})
            else:
                made.append({"cell_type": "markdown", **head})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": made,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
