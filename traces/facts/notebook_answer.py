"""What every answer is that shows itself in a notebook."""

from __future__ import annotations

from importlib import import_module
from typing import ClassVar


class NotebookAnswer:
    """An answer that draws itself where a notebook shows it; ``repr`` is a line with the beginning of its text.

    ``drawn_by``: the function that makes its ``NotebookView``, ``module:attribute``. It is imported when it is needed:
    pages know the answers that they show, and no answer its page.
    """

    __slots__ = ()

    drawn_by: ClassVar[str]

    def _repr_html_(self) -> str:
        """Return the answer as HTML, at most some 200 kB, without scripts."""
        module, _, name = self.drawn_by.partition(":")
        html: str = getattr(import_module(module), name)(self).html()
        return html

    def __repr__(self) -> str:
        """Return one line."""
        text = str(self).strip().partition("\n")[0]
        return f"<{type(self).__name__}: {text}>"
