"""A TWIN.yaml to start from: of a server's command line or a trace's header."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.twin.start.from_serve import (
        is_at_hand,
        named,
        start_from_header,
        start_from_serve,
        twin_text_to_fit,
    )
    from replay.twin.start.model_and_gpu import is_emulated, known_text, missing_note, model_of, what_helps
    from replay.twin.start.other_flags import own_way
    from replay.twin.start.several_engines import refuse_several

__all__ = [
    "is_at_hand",
    "is_emulated",
    "known_text",
    "missing_note",
    "model_of",
    "named",
    "own_way",
    "refuse_several",
    "start_from_header",
    "start_from_serve",
    "twin_text_to_fit",
    "what_helps",
]

_HOMES = {
    "is_at_hand": "replay.twin.start.from_serve",
    "is_emulated": "replay.twin.start.model_and_gpu",
    "known_text": "replay.twin.start.model_and_gpu",
    "missing_note": "replay.twin.start.model_and_gpu",
    "model_of": "replay.twin.start.model_and_gpu",
    "named": "replay.twin.start.from_serve",
    "own_way": "replay.twin.start.other_flags",
    "refuse_several": "replay.twin.start.several_engines",
    "start_from_header": "replay.twin.start.from_serve",
    "start_from_serve": "replay.twin.start.from_serve",
    "twin_text_to_fit": "replay.twin.start.from_serve",
    "what_helps": "replay.twin.start.model_and_gpu",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'replay.twin.start' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
