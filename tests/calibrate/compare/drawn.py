"""All resamples of a draw at once, for tests that look at them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.statistics.bootstrap import resamples


def draw_counts(n: int, block: int, *, replicates: int, seed: int, stream: int) -> NDArray[np.float32]:
    """Return how often each of n requests is drawn: [replicates, n]."""
    drawn = resamples(n, block, replicates=replicates, seed=seed, stream=stream)
    return np.concatenate([counts for _, counts in drawn])
