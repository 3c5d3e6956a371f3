"""The groups of a server whose file names the model and gives no groups: as vLLM would form them."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from replay.model.gpu_memory import dealt_of
from replay.twin.kv_cache.groups import (
    DISABLED,
    GROUPS,
    ONE_FULL,
    groups_text,
    read_disabled,
)
from replay.twin.kv_cache.match_unit import written_unit
from replay.twin.kv_cache.offload import has_tier, rules_of_tier
from sim import (
    WITH_ONE_GROUP_ONLY,
    EngineSettings,
    KVCacheGroup,
    minor_version,
    nearest_rules,
    without_checkpoints,
    without_eagle_marks,
)
from traces import ConfigError
from traces.strict.section import Section

if TYPE_CHECKING:
    from replay.model.gpu_memory import Serving
    from replay.model.layers.drafter import Drafter
    from replay.model.layout import Hardware
    from replay.model.shape import ModelShape


WITH_KNOWN_PACKED_GROUPS = 32
"""The version 0.N whose groups of DeepSeek-V4's layers were recorded."""

NO_CHECKPOINTS_AHEAD = (
    f"engine.{GROUPS}: chunks end at states as if no kernel saved any inside, which is not simulated with several MTP "
    "modules"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsOfModel:
    """Groups, none where no model is known; tokens per block; ``is_undivided``: with the hybrid manager off.

    ``bytes_per_block``: on each GPU of all stages together; ``ahead``: ``num_prefill_lookahead_tokens``;
    ``drafter``: what drafts, where that is known.
    """

    groups: tuple[KVCacheGroup, ...]
    block_size: int
    bytes_per_block: float = 0.0
    is_undivided: bool = False
    ahead: int = 0
    drafter: Drafter | None = None
    notes: tuple[str, ...] = ()


def groups_of_model(
    engine: EngineSettings,
    root: Section,
    *,
    shape: ModelShape | None,
    hardware: Hardware | None,
    drafter: Drafter | None = None,
) -> GroupsOfModel:
    """Return the groups of a model, and notes if they are not those of its server.

    ``drafter``: the drafting model, whose layers follow the model's in the groups. Groups given in the file are used as
    they are. Settings that are not simulated with groups are simulated as on a server with
    ``--disable-hybrid-kv-cache-manager``. Raises ConfigError if that is not possible, either.
    """
    section = root.section("engine")
    is_off = read_disabled(section)
    if shape is None or (section is not None and GROUPS in section):
        ahead = engine.num_prefill_lookahead_tokens
        return GroupsOfModel(
            groups=(), block_size=engine.block_size, is_undivided=is_off, ahead=ahead, drafter=drafter
        )
    from replay.model.kernels.latent_kernels import USUAL_BLOCK, check_block_size, usual_block_size

    gpu = hardware.gpu if hardware else None
    size = usual_block_size(shape, gpu, version=engine.vllm_version)
    if section is not None and "block_size" in section:
        check_block_size(shape, engine.block_size, where="engine.block_size")
    elif size != USUAL_BLOCK:
        engine = replace(engine, block_size=size)
        found = _formed(engine, root, shape=shape, hardware=hardware, drafter=drafter)
        note = f"engine.block_size: {size}, the one that vLLM's kernels for {shape.name} take"
        return replace(found, notes=(*found.notes, note)) if found.block_size == size else found
    return _formed(engine, root, shape=shape, hardware=hardware, drafter=drafter)


def _formed(
    engine: EngineSettings,
    root: Section,
    *,
    shape: ModelShape,
    hardware: Hardware | None,
    drafter: Drafter | None,
) -> GroupsOfModel:
    """Return the groups of a model that is known, in blocks of ``engine.block_size`` or larger ones."""
    tp, is_off = hardware.tp if hardware else 1, read_disabled(root.section("engine"))
    found = _dealt(
        engine,
        shape,
        tp=tp,
        is_undivided=is_off,
        drafter=drafter,
        hardware=hardware,
        section=root.section("engine"),
    )
    if any(group.kind == "chunked" for group in found.groups):
        if engine.use_eagle:
            return _without_chunks(
                engine, shape, tp=tp, drafter=drafter, why="chunks beside drafts that read hidden states"
            )
        if not nearest_rules(engine.vllm_version).keeps_chunks:
            why = f"groups of chunks in {engine.vllm_version} unless an environment variable asks for them"
            return _without_chunks(engine, shape, tp=tp, drafter=drafter, why=why)
    reason = _not_with_groups(engine, root, found.groups, hardware=hardware)
    if found.groups == ONE_FULL or not reason:
        return found
    if any(group.kind == "state" for group in found.groups):
        raise ConfigError(
            f"engine.{GROUPS}: states, as {shape.name} keeps them, cannot be combined with {reason}; "
            f"engine.{GROUPS}: [{{kind: full}}] counts its full layers alone ({root.file})"
        )
    whole = (
        found if len(found.groups) == 1 else _dealt(engine, shape, tp=tp, is_undivided=True, drafter=drafter)
    )
    note = (
        f"engine.{GROUPS}: {groups_text(found.groups)} of {shape.name} is not simulated with {reason}: its layers keep "
        f"everything, as with --{DISABLED.replace('_', '-')}, and the cache fills earlier with long sequences"
    )
    return replace(whole, groups=ONE_FULL, is_undivided=True, notes=(note,))


def _without_chunks(
    engine: EngineSettings, shape: ModelShape, *, tp: int, drafter: Drafter | None, why: str
) -> GroupsOfModel:
    """Return the groups of a model whose chunked layers keep everything; ``why``: what vLLM does not have.

    vLLM turns its hybrid KV cache manager off (vllm 0.32.0 config/vllm.py), beside drafts that read hidden states.
    """
    found = _dealt(engine, shape, tp=tp, is_undivided=True, drafter=drafter)
    note = (
        f"engine.{GROUPS}: one full group for {shape.name}, as with --{DISABLED.replace('_', '-')}: vLLM has no "
        f"{why}"
    )
    return replace(found, notes=(*found.notes, note))


def serving_of(
    engine: EngineSettings, *, is_undivided: bool, drafter: Drafter | None, match_unit: int | None = None
) -> Serving:
    """Return what of an engine bears on its memory, and on how layers are dealt out."""
    from replay.model.gpu_memory import Serving

    return Serving(
        block_size=engine.block_size,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        enable_prefix_caching=engine.enable_prefix_caching,
        disable_hybrid_kv_cache_manager=is_undivided,
        num_speculative_tokens=engine.num_speculative_tokens,
        drafter=drafter,
        vllm_version=engine.vllm_version,
        prefix_match_unit=match_unit,
        language_model_only=engine.language_model_only,
        enforce_eager=engine.enforce_eager,
    )


def _dealt(
    engine: EngineSettings,
    shape: ModelShape,
    *,
    tp: int,
    is_undivided: bool,
    drafter: Drafter | None,
    hardware: Hardware | None = None,
    section: Section | None = None,
) -> GroupsOfModel:
    """Return the groups as vLLM forms them, and a note if that changes the block size.

    ``hardware`` says which kernels there are, the engine's ``section`` the ``prefix_match_unit``: for states alone.
    """
    unit, gpu = written_unit(section), hardware.gpu if hardware else None
    serving = serving_of(engine, is_undivided=is_undivided, drafter=drafter, match_unit=unit)
    layers = dealt_of(shape, tp=tp, serving=serving, gpu=gpu)
    notes, ahead = [], engine.num_prefill_lookahead_tokens
    if drafter is not None:
        number, most = drafter.shape.num_layers, min(drafter.num_modules, engine.num_speculative_tokens)
        layers_text = f"{number} {'layer' if number == 1 else 'layers'}"
        notes.append(
            f"engine.num_speculative_tokens: {drafter.shape.name}, {layers_text} in weights and KV cache"
        )
        if nearest_rules(engine.vllm_version).reads_ahead_of_prompts and most > 1:
            ahead = ahead or engine.num_speculative_tokens
    groups = layers.kv_cache_groups
    if ahead > 1 and any(group.num_prefill_checkpoint_blocks for group in groups):
        groups = without_checkpoints(groups)
        notes.append(NO_CHECKPOINTS_AHEAD)
    if shape.is_compressed and minor_version(engine.vllm_version) != WITH_KNOWN_PACKED_GROUPS:
        notes.append(
            f"engine.{GROUPS}: as vLLM 0.32 deals the layers of {shape.name} out; {engine.vllm_version} was not asked"
        )
    if layers.block_size != engine.block_size:
        why = (
            "as its kernels prefer it"
            if shape.is_compressed
            else f"as vLLM makes it for a block of {shape.name}'s full layers to hold a state, too"
        )
        notes.append(f"engine.block_size: {layers.block_size} in place of {engine.block_size}, {why}")
    return GroupsOfModel(
        groups=groups if engine.use_eagle else without_eagle_marks(groups),
        block_size=layers.block_size,
        bytes_per_block=layers.bytes_per_block,
        is_undivided=is_undivided,
        ahead=ahead,
        drafter=drafter,
        notes=tuple(notes),
    )


def _not_with_groups(
    engine: EngineSettings, root: Section, groups: Sequence[KVCacheGroup], *, hardware: Hardware | None
) -> str:
    """Return the setting that is not simulated with these groups, "" where there is none."""
    for name, usual in WITH_ONE_GROUP_ONLY:
        value = getattr(engine, name)
        if value != usual:
            return f"engine.{name} {value}"
    if not has_tier(engine, hardware) or rules_of_tier(engine, root, groups, hardware=hardware) == "native":
        return ""
    tier = "engine.num_cpu_blocks" if engine.num_cpu_blocks > 0 else "hardware.kv_offloading_size"
    return tier if engine.enable_prefix_caching else f"{tier} while engine.enable_prefix_caching is false"
