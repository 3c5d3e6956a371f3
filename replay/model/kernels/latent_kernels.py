"""What vLLM's kernels for latent attention make of a model on a GPU: tokens per block, bytes per token.

Which kernels those are: vllm 0.32.0 platforms/cuda.py:_get_backend_priorities, and the first of them that takes the
model (v1/attention/backends/mla); of other versions the same files.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from replay.model.shape import PACKED_TOKEN, ModelShape
from sim import DEFAULT_VERSION, minor_version
from traces import ConfigError

if TYPE_CHECKING:
    from replay.model.gpus import Gpu

USUAL_BLOCK = 16
SPARSE_LATENT_BLOCK = 64
"""Tokens in a block of sparse latent attention (vllm 0.32.0 mla/indexer.py: get_supported_kernel_block_sizes, CUDA)."""
HOPPER, BLACKWELL, BLACKWELL_RTX = 9, 10, 12
"""Major compute capabilities."""
FLASHINFER_BLOCK = 32
"""Tokens of a block of dense latent attention on Blackwell: FLASHINFER_MLA takes 32 and 64 (mla/flashinfer_mla.py)."""
FORCED_BLOCK = 64
"""Tokens of a block of dense latent attention on Hopper and Blackwell up to 0.17 (cuda.py:check_and_update_config)."""
FORCES_BLOCKS_UP_TO = 17
FLASHINFER_NOPE = ((19, (64, 128, 192)), (18, (64, 128)), (0, (128,)))
"""From a version 0.N on: the widths of a key without its rotary part that FLASHINFER_MLA takes."""
SPARSE_FLASHINFER_NOPE = (128, 192)
"""The same of FLASHINFER_MLA_SPARSE."""
SPARSE_FLASHINFER_SINCE, FOR_FEW_HEADS_SINCE, FEW_HEADS = 19, 18, 16
"""From 0.19 on it serves every quantized cache on Blackwell; in 0.18 those of up to 16 heads on a GPU."""
PACKED_ON_RTX_SINCE = 24
"""FLASHINFER_MLA_SPARSE_SM120, which packs a cache in 16 bits, too (mla_attention.py)."""
PLAIN_ON_HOPPER_SINCE, E4M3 = 30, "fp8_e4m3"
"""FLASHINFER_MLA_SPARSE_SM90 takes the type that FLASHMLA_SPARSE has not: fp8_e4m3, as checkpoints have it."""
GLM_IN_FP8_SINCE, GLM_IN_FP8 = 32, "glm_moe_dsa"
"""On Blackwell its cache is fp8 without a flag (model_executor/models/config.py:GlmMoeDsaForCausalLM)."""


def served_on(
    shape: ModelShape, gpu: Gpu | None, *, tp: int = 1, version: str = DEFAULT_VERSION
) -> ModelShape:
    """Return a model with the bytes of its KV cache on a GPU; of others than sparse latent attention as it is.

    ``gpu`` None: as on Hopper. In fp8 a token is packed with its scales and a rotary part in 16 bits (fp8_ds_mla,
    FLASHMLA_SPARSE), or plain (FLASHINFER_MLA_SPARSE).
    """
    if not shape.has_sparse_latent_attention:
        return shape
    major, number = HOPPER if gpu is None else _major(gpu), _number(version)
    if (
        shape.model_type == GLM_IN_FP8
        and shape.kv_cache_dtype == "auto"
        and major == BLACKWELL
        and number >= GLM_IN_FP8_SINCE
    ):
        shape = replace(shape, kv_dtype_bytes=1.0)
    is_packed = shape.kv_dtype_bytes == 1 and not _is_plain(shape, major, number, tp=tp)
    is_packed |= major == BLACKWELL_RTX and number >= PACKED_ON_RTX_SINCE
    return replace(shape, packed_token_bytes=PACKED_TOKEN if is_packed else 0)


def _is_plain(shape: ModelShape, major: int, number: int, *, tp: int) -> bool:
    """Return whether a cache in fp8 is kept as its numbers alone."""
    attention, asked = shape.attention, shape.kv_cache_dtype
    if asked == "fp8_ds_mla":
        return False
    if major == HOPPER:
        return asked in (E4M3, "auto") and number >= PLAIN_ON_HOPPER_SINCE
    is_taken = attention.head_dim - attention.rope_head_dim in SPARSE_FLASHINFER_NOPE
    has_few = attention.num_heads // tp <= FEW_HEADS and number >= FOR_FEW_HEADS_SINCE
    return major == BLACKWELL and is_taken and (number >= SPARSE_FLASHINFER_SINCE or has_few)


def usual_block_size(shape: ModelShape, gpu: Gpu | None = None, *, version: str = DEFAULT_VERSION) -> int:
    """Return the tokens per block that vLLM takes for a model on CUDA without ``--block-size``.

    ``gpu`` None: one whose kernels take any block.
    """
    if shape.has_sparse_latent_attention:
        return SPARSE_LATENT_BLOCK
    attention, major, number = shape.attention, _major(gpu), _number(version)
    if not attention.is_mla or shape.is_compressed:
        return USUAL_BLOCK
    if major == HOPPER and number <= FORCES_BLOCKS_UP_TO:
        return FORCED_BLOCK
    taken = next(widths for since, widths in FLASHINFER_NOPE if number >= since)
    if major != BLACKWELL or attention.head_dim - attention.rope_head_dim not in taken:
        return USUAL_BLOCK
    return FORCED_BLOCK if number <= FORCES_BLOCKS_UP_TO else FLASHINFER_BLOCK


def check_block_size(shape: ModelShape, size: int, *, where: str) -> None:
    """Raise ConfigError on tokens per block that no kernel takes; ``where``: what the size was said by."""
    if shape.has_sparse_latent_attention and size % SPARSE_LATENT_BLOCK:
        raise ConfigError(
            f"{where}: got {size}, expected a multiple of {SPARSE_LATENT_BLOCK}: vLLM's kernels for {shape.name} take "
            "no other blocks"
        )


def _major(gpu: Gpu | None) -> int:
    return int(gpu.compute_capability) if gpu is not None and gpu.compute_capability else 0


def _number(version: str) -> int:
    return minor_version(version) or minor_version(DEFAULT_VERSION) or 0
