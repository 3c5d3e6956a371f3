"""The matrix products of a model's layers: their shapes, what they took on real GPUs, and the edges of their tiles."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.model.matmuls.curves import FEWEST_POINTS, Curves, between, mixed
    from replay.model.matmuls.layer_kinds import DELTA_NETS, KIMI_DELTA, How, LayerKind, kinds_of_layers
    from replay.model.matmuls.precisions import table_precisions
    from replay.model.matmuls.products import Matmul, dense_width, needed_matmuls
    from replay.model.matmuls.tiles import Tiles, tiles_of

__all__ = [
    "DELTA_NETS",
    "FEWEST_POINTS",
    "KIMI_DELTA",
    "Curves",
    "How",
    "LayerKind",
    "Matmul",
    "Tiles",
    "between",
    "dense_width",
    "kinds_of_layers",
    "mixed",
    "needed_matmuls",
    "table_precisions",
    "tiles_of",
]

_HOMES = {
    "DELTA_NETS": "replay.model.matmuls.layer_kinds",
    "How": "replay.model.matmuls.layer_kinds",
    "KIMI_DELTA": "replay.model.matmuls.layer_kinds",
    "LayerKind": "replay.model.matmuls.layer_kinds",
    "dense_width": "replay.model.matmuls.products",
    "kinds_of_layers": "replay.model.matmuls.layer_kinds",
    "mixed": "replay.model.matmuls.curves",
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


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
