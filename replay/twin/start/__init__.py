"""A TWIN.yaml to start from: of a server's command line or a trace's header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traces.strict.lazy_door import homes_of, opened

if TYPE_CHECKING:
    from replay.twin.start.from_serve import is_at_hand as is_at_hand
    from replay.twin.start.from_serve import named as named
    from replay.twin.start.from_serve import start_from_header as start_from_header
    from replay.twin.start.from_serve import start_from_serve as start_from_serve
    from replay.twin.start.from_serve import twin_text_to_fit as twin_text_to_fit
    from replay.twin.start.model_and_gpu import is_emulated as is_emulated
    from replay.twin.start.model_and_gpu import known_text as known_text
    from replay.twin.start.model_and_gpu import missing_note as missing_note
    from replay.twin.start.model_and_gpu import model_of as model_of
    from replay.twin.start.model_and_gpu import what_helps as what_helps
    from replay.twin.start.other_flags import own_way as own_way
    from replay.twin.start.several_engines import refuse_several as refuse_several

_HOMES = homes_of(
    {
        "replay.twin.start.from_serve": (
            "is_at_hand named start_from_header start_from_serve twin_text_to_fit"
        ),
        "replay.twin.start.model_and_gpu": "is_emulated known_text missing_note model_of what_helps",
        "replay.twin.start.other_flags": "own_way",
        "replay.twin.start.several_engines": "refuse_several",
    }
)
"""Where each name of the door is at home."""
__all__ = list(_HOMES)
__getattr__, __dir__ = opened(__name__, _HOMES)
