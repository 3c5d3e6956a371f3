"""The instance in whose queue a request began."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sim.cluster import ClusterSimulation


def queued_at(result: ClusterSimulation) -> NDArray[np.int32]:
    """Return the instance in whose queue each request began, which computed its prompt; int32 [n]."""
    if result.split is None:
        return result.instance
    there = result.split.prefill_instance
    return np.where(there >= 0, there, result.instance).astype(np.int32)
