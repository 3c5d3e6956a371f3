"""How near to a GPU's peak its matrix products come, beside those of the generation that most was learned on."""

from __future__ import annotations

from replay.model.gpus import Gpu
from replay.model.shape import MatmulKind

ON_BLACKWELL = {"16bit": 0.90, "fp8": 0.68, "fp8, in blocks": 0.89, "fp4": 0.69}
"""The share of its peak that a B200 reaches, over the share that an H100 and an H200 reach of theirs: medians of the
measured products of 8,192 rows whose n and k are 4,096 and more (``replay/model/matmuls/measured``). An H100 reaches
0.78 in 16 bits, 0.66 in FP8 and 0.60 in FP8 by blocks; products in 4 bits stand beside those in FP8."""


def relative_reach(gpu: Gpu, kind: MatmulKind, *, in_blocks: bool = False) -> float:
    """Return the share of a Hopper's efficiency that large products have on a GPU; 1: as good, or not known.

    ``in_blocks``: a scale for each block of the weights.
    """
    if not gpu.is_blackwell:
        return 1.0
    return ON_BLACKWELL.get(f"{kind}, in blocks" if in_blocks else kind, 1.0)
