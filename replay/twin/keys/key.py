"""An entry of the table of TWIN.yaml's keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["integer", "boolean", "fraction", "number", "numbers", "choice", "text", "decimal", "mapping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key: its path, the values it may have, its default, and its meaning."""

    path: str
    kind: Kind
    default: str
    meaning: str
    choices: tuple[str, ...] = ()
    least: int = 0

    @property
    def expected(self) -> str:
        """The allowed values, as the reference page gives them."""
        if self.choices:
            return " or ".join(f"`{choice}`" for choice in self.choices)
        return f"{self.kind}, at least {self.least}" if self.kind == "integer" else self.kind
