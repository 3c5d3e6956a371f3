"""How an input is treated, as data: one row of the page of coverage."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Literal

Treatment = Literal["modelled", "filled", "kept", "noted", "refused", "left out"]
"""How it is treated.

``modelled``: the simulation uses it. ``filled``: an outcome; the simulation writes its own in its place. ``kept``: a
server ignores it; it is copied to the result. ``noted``: the simulation ignores it, or follows it only in part; a line
on stderr says so, and the JSON's ``warnings``. ``refused``: an error that names it. ``left out``: only a measurement
can have it; a simulated trace does not.
"""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The treatment of one thing, and how."""

    treatment: Treatment
    how: str
