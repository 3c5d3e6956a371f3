"""A TWIN.yaml to start from: by a ``vllm serve`` command line, or by the server in a trace's header."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from lazy_dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from replay.model.gpus import shipped_gpus
from replay.model.hf_config import read_model_config
from replay.twin.config_keys import RULES_VERSION
from replay.twin.defaults_write import quoted
from replay.twin.engine_defaults import LIMITS, Server, with_defaults
from replay.twin.kv_cache.groups import DISABLED, DRAFT_MODEL, METHOD
from replay.twin.kv_cache.match_unit import UNIT
from replay.twin.placeholder import PLACEHOLDER
from replay.twin.start.container_tags import NO_RELEASE
from replay.twin.start.manifests import INSTANCES
from replay.twin.start.model_and_gpu import config_at_hand, model_of
from replay.twin.start.serve_flags import Flag, Served, parse_serve
from replay.twin.start.several_engines import cluster_lines, engines_of
from replay.twin.start.speculation import from_counters
from sim import KNOWN_VERSIONS, UNBOUNDED, EngineConfig, InvalidConfig, is_known, minor_version
from traces import ConfigError
from traces.strict.escape import terminal
from traces.strict.secrets import quoted_flag, redact_url

if TYPE_CHECKING:
    from traces import Header, ServerInfo

CHUNKS_OFF = "disable_chunked_mm_input"
GUESS = f"{{{', '.join(f'{name}: {value}' for name, value in PLACEHOLDER.items())}}}"
"""µs, of no server: where the search of a fit starts."""

OUTSIDE = (
    *("model", "tensor_parallel", "data_parallel", "enable_expert_parallel", "dtype"),
    *("kv_cache_dtype", "gpu", "gpu_memory_utilization"),
)
"""A header's keys about a server that affect its speed, and so the coefficients, but not the scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What is known of a server: engine settings, the key to look up its latency, and notes.

    ``hardware`` and ``latency``: keys of these sections, for a twin that names the GPU; ``coefficients_notes``: what
    to tell of them where it does not. ``servers``: of this kind, behind one address. ``vllm_version``: as it is said;
    another one than the known ones has a note. ``packaged_version``: vLLM's, of the command's container or package.
    """

    engine: Mapping[str, object]
    origin: str
    model: str | None = None
    hardware: Mapping[str, object] = field(default_factory=dict)
    latency: Mapping[str, object] = field(default_factory=dict)
    servers: int = 1
    vllm_version: str | None = None
    notes: tuple[str, ...] = ()
    coefficients_notes: tuple[str, ...] = ()
    packaged_version: str | None = None

    @property
    def known_version(self) -> str | None:
        """The version, where its rules are known."""
        return self.vllm_version if self.vllm_version and is_known(self.vllm_version) else None

    @property
    def tp(self) -> int:
        """How many GPUs share each layer."""
        tp = self.hardware.get("tp", 1)
        return tp if isinstance(tp, int) else 1


def start_from_serve(command: str) -> Start:
    """Return the server of a ``vllm serve`` command line, a manifest, or the file of one (``parse_serve``).

    Raises ConfigError on another text.
    """
    served = parse_serve(command)
    told = (*served.notes, *_gpus_told(served), *_version_notes(served.version))
    return Start(
        engine=served.engine,
        origin=served.origin,
        model=served.model,
        hardware=served.hardware,
        latency=served.latency,
        vllm_version=served.version,
        notes=(*(_note_of(flag) for flag in served.others if not flag.key), *told),
        coefficients_notes=tuple(_note_of(flag) for flag in served.others if flag.key),
        servers=served.instances,
        packaged_version=served.version,
    )


def _gpus_told(served: Served) -> Iterator[str]:
    """Yield a line where a manifest gives a server other GPUs than its command uses."""
    sizes = (
        served.hardware.get("tp", 1),
        served.hardware.get("dp", 1),
        served.engine.get("pipeline_parallel_size", 1),
    )
    used = math.prod(size for size in sizes if isinstance(size, int))
    if served.gpus is not None and served.gpus != used:
        yield (
            f"the manifest gives each server {served.gpus} {'GPU' if served.gpus == 1 else 'GPUs'}, its command uses "
            f"{used} (tensor, pipeline and data parallel sizes): vLLM goes by the command"
        )


def start_from_server(server: ServerInfo, *, name: str) -> Start:
    """Return the server of a trace's header."""
    known = {each.name: getattr(server, each.name, None) for each in fields(EngineConfig)}
    known["pipeline_parallel_size"] = server.pipeline_parallel
    hardware = {
        "tp": server.tensor_parallel,
        "dp": server.data_parallel,
        "enable_expert_parallel": server.enable_expert_parallel,
        "gpu_memory_utilization": server.gpu_memory_utilization,
    }
    widths = {"dtype": server.dtype, "kv_cache_dtype": server.kv_cache_dtype}
    outside = {key: getattr(server, key) for key in OUTSIDE if getattr(server, key) is not None}
    outside.pop("data_parallel", None)  # which is a cluster
    return Start(
        engine={key: value for key, value in known.items() if value is not None},
        origin=f"the header of {name}",
        model=model_of(server),
        hardware={key: value for key, value in hardware.items() if value is not None},
        latency={key: value for key, value in widths.items() if value is not None},
        servers=server.num_instances or 1,
        vllm_version=server.version,
        notes=_version_notes(server.version),
        coefficients_notes=tuple(
            f"{key} {value}: in the coefficients, not in the engine" for key, value in outside.items()
        ),
    )


