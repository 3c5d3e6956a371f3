"""A TWIN.yaml to start from: of a ``vllm serve`` command line, or of what a trace's header says of its server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from replay.twin.defaults_write import quoted
from replay.twin.serve_flags import Flag, parse_serve
from sim.config import UNBOUNDED, EngineConfig, InvalidConfig
from sim.versions import DEFAULT_VERSION, KNOWN_VERSIONS, is_known
from traces.errors import ConfigError

if TYPE_CHECKING:
    from traces.header import ServerInfo

GUESS = "{alpha0: 1000, alpha1: 1, alpha2: 0, beta0: 5000, beta1: 20, beta2: 100}"
"""µs, of no server: where the search of a fit starts."""

DEVICE_DEFAULTS: Mapping[str, tuple[int, int]] = {
    "H100": (1024, 8192),
    "H200": (1024, 8192),
    "B200": (1024, 16384),
    "B300": (1024, 16384),
}
"""max_num_seqs, max_num_batched_tokens that vLLM's server takes without a flag, where they are not 256 and 2048.

vllm 0.32.0 engine/arg_utils.py:EngineArgs.get_batch_defaults.
"""
OUTSIDE = ("model", "tensor_parallel", "pipeline_parallel", "data_parallel", "dtype", "kv_cache_dtype", "gpu")
"""What a header knows of a server that bears on its speed, so on the coefficients, not on the scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What is known of a server: engine settings, what the latency is looked up by, and lines to tell."""

    engine: Mapping[str, object]
    origin: str
    model: str | None = None
    tp: int = 1
    vllm_version: str | None = None
    notes: tuple[str, ...] = ()


def start_from_serve(command: str) -> Start:
    """Return what a ``vllm serve`` command line says. Raises ConfigError where it is none."""
    served = parse_serve(command)
    return Start(
        engine=served.engine,
        origin="a vllm serve command line",
        model=served.model,
        tp=served.tp,
        notes=tuple(_note_of(flag) for flag in served.others),
    )


def start_from_server(server: ServerInfo, *, name: str) -> Start:
    """Return what a trace's header says of its server."""
    known = {field.name: getattr(server, field.name, None) for field in fields(EngineConfig)}
    outside = {key: getattr(server, key) for key in OUTSIDE if getattr(server, key) is not None}
    return Start(
        engine={key: value for key, value in known.items() if value is not None},
        origin=f"the header of {name}",
        model=server.model,
        tp=server.tensor_parallel or 1,
        vllm_version=server.version if server.version and is_known(server.version) else None,
        notes=(
            *(f"{key} {value}: in the coefficients, not in the engine" for key, value in outside.items()),
            *_version_notes(server.version),
        ),
    )


def twin_text(start: Start, *, gpu: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Return the text of a TWIN.yaml, and the notes in it.

    With a GPU the latency is looked up in the defaults and absent flags are vLLM's for that GPU; without one the
    coefficients are a guess to fit from. Raises ConfigError where the engine or the lookup refuses.
    """
    engine = dict(start.engine)
    if gpu is not None:
        seqs, tokens = DEVICE_DEFAULTS.get(gpu.upper().split("-")[0], (256, 2048))
        engine = {"max_num_seqs": seqs, "max_num_batched_tokens": tokens} | engine
    _check(engine, start.vllm_version or DEFAULT_VERSION)
    notes = tuple(" ".join(note.split()) for note in (*start.notes, *_gaps(engine, gpu=gpu)))
    lines = [f"# From {' '.join(start.origin.split())}.", *(f"# {note}" for note in notes)]
    if start.vllm_version is not None:
        lines.append(f"vllm_version: {quoted(start.vllm_version)}")
    settings = [f"  {key}: {_scalar(value)}" for key, value in engine.items()]
    lines += ["engine:", *settings] if settings else ["engine: {}"]
    lines += ["latency:", *_latency(start, gpu)]
    return "\n".join(lines) + "\n", notes


def _version_notes(version: str | None) -> tuple[str, ...]:
    """Return what becomes of a version whose rules are not known."""
    if version is None or is_known(version):
        return ()
    return (
        f"vllm_version {version} is not known ({KNOWN_VERSIONS}): the rules of {DEFAULT_VERSION} are used",
    )


def _check(engine: Mapping[str, object], version: str) -> None:
    try:
        EngineConfig.for_version(version, **engine)
    except InvalidConfig as error:
        raise ConfigError(str(error)) from error


def _gaps(engine: Mapping[str, object], *, gpu: str | None) -> Iterator[str]:
    """Yield what nobody said and what is assumed in its place."""
    usual = EngineConfig()
    if gpu is None:
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            if name not in engine:
                yield f"{name} not given: {getattr(usual, name)} assumed; vLLM's default depends on the GPU (--gpu)"
        yield "latency: a guess, of no server; `vtwin calibrate --fit` finds it, or name a GPU on record (--gpu)"
    if "max_model_len" not in engine:
        yield f"max_model_len not given: {usual.max_model_len} assumed; vLLM takes the model's own"
    if engine.get("num_gpu_blocks", UNBOUNDED) == UNBOUNDED:
        yield "num_gpu_blocks not given: unbounded; vLLM logs it at start-up and says it in /metrics"


def _latency(start: Start, gpu: str | None) -> list[str]:
    if gpu is None:
        return ["  model: blackbox", f"  coefficients: {GUESS}"]
    from replay.twin.defaults import lookup_defaults

    if start.model is None:
        raise ConfigError("model: got nothing, expected the header to name it: the defaults go by it")
    entry = lookup_defaults(start.model, gpu, tp=start.tp)
    where = f"{{model: {quoted(entry.model)}, gpu: {quoted(entry.gpu)}, tp: {entry.tp}}}"
    return [f"  model: {entry.latency_model}", f"  defaults: {where}"]


def _note_of(flag: Flag) -> str:
    is_secret = flag.name.endswith(("key", "token"))
    value = [] if flag.value is None else ["…" if is_secret else flag.value]
    return f"{' '.join([flag.name, *value])}: {flag.reason}"


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
