"""The kernels of a step in which a vision tower encodes images, and what they take on one GPU.

vLLM encodes all images of a step together (vllm 0.32.0 gpu_model_runner.py: _execute_mm_encoder), in 16 bits: per layer
four products, attention over all pairs of patches of an image, tile or window, and what is elementwise; patches in,
projector out; with tensor parallelism two all-reduces per layer. Products and attention have the forms that were held
against measured kernels (``replay/model/operator_forms.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass

import numpy as np

from replay.model.gpus import Gpu
from replay.model.layout import ONE_NODE, Layout
from replay.model.operator_forms import forms, product_work, tower_attention_work
from replay.model.vision.tower import VisionTower

ELEMENTWISE_SHARE = 0.6
"""The share of the peak bandwidth that norms, activations and additions reach (calibrate/predictor/standins.py)."""
ELEMENTWISE_LAUNCH_US = 2.0
ELEMENTWISE_KERNELS = 7
"""A layer's kernels: two norms, two residual additions, rotary embedding of queries and of keys, the activation."""
HIDDEN_TRIPS = 10
"""Vectors of hidden size that these read and write per patch: two per norm, three per addition."""
DTYPE_BYTES = 2
LINK_SHARE, ALL_REDUCE_US = 0.80, 20.0
"""What an all-reduce reaches and takes: ``sim.Roofline``'s link_efficiency and all_reduce_us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGpus:
    """A tower on GPUs: each layer on ``ranks`` of them, images shared out among ``shares``."""

    tower: VisionTower
    gpu: Gpu
    layout: Layout = ONE_NODE
    ranks: int = 1
    shares: int = 1


def on_gpus(
    tower: VisionTower, gpu: Gpu, *, tp: int, layout: Layout = ONE_NODE, is_data: bool = False
) -> OnGpus:
    """Return how a server has the tower; ``is_data``: with ``--mm-encoder-tp-mode data``.

    ``VisionTower.num_ranks`` has the rules.
    """
    cannot_divide = tower.num_heads % tp != 0
    if tower.has_data_mode and (is_data or (cannot_divide and tower.falls_back_to_data)):
        return OnGpus(tower=tower, gpu=gpu, layout=layout, shares=tp)
    return OnGpus(tower=tower, gpu=gpu, layout=layout, ranks=tower.num_ranks(tp, is_data=is_data))


def encoding_us(server: OnGpus, sizes: Sequence[int]) -> float:
    """Return what one GPU takes for a step that encodes images of so many tokens: all its kernels, one by one."""
    tower, number = server.tower, server.tower.num_layers
    patches, tokens = sum(map(tower.num_patches, sizes)), sum(sizes)
    whole = sum(product_us(server, patches, *each) for each in tower.layer_products(server.ranks))
    attention = (number - tower.num_windowed_layers) * attention_us(server, sizes)
    if tower.num_windowed_layers:
        attention += tower.num_windowed_layers * windows_us(server, sizes)
    ends = product_us(server, patches, tower.patch_inputs, tower.hidden_size) + sum(
        product_us(server, tokens, *each) for each in tower.projector_outputs(server.ranks)
    )
    elementwise = number * _elementwise_us(server, patches)
    return number * whole + attention + ends + elementwise + number * _all_reduces_us(server, patches)


def product_us(server: OnGpus, rows: int, inputs: int, outputs: int) -> float:
    """Return what a product takes."""
    form = forms()["product in bfloat16"].on(server.gpu)
    return float(form.time_us(product_work(server.gpu, rows, inputs, outputs))[0])


def attention_us(server: OnGpus, sizes: Sequence[int]) -> float:
    """Return what attention takes that sees all of an image, or of a tile; one launch for all images."""
    shapes = np.array([server.tower.sequences(each) for each in sizes], np.float64)
    return _sequences_us(server, number=shapes[:, 0], length=shapes[:, 1])


def windows_us(server: OnGpus, sizes: Sequence[int]) -> float:
    """Return what attention takes within windows."""
    window = server.tower.window_patches
    number = np.array([-(-server.tower.num_patches(each) // window) for each in sizes], np.float64)
    return _sequences_us(server, number=number, length=np.full(len(sizes), float(window)))


def _sequences_us(server: OnGpus, *, number: np.ndarray, length: np.ndarray) -> float:
    heads = server.tower.num_heads / server.tower.attention_ranks(server.ranks)
    work = tower_attention_work(
        server.gpu, heads=heads, head_dim=server.tower.head_dim, batch=number, length=length
    )
    together = {name: np.array([part.sum()]) for name, part in work.items()}
    return float(forms()["vision encoder's attention"].on(server.gpu).time_us(together)[0])


def _elementwise_us(server: OnGpus, patches: int) -> float:
    """Return what a layer's norms, additions, rotary embeddings and activation take."""
    tower, ranks = server.tower, server.ranks
    inner = (3 if tower.is_gated else 2) * tower.intermediate_size / ranks
    heads = tower.attention_width / tower.attention_ranks(ranks)
    numbers = HIDDEN_TRIPS * tower.hidden_size + 4 * heads + inner
    moved = DTYPE_BYTES * numbers * patches / (ELEMENTWISE_SHARE * server.gpu.bytes_per_us())
    return ELEMENTWISE_KERNELS * ELEMENTWISE_LAUNCH_US + moved


def _all_reduces_us(server: OnGpus, patches: int) -> float:
    """Return what the two ring all-reduces of a layer take (Megatron-LM, arXiv:1909.08053); one without split heads."""
    tp = server.ranks
    if tp == 1:
        return 0.0
    moved = 2 * (tp - 1) / tp * DTYPE_BYTES * server.tower.hidden_size * patches
    each = ALL_REDUCE_US + moved / (LINK_SHARE * server.layout.bytes_per_us(tp, server.gpu))
    return (2 if server.tower.splits_attention else 1) * (each + server.layout.waiting_us(tp))
