"""Where the tiles of a model's products end on a GPU, and what a token more costs there.

A matrix product is computed in tiles, each by one multiprocessor, in rounds. A token more than the tiles of a round
hold takes another round: tile and wave quantization (NVIDIA, Matrix Multiplication Background User's Guide). A smooth
curve √(floor² + (beta1·T)²) goes through the middle of such a staircase. What the measured products of a layer, added
up, are over their own best such curve is the factor ``tiles`` of ``sim.Extended``; nothing of it is fitted to a server.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replay.model.gpus import Gpu
from replay.model.matmuls.curves import FEWEST_POINTS, between, mixed
from replay.model.matmuls.measured_times import measured_gpus, measured_products
from replay.model.matmuls.products import Matmul, needed_matmuls
from replay.model.shape import ModelShape
from traces import ConfigError

Floats = NDArray[np.float64]

EDGE = 0.04
"""A rise of the factor by this much from one token to the next counts as an edge: others are within what two
measurements of one product differ by."""
READING = 256
"""A step of this many tokens or fewer takes the time to read the weights, whatever its tiles: its factor is 1. Measured
single calls differ there by a tenth from one number of tokens to the next, whole steps of a server do not."""
FIRST_TILED = 512
"""From this many tokens on the factors are those of the measured products; in between they are on a line."""
DECIMALS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A step of ``tokens`` + 1 tokens takes ``rise`` (a share) longer for its products than one of ``tokens``."""

    tokens: int
    rise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """A model's products on a GPU: the ``factors`` of ``sim.Extended.tiles``, or the ``reason`` why there are none.

    ``measured``: pairs (tokens, µs) of what the products of all layers take together. ``notes``: products that were put
    together from measured ones of other shapes.
    """

    factors: tuple[tuple[int, float], ...] = ()
    measured: tuple[tuple[int, float], ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""

    def edges(self) -> tuple[Edge, ...]:
        """Return where the factor rises from one token to the next, in the order of tokens."""
        return tuple(
            Edge(tokens=tokens, rise=above / below - 1)
            for (tokens, below), (following, above) in pairwise(self.factors)
            if following == tokens + 1 and above / below - 1 >= EDGE
        )


@lru_cache(maxsize=16)
def tiles_of(shape: ModelShape, gpu: Gpu, *, tp: int = 1) -> Tiles:
    """Return the factors of a model's products on one of ``tp`` GPUs, where its products were measured."""
    if gpu.name.lower() not in measured_gpus():
        known = ", ".join(name.upper() for name in measured_gpus())
        return Tiles(reason=f"no measured products of {gpu.name} ship ({known} do)")
    if shape.experts is not None:
        return Tiles(reason="products with experts go by how many tokens each expert gets, not by the step's")
    try:
        products = [each for each in needed_matmuls(shape, tp=tp) if each.feature == "tokens"]
    except ConfigError as error:
        return Tiles(reason=str(error))
    if not products:
        return Tiles(reason="it has no products that go by the step's tokens")
    curves, notes = [], []
    for product in products:
        curve, note = _curve(product, gpu)
        if len(curve[0]) < FEWEST_POINTS:
            return Tiles(
                reason=f"no measured products around {product.operator} (n={product.n}, k={product.k})"
            )
        curves.append((product.count, *curve))
        notes += [note] if note else []
    tokens = curves[0][1]
    for _, others, _ in curves[1:]:
        tokens = np.intersect1d(tokens, others)
    total = sum((count * np.interp(tokens, m, us) for count, m, us in curves), np.zeros(len(tokens)))
    kept = tokens > READING
    tokens, total = tokens[kept], total[kept]
    factors = np.round(total / smooth(tokens, total), DECIMALS)
    pairs = zip(tokens.astype(int).tolist(), factors.tolist(), strict=True)
    return Tiles(
        factors=((1, 1.0), (READING, 1.0), *(pair for pair in pairs if pair[0] >= FIRST_TILED)),
        measured=tuple(zip(tokens.astype(int).tolist(), total.tolist(), strict=True)),
        notes=tuple(notes),
    )


def smooth(tokens: Floats, time_us: Floats) -> Floats:
    """Return √(a² + (b·tokens)²) with the a and b that are nearest to the times, by least squares of their logs."""
    from scipy.optimize import least_squares

    def off(logs: Floats) -> Floats:
        a, b = np.exp(logs)
        return np.asarray(np.log(np.hypot(a, b * tokens) / time_us))

    found = least_squares(off, np.log([time_us[0], time_us[-1] / tokens[-1]]))
    a, b = np.exp(found.x)
    return np.asarray(np.hypot(a, b * tokens))


def _curve(product: Matmul, gpu: Gpu) -> tuple[tuple[Floats, Floats], str]:
    """Return (tokens, µs) of one product, and how it was put together where its shape was not measured."""
    found, notes = [], []
    for precisions, share in product.mix:
        curves = measured_products(gpu.name, precisions)
        if not curves:
            return (np.zeros(0), np.zeros(0)), ""
        is_measured = (product.n, product.k) in curves
        curve, note = (curves[product.n, product.k], "") if is_measured else between(product, curves)
        found.append((curve, share))
        notes.append(note)
    return mixed(found), notes[0]
