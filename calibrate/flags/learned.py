"""Runs that say or show a server's flags, and a flag that the twin's file leaves open and such a run knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from calibrate.flags.shown import Shown

if TYPE_CHECKING:
    from replay.twin import Setting
    from traces import Trace


class Observed(Protocol):
    """A run: its name, its trace with the header, and what it shows of flags."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def trace(self) -> Trace:
        """Its requests, and what its header says of the server."""

    @property
    def shown(self) -> tuple[Shown, ...]:
        """What it shows of flags that the header may not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedFlag:
    """A flag that the twin's file leaves open, its value, and which run says so."""

    name: str
    value: int | bool | str
    origin: str

    def setting(self) -> Setting:
        """Return it as a key of TWIN.yaml."""
        from replay.twin import Setting

        value = str(self.value).lower() if isinstance(self.value, bool) else str(self.value)
        return Setting(f"engine.{self.name}", value)

    def note(self) -> str:
        """Return the line that tells it."""
        return f"{self.setting().key} is not in the configuration: {self.setting().value}, {self.origin}"