def start_from_header(header: Header, *, name: str) -> Start:
    """Return the server of a trace's header, and how its drafts were accepted."""
    start = start_from_server(header.server, name=name)
    if header.spec_decode is not None:
        found = from_counters(header.spec_decode)
        start = replace(start, engine={**start.engine, **found.engine}, notes=(*start.notes, *found.notes))
    tier = header.kv_offload
    if tier is not None and tier.cpu_bytes_to_use and tier.per_block_bytes:
        blocks = tier.cpu_bytes_to_use // tier.per_block_bytes
        note = f"num_cpu_blocks: {blocks}, by the header's kv_offload; kv_transfer_bandwidth is not known from it"
        start = replace(start, engine={**start.engine, "num_cpu_blocks": blocks}, notes=(*start.notes, note))
    return start


def merged(command: Start, header: Start) -> Start:
    """Return the server of a command line and a trace's header: the header fills in what the command leaves open.

    Raises ConfigError where they contradict each other.
    """
    for section in ("engine", "hardware", "latency"):
        written, said = getattr(command, section), getattr(header, section)
        for key in written.keys() & said.keys():
            if written[key] != said[key]:
                raise ConfigError(
                    f"{section}.{key}: got {_scalar(written[key])} in the command line, expected {_scalar(said[key])}, "
                    f"which {header.origin} says"
                )
    notes = command.notes
    version = header.vllm_version or command.vllm_version
    if command.vllm_version not in (None, version):
        said = (
            f"vllm_version: {version}, as {header.origin} says; {command.origin} says {command.vllm_version}"
        )
        notes = (*(note for note in notes if note not in _version_notes(command.vllm_version)), said)
    return Start(
        engine={**header.engine, **command.engine},
        origin=f"{command.origin} and {header.origin}",
        model=command.model,
        hardware={**header.hardware, **command.hardware},
        latency={**header.latency, **command.latency},
        servers=max(command.servers, header.servers),
        vllm_version=version,
        notes=tuple(dict.fromkeys((*notes, *header.notes))),
        coefficients_notes=tuple(dict.fromkeys((*command.coefficients_notes, *header.coefficients_notes))),
        packaged_version=command.packaged_version,
    )


def named(
    start: Start, *, model_config: str | None = None, tp: int | None = None, vllm_version: str | None = None
) -> Start:
    """Return a start with the model, the GPUs per layer and the version that the user names; None changes nothing.

    Raises ConfigError on a text that is not a version, and on another number of GPUs than is known.
    """
    if vllm_version is not None:
        check_version(vllm_version)
        others = tuple(
            note
            for note in start.notes
            if note not in _version_notes(start.vllm_version) and not note.startswith(NO_RELEASE)
        )
        if start.packaged_version not in (None, vllm_version):
            other = f"the command's image or package is {start.packaged_version}"
            others = (*others, f"vllm_version: {vllm_version}, as --vllm-version says; {other}")
        told = (*others, *_version_notes(vllm_version))
        start = replace(start, vllm_version=vllm_version, notes=told)
    if tp is not None:
        known = start.hardware.get("tp", tp)
        if known != tp:
            raise ConfigError(f"--tp: got {tp}, expected {known}, which {start.origin} says, or no --tp")
        start = replace(start, hardware={**start.hardware, "tp": tp})
    return start if model_config is None else replace(start, model=model_config)


def check_version(text: str) -> None:
    """Raise ConfigError where ``--vllm-version`` is not one."""
    if minor_version(text) is None or not text.isprintable():
        raise ConfigError(f"--vllm-version: got {text!r}, expected a version such as 0.32.0")


