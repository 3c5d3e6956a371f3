"""One server from a TWIN.yaml: each part is read after the parts that it needs."""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from replay.model.gpus import shipped_gpus
from replay.model.layout import Hardware
from replay.model.shape import ModelShape
from replay.model.shipped_models import shipped_config
from replay.twin.defaults import DefaultsEntry
from replay.twin.drafts import drafter_notes, drafter_of, with_drafting
from replay.twin.engine_defaults import Server
from replay.twin.fitted.fitted_on import read_fitted_on
from replay.twin.fitted.fitted_range import read_fitted_range
from replay.twin.fitted.held_out import read_held_out
from replay.twin.fitted.leaves import AskedServer
from replay.twin.fitted.pace import read_pace
from replay.twin.hardware import (
    capacity_of,
    hardware_notes,
    kv_bytes_of,
    read_hardware,
    stages_notes,
)
from replay.twin.image_encoder import with_encoder
from replay.twin.keys.fitted_on_keys import WORDS
from replay.twin.kv_cache.groups import (
    chosen_groups,
    notes_of_version,
    with_groups,
)
from replay.twin.kv_cache.match_unit import with_match_unit
from replay.twin.kv_cache.of_model import GroupsOfModel, groups_of_model, serving_of
from replay.twin.kv_cache.offload import Offloaded, rules_of_tier, with_offload
from replay.twin.kv_cache.retention_interval import with_retention
from replay.twin.latency import Chosen, check_keys, read_latency
from replay.twin.placeholder import placeholder_notes
from replay.twin.profiled_table import profile_notes
from replay.twin.recorded_coefficients import shape_of_shipped
from replay.twin.server.cuda_graphs import eager_notes, with_launch, without_captured_sizes
from replay.twin.server.engine_section import (
    as_settings,
    assumed_flags,
    checked,
    other_places,
    read_engine,
    read_version,
    written_keys,
)
from replay.twin.server.startup import flag_faults, startup_faults
from replay.twin.twin_config import TwinConfig
from replay.twin.what_if.unanswered import draft_notes
from sim import (
    UNBOUNDED,
    EngineConfig,
    EngineSettings,
)
from traces import ConfigError
from traces.strict.section import Section

if TYPE_CHECKING:
    from sim.latency import PeakTimes

