"""KV offload from servers' settings (GiB of host memory, GB/s) to the engine's, and which rules it follows."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from replay.model.gpu_memory import GIB, kv_bytes_per_token
from sim import EngineSettings, KVCacheGroup, has_native_offloading, in_the_way_of_offloading
from traces import ConfigError
from traces.strict.section import Section

if TYPE_CHECKING:
    from replay.model.layout import Hardware
    from replay.model.shape import ModelShape
    from sim import KVOffloading

ASSUMED_GB_PER_S = 25.0
"""Host memory to one GPU where none is given: what is left of PCIe 4.0 x16's 31.5 GB/s for large copies."""


@dataclass(frozen=True, slots=True)
class Offloaded:
    """A block in host memory: its model, and its bytes on each GPU of all stages together."""

    shape: ModelShape | None
    bytes_per_block: float = 0.0


SETTINGS = ("num_cpu_blocks", "kv_transfer_bandwidth", "kv_load_us_per_block", "kv_store_us_per_block")
"""The engine's settings that these two replace."""

BESIDE_A_SIZE = ("kv_offloading", "kv_load_us_per_block", "kv_store_us_per_block", "kv_store_threshold")
"""Settings that say how a tier behaves, whatever its size."""

OF_PEER = ("kv_offload_threshold", "kv_transfer_bandwidth", "kv_transfer_base_latency")
"""The engine's settings that say how the peer's tier behaves, not vLLM's."""


def rules_of_tier(
    engine: EngineSettings, root: Section, groups: Sequence[KVCacheGroup], *, hardware: Hardware | None
) -> KVOffloading:
    """Return whose rules the second tier follows, if there is one.

    Where the file does not say it, they are vLLM's own if the version has them and they are simulated beside the other
    settings and these groups, and if the file sets none of the peer's.
    """
    written = root.section("engine")
    is_written = written is not None and "kv_offloading" in written
    if is_written or not has_tier(engine, hardware):
        return engine.kv_offloading
    is_of_peer = written is not None and any(name in written for name in OF_PEER)
    return "native" if not is_of_peer and _obstacle(engine, groups) == "" else "blis"


def has_tier(engine: EngineSettings, hardware: Hardware | None) -> bool:
    """Return whether the file has a second tier."""
    return engine.num_cpu_blocks > 0 or (hardware is not None and hardware.kv_offloading_size is not None)


def with_offload(
    engine: EngineSettings, root: Section, *, model: Offloaded, hardware: Hardware | None
) -> tuple[EngineSettings, tuple[str, ...]]:
    """Return the engine with its second tier, of the size of ``hardware.kv_offloading_size``, and lines about it.

    The size is of all GPUs together, as vLLM's ``--kv-offloading-size`` is. ``engine``: its rules are chosen
    (``rules_of_tier``). Raises ConfigError without a model, or with the engine's own settings as well.
    """
    if not has_tier(engine, hardware):
        return engine, _notes_without_size(engine)
    if hardware is None or hardware.kv_offloading_size is None:
        return engine, _notes_of_times(engine)
    return _sized(engine, root, model=model, hardware=hardware)


def _obstacle(engine: EngineSettings, groups: Sequence[KVCacheGroup]) -> str:
    """Return why vLLM's own rules cannot be used, "" if they can."""
    if not has_native_offloading(engine.vllm_version):
        return f"vllm_version {engine.vllm_version}"
    settings = {"kv_cache_groups": tuple(groups)}
    found = in_the_way_of_offloading(lambda name: settings.get(name, getattr(engine, name)))
    return "" if found is None else f"engine.{found[0]} {str(found[1]).lower()}"


def _notes_without_size(engine: EngineSettings) -> tuple[str, ...]:
    """Return which settings of a second tier count for nothing, since it has no size."""
    usual = EngineSettings()
    said = [name for name in BESIDE_A_SIZE if getattr(engine, name) != getattr(usual, name)]
    if not said:
        return ()
    named = ", ".join(f"engine.{name} {getattr(engine, name)}" for name in said)
    return (f"{named}: nothing is offloaded without engine.num_cpu_blocks or hardware.kv_offloading_size",)


