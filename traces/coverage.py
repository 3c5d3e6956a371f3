"""What becomes of a thing that is given, as data: one row of the page of coverage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Treatment = Literal["modelled", "filled", "kept", "noted", "refused", "left out"]
"""What becomes of it.

``modelled``: the simulation goes by it. ``filled``: an outcome; the simulation writes its own in its place. ``kept``: a
server does not act on it; the result carries it along. ``noted``: the simulation does not go by it, or not to the
letter; a line on stderr says so, and the JSON's ``warnings``. ``refused``: an error that names it. ``left out``: only a
measurement can have it; a simulated trace is without it.
"""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The treatment of one thing, and how."""

    treatment: Treatment
    how: str