SIZE_OF_FILE = ("gpu_memory_utilization", "kv_cache_memory_bytes", "memory_gib")
WIDTH_OF_FILE = ("kv_cache_dtype", "dtype", "mamba_ssm_cache_dtype", "quantization")
"""Keys of ``hardware`` and of ``latency`` that size a KV cache: a file with any of them is not that of the entry."""
MOST_ABOVE = 1.25
"""An entry with more than this many times the KV blocks that fit in memory is of another server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeEngine:
    """A server's engine, its KV cache sized. ``is_sized``: the file itself says how many blocks; notes, as they came.

    ``limits``: of what vLLM takes where the file has no limit; ``retention``, ``blocks``, ``offload``: of what stays in
    the prefix cache, of the cache's size, and of its second tier; ``drafting``: of what drafts take.
    """

    engine: EngineConfig
    of_model: GroupsOfModel
    is_sized: bool
    limits: tuple[str, ...]
    retention: tuple[str, ...]
    blocks: tuple[str, ...]
    offload: tuple[str, ...]
    drafting: tuple[str, ...]


def read_server(
    root: Section, *, folder: Path, defaults: str | Path | None, seed: int, latency_model: str | None
) -> TwinConfig:
    """Return one server of a file, or the server of one pool."""
    hardware = read_hardware(root)
    check_keys(root, other_places())
    chosen = read_latency(root, hardware, folder=folder, defaults=defaults, seed=seed, model=latency_model)
    server = _server(chosen, hardware, vllm_version=read_version(root))
    whole = _engine_of(root, chosen, server, hardware=hardware, seed=seed, folder=folder)
    held_out = None if latency_model else read_held_out(root.section("latency"))
    doubts = (held_out.doubt,) if held_out is not None and held_out.doubt else ()
    found = TwinConfig(
        engine=whole.engine,
        latency=without_captured_sizes(chosen.model, whole.engine, root),
        seed=seed,
        fitted=None if latency_model else read_fitted_range(root.section("latency")),
        pace=None if latency_model else read_pace(root.section("latency")),
        held_out=held_out,
        fitted_on=None if latency_model else read_fitted_on(root.section("latency")),
        served=_served_as(root, server, hardware=hardware),
        assumes_memory=not whole.is_sized and _assumes_memory(whole.engine, root, chosen, server, hardware),
        assumed=assumed_flags(root) if server.gpu is None else (),
        written=written_keys(root),
        latency_reason=chosen.reason,
        peaks=(_peak_known(chosen, hardware, server),),
        kv_bytes_per_token=kv_bytes_of(chosen.shape, hardware),
        group_block_bytes=_group_block_bytes(whole, hardware),
        shape=chosen.shape,
        will_not_start=_will_not_start(whole, root, server, hardware=hardware),
        gpus_of_pools=() if hardware is None else ((hardware.gpu.name, hardware.num_gpus),),
        notes=(*doubts, *_notes(root, chosen, whole, hardware=hardware)),
        doubts=doubts,
    )
    outside = found.outside_server
    return found if outside is None else replace(found, notes=(outside, *found.notes))


def _assumes_memory(
    engine: EngineConfig, root: Section, chosen: Chosen, server: Server, hardware: Hardware | None
) -> bool:
    """Return whether the KV cache is what vLLM's default share of the memory leaves, since nobody told another."""
    if hardware is None or engine.num_gpu_blocks == UNBOUNDED:
        return False
    entry = _sized_by(root, chosen, server, hardware=hardware)[0]
    is_recorded = entry is not None and entry.num_gpu_blocks == engine.num_gpu_blocks
    return not is_recorded and not {"gpu_memory_utilization", "kv_cache_memory_bytes"} & set(hardware.written)


def _served_as(root: Section, server: Server, *, hardware: Hardware | None) -> AskedServer:
    """Return what a file says of its server, to be held against what the twin was fitted on."""
    latency = root.section("latency")
    words = {} if latency is None else {name: latency.text(name) for name in WORDS[1:]}
    named = None if server.shape is None or latency is None else latency.text("model_config")
    return AskedServer(
        model=named if named is not None and shipped_config(named) is not None else None,
        gpu=None if hardware is None else hardware.gpu.name,
        tp=None if hardware is None else hardware.tp,
        flags={name: value for name, value in words.items() if value is not None},
    )


def _engine_of(
    root: Section, chosen: Chosen, server: Server, *, hardware: Hardware | None, seed: int, folder: Path
) -> WholeEngine:
    """Return the engine: as the section says it, then its groups, blocks, second tier and encoder, in this order."""
    written, limits = read_engine(root, server, seed=seed, num_stages=_num_stages(chosen, hardware))
    engine = as_settings(written)
    is_sized = engine.num_gpu_blocks != UNBOUNDED
    drafter = drafter_of(engine, root, shape=server.shape, folder=folder)
    of_model = groups_of_model(engine, root, shape=server.shape, hardware=hardware, drafter=drafter)
    engine = replace(engine, block_size=of_model.block_size, num_prefill_lookahead_tokens=of_model.ahead)
    groups = chosen_groups(engine, root, of_model.groups)
    engine = replace(engine, kv_offloading=rules_of_tier(engine, root, groups, hardware=hardware))
    engine = with_groups(engine, groups)
    engine, retention = with_retention(engine, root.section("engine"))
    engine = with_match_unit(engine, root.section("engine"))
    engine, blocks = _with_blocks(
        engine,
        *_sized_by(root, chosen, server, hardware=hardware),
        hardware=hardware,
        of_model=of_model,
    )
    offloaded = Offloaded(chosen.shape, of_model.bytes_per_block)
    engine, offload = with_offload(engine, root, model=offloaded, hardware=hardware)
    engine = with_encoder(engine, root, model=chosen.model, shape=server.shape, hardware=hardware)
    engine, drafting = with_drafting(engine, root, model=chosen.model, drafter=drafter, hardware=hardware)
    engine = with_launch(engine, root, model=chosen.model, shape=server.shape)
    return WholeEngine(
        engine=checked(engine, root),
        of_model=of_model,
        is_sized=is_sized,
        limits=limits,
        retention=tuple(retention),
        blocks=blocks,
        offload=tuple(offload),
        drafting=(*drafting, *drafter_notes(engine, root, drafter=drafter, shape=server.shape)),
    )


