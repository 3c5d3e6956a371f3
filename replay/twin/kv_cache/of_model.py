"""The groups of a server whose file names the model and writes none out: as vLLM would deal its layers out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from replay.model.gpu_memory import Serving, dealt_of
from replay.twin.kv_cache.groups import DISABLED, GROUPS, ONE_FULL, groups_text, read_disabled
from sim import WITH_ONE_GROUP_ONLY, EngineConfig, KVCacheGroup
from traces import ConfigError
from traces.strict.section import Section

if TYPE_CHECKING:
    from replay.model.shape import ModelShape
    from replay.twin.hardware import Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsOfModel:
    """Groups, none where no model is known; tokens per block; ``is_undivided``: with the hybrid manager off."""

    groups: tuple[KVCacheGroup, ...]
    block_size: int
    is_undivided: bool = False
    notes: tuple[str, ...] = ()


def groups_of_model(
    engine: EngineConfig, root: Section, *, shape: ModelShape | None, hardware: Hardware | None
) -> GroupsOfModel:
    """Return the groups of a model, and lines to tell where they are not those of its server.

    A file that writes its groups out is taken at its word. What is not simulated with groups is simulated as a server
    with ``--disable-hybrid-kv-cache-manager`` would do it. Raises ConfigError where that cannot be, either.
    """
    section = root.section("engine")
    is_off = read_disabled(section)
    if shape is None or (section is not None and GROUPS in section):
        return GroupsOfModel(groups=(), block_size=engine.block_size, is_undivided=is_off)
    tp = hardware.tp if hardware else 1
    found = _dealt(engine, shape, tp=tp, is_undivided=is_off)
    reason = _not_with_groups(engine, hardware)
    if found.groups == ONE_FULL or not reason:
        return found
    if any(group.kind == "state" for group in found.groups):
        raise ConfigError(
            f"engine.{GROUPS}: states, as {shape.name} keeps them, cannot be combined with {reason}; "
            f"engine.{GROUPS}: [{{kind: full}}] counts its full layers alone ({root.file})"
        )
    whole = found if len(found.groups) == 1 else _dealt(engine, shape, tp=tp, is_undivided=True)
    note = (
        f"engine.{GROUPS}: {groups_text(found.groups)} of {shape.name} is not simulated with {reason}: its layers keep "
        f"everything, as with --{DISABLED.replace('_', '-')}, and the cache fills earlier with long sequences"
    )
    return GroupsOfModel(groups=ONE_FULL, block_size=whole.block_size, is_undivided=True, notes=(note,))


def _dealt(engine: EngineConfig, shape: ModelShape, *, tp: int, is_undivided: bool) -> GroupsOfModel:
    """Return the groups as vLLM deals them out, and a line where that makes blocks of another size."""
    serving = Serving(
        block_size=engine.block_size,
        enable_prefix_caching=engine.enable_prefix_caching,
        disable_hybrid_kv_cache_manager=is_undivided,
    )
    layers = dealt_of(shape, tp=tp, serving=serving)
    notes = []
    if layers.block_size != engine.block_size:
        why = (
            "as its kernels prefer it"
            if shape.is_compressed
            else f"as vLLM makes it for a block of {shape.name}'s full layers to hold a state, too"
        )
        notes.append(f"engine.block_size: {layers.block_size} in place of {engine.block_size}, {why}")
    return GroupsOfModel(
        groups=layers.kv_cache_groups,
        block_size=layers.block_size,
        is_undivided=is_undivided,
        notes=tuple(notes),
    )


def _not_with_groups(engine: EngineConfig, hardware: Hardware | None) -> str:
    """Return the setting that is not simulated with groups, "" where there is none."""
    for name, usual in WITH_ONE_GROUP_ONLY:
        value = getattr(engine, name)
        if value != usual:
            return f"engine.{name} {value}"
    if hardware is not None and hardware.kv_offloading_size is not None:
        return "hardware.kv_offloading_size"
    return ""
