"""Questions that take several simulations: the highest rate within an SLO, variants side by side."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.search.beyond_fit import lasting_rates
    from replay.search.ceiling import ceiling_of
    from replay.search.evaluation import Evaluator
    from replay.search.load import load_of

__all__ = [
    "Evaluator",
    "ceiling_of",
    "lasting_rates",
    "load_of",
]

_HOMES = {
    "Evaluator": "replay.search.evaluation",
    "ceiling_of": "replay.search.ceiling",
    "load_of": "replay.search.load",
    "lasting_rates": "replay.search.beyond_fit",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'replay.search' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
