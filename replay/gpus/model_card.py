"""A model on one GPU, as a function; ``vtwin model info`` prints what it returns.

It takes the command's table of options, which needs no command line.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass

from replay.gpus.options import ModelInfoOptions
from replay.model.card import card, document
from replay.model.gpu_memory import KvCacheSize, Serving, kv_cache_size
from replay.model.gpus import Gpu, find_gpu
from replay.model.hf_config import read_model_config
from replay.model.kernels.latent_kernels import check_block_size, served_on, usual_block_size
from replay.model.shape import ModelShape
from replay.twin.engine_defaults import batch_limits
from sim import minor_version
from traces import ConfigError
from traces.facts import AnswerPart, terminal_lines
from traces.strict.arguments import OfClass, takes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A model on a GPU: its shape, and what of the GPU's memory is the KV cache's."""

    shape: ModelShape
    gpu: Gpu
    capacity: KvCacheSize
    tp: int
    pp: int

    def document(self) -> dict[str, object]:
        """Return what ``vtwin model info --json`` prints."""
        return document(self.shape, self.gpu, self.capacity, tp=self.tp, pp=self.pp)

    @property
    def parts(self) -> list[AnswerPart]:
        """What people read."""
        return card(self.shape, self.gpu, self.capacity, tp=self.tp, pp=self.pp)

    def __str__(self) -> str:
        """Return what the terminal shows."""
        return "\n".join(terminal_lines(self.parts, width=None))


@takes(asked=OfClass(("ModelInfoOptions",), "ModelInfoOptions"))
def model_card(asked: ModelInfoOptions) -> ModelCard:
    """Return what a model needs of a GPU. Raises ConfigError for a model, GPU or version that nobody knows."""
    shape = read_model_config(
        asked.model_config,
        kv_cache_dtype=asked.kv_cache_dtype,
        mamba_ssm_cache_dtype=asked.mamba_ssm_cache_dtype,
        dtype=asked.dtype,
        quantization=asked.quantization,
    )
    device, tp, version = find_gpu(asked.gpu), asked.tp, asked.vllm_version
    if minor_version(version) is None:
        raise ConfigError(f"--vllm-version: got {version!r}, expected a version such as 0.32.0")
    shape = served_on(shape, device, tp=tp, version=version)
    if asked.block_size is not None:
        check_block_size(shape, asked.block_size, where="--block-size")
    seqs, tokens = batch_limits(device, vllm_version=version)
    serving = Serving(
        gpu_memory_utilization=asked.gpu_memory_utilization,
        kv_cache_memory_bytes=asked.kv_cache_memory_bytes,
        block_size=asked.block_size or usual_block_size(shape, device, version=version),
        max_num_batched_tokens=asked.max_num_batched_tokens or tokens,
        max_num_seqs=asked.max_num_seqs or seqs,
        vllm_version=version,
        enforce_eager=asked.enforce_eager,
    )
    capacity = kv_cache_size(shape, device, tp=tp, pp=asked.pp, serving=serving)
    return ModelCard(shape=shape, gpu=device, capacity=capacity, tp=tp, pp=asked.pp)
