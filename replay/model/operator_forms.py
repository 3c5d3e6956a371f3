"""What one operator takes: the form of its time, with the constants that measured kernels have (``operators.yaml``).

Work is told at the peaks: what its FLOPs take at the matrix units' rate, its bytes at the memory's, its elementwise
operations at the vector units'. A kernel reaches a share of each. All forms are one formula,

    launch + ((products·x)^p + (weights·y)^p)^(1/p) + ((tensor·a)^p + (moved·b)^p + (vector·v)^p + (chunk_us·c)^p)^(1/p)
        + scan·s + row_us·r,   and no less than host_us

with x, y the products with weights and the reading of them, a, b, v the operator's own FLOPs, bytes and elementwise
operations, all in µs at the peak, c chunks that are computed one behind the other, s another pass, r rows. ``p`` says
how far the parts hide behind each other: 1 they add up, 8 the longest counts (roofline, doi:10.1145/1498765.1498785).
Constants were fitted on H100 and B200 by tests/validation/layer_operators.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from replay.model.gpus import Gpu
from replay.model.shape import Indexer, LayerState

Floats = NDArray[np.float64]

SHIPPED = Path(__file__).with_name("operators.yaml")
CHUNK = 64
"""Tokens of a chunk of a recurrence, computed at once (arXiv:2406.06484; vLLM's chunk_gated_delta_rule)."""
TAPS = 4
"""Inputs that a short convolution sees per channel."""
ATTENTION_SHARE = 0.5
"""The share of the peak that attention is taken to reach (``sim.Roofline.attention_efficiency``)."""
ENCODER_TILE, NARROW_HEAD = 128, 64
"""Of a vision encoder's attention: patches of a tile, and the width that narrower heads are padded to."""
TERMS = ("products", "weights", "tensor", "moved", "vector", "chunk_us", "scan", "row_us")
"""The constants that multiply a part of the work of the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One operator: its ``formula`` in words, its ``source``, its constants; a part that it lacks has constant 0."""

    name: str
    formula: str
    source: str
    launch_us: float
    p: float = 1.0
    products: float = 0.0
    weights: float = 0.0
    tensor: float = 0.0
    moved: float = 0.0
    vector: float = 0.0
    chunk_us: float = 0.0
    scan: float = 0.0
    row_us: float = 0.0
    host_us: float = 0.0

    def time_us(self, work: Mapping[str, Floats]) -> Floats:
        """Return µs [n] of works [n]: by the names of ``TERMS``, µs at the peak, chunks and rows as numbers."""
        parts = {name: getattr(self, name) * np.asarray(part, np.float64) for name, part in work.items()}
        dense = _together([parts[each] for each in ("products", "weights") if each in parts], self.p)
        own = [parts[each] for each in ("tensor", "moved", "vector", "chunk_us") if each in parts]
        rest = sum((parts[each] for each in ("scan", "row_us") if each in parts), 0.0)
        return np.asarray(np.maximum(self.launch_us + dense + _together(own, self.p) + rest, self.host_us))


def _together(parts: list[Floats], p: float) -> Floats:
    if not parts:
        return np.zeros(1)
    longest = np.maximum(np.max(parts, axis=0), 1e-12)
    return np.asarray(longest * np.sum([(each / longest) ** p for each in parts], axis=0) ** (1.0 / p))


@lru_cache(maxsize=1)
def forms() -> Mapping[str, Form]:
    """Return the operators by name."""
    return {each["name"]: Form(**each) for each in yaml.safe_load(SHIPPED.read_text())["operators"]}


def recurrence_form(state: LayerState) -> Form:
    """Return the form of a prompt's recurrence: Kimi's gates each channel; gated delta nets and Mamba-2 each head.

    Nothing of Mamba-2 was measured: it is taken to reach what gated delta nets do.
    """
    return forms()["Kimi delta, prompt" if state.name.startswith("Kimi") else "gated delta, prompt"]


def state_form(state: LayerState) -> Form:
    """Return the form of a decode's recurrence."""
    return forms()["Kimi delta, decode" if state.name.startswith("Kimi") else "gated delta, decode"]


def recurrence_peak_us(state: LayerState, gpu: Gpu, *, tp: int) -> float:
    """Return what a token of a prompt takes the matrix units, at their peak."""
    return state.flops_per_token(tp) / gpu.flops_per_us("16bit")


def convolution_us(state: LayerState, gpu: Gpu, *, tp: int, dtype_bytes: int) -> float:
    """Return what a token of a prompt takes in the short convolution before the recurrence."""
    channels = (state.num_heads * state.head_dim + 2 * state.key_heads * state.key_dim) / tp
    work = {
        "moved": np.array([2.0 * channels * dtype_bytes / gpu.bytes_per_us()]),
        "vector": np.array([2.0 * TAPS * channels / gpu.vector_flops_per_us()]),
    }
    form = forms()["short convolution, prompt"]
    return float(form.time_us(work)[0] - form.launch_us)


def encoder_attention_work(
    gpu: Gpu, *, heads: Floats | float, head_dim: Floats | float, batch: Floats, length: Floats
) -> dict[str, Floats]:
    """Return the work of a vision encoder's attention: all pairs, in tiles of 128, heads padded to 64 or 128.

    ``batch`` sequences of ``length`` patches each; a row for each tile and head.
    """
    padded = np.ceil(length / ENCODER_TILE) * ENCODER_TILE
    width = np.where(np.asarray(head_dim) > NARROW_HEAD, 2 * NARROW_HEAD, NARROW_HEAD)
    return {
        "tensor": 4 * heads * width * batch * padded**2 / gpu.flops_per_us("16bit"),
        "moved": 8 * heads * head_dim * batch * length / gpu.bytes_per_us(),
        "row_us": batch * heads * padded / ENCODER_TILE,
    }


def product_work(gpu: Gpu, rows: float, inputs: float, outputs: float) -> dict[str, Floats]:
    """Return the work of a product in 16 bits: 2 per weight and row; weights and vectors moved, 2 bytes each."""
    products = 2.0 * rows * inputs * outputs / gpu.flops_per_us("16bit")
    moved = 2.0 * (inputs * outputs + rows * (inputs + outputs)) / gpu.bytes_per_us()
    return {"products": np.array([products]), "weights": np.array([moved])}


def scan_factor() -> float:
    """Return how much longer an indexer's scan takes than attention for as many FLOPs."""
    return forms()["sparse latent attention, prompt"].scan * ATTENTION_SHARE


def pick_us(indexer: Indexer) -> float:
    """Return what a token takes in an indexer beside FLOPs and bytes: its row of scores is searched for the top k."""
    return forms()[
        "block-sparse attention, prompt" if indexer.block_size else "sparse latent attention, prompt"
    ].row_us