def _group_block_bytes(whole: WholeEngine, hardware: Hardware | None) -> int | None:
    """Return what a block of the model's groups takes on all GPUs; None where it has none, or others are written."""
    per_gpu = whole.of_model.bytes_per_block if whole.engine.kv_cache_groups else 0.0
    return round(per_gpu * (hardware.tp if hardware else 1)) or None


def _notes(
    root: Section, chosen: Chosen, whole: WholeEngine, *, hardware: Hardware | None
) -> tuple[str, ...]:
    """Return the notes on a server that are printed before a run."""
    engine = whole.engine
    return (
        *((chosen.reason,) if chosen.reason else ()),
        *placeholder_notes(chosen.model),
        *chosen.notes,
        *(hardware_notes(hardware, chosen.model, ranks=_ranks(root)) if hardware else ()),
        *stages_notes(engine, chosen.model),
        *draft_notes(root, engine, chosen.model),
        *whole.drafting,
        *eager_notes(engine, root, gpu=hardware.gpu if hardware else None),
        *_entry_notes(chosen.entry),
        *(f"model config: {note}" for note in (chosen.shape.left_out if chosen.shape else ())),
        *whole.limits,
        *whole.of_model.notes,
        *notes_of_version(engine),
        *whole.retention,
        *(profile_notes(chosen.table, engine) if chosen.table else ()),
        *whole.blocks,
        *whole.offload,
        *startup_faults(engine),
    )


def _ranks(root: Section) -> int | None:
    """Return how many instances are in step; None where none are, 0 where each pool has its own number."""
    cluster = root.section("cluster")
    if cluster is None or not cluster.boolean("lockstep"):
        return None
    return 0 if "pools" in cluster else cluster.integer("instances", least=1) or 1


def _will_not_start(
    whole: WholeEngine, root: Section, server: Server, *, hardware: Hardware | None
) -> tuple[str, ...]:
    """Return why vLLM would not start: only what is certain, not what depends on an assumed length.

    A cache that the file gives is taken as it is: it may be what a server's metrics said.
    """
    engine = whole.engine
    if not whole.is_sized and hardware is not None:
        return startup_faults(engine)
    is_length_known = server.shape is not None or "max_model_len" in written_keys(root)
    return flag_faults(
        engine if is_length_known else replace(as_settings(engine), enable_chunked_prefill=True)
    )


def _peak_known(chosen: Chosen, hardware: Hardware | None, server: Server) -> PeakTimes | None:
    """Return the model's peak times if the file names model and GPU, in any of the places, or gives the times."""
    written: PeakTimes | None = getattr(chosen.model, "peak", None)
    if written is not None or server.shape is None or server.gpu is None:
        return written
    from replay.model.model_peak import peak_times

    of_entry = chosen.entry.tp if chosen.entry is not None else 1
    try:
        if hardware is None:
            return peak_times(server.shape, server.gpu, tp=of_entry)
        return peak_times(server.shape, server.gpu, tp=hardware.tp, pp=hardware.pp, layout=hardware.layout)
    except ConfigError:  # a tp that does not divide the model's heads affects no coefficient
        return None


