"""Which kernels save a layer's state inside a prompt's chunk, so that the chunk need not be cut where it is kept.

By vLLM's version and the GPU, as vLLM chooses kernels by itself; on AMD's GPUs only Mamba-2's is taken to. Without a
GPU it is an H100 (vllm 0.33.0 model_executor/layers/mamba/mamba_mixer2.py, qwen_gdn_linear_attn.py,
models/kimi_k3/nvidia/kda.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from replay.model.gpus import Gpu
from replay.model.shape import LayerState, StateKernel
from sim import minor_version

HOPPER = 9
WITH_KERNELS = (9, 10, 12)
"""Compute capabilities whose kernels do, but for Mamba-2's, which does on every GPU."""
KERNEL_HEAD = 128
"""The width of keys that FlashKDA wants, and on Blackwell FlashInfer's gated delta nets."""

FIRST_TO_SAVE: Mapping[StateKernel, int] = {"kda": 29, "mamba2": 32, "gated delta": 33}
"""The version 0.N from which on a kernel saves states inside chunks."""

ALIGNMENTS: Mapping[StateKernel, int] = {"kda": 16, "mamba2": 1, "gated delta": 64}
"""A kernel saves states at multiples of so many tokens behind a chunk's start."""


def saved_alignment(state: LayerState, *, version: str, gpu: Gpu | None) -> int:
    """Return at multiples of how many tokens a layer's state is saved inside chunks, 0 where it is not."""
    kernel, minor = state.kernel, minor_version(version)
    if kernel is None or (minor is not None and minor < FIRST_TO_SAVE[kernel]):
        return 0
    if kernel == "mamba2":
        return ALIGNMENTS[kernel]
    major = HOPPER if gpu is None else int(gpu.compute_capability or 0)
    needs_width = kernel == "kda" or major != HOPPER
    is_fit = major in WITH_KERNELS and (state.key_dim == KERNEL_HEAD or not needs_width)
    return ALIGNMENTS[kernel] if is_fit else 0
