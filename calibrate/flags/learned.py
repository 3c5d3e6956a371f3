"""Runs that give or show a server's flags, and a flag that such a run fills in for the twin's file."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from calibrate.flags.shown import Shown

if TYPE_CHECKING:
    from replay.twin import Setting
    from traces import Trace


VERSION = "vllm_version"
"""The one of them that is no key of ``engine``."""


class Observed(Protocol):
    """A run: its name, its trace with the header, and its evidence on flags."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def trace(self) -> Trace:
        """Its requests, and the header's information on the server."""

    @property
    def shown(self) -> tuple[Shown, ...]:
        """Its evidence on flags that the header may not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedFlag:
    """A flag that the twin's file leaves open, its value, and the run that has it."""

    name: str
    value: int | bool | str
    origin: str

    def setting(self) -> Setting:
        """Return it as a key of TWIN.yaml."""
        from replay.twin import Setting

        value = str(self.value).lower() if isinstance(self.value, bool) else str(self.value)
        return Setting(self.name if self.name == VERSION else f"engine.{self.name}", value)

    def note(self) -> str:
        """Return the note about it."""
        return f"{self.setting().key} is not in the configuration: {self.setting().value}, {self.origin}"
