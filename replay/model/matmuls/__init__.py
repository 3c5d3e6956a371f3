"""The matrix products of a model's layers: their shapes, what they took on real GPUs, and the edges of their tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traces.strict.lazy_door import homes_of, opened

if TYPE_CHECKING:
    from replay.model.matmuls.curves import FEWEST_POINTS as FEWEST_POINTS
    from replay.model.matmuls.curves import Curves as Curves
    from replay.model.matmuls.curves import between as between
    from replay.model.matmuls.curves import mixed as mixed
    from replay.model.matmuls.layer_kinds import DELTA_NETS as DELTA_NETS
    from replay.model.matmuls.layer_kinds import KIMI_DELTA as KIMI_DELTA
    from replay.model.matmuls.layer_kinds import How as How
    from replay.model.matmuls.layer_kinds import LayerKind as LayerKind
    from replay.model.matmuls.layer_kinds import kinds_of_layers as kinds_of_layers
    from replay.model.matmuls.precisions import table_precisions as table_precisions
    from replay.model.matmuls.products import Matmul as Matmul
    from replay.model.matmuls.products import dense_width as dense_width
    from replay.model.matmuls.products import needed_matmuls as needed_matmuls
    from replay.model.matmuls.tiles import Tiles as Tiles
    from replay.model.matmuls.tiles import tiles_of as tiles_of

_HOMES = homes_of(
    {
        "replay.model.matmuls.curves": "between Curves FEWEST_POINTS mixed",
        "replay.model.matmuls.layer_kinds": "DELTA_NETS How KIMI_DELTA kinds_of_layers LayerKind",
        "replay.model.matmuls.precisions": "table_precisions",
        "replay.model.matmuls.products": "dense_width Matmul needed_matmuls",
        "replay.model.matmuls.tiles": "Tiles tiles_of",
    }
)
"""Where each name of the door is at home."""
__all__ = list(_HOMES)
__getattr__, __dir__ = opened(__name__, _HOMES)
