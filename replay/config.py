"""TWIN.yaml: what the simulator is configured from, read strictly and written back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from replay.defaults import (
    COEFFICIENTS,
    DefaultsEntry,
    lookup_defaults,
    read_coefficients,
    version_number,
)
from replay.defaults_write import number, quoted
from replay.keys import (
    DEFAULT_SEED,
    EXTENDED_MEANINGS,
    FOREIGN_NAMES,
    LATENCY_KEYS,
    LATENCY_MODELS,
    RESERVED,
    RULES_VERSION,
    Key,
    engine_fields,
    engine_keys,
)
from replay.profiled import COEFFICIENTS as PROFILED_COEFFICIENTS
from replay.profiled import StepTableFile, profile_notes, read_profiled
from replay.yamlfile import Section, read_section
from sim.config import UNBOUNDED, Compatibility, EngineConfig, InvalidConfig
from sim.latency import Blackbox, Extended, Profiled
from traces.errors import ConfigError

if TYPE_CHECKING:
    from traces import Trace

_TOP = ("vllm_version", "compatibility", "engine", "latency", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinConfig:
    """What a TWIN.yaml says, defaults filled in.

    ``source`` is the file it was read from, ``notes`` the lines to tell the user before a run (assumptions
    made, things vLLM would refuse); neither counts when two configurations are compared.
    """

    engine: EngineConfig
    latency: Blackbox
    vllm_version: str = RULES_VERSION
    seed: int = DEFAULT_SEED
    source: Path | None = field(default=None, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def compatibility(self) -> Compatibility:
        """Whose scheduler the engine follows."""
        return self.engine.compatibility


def load_config(path: str | Path, *, defaults: str | Path | None = None) -> TwinConfig:
    """Return what the TWIN.yaml at ``path`` says; ``defaults`` is a defaults file to look in first.

    Raises ConfigError, one line with file and line number, at the first thing that is wrong.
    """
    path = Path(path)
    root = read_section(path)
    for key, reason in RESERVED.items():
        if key in root:
            raise ConfigError(f"{key}: {reason} ({root.file}:{root.key_lines[key]})")
    root.refuse_unknown(_TOP, elsewhere=_other_places())
    seed = root.integer("seed", least=0)
    seed = DEFAULT_SEED if seed is None else seed
    latency, entry, table = _read_latency(root, beside=path.parent, defaults=defaults, seed=seed)
    engine, notes = _read_engine(root, entry, seed=seed)
    version = root.text("vllm_version") or RULES_VERSION
    return TwinConfig(
        engine=engine,
        latency=latency,
        vllm_version=version,
        seed=seed,
        source=path,
        notes=(
            *_version_notes(version),
            *_entry_notes(entry),
            *_table_notes(table, engine),
            *notes,
            *_startup_notes(engine),
        ),
    )


def dump_config(config: TwinConfig) -> str:
    """Return a configuration as TWIN.yaml text, every key written out; loading it gives an equal one."""
    engine = [
        f"  {item.name}: {_scalar(getattr(config.engine, item.name))}"
        for item in engine_fields()
        if not (item.name == "num_gpu_blocks" and config.engine.num_gpu_blocks == UNBOUNDED)
    ]
    lines = [
        f"vllm_version: {quoted(config.vllm_version)}",
        f"compatibility: {config.compatibility}",
        "engine:",
        *engine,
        *_latency_lines(config.latency),
        f"seed: {config.seed}",
    ]
    return "\n".join(lines) + "\n"


def config_digest(config: TwinConfig) -> str:
    """Return a digest of what a configuration says, the same however its file is written."""
    digest = hashlib.sha256(dump_config(config).encode())
    if isinstance(config.latency, Profiled):  # its file may change under the same name
        digest.update(config.latency.engine_terms().tobytes())
    return digest.hexdigest()[:16]


def _latency_lines(latency: Blackbox) -> list[str]:
    """Return the latency section as TWIN.yaml text."""
    names = {model: name for name, model in LATENCY_MODELS.items()}
    lines = ["latency:", f"  model: {names[type(latency)]}"]
    if isinstance(latency, Profiled):
        lines.append(f"  table: {quoted(latency.origin)}")
    values = coefficients_of(latency)
    shown = PROFILED_COEFFICIENTS[:3] if isinstance(latency, Profiled) else tuple(values)
    lines += ["  coefficients:", *(f"    {name}: {number(values[name])}" for name in shown)]
    own = tuple(EXTENDED_MEANINGS) if isinstance(latency, Extended) else ()
    own = PROFILED_COEFFICIENTS[3:] if isinstance(latency, Profiled) else own
    return lines + [f"    {name}: {float(getattr(latency, name))!r}" for name in own]


def coefficients_of(latency: Blackbox) -> dict[str, Decimal]:
    """Return a blackbox's six coefficients in µs, exact."""
    values = {name: getattr(latency, name) for name in COEFFICIENTS}
    return {name: Decimal(repr(v) if isinstance(v, float) else v) for name, v in values.items()}


