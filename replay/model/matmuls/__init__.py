"""The matrix products of a model's layers: their shapes, what they took on real GPUs, and the edges of their tiles."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.model.matmuls.curves import FEWEST_POINTS, Curves, between
    from replay.model.matmuls.precisions import table_precisions
    from replay.model.matmuls.products import Matmul, needed_matmuls
    from replay.model.matmuls.tiles import Tiles, tiles_of

__all__ = [
    "FEWEST_POINTS",
    "Curves",
    "Matmul",
    "Tiles",
    "between",
    "needed_matmuls",
    "table_precisions",
    "tiles_of",
]

_HOMES = {
    "Curves": "replay.model.matmuls.curves",
    "FEWEST_POINTS": "replay.model.matmuls.curves",
    "Matmul": "replay.model.matmuls.products",
    "Tiles": "replay.model.matmuls.tiles",
    "between": "replay.model.matmuls.curves",
    "needed_matmuls": "replay.model.matmuls.products",
    "table_precisions": "replay.model.matmuls.precisions",
    "tiles_of": "replay.model.matmuls.tiles",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'replay.model.matmuls' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
