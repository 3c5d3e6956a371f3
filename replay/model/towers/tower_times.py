"""Three numbers that stand for what a vision tower takes: once per step, per token, per pair of an image's tokens."""

from __future__ import annotations

from functools import lru_cache
from lazy_dataclasses import dataclass

import numpy as np

from replay.model.towers.tower_kernels import OnGpus, encoding_us
from replay.model.vision.tower import VisionTower

SMALLEST = 16
"""Tokens of the smallest image that the three numbers are fitted to."""
POINTS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerTimes:
    """µs of a step that encodes: ``step_us`` once, ``token_us`` per token, ``pair_us`` per pair of an image's tokens.

    ``ranks``: GPUs that share the images of a step out among them, each of which encodes its own whole.
    """

    step_us: float
    token_us: float
    pair_us: float
    ranks: int = 1

    def one_us(self, num_tokens: int) -> float:
        """Return what a step takes that encodes one image of so many tokens."""
        return self.step_us + self.token_us * num_tokens + self.pair_us * num_tokens**2


def usual_sizes(tower: VisionTower) -> list[int]:
    """Return the sizes that the numbers are fitted to: evenly in logarithms, whole tiles where it has tiles."""
    tile = tower.tile_tokens
    most = tower.max_tokens_per_item // tile if tile else tower.max_tokens_per_item
    sizes = np.geomspace(1 if tile else SMALLEST, most, POINTS).round().astype(int)
    return sorted({int(size) * (tile or 1) for size in sizes})


@lru_cache(maxsize=256)
def tower_times(server: OnGpus) -> TowerTimes:
    """Return the three numbers: least squares of the relative error over images of all sizes, one in a step.

    None is negative. A tower that cuts images into tiles has no pairs.
    """
    sizes = usual_sizes(server.tower)
    exact = np.array([encoding_us(server, [size]) for size in sizes])
    tokens = np.array(sizes, np.float64)
    columns = np.stack([np.ones_like(tokens), tokens, tokens**2], axis=1)
    used = [0, 1] if server.tower.tile_patches else [0, 1, 2]
    found = np.zeros(3)
    while used:
        scaled = columns[:, used] / exact[:, None]
        scale = np.abs(scaled).max(axis=0)
        values = np.linalg.lstsq(scaled / scale, np.ones_like(exact), rcond=None)[0] / scale
        if (values >= 0).all():
            found[used] = values
            break
        used.pop(int(np.argmin(values * scale)))
    step, token, pair = (float(f"{value:.4g}") for value in found)
    return TowerTimes(step_us=step, token_us=token, pair_us=pair, ranks=server.shares)
