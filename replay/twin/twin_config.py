"""TWIN.yaml: what the simulator is configured from, read strictly and written back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from replay.model.gpus import shipped_gpus
from replay.model.model_peak import peak_times
from replay.twin.cluster_section import read_cluster, server_roots, with_overrides
from replay.twin.config_keys import (
    DEFAULT_SEED,
    FOREIGN_NAMES,
    RULES_VERSION,
    engine_keys,
)
from replay.twin.defaults import DefaultsEntry
from replay.twin.drafts import drafter_of, uncounted_notes, with_drafting
from replay.twin.engine_defaults import LIMITS, Server, with_defaults
from replay.twin.fitted.fitted_range import FittedRange, read_fitted_range
from replay.twin.fitted.pace import Pace, read_pace
from replay.twin.hardware import (
    Hardware,
    capacity_of,
    kv_bytes_of,
    read_hardware,
    stages_notes,
)
from replay.twin.image_encoder import with_encoder
from replay.twin.keys.key import Key
from replay.twin.keys.overlay import Setting, named, overlaid
from replay.twin.keys.ranges import check_ranges
from replay.twin.kv_cache.groups import GROUP_KEYS, chosen_groups, notes_of_version, with_groups
from replay.twin.kv_cache.needed import blocks_needed
from replay.twin.kv_cache.of_model import GroupsOfModel, groups_of_model
from replay.twin.kv_cache.offload import Offloaded, rules_of_tier, with_offload
from replay.twin.kv_cache.retention_interval import RETENTION_KEY, with_retention
from replay.twin.latency import Chosen, check_keys, read_latency
from replay.twin.on_record import shape_of_shipped
from replay.twin.placeholder import placeholder_notes
from replay.twin.profiled_table import profile_notes
from replay.twin.startup import flag_faults, startup_faults
from replay.twin.what_if.unanswered import Change, Simulated, Unanswered, draft_notes, unanswered_of
from sim import (
    KNOWN_VERSIONS,
    UNBOUNDED,
    Compatibility,
    EngineConfig,
    InvalidConfig,
    engine_defaults,
    is_known,
)
from sim.latency import LatencyModel
from traces import ConfigError
from traces.strict.section import Section, read_section

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replay.model.shape import ModelShape
    from sim.cluster import ClusterConfig, Pool
    from sim.latency import PeakTimes
    from traces import Trace

_TOP = ("vllm_version", "compatibility", "engine", "latency", "hardware", "cluster", "seed")


MOST_ABOVE = 1.25
"""An entry's KV blocks beyond this many times what the memory has room for are not those of such a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinConfig:
    """What a TWIN.yaml says, defaults filled in.

    ``cluster``: all servers. ``asked_cluster``: those that the file's section, or ``--instances``, asks for; None: one
    server, which is a cluster of one pool of one. ``engine`` and ``latency`` are those of the first pool.
    ``fitted``: the loads and lengths of the traces behind the coefficients, where they were fitted; ``pace``: how far
    its steps may be off together. ``assumed``: flags
    that bear on every busy step and that the file does not give. ``written``: the engine's keys that the file gives;
    None, of a configuration made in code: all of them. ``latency_reason``: why ``latency.model: auto`` is
    this one. ``peaks``: of each pool, or of the one server, its model at its GPU's peak, None where one of them is not
    named. ``kv_bytes_per_token``: in all layers, on all GPUs; None where no model is named. ``shape``: that model.
    ``gpus_of_pools``: the
    GPU's name and how many one server has (tp x pp x dp), by pool; empty where no hardware is named.
    ``unanswered``: settings that were asked for and that nothing here goes by. ``will_not_start``: why vLLM would
    refuse to start the model on its GPU, where the GPU's memory or the flags say so.
    ``source`` is the file it was read from, ``notes`` the lines to tell the user before a run (assumptions made, things
    vLLM would refuse); none of them counts when two configurations are compared.
    """

    engine: EngineConfig
    latency: LatencyModel
    seed: int = DEFAULT_SEED
    asked_cluster: ClusterConfig | None = None
    fitted: FittedRange | None = None
    pace: Pace | None = None
    assumed: tuple[str, ...] = field(default=(), compare=False)
    written: frozenset[str] | None = field(default=None, compare=False)
    latency_reason: str = field(default="", compare=False)
    source: Path | None = field(default=None, compare=False)
    peaks: tuple[PeakTimes | None, ...] = field(default=(), compare=False)
    kv_bytes_per_token: int | None = field(default=None, compare=False)
    shape: ModelShape | None = field(default=None, compare=False)
    gpus_of_pools: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    unanswered: tuple[Unanswered, ...] = field(default=(), compare=False)
    will_not_start: tuple[str, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def cluster(self) -> ClusterConfig:
        """The pools, and the gateway in front of them; one server's gateway decides nothing."""
        if self.asked_cluster is not None:
            return self.asked_cluster
        from sim.cluster import ClusterConfig, Pool

        pool = Pool(engine=self.engine, latency=self.latency)
        return ClusterConfig(pools=(pool,), seed=self.seed, compatibility=self.engine.compatibility)

    @property
    def tier(self) -> EngineConfig | None:
        """The first pool's engine that has a second KV tier, None where none has."""
        return next((pool.engine for pool in self.cluster.pools if pool.engine.has_cpu_tier), None)

    @property
    def kv_block_bytes(self) -> int | None:
        """What a KV block takes, on all GPUs of a server; None where no model is named, or not all layers keep it."""
        engines = {(pool.engine.block_size, pool.engine.kv_cache_groups) for pool in self.cluster.pools}
        if self.kv_bytes_per_token is None or len(engines) > 1 or self.engine.kv_cache_groups:
            return None
        return self.kv_bytes_per_token * self.engine.block_size

    @property
    def is_plain_server(self) -> bool:
        """Whether no cluster was asked for: what is shown is then of a server, not of a fleet."""
        return self.asked_cluster is None

    @property
    def vllm_version(self) -> str:
        """Whose scheduling rules the engine follows."""
        return self.engine.vllm_version

    @property
    def unanswered_keys(self) -> tuple[str, ...]:
        """The keys of the settings that change nothing in this twin."""
        return tuple(each.key for each in self.unanswered)

    @property
    def unanswered_document(self) -> list[dict[str, str]]:
        """The same with their reasons, as JSON has them."""
        return [{"key": each.key, "reason": each.reason} for each in self.unanswered]

    @property
    def num_seats(self) -> int:
        """How many requests may run at once, on all servers together."""
        return sum(pool.num_slots * pool.engine.max_num_seqs for pool in self.cluster.pools)

    @property
    def num_gpus(self) -> dict[str, int]:
        """How many GPUs of each name all servers have together; empty where a server's hardware is not named."""
        instances = tuple(pool.num_slots for pool in self.cluster.pools)
        if len(self.gpus_of_pools) != len(instances):
            return {}
        total: dict[str, int] = {}
        for (name, number), times in zip(self.gpus_of_pools, instances, strict=True):
            total[name] = total.get(name, 0) + number * times
        return total

    @property
    def compatibility(self) -> Compatibility:
        """Whose scheduler the engine follows."""
        return self.engine.compatibility


def load_config(
    path: str | Path,
    *,
    defaults: str | Path | None = None,
    latency_model: str | None = None,
    allows_cluster: bool = True,
    settings: Sequence[Setting] = (),
    learned: Sequence[Setting] = (),
) -> TwinConfig:
    """Return what the TWIN.yaml at ``path`` says; ``defaults`` is a defaults file to look in first.

    ``settings``: keys in place of the file's own, or beside them. ``learned``: keys that the file leaves open, as its
    server says them: what follows from keys follows from these, too, and nothing is switched by them.

    ``latency_model``: another than the file names, with its own coefficients in place of the file's.
    ``allows_cluster``: False of a caller that answers for one server: a file with a ``cluster`` section is refused.

    Raises ConfigError, one line with file and line number, at the first thing that is wrong.
    """
    path = Path(path)
    root = overlaid(read_section(path), learned) if learned else read_section(path)
    if not settings:
        return _read(
            root, path, defaults=defaults, latency_model=latency_model, allows_cluster=allows_cluster
        )
    plain, root = root, overlaid(root, settings)
    try:
        found = _read(
            root, path, defaults=defaults, latency_model=latency_model, allows_cluster=allows_cluster
        )
    except ConfigError as error:
        raise named(error, settings) from error
    return _told(
        found,
        (plain, root),
        settings,
        read=lambda changed: _read(
            changed, path, defaults=defaults, latency_model=latency_model, allows_cluster=allows_cluster
        ),
    )


def _told(
    found: TwinConfig,
    roots: tuple[Section, Section],
    settings: Sequence[Setting],
    *,
    read: Callable[[Section], TwinConfig],
) -> TwinConfig:
    """Return a twin that knows which of the settings it cannot answer. ``roots``: the file's, and with the settings."""

    def is_read(setting: Setting) -> bool:
        without = [each for each in settings if each is not setting]
        try:
            return _simulated(read(overlaid(roots[0], without))) != _simulated(found)
        except ConfigError:  # it cannot be done without
            return True

    change = Change(
        own=roots[0],
        changed=roots[1],
        own_servers=lambda: _simulated(read(roots[0])),
        servers=_simulated(found),
        folder=Path() if found.source is None else found.source.parent,
        is_read=is_read,
    )
    unanswered = unanswered_of(change, settings)
    return replace(found, unanswered=unanswered, notes=(*found.notes, *(each.note for each in unanswered)))


def _simulated(twin: TwinConfig) -> list[Simulated]:
    """Return what is simulated of each pool."""
    return [(pool.engine, pool.latency) for pool in twin.cluster.pools]


def _read(
    root: Section,
    path: Path,
    *,
    defaults: str | Path | None,
    latency_model: str | None,
    allows_cluster: bool,
) -> TwinConfig:
    """Return what a file's root says."""
    if "cluster" in root and not allows_cluster:
        line = root.key_lines["cluster"]
        raise ConfigError(
            "cluster: got one, expected a single engine here: run, replay, capacity, sweep, tune and serve simulate "
            f"clusters ({root.file}:{line})"
        )
    root.refuse_unknown(_TOP, elsewhere=_other_places())
    check_ranges(root)
    seed = root.integer("seed", least=0, most=2**63 - 1)
    seed = DEFAULT_SEED if seed is None else seed
    try:
        servers = [
            _read_server(each, folder=path.parent, defaults=defaults, seed=seed, latency_model=latency_model)
            for each in server_roots(root)
        ]
    except InvalidConfig as error:  # of a figure that other keys came to
        raise ConfigError(f"engine.{error} ({root.file})") from error
    first = servers[0]
    cluster = read_cluster(
        root,
        [(server.engine, server.latency) for server in servers],
        seed=seed,
        compatibility=first.compatibility,
        vllm_version=first.vllm_version,
        folder=path.parent,
        kv_bytes_per_token=[server.kv_bytes_per_token for server in servers],
        gpus=[_num_gpus(server) for server in servers],
    )
    notes = tuple(dict.fromkeys(note for server in servers for note in server.notes))
    faults = tuple(dict.fromkeys(fault for server in servers for fault in server.will_not_start))
    gpus = tuple(each for server in servers for each in server.gpus_of_pools)
    peaks = tuple(peak for server in servers for peak in server.peaks)
    return replace(
        first,
        asked_cluster=cluster,
        source=path,
        notes=notes,
        peaks=peaks,
        will_not_start=faults,
        gpus_of_pools=gpus,
    )


def _num_gpus(server: TwinConfig) -> int:
    """Return how many GPUs a server has: of its hardware, or as many as it has pipeline stages."""
    stages = server.engine.pipeline_parallel_size
    return sum(number for _, number in server.gpus_of_pools) or stages


def with_cluster(config: TwinConfig, *, instances: int | None, routing: str | None) -> TwinConfig:
    """Return the configuration with ``--instances`` and ``--routing`` in place of the file's. Raises ConfigError."""
    if instances is None and routing is None:
        return config
    cluster = with_overrides(
        config.cluster,
        vllm_version=config.vllm_version,
        instances=instances,
        routing=routing,
        folder=Path() if config.source is None else config.source.parent,
    )
    return replace(config, asked_cluster=cluster)


def with_pools(config: TwinConfig, pools: Sequence[Pool]) -> TwinConfig:
    """Return the configuration with other pools behind the same gateway."""
    first = pools[0]
    asked = None if config.asked_cluster is None else replace(config.asked_cluster, pools=tuple(pools))
    return replace(config, engine=first.engine, latency=first.latency, asked_cluster=asked)


def _read_server(
    root: Section, *, folder: Path, defaults: str | Path | None, seed: int, latency_model: str | None
) -> TwinConfig:
    """Return what a file says of one server, or of one pool's."""
    hardware = read_hardware(root)
    check_keys(root, _other_places())
    chosen = read_latency(root, hardware, folder=folder, defaults=defaults, seed=seed, model=latency_model)
    version = _read_version(root)
    server = _server(chosen, hardware, vllm_version=version)
    engine, limits = _read_engine(root, server, seed=seed, num_stages=_num_stages(chosen, hardware))
    is_sized = engine.num_gpu_blocks != UNBOUNDED
    drafter = drafter_of(engine, root, shape=server.shape, folder=folder)
    of_model = groups_of_model(engine, root, shape=server.shape, hardware=hardware, drafter=drafter)
    engine = replace(engine, block_size=of_model.block_size, num_prefill_lookahead_tokens=of_model.ahead)
    groups = chosen_groups(engine, root, of_model.groups)
    engine = replace(engine, kv_offloading=rules_of_tier(engine, root, groups, hardware=hardware))
    engine = with_groups(engine, root, groups)
    engine, retention = with_retention(engine, root.section("engine"))
    engine, notes = _with_blocks(
        engine,
        chosen,
        hardware=hardware,
        vllm_version=version,
        of_model=of_model,
    )
    offloaded = Offloaded(chosen.shape, of_model.bytes_per_block)
    engine, offload = with_offload(engine, root, model=offloaded, hardware=hardware)
    engine = with_encoder(engine, root, model=chosen.model, shape=server.shape, hardware=hardware)
    engine, drafting = with_drafting(engine, root, model=chosen.model, drafter=drafter, hardware=hardware)
    reasons = (chosen.reason,) if chosen.reason else ()
    return TwinConfig(
        engine=engine,
        latency=chosen.model,
        seed=seed,
        fitted=None if latency_model else read_fitted_range(root.section("latency")),
        pace=None if latency_model else read_pace(root.section("latency")),
        assumed=_assumed(root) if server.gpu is None else (),
        written=_written(root),
        latency_reason=chosen.reason,
        peaks=(_peak_known(chosen, hardware, server),),
        kv_bytes_per_token=kv_bytes_of(chosen.shape, hardware),
        shape=chosen.shape,
        will_not_start=_will_not_start(engine, root, server, is_sized=is_sized, hardware=hardware),
        gpus_of_pools=() if hardware is None else ((hardware.gpu.name, hardware.num_gpus),),
        notes=(
            *reasons,
            *placeholder_notes(chosen.model),
            *chosen.notes,
            *(hardware.notes(chosen.model) if hardware else ()),
            *stages_notes(engine, chosen.model),
            *draft_notes(root, engine, chosen.model),
            *drafting,
            *uncounted_notes(engine, root, drafter=drafter),
            *_entry_notes(chosen.entry),
            *(f"model config: {note}" for note in (chosen.shape.left_out if chosen.shape else ())),
            *limits,
            *of_model.notes,
            *notes_of_version(engine),
            *retention,
            *(profile_notes(chosen.table, engine) if chosen.table else ()),
            *notes,
            *offload,
            *startup_faults(engine),
        ),
    )


def _will_not_start(
    engine: EngineConfig, root: Section, server: Server, *, is_sized: bool, hardware: Hardware | None
) -> tuple[str, ...]:
    """Return why the twin is not to be simulated unasked: what is known for sure, and not by a length that is assumed.

    A cache that the file gives is taken as it is: it may be what a server's metrics said.
    """
    if not is_sized and hardware is not None:
        return startup_faults(engine)
    is_length_known = server.shape is not None or "max_model_len" in _written(root)
    return flag_faults(engine if is_length_known else replace(engine, enable_chunked_prefill=True))


def _peak_known(chosen: Chosen, hardware: Hardware | None, server: Server) -> PeakTimes | None:
    """Return the model at its GPU's peak where the file names both, in one place or another, or writes it out."""
    written: PeakTimes | None = getattr(chosen.model, "peak", None)
    if written is not None or server.shape is None or server.gpu is None:
        return written
    of_entry = chosen.entry.tp if chosen.entry is not None else 1
    try:
        if hardware is None:
            return peak_times(server.shape, server.gpu, tp=of_entry)
        return peak_times(server.shape, server.gpu, tp=hardware.tp, pp=hardware.pp, layout=hardware.layout)
    except ConfigError:  # a tp that the model's heads cannot be divided by bears on no coefficient
        return None


def check_fits(config: TwinConfig, trace: Trace) -> None:
    """Raise ConfigError when not even the trace's smallest prompt fits in the KV cache."""
    from traces import prompt_tokens

    prompts = prompt_tokens(trace)
    pools = config.cluster.pools
    if len(prompts) == 0 or any(pool.engine.num_gpu_blocks == UNBOUNDED for pool in pools):
        return
    smallest = int(prompts.min())
    engine = max((pool.engine for pool in pools), key=lambda engine: engine.num_gpu_blocks)
    needed = blocks_needed(engine, smallest)
    usable = engine.num_gpu_blocks - 1
    if needed > usable:
        raise ConfigError(
            f"engine.num_gpu_blocks: got {engine.num_gpu_blocks} (usable: {usable} of {engine.block_size} "
            f"tokens), expected at least {needed + 1}: the trace's smallest prompt has {smallest} tokens "
            f"({config.source})"
        )


def _read_version(root: Section) -> str:
    """Return the version whose scheduling rules hold."""
    version = root.text("vllm_version") or RULES_VERSION
    if not is_known(version):
        line = root.key_lines["vllm_version"]
        raise ConfigError(f"vllm_version: got {version}, expected {KNOWN_VERSIONS} ({root.file}:{line})")
    return version


def _server(chosen: Chosen, hardware: Hardware | None, *, vllm_version: str) -> Server:
    """Return what the engine's defaults follow: the GPU and the model that the file names, in one place or another."""
    gpu, shape, entry = hardware.gpu if hardware else None, chosen.shape, chosen.entry
    if entry is not None:
        shape = shape or shape_of_shipped(entry.model)
        gpu = gpu or next((each for each in shipped_gpus() if each.is_called(entry.gpu)), None)
    return Server(vllm_version=vllm_version, gpu=gpu, shape=shape)


def _num_stages(chosen: Chosen, hardware: Hardware | None) -> int:
    """Return how many pipeline stages the hardware has, or the peak times that the file writes out."""
    at_peak = getattr(chosen.model, "peak", None)
    return hardware.pp if hardware else at_peak.pp if at_peak else 1


def _read_engine(
    root: Section, server: Server, *, seed: int, num_stages: int
) -> tuple[EngineConfig, tuple[str, ...]]:
    """Return the engine section, with vLLM's own limits where it has none, and lines that say so."""
    section = root.section("engine")
    given: dict[str, object] = {}
    if section is not None:
        keys = engine_keys()
        names = [key.path.split(".")[1] for key in (*keys, *GROUP_KEYS, RETENTION_KEY)]
        section.refuse_unknown(names, elsewhere=_other_places())
        given = {key.path.removeprefix("engine."): _engine_value(section, key) for key in keys}
    if root.text("compatibility", choices=get_args(Compatibility)) == "blis":
        given["compatibility"] = "blis"
        given["async_scheduling"] = given.get("async_scheduling") or False
    if given.get("batching") not in {None, "vllm"}:  # the others have neither
        for name in ("async_scheduling", "enable_prefix_caching"):
            given[name] = given.get(name) or False
    if given.get("num_speculative_tokens"):
        given["seed"] = seed
    said = {name: value for name, value in given.items() if value is not None}
    if given.get("compatibility") != "blis":
        said.setdefault("pipeline_parallel_size", num_stages)
    stages = said.get("pipeline_parallel_size", 1)
    assert isinstance(stages, int)  # noqa: S101 - the reader has seen to it
    defaults = engine_defaults(server.vllm_version, num_stages=stages)
    settings = {**defaults, "vllm_version": server.vllm_version, **said}
    if settings.get("compatibility") == "blis":
        return _engine_from(settings, section), ()
    settings, notes = with_defaults(settings, server)
    return _engine_from(settings, section), notes


def _assumed(root: Section) -> tuple[str, ...]:
    """Return the flags without a default of vLLM's own (it goes by the GPU) that a file does not give."""
    section = root.section("engine")
    return tuple(name for name in LIMITS if section is None or name not in section)


def _written(root: Section) -> frozenset[str]:
    """Return the engine's keys that a file gives."""
    section = root.section("engine")
    return frozenset() if section is None else frozenset(section.nodes)


def _with_blocks(
    engine: EngineConfig,
    chosen: Chosen,
    *,
    hardware: Hardware | None,
    vllm_version: str,
    of_model: GroupsOfModel,
) -> tuple[EngineConfig, tuple[str, ...]]:
    """Return the engine with a KV cache, where it had none, and the note that says where its size is from."""
    entry, shape = chosen.entry, chosen.shape
    if engine.num_gpu_blocks != UNBOUNDED:
        return engine, ()
    recorded = entry.num_gpu_blocks if entry is not None and entry.block_size == engine.block_size else None
    capacity = None
    if shape is not None and hardware is not None:
        try:
            capacity = capacity_of(
                shape,
                hardware,
                engine=engine,
                vllm_version=vllm_version,
                disables_hybrid=of_model.is_undivided,
                drafter=of_model.drafter,
            )
        except ConfigError:
            if recorded is None:
                raise
    if recorded is not None and (capacity is None or recorded <= MOST_ABOVE * capacity.num_gpu_blocks):
        note = f"engine.num_gpu_blocks is absent: {recorded} taken from the entry {entry}"
        return replace(engine, num_gpu_blocks=recorded), (note,)
    if capacity is not None and shape is not None and hardware is not None:
        note = (
            f"engine.num_gpu_blocks is absent: {capacity.num_gpu_blocks} left by {shape.name} on {hardware.gpu.name}, "
            f"tp {hardware.tp}, utilization {capacity.utilization:g}"
        )
        if recorded is not None:
            note += f"; the {recorded} of the entry {entry} do not fit there"
        return replace(engine, num_gpu_blocks=capacity.num_gpu_blocks), (note,)
    return engine, ("engine.num_gpu_blocks is absent: the KV cache is taken as unbounded",)


def _engine_value(section: Section, key: Key) -> object:
    name = key.path.removeprefix("engine.")
    if key.kind == "numbers":
        return section.fractions(name)
    if key.kind == "integer":
        return section.integer(name, least=key.least)
    if key.kind == "boolean":
        return section.boolean(name)
    if key.kind in ("fraction", "number"):
        expected = "a fraction in [0, 1)" if key.kind == "fraction" else "a number >= 0"
        value = section.decimal(name, expected=expected)
        return None if value is None else float(value)
    return section.text(name, choices=key.choices)


def _engine_from(given: dict[str, object], section: Section | None) -> EngineConfig:
    try:
        return EngineConfig(**given)  # type: ignore[arg-type]  # every value was read by its field's type
    except InvalidConfig as error:
        if section is None:
            raise
        name, _, complaint = str(error).partition(": ")
        line = section.key_lines.get(name, section.line)
        raise ConfigError(f"engine.{name}: {complaint} ({section.file}:{line})") from error


def _other_places() -> dict[str, str]:
    """Return, for keys that may be looked for in the wrong section, where they belong."""
    places = {key.path.rsplit(".", 1)[-1]: key.path for key in engine_keys()}
    return {**{name.replace("_", "-"): path for name, path in places.items()}, **places, **FOREIGN_NAMES}


def _entry_notes(entry: DefaultsEntry | None) -> tuple[str, ...]:
    if entry is None:
        return ()
    where = entry.provenance
    trust = {"weak": "weakly identified", "partial": "partly identified", "good": "identified"}
    return (f"latency of the entry {entry} ({where.source}, {where.date}, {trust[where.identification]})",)
