"""KV offload as servers are configured (GiB of host memory, GB/s) in the engine's blocks and tokens per µs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from replay.model.gpu_memory import GIB, kv_bytes_per_token
from sim import EngineConfig
from traces import ConfigError
from traces.strict.section import Section

if TYPE_CHECKING:
    from replay.model.shape import ModelShape
    from replay.twin.hardware import Hardware

ASSUMED_GB_PER_S = 25.0
"""Host memory to one GPU where none is given: what is left of PCIe 4.0 x16's 31.5 GB/s for large copies."""

SETTINGS = ("num_cpu_blocks", "kv_transfer_bandwidth")
"""The engine's settings that these two take the place of."""


def with_offload(
    engine: EngineConfig, root: Section, *, shape: ModelShape | None, hardware: Hardware | None
) -> tuple[EngineConfig, tuple[str, ...]]:
    """Return the engine with the second tier of ``hardware.kv_offloading_size``, and lines that say how large it is.

    The size is of all GPUs together, as vLLM's ``--kv-offloading-size`` is. Every block that leaves a GPU goes there
    (``kv_offload_threshold`` 0) where the file does not say otherwise. Raises ConfigError without a model, or beside
    the engine's own settings.
    """
    if hardware is None or hardware.kv_offloading_size is None:
        return engine, ()
    section = root.section("hardware")
    assert section is not None  # noqa: S101 - the size was read from it
    written = root.section("engine")
    for name in SETTINGS:
        if written is not None and name in written:
            section.refuse_together("kv_offloading_size", f"engine.{name}")
    if shape is None:
        section.fail(
            "kv_offloading_size",
            got="no latency.model_config",
            expected="the model's config.json, for the size of its KV",
        )
    per_token = kv_bytes_per_token(shape, tp=hardware.tp, pp=hardware.pp)
    per_block = per_token * engine.block_size * hardware.tp * hardware.pp
    blocks = int(hardware.kv_offloading_size * GIB // per_block)
    if blocks < 1:
        raise ConfigError(
            f"hardware.kv_offloading_size: got {hardware.kv_offloading_size:g} GiB, expected at least one block of "
            f"{shape.name}: {per_block / GIB:.3g} GiB ({root.file})"
        )
    rate = hardware.kv_offload_gb_per_s or ASSUMED_GB_PER_S
    threshold = (
        0.0 if written is None or "kv_offload_threshold" not in written else engine.kv_offload_threshold
    )
    offloading = replace(
        engine,
        num_cpu_blocks=blocks,
        kv_transfer_bandwidth=rate * 1e3 / per_token,
        kv_offload_threshold=threshold,
    )
    return offloading, tuple(_notes(hardware, offloading, blocks=blocks, rate=rate))


def _notes(hardware: Hardware, engine: EngineConfig, *, blocks: int, rate: float) -> list[str]:
    """Return how large the second tier is, and whether anything goes there."""
    how = "" if hardware.kv_offload_gb_per_s else " (assumed: kv_offload_gb_per_s)"
    notes = [
        f"hardware.kv_offloading_size {hardware.kv_offloading_size:g} GiB: {blocks:,} blocks in host memory, "
        f"{rate:g} GB/s to each GPU{how}; a block goes there when it leaves the GPU, where vLLM copies it once it is "
        "computed"
    ]
    if not engine.has_cpu_tier:
        notes.append(
            "hardware.kv_offloading_size: nothing ever leaves the GPU, without prefix caching or a limit"
        )
    return notes