def _server(chosen: Chosen, hardware: Hardware | None, *, vllm_version: str) -> Server:
    """Return the basis of the engine's defaults: the GPU and the model that the file names, in any of the places."""
    gpu, shape, entry = hardware.gpu if hardware else None, chosen.shape, chosen.entry
    if entry is not None:
        shape = shape or shape_of_shipped(entry.model)
        gpu = gpu or next((each for each in shipped_gpus() if each.is_called(entry.gpu)), None)
    if shape is not None and gpu is not None:
        from replay.model.kernels.latent_kernels import served_on

        shape = served_on(shape, gpu, tp=hardware.tp if hardware else 1, version=vllm_version)
    return Server(vllm_version=vllm_version, gpu=gpu, shape=shape)


def _num_stages(chosen: Chosen, hardware: Hardware | None) -> int:
    """Return the number of pipeline stages of the hardware, or of the peak times that the file gives."""
    at_peak = getattr(chosen.model, "peak", None)
    return hardware.pp if hardware else at_peak.pp if at_peak else 1


def _sized_by(
    root: Section, chosen: Chosen, server: Server, *, hardware: Hardware | None
) -> tuple[DefaultsEntry | None, ModelShape | None]:
    """Return (the entry on record whose size may be used, the model that the KV cache is sized for).

    A file that gives keys that size its cache, besides model and GPU, is not the entry's server: its cache follows from
    the model, which may be the entry's; of a model that is not known the entry's size is all there is.
    """
    latency, said = root.section("latency"), hardware.written if hardware else ()
    if any(key in said for key in SIZE_OF_FILE) and server.shape is not None:
        return None, server.shape
    is_of_width = latency is not None and any(key in latency for key in WIDTH_OF_FILE)
    return (None if is_of_width and chosen.shape is not None else chosen.entry), chosen.shape


def _with_blocks(
    engine: EngineSettings,
    entry: DefaultsEntry | None,
    shape: ModelShape | None,
    *,
    hardware: Hardware | None,
    of_model: GroupsOfModel,
) -> tuple[EngineSettings, tuple[str, ...]]:
    """Return the engine with a KV cache, if it had none, and the note that says where its size is from.

    ``entry``: on record; its size may be used.
    """
    if engine.num_gpu_blocks != UNBOUNDED:
        return engine, ()
    recorded = entry.num_gpu_blocks if entry is not None and entry.block_size == engine.block_size else None
    capacity = None
    if shape is not None and hardware is not None:
        try:
            capacity = capacity_of(
                shape,
                hardware,
                serving=serving_of(engine, is_undivided=of_model.is_undivided, drafter=of_model.drafter),
            )
        except ConfigError:
            if recorded is None:
                raise
    if recorded is not None and (capacity is None or recorded <= MOST_ABOVE * capacity.num_gpu_blocks):
        note = f"engine.num_gpu_blocks is absent: {recorded} taken from the entry {entry}"
        return replace(engine, num_gpu_blocks=recorded), (note,)
    if capacity is not None and shape is not None and hardware is not None:
        where = f"{shape.name} on {hardware.gpu.name}, tp {hardware.tp}"
        note = f"engine.num_gpu_blocks is absent: {capacity.num_gpu_blocks} "
        if capacity.kv_cache_memory_bytes is None:
            note += f"left by {where}, utilization {capacity.utilization:g}"
        else:
            from replay.model.gpu_memory import GIB

            note += f"of {capacity.kv_cache_memory_bytes / GIB:g} GiB (kv_cache_memory_bytes), {where}"
        if recorded is not None:
            note += f"; the {recorded} of the entry {entry} do not fit there"
        return replace(engine, num_gpu_blocks=capacity.num_gpu_blocks), (note,)
    return engine, ("engine.num_gpu_blocks is absent: the KV cache is taken as unbounded",)


def _entry_notes(entry: DefaultsEntry | None) -> tuple[str, ...]:
    if entry is None:
        return ()
    where = entry.provenance
    trust = {"weak": "weakly identified", "partial": "partly identified", "good": "identified"}
    return (f"latency of the entry {entry} ({where.source}, {where.date}, {trust[where.identification]})",)
