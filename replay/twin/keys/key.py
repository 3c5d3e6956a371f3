"""What the table of TWIN.yaml's keys has of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["integer", "boolean", "fraction", "number", "numbers", "choice", "text", "decimal", "mapping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key: where it stands, what it may hold, what holds without it, and what it means."""

    path: str
    kind: Kind
    default: str
    meaning: str
    choices: tuple[str, ...] = ()
    least: int = 0

    @property
    def expected(self) -> str:
        """What the reference page says a value may be."""
        if self.choices:
            return " or ".join(f"`{choice}`" for choice in self.choices)
        return f"{self.kind}, at least {self.least}" if self.kind == "integer" else self.kind
