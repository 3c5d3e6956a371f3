"""What one operator takes: the form of its time, with the constants that measured kernels have (``operators.yaml``).

Work is told at the peaks: what its FLOPs take at the matrix units' rate, its bytes at the memory's, its elementwise
operations at the vector units'. A kernel reaches a share of each. All forms are one formula,

    launch + ((products·x)^p + (weights·y)^p)^(1/p) + ((tensor·a)^p + (moved·b)^p + (vector·v)^p + (chunk_us·c)^p)^(1/p)
        + scan·s + row_us·r + wave_us·w,   and no less than host_us

with x, y the products with weights and the reading of them, a, b, v the operator's own FLOPs, bytes and elementwise
operations or exponentials, all in µs at the peak, c chunks that one multiprocessor computes one behind the other, s
another pass over bytes, r rows, w waves: blocks of threads over multiprocessors (``Gpu.sms``), rounded up where all
take as long. ``p`` says how far the parts hide behind each other: 1 they add up, 8 the longest counts (roofline,
doi:10.1145/1498765.1498785). Constants were fitted on H100 and B200 by tests/studies/validation/layer_operators.py;
where vLLM runs another kernel on Blackwell, ``blackwell`` has those that differ there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from lazy_dataclasses import dataclass, field, replace
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
FLOPS_PER_STATE, MEASURED_STATE = 6.0, 128 * 128
"""A token's FLOPs for a number of a head's state (three products), and the numbers of the heads that were measured."""
TAPS = 4
"""Inputs that a short convolution sees per channel."""
ATTENTION_SHARE = 0.5
"""The share of the peak that attention is taken to reach (``sim.Roofline.attention_efficiency``)."""
KEY_TILE, QUERY_TILE, BLACKWELL_QUERY_TILE = 128, 192, 256
"""Tiles of a vision tower's attention: keys of a tile, and queries of a block (FlashAttention-3's for narrow heads that
see all keys; two of 128 on Blackwell, FlashAttention-4)."""
HEAD_WIDTHS = (64, 96, 128, 192, 256)
"""What narrower heads are padded to (FlashAttention-3's kernels)."""
TERMS = ("products", "weights", "tensor", "moved", "vector", "chunk_us", "scan", "row_us", "wave_us")
"""The constants that multiply a part of the work of the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One operator: its ``formula`` in words, its ``source``, its constants; a part that it lacks has constant 0.

    ``blackwell``: the constants that differ on GPUs of compute capability 10.
    """

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
    wave_us: float = 0.0
    host_us: float = 0.0
    blackwell: Mapping[str, float] = field(default_factory=dict)

    def on(self, gpu: Gpu) -> Form:
        """Return the form with the constants of the kernel that vLLM runs on a GPU."""
        return replace(self, **self.blackwell, blackwell={}) if gpu.is_blackwell else self  # type: ignore[arg-type]  # floats, by name

    def time_us(self, work: Mapping[str, Floats]) -> Floats:
        """Return µs [n] of works [n]: by the names of ``TERMS``, µs at the peak, chunks and rows as numbers."""
        parts = {name: getattr(self, name) * np.asarray(part, np.float64) for name, part in work.items()}
        dense = _together([parts[each] for each in ("products", "weights") if each in parts], self.p)
        own = [parts[each] for each in ("tensor", "moved", "vector", "chunk_us") if each in parts]
        rest = sum((parts[each] for each in ("scan", "row_us", "wave_us") if each in parts), 0.0)
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


def recurrence_us(state: LayerState, gpu: Gpu, *, tp: int, dtype_bytes: int) -> float:
    """Return what a token of a prompt takes, where there are as many heads and prompts as multiprocessors, or more.

    A block of threads has one head's state and computes its chunks one behind the other, so that multiprocessors share
    heads; a state smaller than the measured one of 128 by 128 takes its part. Queries, keys, values and outputs move.
    """
    form = recurrence_form(state).on(gpu)
    heads = state.flops_per_token(tp) / (FLOPS_PER_STATE * MEASURED_STATE)
    vectors = 2.0 * (state.num_heads * state.head_dim + state.key_heads * state.key_dim) / tp
    moved = form.moved * vectors * dtype_bytes / gpu.bytes_per_us() if heads else 0.0
    return form.chunk_us / CHUNK * heads / gpu.sms() + moved


def convolution_us(state: LayerState, gpu: Gpu, *, tp: int, dtype_bytes: int) -> float:
    """Return what a token of a prompt takes in the short convolution before the recurrence."""
    channels = (state.num_heads * state.head_dim + 2 * state.key_heads * state.key_dim) / tp
    work = {
        "moved": np.array([2.0 * channels * dtype_bytes / gpu.bytes_per_us()]),
        "vector": np.array([2.0 * TAPS * channels / gpu.vector_flops_per_us()]),
    }
    form = forms()["short convolution, prompt"].on(gpu)
    return float(form.time_us(work)[0] - form.launch_us)


def tower_attention_work(
    gpu: Gpu, *, heads: Floats | float, head_dim: Floats | float, batch: Floats, length: Floats
) -> dict[str, Floats]:
    """Return the work of a vision encoder's attention: all pairs, in tiles of 128 keys, heads padded.

    ``batch`` sequences of ``length`` patches each. A block of threads has a head's tile of queries (192; 256 on
    Blackwell). Exponentials, one of a pair, are outside of the matrix units. Waves are not rounded up, and nothing
    waits for the longest block, so that the work of several images in a launch is the sum of theirs.
    """
    tile = BLACKWELL_QUERY_TILE if gpu.is_blackwell else QUERY_TILE
    widths = np.array(HEAD_WIDTHS)
    width = widths[np.minimum(np.searchsorted(widths, head_dim), len(widths) - 1)]
    blocks = batch * heads * np.ceil(length / tile)
    pairs = blocks * tile * np.ceil(length / KEY_TILE) * KEY_TILE
    return {
        "tensor": 4 * width * pairs / gpu.flops_per_us("16bit"),
        "vector": pairs / gpu.exponentials_per_us(),
        "moved": 8 * heads * head_dim * batch * length / gpu.bytes_per_us(),
        "wave_us": blocks / gpu.sms(),
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
