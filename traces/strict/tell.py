"""The only module that writes to the terminal and to logs: all output is printable text, for any file names.

A text that it is given stays one line: a line end in a name does not begin another.
"""

from __future__ import annotations

from traces.errors import with_cut_pieces
from traces.strict.escape import terminal


def say(*lines: str, err: bool = False) -> None:
    """Print lines of a result on stdout, or on stderr where a JSON document has stdout. Without any, an empty line."""
    _print([terminal(each) for each in lines] or [""], err=err)


def tell(*lines: str, bold: bool = False, colour: str | None = None) -> None:
    """Print lines beside the result, on stderr."""
    _print(list(map(terminal, lines)), err=True, bold=bold, colour=colour)


def tell_note(text: str) -> None:
    """Print a note on stderr."""
    tell(f"note: {with_cut_pieces(text)}")


def say_text(text: str, *, err: bool = False) -> None:
    """Print text with its own line ends: a document, or a table whose cells are already printable."""
    _print([terminal(each) for each in text.removesuffix("\n").split("\n")], err=err)


def _print(lines: list[str], *, err: bool, bold: bool = False, colour: str | None = None) -> None:
    import typer

    text = "\n".join(lines)
    if bold or colour:
        text = typer.style(text, bold=bold or None, fg=colour)
    typer.echo(text, err=err)
