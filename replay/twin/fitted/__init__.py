"""What a fit writes to TWIN.yaml besides coefficients: the fitted loads, how far steps may be off, tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traces.strict.lazy_door import homes_of, opened

if TYPE_CHECKING:
    from replay.twin.fitted.fitted_on import FittedLoad as FittedLoad
    from replay.twin.fitted.fitted_on import FittedOn as FittedOn
    from replay.twin.fitted.fitted_on import Flag as Flag
    from replay.twin.fitted.fitted_range import FittedRange as FittedRange
    from replay.twin.fitted.fitted_range import Range as Range
    from replay.twin.fitted.fitted_range import extrapolation_note as extrapolation_note
    from replay.twin.fitted.fitted_range import open_loop_rate as open_loop_rate
    from replay.twin.fitted.fitted_range import range_of as range_of
    from replay.twin.fitted.fitted_range import union as union
    from replay.twin.fitted.fitted_range import ways_beyond as ways_beyond
    from replay.twin.fitted.held_out import FAR as FAR
    from replay.twin.fitted.held_out import HeldOut as HeldOut
    from replay.twin.fitted.leaves import AskedServer as AskedServer
    from replay.twin.fitted.leaves import outside_note as outside_note
    from replay.twin.fitted.leaves import same_version as same_version
    from replay.twin.fitted.leaves import ways_out as ways_out
    from replay.twin.fitted.pace import MOST as MOST
    from replay.twin.fitted.pace import Pace as Pace
    from replay.twin.fitted.written_server import NamedServer as NamedServer
    from replay.twin.fitted.written_server import named_server as named_server
    from replay.twin.fitted.written_server import text_with_server as text_with_server
    from replay.twin.keys.fitted_on_keys import FLAGS as FLAGS

_HOMES = homes_of(
    {
        "replay.twin.fitted.fitted_on": "FittedLoad FittedOn Flag",
        "replay.twin.fitted.fitted_range": (
            "extrapolation_note FittedRange open_loop_rate Range range_of union ways_beyond"
        ),
        "replay.twin.fitted.held_out": "FAR HeldOut",
        "replay.twin.fitted.leaves": "AskedServer outside_note same_version ways_out",
        "replay.twin.fitted.pace": "MOST Pace",
        "replay.twin.fitted.written_server": "named_server NamedServer text_with_server",
        "replay.twin.keys.fitted_on_keys": "FLAGS",
    }
)
"""Where each name of the door is at home."""
__all__ = list(_HOMES)
__getattr__, __dir__ = opened(__name__, _HOMES)