def _notes_of_times(engine: EngineSettings) -> tuple[str, ...]:
    """Return the note that blocks move in no time, if no setting gives their time."""
    if not engine.has_native_offloading or engine.kv_load_us_per_block + engine.kv_store_us_per_block > 0:
        return ()
    return (
        "engine.num_cpu_blocks: blocks move in no time; kv_load_us_per_block and kv_store_us_per_block say it",
    )


def _sized(
    engine: EngineSettings, root: Section, *, model: Offloaded, hardware: Hardware
) -> tuple[EngineSettings, tuple[str, ...]]:
    """Return the engine with as many blocks in host memory as the size holds, and lines that say how many."""
    section = root.section("hardware")
    assert section is not None  # noqa: S101 - the size was read from it
    assert hardware.kv_offloading_size is not None  # noqa: S101 - the caller has asked
    written = root.section("engine")
    for name in SETTINGS:
        if written is not None and name in written:
            section.refuse_together("kv_offloading_size", f"engine.{name}")
    if model.shape is None:
        section.fail(
            "kv_offloading_size",
            got="no latency.model_config",
            expected="the model's config.json, for the size of its KV",
        )
    if engine.kv_cache_groups and model.bytes_per_block == 0:
        section.fail(
            "kv_offloading_size",
            got="engine.kv_cache_groups",
            expected="engine.num_cpu_blocks: how many bytes a block of groups that are written out has is not known",
        )
    gpu_bytes = model.bytes_per_block / hardware.pp
    per_token = kv_bytes_per_token(model.shape, tp=hardware.tp, pp=hardware.pp)
    if not engine.kv_cache_groups:
        gpu_bytes = per_token * engine.block_size
    per_block = gpu_bytes * hardware.tp * hardware.pp
    blocks = int(hardware.kv_offloading_size * GIB // per_block)
    if blocks < 1:
        raise ConfigError(
            f"hardware.kv_offloading_size: got {hardware.kv_offloading_size:g} GiB, expected at least one block of "
            f"{model.shape.name}: {per_block / GIB:.3g} GiB ({root.file})"
        )
    rate = hardware.kv_offload_gb_per_s or ASSUMED_GB_PER_S
    if engine.kv_offloading != "blis":
        block_us = round(gpu_bytes / (rate * 1e3), 6)
        offloading = replace(
            engine, num_cpu_blocks=blocks, kv_load_us_per_block=block_us, kv_store_us_per_block=block_us
        )
    else:
        has_threshold = written is not None and "kv_offload_threshold" in written
        threshold = engine.kv_offload_threshold if has_threshold else 0.0
        offloading = replace(
            engine,
            num_cpu_blocks=blocks,
            kv_transfer_bandwidth=rate * 1e3 / per_token,
            kv_offload_threshold=threshold,
        )
    return offloading, tuple(_notes(hardware, offloading, blocks=blocks, rate=rate))


def _notes(hardware: Hardware, engine: EngineSettings, *, blocks: int, rate: float) -> list[str]:
    """Return the second tier's size, which rules it follows, and whether any block goes there."""
    how = "" if hardware.kv_offload_gb_per_s else " (assumed: kv_offload_gb_per_s)"
    obstacle = _obstacle(engine, engine.kv_cache_groups)
    if engine.kv_offloading == "shared":
        rule = "one store of all instances; blocks of prompts are copied there once they are computed"
    elif engine.kv_offloading == "native":
        rule = "blocks of prompts are copied there once they are computed, as vLLM does it"
    elif obstacle:
        rule = (
            "a block goes there when it leaves the GPU; vLLM copies it once it is computed, which is not simulated "
            f"with {obstacle}"
        )
    else:
        rule = "a block goes there when it leaves the GPU, where vLLM copies it once it is computed"
    notes = [
        f"hardware.kv_offloading_size {hardware.kv_offloading_size:g} GiB: {blocks:,} blocks in host memory, "
        f"{rate:g} GB/s to each GPU{how}; {rule}"
    ]
    if not engine.has_cpu_tier:
        notes.append(
            "hardware.kv_offloading_size: nothing ever leaves the GPU, without prefix caching or a limit"
        )
    return notes