def check_fits(config: TwinConfig, trace: Trace) -> None:
    """Raise ConfigError when not even the trace's smallest prompt fits in the KV cache."""
    from traces import prompt_tokens

    engine = config.engine
    prompts = prompt_tokens(trace)
    if engine.num_gpu_blocks == UNBOUNDED or len(prompts) == 0:
        return
    smallest = int(prompts.min())
    needed = -(-smallest // engine.block_size)
    usable = engine.num_gpu_blocks - 1
    if needed > usable:
        raise ConfigError(
            f"engine.num_gpu_blocks: got {engine.num_gpu_blocks} (usable: {usable} of {engine.block_size} "
            f"tokens), expected at least {needed + 1}: the trace's smallest prompt has {smallest} tokens "
            f"({config.source})"
        )


def _read_engine(
    root: Section, entry: DefaultsEntry | None, *, seed: int
) -> tuple[EngineConfig, tuple[str, ...]]:
    """Return the engine section and the notes on its KV cache."""
    section = root.section("engine")
    given: dict[str, object] = {}
    if section is not None:
        keys = engine_keys()
        section.refuse_unknown([k.path.removeprefix("engine.") for k in keys], elsewhere=_other_places())
        given = {key.path.removeprefix("engine."): _engine_value(section, key) for key in keys}
    if root.text("compatibility", choices=get_args(Compatibility)) == "blis":
        given["compatibility"] = "blis"
        given["async_scheduling"] = given.get("async_scheduling") or False
    if given.get("num_speculative_tokens"):
        given["seed"] = seed
    engine = _engine_from({name: value for name, value in given.items() if value is not None}, section)
    if engine.num_gpu_blocks != UNBOUNDED:
        return engine, ()
    if entry is not None and entry.num_gpu_blocks is not None and entry.block_size == engine.block_size:
        note = f"engine.num_gpu_blocks is absent: {entry.num_gpu_blocks} taken from the entry {entry}"
        return replace(engine, num_gpu_blocks=entry.num_gpu_blocks), (note,)
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


def _read_latency(
    root: Section, *, beside: Path, defaults: str | Path | None, seed: int
) -> tuple[Blackbox, DefaultsEntry | None, StepTableFile | None]:
    """Return the latency section as a model, and the defaults entry or the table it came from, if it did."""
    expected = "{model: blackbox, coefficients: {…}} or {model: blackbox, defaults: {model, gpu, tp}}"
    section = root.section("latency", expected=expected)
    if section is None:
        root.fail("latency", got="nothing", expected=expected)
    names = {key.path.split(".")[1] for key in LATENCY_KEYS}
    section.refuse_unknown(sorted(names), elsewhere=_other_places())
    model = section.text("model", choices=tuple(LATENCY_MODELS))
    if model is None:
        section.fail("model", got="nothing", expected=f"one of {', '.join(LATENCY_MODELS)}")
    if model == "profiled":
        profiled, table = read_profiled(section, beside=beside)
        return profiled, None, table
    coefficients, wanted = section.section("coefficients"), section.section("defaults")
    if (coefficients is None) == (wanted is None):
        got = "neither" if coefficients is None else "both"
        root.fail("latency", got=got, expected="either coefficients or defaults")
    if coefficients is not None:
        if model == "extended":
            return _read_extended(coefficients, seed=seed), None, None
        return Blackbox(**read_coefficients(coefficients)), None, None
    if model != "blackbox":
        section.fail(
            "defaults", got=f"defaults for {model}", expected="coefficients (defaults are blackbox's)"
        )
    entry = _read_defaults(section, cast(Section, wanted), beside=beside, defaults=defaults)
    return Blackbox(**entry.coefficients), entry, None


def _read_extended(section: Section, *, seed: int) -> Extended:
    """Return the extended model: blackbox's six coefficients, and those of its own that are given."""
    six = read_coefficients(section, beside=tuple(EXTENDED_MEANINGS))
    given = {name: section.decimal(name, expected="a number >= 0") for name in EXTENDED_MEANINGS}
    own = {name: float(value) for name, value in given.items() if value is not None}
    return Extended(**six, **own, seed=seed)  # type: ignore[arg-type]  # decimals are numbers, too


def _read_defaults(
    latency: Section, wanted: Section, *, beside: Path, defaults: str | Path | None
) -> DefaultsEntry:
    wanted.refuse_unknown(("model", "gpu", "tp", "vllm_version"))
    model, gpu = wanted.text("model"), wanted.text("gpu")
    for name, value in (("model", model), ("gpu", gpu)):
        if value is None:
            wanted.fail(name, got="nothing", expected="text")
    named = latency.text("defaults_file")
    file = defaults or (beside / named if named else None)
    tp = wanted.integer("tp", least=1) or 1
    version = wanted.text("vllm_version")
    return lookup_defaults(str(model), str(gpu), tp=tp, vllm_version=version, path=file)


def _other_places() -> dict[str, str]:
    """Return, for keys that may be looked for in the wrong section, where they belong."""
    places = {key.path.rsplit(".", 1)[-1]: key.path for key in engine_keys()}
    return {**{name.replace("_", "-"): path for name, path in places.items()}, **places, **FOREIGN_NAMES}


def _version_notes(version: str) -> tuple[str, ...]:
    if version_number(version) == version_number(RULES_VERSION):
        return ()
    return (f"vllm_version {version}: the rules of {RULES_VERSION} are assumed",)


def _entry_notes(entry: DefaultsEntry | None) -> tuple[str, ...]:
    if entry is None:
        return ()
    where = entry.provenance
    trust = {"weak": "weakly identified", "partial": "partly identified", "good": "identified"}
    return (f"latency of the entry {entry} ({where.source}, {where.date}, {trust[where.identification]})",)


def _table_notes(table: StepTableFile | None, engine: EngineConfig) -> tuple[str, ...]:
    return () if table is None else profile_notes(table, engine)


def _startup_notes(engine: EngineConfig) -> tuple[str, ...]:
    """Return what vLLM would refuse at start-up: a KV cache below one sequence of max_model_len."""
    if engine.num_gpu_blocks == UNBOUNDED:
        return ()
    tokens = (engine.num_gpu_blocks - 1) * engine.block_size
    if tokens >= engine.max_model_len:
        return ()
    return (
        f"engine.num_gpu_blocks {engine.num_gpu_blocks}: the KV cache holds {tokens} tokens, less than one "
        f"sequence of max_model_len {engine.max_model_len}; vLLM would refuse to start",
    )


def _scalar(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(repr, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
