"""What a fit writes to TWIN.yaml besides coefficients: the fitted loads, how far steps may be off, tiles."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.twin.fitted.fitted_on import FittedLoad, FittedOn, Flag
    from replay.twin.fitted.fitted_range import (
        FittedRange,
        Range,
        extrapolation_note,
        open_loop_rate,
        range_of,
        union,
        ways_beyond,
    )
    from replay.twin.fitted.held_out import FAR, HeldOut
    from replay.twin.fitted.leaves import AskedServer, outside_note, same_version, ways_out
    from replay.twin.fitted.pace import MOST, Pace
    from replay.twin.fitted.written_server import NamedServer, named_server, text_with_server
    from replay.twin.keys.fitted_on_keys import FLAGS

__all__ = [
    "FAR",
    "FLAGS",
    "MOST",
    "AskedServer",
    "FittedLoad",
    "FittedOn",
    "FittedRange",
    "Flag",
    "HeldOut",
    "NamedServer",
    "Pace",
    "Range",
    "extrapolation_note",
    "named_server",
    "open_loop_rate",
    "outside_note",
    "range_of",
    "same_version",
    "text_with_server",
    "union",
    "ways_beyond",
    "ways_out",
]

_HOMES = {
    "FLAGS": "replay.twin.keys.fitted_on_keys",
    "Flag": "replay.twin.fitted.fitted_on",
    "same_version": "replay.twin.fitted.leaves",
    "ways_beyond": "replay.twin.fitted.fitted_range",
    "AskedServer": "replay.twin.fitted.leaves",
    "FittedLoad": "replay.twin.fitted.fitted_on",
    "FittedOn": "replay.twin.fitted.fitted_on",
    "outside_note": "replay.twin.fitted.leaves",
    "ways_out": "replay.twin.fitted.leaves",
    "FAR": "replay.twin.fitted.held_out",
    "HeldOut": "replay.twin.fitted.held_out",
    "FittedRange": "replay.twin.fitted.fitted_range",
    "NamedServer": "replay.twin.fitted.written_server",
    "named_server": "replay.twin.fitted.written_server",
    "text_with_server": "replay.twin.fitted.written_server",
    "MOST": "replay.twin.fitted.pace",
    "Pace": "replay.twin.fitted.pace",
    "Range": "replay.twin.fitted.fitted_range",
    "extrapolation_note": "replay.twin.fitted.fitted_range",
    "open_loop_rate": "replay.twin.fitted.fitted_range",
    "range_of": "replay.twin.fitted.fitted_range",
    "union": "replay.twin.fitted.fitted_range",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'replay.twin.fitted' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