def twin_text_to_fit(start: Start, *, gpu: str | None) -> tuple[str, tuple[str, ...]]:
    """Return ``twin_text`` for a fit: with the GPU if the model's config.json is available, too, else a guess.

    Of one server, whatever the manifest says of replicas: a fit is of one engine.
    """
    notes = tuple(note for note in start.notes if not note.startswith(INSTANCES))
    alone = replace(start, servers=1, notes=notes)
    return twin_text(alone, gpu=gpu if is_at_hand(start.model) else None, is_alone=True)


def is_at_hand(model: str | None) -> bool:
    """Return whether a model's config.json is available: it ships, or the name is a file or its folder."""
    return config_at_hand(model) is not None


def twin_text(start: Start, *, gpu: str | None = None, is_alone: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return the text of a TWIN.yaml, and the notes in it. ``is_alone``: one engine, whatever its server has of them.

    With a GPU absent limits are vLLM's for it, and the latency is ``auto`` if the model's config.json is available,
    else looked up in the defaults; without one the coefficients are a guess to fit from. Raises ConfigError where the
    engine or the lookup refuses.
    """
    cluster: dict[str, object] = {}
    of_cluster: tuple[str, ...] = ()
    if not is_alone:
        start, cluster, of_cluster = _clustered(start)
    model = None if gpu is None else config_at_hand(start.model)
    server = _server(start, gpu, model)
    engine = dict(start.engine) if gpu is None else with_defaults(start.engine, server)[0]
    engine, whole = _with_whole_inputs(engine, start.model)
    _check(engine, start.known_version or RULES_VERSION)
    has_hardware = model is not None and server.gpu is not None
    left_out: tuple[str, ...] = ()
    if not has_hardware:
        engine, left_out = _without_unit(engine)
    told = (*start.notes, *(() if has_hardware else start.coefficients_notes), *left_out)
    told = (*told, *of_cluster, *whole, *_defaults_taken(start.engine, engine, gpu=gpu))
    gives_cache = has_hardware and "kv_cache_memory_bytes" in start.hardware
    gaps = _gaps(engine, is_known=gpu is not None, has_hardware=has_hardware, gives_cache=gives_cache)
    notes = tuple(terminal(redact_url(" ".join(note.split()))) for note in (*told, *gaps))
    lines = [
        f"# From {terminal(redact_url(' '.join(start.origin.split())))}.",
        *(f"# {note}" for note in notes),
    ]
    if start.known_version is not None:
        lines.append(f"vllm_version: {quoted(start.known_version)}")
    settings = [f"  {key}: {_scalar(value)}" for key, value in engine.items()]
    lines += ["engine:", *settings] if settings else ["engine: {}"]
    if has_hardware and server.gpu is not None:
        lines += ["hardware:", f"  gpu: {quoted(server.gpu.name)}"]
        lines += [f"  {key}: {_scalar(value)}" for key, value in start.hardware.items()]
        lines += ["latency:", "  model: auto", f"  model_config: {quoted(str(model))}"]
        lines += [f"  {key}: {quoted(str(value))}" for key, value in start.latency.items()]
    else:
        lines += ["latency:", *_latency(start, gpu)]
    lines += cluster_lines(cluster)
    return "\n".join(lines) + "\n", notes


def _clustered(start: Start) -> tuple[Start, dict[str, object], tuple[str, ...]]:
    """Return the start of one of its engines, the cluster that all are, and notes.

    ``hardware.dp`` stays where the ranks share a model's experts; ranks of any other model are engines of their own.
    """
    ranks = start.hardware.get("dp", 1)
    cluster, shares, notes = engines_of(
        servers=start.servers,
        ranks=ranks if isinstance(ranks, int) else 1,
        model=start.model,
        is_expert_parallel=start.hardware.get("enable_expert_parallel") is True,
    )
    engine = start.engine
    if "lockstep" in cluster and (
        engine.get("pipeline_parallel_size", 1) != 1
        or engine.get("kv_offloading")
        or engine.get("num_cpu_blocks")
    ):
        del cluster["lockstep"]
        shares = False
        notes = (
            *notes,
            "cluster.lockstep: not with pipeline stages or KV offloading: the ranks step by themselves here",
        )
    if not cluster or shares:
        return start, cluster, notes
    hardware = {key: value for key, value in start.hardware.items() if key != "dp"}
    kept = tuple(note for note in start.coefficients_notes if "data-parallel-size" not in note)
    return replace(start, hardware=hardware, coefficients_notes=kept), cluster, notes


def _with_whole_inputs(
    engine: Mapping[str, object], model: str | None
) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the engine's settings with images computed whole if vLLM forces it, and a line that says so.

    For models whose images see themselves in both directions, whatever the flag says (vllm 0.32.0 platforms/cuda.py).
    """
    file = config_at_hand(model)
    is_settled = engine.get(CHUNKS_OFF) is True or engine.get("language_model_only") is True
    if file is None or is_settled or not _sees_inputs_whole(file):
        return dict(engine), ()
    note = f"true, as vLLM forces it for {model}, whose images see themselves in both directions"
    return {**engine, CHUNKS_OFF: True}, (f"{CHUNKS_OFF}: {note}",)


def _without_unit(engine: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the engine's settings where a model's KV cache groups are not known, and a line about what is of these."""
    unit = engine.get(UNIT)
    if unit is None:
        return dict(engine), ()
    note = (
        f"{UNIT} {unit} is left out: it is of a model's KV cache groups, which follow from its config.json and the GPU "
        f"(--gpu); where groups are written out, engine.{UNIT} says it"
    )
    return {key: value for key, value in engine.items() if key != UNIT}, (note,)


def _sees_inputs_whole(model: str) -> bool:
    """Return whether a model's images see themselves in both directions; not, where its layers are not known."""
    try:
        return read_model_config(model).is_mm_prefix_lm
    except ConfigError:
        return False


def _server(start: Start, gpu: str | None, model: str | None) -> Server:
    """Return the basis of absent limits."""
    known = None if gpu is None else next((each for each in shipped_gpus() if each.is_called(gpu)), None)
    shape = None if model is None else read_model_config(model)
    return Server(vllm_version=start.known_version or RULES_VERSION, gpu=known, shape=shape)


def _version_notes(version: str | None) -> tuple[str, ...]:
    """Return the note on a version whose rules are not known."""
    if version is None or is_known(version):
        return ()
    return (f"vllm_version {version} is not known ({KNOWN_VERSIONS}): the rules of {RULES_VERSION} are used",)


def _check(engine: Mapping[str, object], version: str) -> None:
    """Raise ConfigError on settings that no engine has; a unit waits for the model's groups."""
    try:
        own = {key: engine[key] for key in engine if key not in {DISABLED, METHOD, DRAFT_MODEL, UNIT}}
        EngineConfig.for_version(version, **own)
    except InvalidConfig as error:
        raise ConfigError(str(error)) from error


def _defaults_taken(
    given: Mapping[str, object], engine: Mapping[str, object], *, gpu: str | None
) -> Iterator[str]:
    """Yield a line for every limit that was not given and that is vLLM's default for the GPU."""
    if gpu is not None:
        for name in LIMITS:
            if name not in given and name in engine:
                yield f"{name} not given: {engine[name]}, vLLM's default on {gpu}"


def _gaps(
    engine: Mapping[str, object], *, is_known: bool, has_hardware: bool, gives_cache: bool
) -> Iterator[str]:
    """Yield the assumptions for settings that were not given; ``is_known``: the GPU; ``gives_cache``: its bytes are."""
    usual = EngineConfig()
    if not is_known:
        for name in LIMITS:
            if name not in engine:
                yield f"{name} not given: {getattr(usual, name)} assumed; vLLM's default depends on the GPU (--gpu)"
        yield (
            "latency: placeholder values, not measured; fit them with `vtwin calibrate --fit`, or name the GPU (--gpu) "
            "and the model, if its name is not one that ships (--model-config)"
        )
    if "max_model_len" not in engine:
        yield f"max_model_len not given: {usual.max_model_len} assumed; vLLM takes the model's own"
    if engine.get("num_gpu_blocks", UNBOUNDED) == UNBOUNDED and not gives_cache:
        place = "as many as the GPU leaves room for" if has_hardware else "unbounded"
        yield (
            f"num_gpu_blocks not given: {place}; vLLM says it in /metrics: `vtwin calibrate` takes it from an observed "
            "trace, --from-trace writes it here"
        )


def _latency(start: Start, gpu: str | None) -> list[str]:
    if gpu is None:
        return ["  model: blackbox", f"  coefficients: {GUESS}"]
    from replay.twin.recorded_coefficients import lookup_defaults

    if start.model is None:
        raise ConfigError("model: got nothing, expected the header to name it: the defaults go by it")
    entry = lookup_defaults(start.model, gpu, tp=start.tp)
    where = f"{{model: {quoted(entry.model)}, gpu: {quoted(entry.gpu)}, tp: {entry.tp}}}"
    return [f"  model: {entry.latency_model}", f"  defaults: {where}"]


def _note_of(flag: Flag) -> str:
    return f"{quoted_flag(flag.name, flag.value, is_used=bool(flag.key) or flag.is_listed)}: {flag.reason}"


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
