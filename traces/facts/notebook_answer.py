"""What every answer is that shows itself in a notebook."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar


class NotebookAnswer:
    """An answer that draws itself where a notebook shows it; ``repr`` is a line with the beginning of its text.

    ``drawn_by``: the function that makes its ``NotebookView``, ``module:attribute``. It is imported when it is needed:
    pages know the answers that they show, and no answer its page. ``told_by``: in the same way, the function that makes
    its document.
    """

    __slots__ = ()

    drawn_by: ClassVar[str]
    told_by: ClassVar[str]

    def document(self) -> dict[str, object]:
        """Return what the command's ``--json`` prints."""
        told: dict[str, object] = _named(self.told_by)(self)
        return told

    def _repr_html_(self) -> str:
        """Return the answer as HTML, at most some 200 kB, without scripts."""
        html: str = _named(self.drawn_by)(self).html()
        return html

    def __repr__(self) -> str:
        """Return one line."""
        text = str(self).strip().partition("\n")[0]
        return f"<{type(self).__name__}: {text}>"


def _named(place: str) -> Callable[[NotebookAnswer], Any]:
    """Return the function at ``module:attribute``."""
    module, _, name = place.partition(":")
    found: Callable[[NotebookAnswer], Any] = getattr(import_module(module), name)
    return found
