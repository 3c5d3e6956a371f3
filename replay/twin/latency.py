"""The ``latency`` section of TWIN.yaml: which model, from what, and why that one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from lazy_dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import cast

import yaml

from replay.model.layout import Hardware
from replay.model.shape import ModelShape
from replay.model.shipped_models import shipped_config
from replay.twin.defaults import (
    DefaultsEntry,
    read_coefficients,
    read_extended_coefficients,
)
from replay.twin.fitted.fitted_tiles import KEY as TILES
from replay.twin.fitted.fitted_tiles import check_has_tiles, read_tiles
from replay.twin.hardware import peak_of, read_shape
from replay.twin.keys.key import keys_held_by, names_under
from replay.twin.keys.latency_keys import EXTENDED_MEANINGS, LATENCY, LATENCY_MODELS
from replay.twin.keys.read_keys import refuse_missing, values_of
from replay.twin.own.custom_model import build, load_class
from replay.twin.profiled_table import LEARNED, StepTableFile, read_profiled, read_step_tables
from replay.twin.recorded_coefficients import (
    Found,
    Wanted,
    find_on_record,
    refuse_unrecorded,
    shape_of_shipped,
    too_fast,
)
from replay.twin.step_tables.shipped_tables import ShippedTable, table_called, table_for
from sim import DEFAULT_VERSION, InvalidConfig, minor_version
from sim.latency import (
    ALPHAS,
    LATENCY_CLASSES,
    Analytic,
    Blackbox,
    Extended,
    LatencyModel,
    PeakTimes,
    Physics,
)
from traces import ConfigError
from traces.strict.section import Section, read_section
from traces.strict.whole_file import is_a_file

DENSE_PHYSICS = "dense-2026"
"""The coefficients that physics uses for a model without experts."""
UNMEASURED_PHYSICS = "silicon-2026"
"""The same for a mixture of experts whose time was not measured: learned with a formula in its place."""
EXPERTS_PHYSICS = "experts-2026"
"""The same where it was measured."""
ROOFLINE_NEARER = frozenset({("MoE", "RTXPRO6000")})
"""Classes of models and GPUs on whose measured servers roofline is nearer than physics, by a quarter in both TTFT and
TPOT (docs/comparison.md, LLMServingSim's servers)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A latency model, the defaults entry, table or shape behind it where there is one, and why it was taken.

    ``notes``: further lines to tell the user before a run.
    """

    model: LatencyModel
    entry: DefaultsEntry | None = None
    table: StepTableFile | None = None
    shape: ModelShape | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a model is chosen from: the file, its sections, and the defaults files."""

    root: Section
    latency: Section
    folder: Path
    defaults: str | Path | None
    hardware: Hardware | None
    shape: ModelShape | None
    seed: int


def read_latency(
    root: Section,
    hardware: Hardware | None,
    *,
    folder: Path,
    defaults: str | Path | None,
    seed: int,
    model: str | None = None,
) -> Chosen:
    """Return the latency section's model, and why it is that one; ``model``: in place of the one it names.

    With another model than the file's the file's coefficients are ignored. Raises ConfigError.
    """
    expected = "{model: blackbox, coefficients: {…}} or {model: auto, model_config: CONFIG.json}"
    section = root.section("latency", expected=expected)
    if section is None:
        root.fail("latency", got="nothing", expected=expected)
    written = section.text("model")
    if written not in LATENCY_MODELS and ":" not in (written or ""):
        section.text("model", choices=LATENCY_MODELS)
    if model is not None and model != written:
        if model not in LATENCY_MODELS:
            raise ConfigError(f"latency model: got {model!r}, expected one of {', '.join(LATENCY_MODELS)}")
        section, written = _named(section, model), model
    if written is None:
        section.fail("model", got="nothing", expected=f"one of {', '.join(LATENCY_MODELS)}")
    check_has_tiles(section, written)
    _check_quantization(root, section, folder=folder)
    asked = Asked(
        root=root,
        latency=section,
        folder=folder,
        defaults=defaults,
        hardware=hardware,
        shape=_shape_on(read_shape(section, folder=folder), root, hardware),
        seed=seed,
    )
    return _READERS.get(written, _read_by_fields)(asked)


def _shape_on(shape: ModelShape | None, root: Section, hardware: Hardware | None) -> ModelShape | None:
    """Return the model with the bytes that its KV takes on the file's GPU."""
    if shape is None or hardware is None:
        return shape
    from replay.model.kernels.latent_kernels import served_on

    version = root.text("vllm_version") or DEFAULT_VERSION
    return served_on(shape, hardware.gpu, tp=hardware.tp, version=version)


def check_keys(root: Section, other_places: Mapping[str, str]) -> None:
    """Raise ConfigError at an unknown key of the latency section."""
    section = root.section("latency")
    if section is not None:
        section.refuse_unknown(sorted(names_under("", LATENCY)), elsewhere=other_places)


def _check_quantization(root: Section, section: Section, *, folder: Path) -> None:
    """Raise ConfigError on ``quantization: fp8`` of a checkpoint in 16 bits where the version asks for another name."""
    if section.text("quantization") != "fp8":
        return
    from replay.model.quantized.online import FP8_UNTIL

    version = minor_version(root.text("vllm_version") or DEFAULT_VERSION)
    if version is not None and version > FP8_UNTIL and _is_cut(section, folder=folder):
        section.fail(
            "quantization",
            got="fp8 of a checkpoint in 16 bits",
            expected="fp8_per_tensor, as vLLM 0.31 and later ask",
        )


def _is_cut(section: Section, *, folder: Path) -> bool:
    """Return whether ``quantization`` makes another model of the checkpoint than its config.json says."""
    from replay.model.quantized.online import AUTO

    if section.text("quantization") in (None, AUTO):
        return False
    as_it_is = replace(
        section, nodes={key: node for key, node in section.nodes.items() if key != "quantization"}
    )
    return read_shape(as_it_is, folder=folder) != read_shape(section, folder=folder)


OF_ONE_MODEL = ("coefficients", TILES)
"""Keys that apply to the model that a section names, and to no other."""


def _named(section: Section, model: str) -> Section:
    """Return the latency section as if it named this model, without the keys of the one it names."""
    nodes = {key: node for key, node in section.nodes.items() if key not in OF_ONE_MODEL}
    return replace(section, nodes=nodes | {"model": yaml.ScalarNode("tag:yaml.org,2002:str", model)})


def _read_fitted(asked: Asked) -> Chosen:
    """Return blackbox or extended: coefficients that are written out, or looked up."""
    section = asked.latency
    coefficients, wanted = section.section("coefficients"), section.section("defaults")
    if (
        coefficients is None
        and wanted is None
        and section.text("model") == "blackbox"
        and asked.shape is not None
    ):
        found = _entry_on_record(asked)
        if found.entry is None:
            section.fail(
                "coefficients", got="nothing", expected=f"them or an entry on record ({found.missing})"
            )
        return _on_record(asked, found.entry, reason=_of_another_name(found))
    if coefficients is not None and wanted is not None:
        section.refuse_together("coefficients", "defaults")
    if coefficients is None and wanted is None:
        asked.root.fail("latency", got="neither", expected="either coefficients or defaults")
    is_extended = section.text("model") == "extended"
    if coefficients is not None:
        if is_extended:
            model = replace(_read_extended(coefficients, seed=asked.seed), tiles=read_tiles(section))
            return Chosen(model=model, shape=asked.shape)
        return Chosen(model=Blackbox(**read_coefficients(coefficients)), shape=asked.shape)
    found = _read_defaults(asked, cast(Section, wanted))
    return _on_record(asked, cast(DefaultsEntry, found.entry), reason=_of_another_name(found))


def _of_another_name(found: Found) -> str:
    """Return the note that coefficients are another model's, nothing if they are the model's own."""
    if not found.is_other_name:
        return ""
    return f"latency: the coefficients of {found.entry}, a model of the same architecture, are used"


def _on_record(asked: Asked, entry: DefaultsEntry, *, reason: str = "") -> Chosen:
    """Return an entry's model; raises ConfigError where TWIN.yaml names another."""
    notes = too_fast(entry, asked.shape)
    if asked.latency.text("model") == "blackbox" and entry.blackbox is not None:
        own = Blackbox(**entry.blackbox)
        return Chosen(model=own, entry=entry, shape=asked.shape, reason=reason, notes=notes)
    if asked.latency.text("model") not in (entry.latency_model, "auto"):
        asked.latency.fail(
            "model",
            got=asked.latency.text("model") or "nothing",
            expected=f"{entry.latency_model} or auto, since {entry} is on record as {entry.latency_model}",
        )
    model = entry.latency(seed=asked.seed)
    return Chosen(model=model, entry=entry, shape=asked.shape, reason=reason, notes=notes)


def _read_extended(section: Section, *, seed: int) -> Extended:
    """Return the extended model: blackbox's six coefficients, and those of its own that are given."""
    given = read_extended_coefficients(section)
    values = {name: float(value) if name in EXTENDED_MEANINGS else value for name, value in given.items()}
    return Extended(**values, seed=seed)  # type: ignore[arg-type]  # decimals are numbers, too


def _read_analytic(asked: Asked, name: str) -> Chosen:
    """Return roofline or physics, and a note on what it adds to every first token if no value is given."""
    peak = peak_of(asked.root, asked.latency, shape=asked.shape, hardware=asked.hardware)
    model = _analytic(asked, name, peak)
    return Chosen(model=model, shape=asked.shape, notes=_way_in(asked, name, model))


def _way_in(asked: Asked, name: str, model: LatencyModel) -> tuple[str, ...]:
    """Return the note on what a model by GPU adds to every first token where no value is given."""
    node = asked.latency.nodes.get("coefficients")
    if isinstance(node, yaml.MappingNode) and any(key.value == "alpha0" for key, _ in node.value):
        return ()
    return (
        f"latency.coefficients.alpha0 is not given: {name} adds {float(str(model.alpha0)) / 1e3:.1f} ms to every "
        "request before it joins the queue, for vLLM's front end, and so to every TTFT and E2E",
    )


def _read_profiled(asked: Asked) -> Chosen:
    """Return a table of measured operators: the one that is named, else the one that ships for the server."""
    named = asked.latency.text("table")
    shipped = _shipped_table(asked, named)
    notes: tuple[str, ...] = ()
    if shipped is not None:
        origin, table = shipped.name, shipped.read()
        notes = () if "fitted_range" in asked.latency else (shipped.note,)
    elif named is not None:
        origin, table = str((asked.folder / named).resolve()), read_step_tables(asked.folder / named)
        if _is_cut(asked.latency, folder=asked.folder):
            told = f"of the checkpoint as it is; latency.quantization {asked.latency.text('quantization')} is in the "
            notes = (f"latency.table: {told}KV cache's size alone",)
    else:
        asked.latency.fail(
            "table",
            got="nothing",
            expected="the file that `vtwin predictor train` wrote, or a server with a table that ships "
            "(`vtwin predictor list`)",
        )
    model = read_profiled(asked.latency, table, origin=origin)
    return Chosen(
        model=model, table=table, shape=asked.shape, notes=(*notes, *_way_in(asked, "profiled", model))
    )


def _shipped_table(asked: Asked, named: str | None) -> ShippedTable | None:
    """Return the table that ships by its name, or where nothing is named that of the server; None where none does."""
    if named is not None:
        return None if is_a_file(asked.folder / named) else table_called(named)
    version = asked.root.text("vllm_version") or DEFAULT_VERSION
    return table_for(asked.shape, asked.hardware, vllm_version=version)


def _read_by_fields(asked: Asked) -> Chosen:
    """Return a model whose coefficients are its fields: one of ours, or the user's own, from a file or a module."""
    name = str(asked.latency.text("model"))
    cls = LATENCY_CLASSES.get(name) or load_class(asked.latency, folder=asked.folder)
    if name in LATENCY_CLASSES and issubclass(cls, Analytic):
        return _read_analytic(asked, name)
    needs_peak = any(field.name == "peak" for field in fields(cls))
    peak = None
    if needs_peak:
        peak = peak_of(asked.root, asked.latency, shape=asked.shape, hardware=asked.hardware)
    return Chosen(model=build(cls, asked.latency, peak=peak), shape=asked.shape)


def _analytic(asked: Asked, model: str, peak: PeakTimes) -> LatencyModel:
    """Return roofline or physics with the coefficients that are given; the others are the model's own."""
    cls = LATENCY_CLASSES[model]
    node = asked.latency.nodes.get("coefficients")
    if model == "physics" and node is not None and isinstance(node.value, str):
        sets = physics_sets()
        if node.value not in sets:
            asked.latency.fail(
                "coefficients", got=node.value, expected=f"one of {', '.join(sets)}, or a mapping"
            )
        named = sets[node.value] | _launch(asked, None)
        if node.value != EXPERTS_PHYSICS:
            peak = replace(peak, experts_tokens=(), experts_us=())
        return Physics(peak=peak, seed=asked.seed, **named)  # type: ignore[arg-type]
    given: dict[str, object] = dict(usual_physics(peak)) if model == "physics" else {}
    section = asked.latency.section("coefficients")
    given |= _launch(asked, section)
    if section is not None:
        section.refuse_unknown(cls.coefficient_names())
        for name in section.nodes:
            value = section.decimal(name, expected="a number >= 0")
            given[name] = (
                value
                if name in ALPHAS
                else (int(value or 0) if name == "max_capture_size" else float(value or 0))
            )
    try:
        return cls(peak=peak, seed=asked.seed, **given)  # type: ignore[arg-type, call-arg]  # one that is Analytic
    except InvalidConfig as error:
        name = str(error).partition(":")[0]
        where = section if section is not None and name in section else asked.latency
        line = where.key_lines.get(name, where.line)
        raise ConfigError(
            f"{where.path(name)}: {str(error).partition(': ')[2]} ({where.file}:{line})"
        ) from error


def _launch(asked: Asked, coefficients: Section | None) -> dict[str, float]:
    """Return ``hardware.nccl_launch_us`` as the coefficient that it is. Raises ConfigError where both are given."""
    launch = asked.hardware.nccl_launch_us if asked.hardware else None
    if launch is None:
        return {}
    if coefficients is not None and "all_reduce_us" in coefficients:
        coefficients.refuse_together("all_reduce_us", "hardware.nccl_launch_us")
    return {"all_reduce_us": launch}


@lru_cache(maxsize=1)
def physics_sets() -> dict[str, dict[str, float]]:
    """Return the named sets of coefficients for physics that ship."""
    known = Physics.coefficient_names()
    sets: dict[str, dict[str, float]] = {}
    for item in read_section(LEARNED).sections("sets"):
        section = item.section("coefficients")
        assert section is not None  # noqa: S101 - a file of our own
        section.refuse_unknown(known)
        values = {name: section.decimal(name, expected="a number") for name in section.nodes}
        sets[str(item.text("name"))] = {
            name: float(value) for name, value in values.items() if value is not None
        }
    return sets


def usual_physics(peak: PeakTimes) -> dict[str, float]:
    """Return the coefficients that physics takes without a name."""
    if not peak.num_experts:
        return physics_sets()[DENSE_PHYSICS]
    return physics_sets()[EXPERTS_PHYSICS if peak.experts_us else UNMEASURED_PHYSICS]


def _read_auto(asked: Asked) -> Chosen:
    """Return the best available model, and why: coefficients on record, else physics, else a table, else roofline.

    The order is that of the errors on measured servers (docs/comparison.md): physics is nearer to them than tables of
    kernels and roofline, in both classes of models and on each GPU, but where nobody measured the experts it is farther
    off than tables. Roofline comes before it on the servers of ``ROOFLINE_NEARER``. Weakly identified coefficients
    whose traces are not on record come after physics; where
    ``latency.defaults`` names them they are taken.
    """
    found = _entry_on_record(asked)
    entry, missing = found.entry, found.missing
    if entry is not None and not (_is_unproven(entry) and _has_better(asked)):
        same = ", a model of the same architecture," if found.is_other_name else ""
        why = f"latency.model auto: {entry.latency_model}, since coefficients of {entry}{same} are on record"
        return replace(_on_record(asked, entry), reason=why)
    if entry is not None:
        missing = f"the coefficients of {entry} on record are weakly identified (model: blackbox takes them)"
    has_table = "table" in asked.latency
    if has_table and not _is_physics_nearer(asked):
        return replace(_read_profiled(asked), reason=f"latency.model auto: profiled, since {missing}")
    model, why = "physics", ""
    if not physics_covers(asked.shape):
        model = "roofline"
        why = "; roofline, since physics was learned on models with rotary attention and gated MLPs"
    elif _class_and_gpu(asked) in ROOFLINE_NEARER:
        model, why = (
            "roofline",
            "; it is nearer than physics to a server with experts that was measured there",
        )
    if has_table:
        why = "; it is nearer to measured servers than latency.table (model: profiled takes that)"
    return replace(_read_analytic(asked, model), reason=f"latency.model auto: {model}, since {missing}{why}")


def _class_and_gpu(asked: Asked) -> tuple[str, str] | None:
    """Return the class of the model and the GPU's name; None where the file does not say both."""
    if asked.shape is None or asked.hardware is None:
        return None
    return "dense" if asked.shape.experts is None else "MoE", asked.hardware.gpu.name


def _is_physics_nearer(asked: Asked) -> bool:
    """Return whether physics can be had, of a model with which it is nearer to measured servers than a table is."""
    if asked.shape is None or asked.hardware is None or not physics_covers(asked.shape):
        return False
    peak = peak_of(asked.root, asked.latency, shape=asked.shape, hardware=asked.hardware)
    return not peak.num_experts or bool(peak.experts_us)


def _is_unproven(entry: DefaultsEntry) -> bool:
    """Return whether other coefficients would have fitted as well, and no traces say how far off these are."""
    return entry.provenance.identification == "weak" and not entry.provenance.traces


def _has_better(asked: Asked) -> bool:
    """Return whether there is a model of a step to be had that is better than weakly identified coefficients."""
    if "defaults" in asked.latency:
        return False
    return "table" in asked.latency or (asked.shape is not None and physics_covers(asked.shape))


def physics_covers(shape: ModelShape | None) -> bool:
    """Return whether a model is of a kind from which the corrections were learned."""
    return shape is None or shape.is_gated


def _entry_on_record(asked: Asked) -> Found:
    """Return the defaults entry for model, GPU, tp and version; or None and what is missing."""
    section = asked.latency.section("defaults")
    version = asked.root.text("vllm_version")
    if section is not None:
        wanted = _named_server(section)
        shape = asked.shape or shape_of_shipped(wanted.model)
        wanted = replace(wanted, vllm_version=wanted.vllm_version or version, shape=shape)
    elif _is_cut(asked.latency, folder=asked.folder):
        return Found(
            entry=None,
            missing="coefficients on record are of checkpoints as they are, not quantized as they load",
        )
    elif asked.shape is not None and asked.hardware is not None:
        name, tp = asked.hardware.gpu.name, asked.hardware.tp
        asked_for = asked.latency.text("model_config") or ""
        model = asked_for if shipped_config(asked_for) is not None else asked.shape.name
        wanted = Wanted(model=model, gpu=name, tp=tp, vllm_version=version, shape=asked.shape)
    else:
        return Found(entry=None, missing="neither defaults nor hardware say which server it is")
    return find_on_record(wanted, path=_defaults_file(asked))


def _named_server(section: Section) -> Wanted:
    """Return the server that ``latency.defaults`` names. Raises ConfigError."""
    section.refuse_unknown(names_under("defaults", LATENCY))
    refuse_missing(section, Wanted, expected="text")
    return Wanted(**values_of(section, keys_held_by("latency", LATENCY, Wanted, "defaults")))


def _read_defaults(asked: Asked, wanted: Section) -> Found:
    """Return the entry that ``defaults`` asks for. Raises ConfigError where there is none."""
    server = _named_server(wanted)
    found = _entry_on_record(asked)
    if found.entry is None:
        refuse_unrecorded(server, path=_defaults_file(asked))
    return found


def _defaults_file(asked: Asked) -> str | Path | None:
    named = asked.latency.text("defaults_file")
    return asked.defaults or (asked.folder / named if named else None)


_READERS = {
    "auto": _read_auto,
    "blackbox": _read_fitted,
    "extended": _read_fitted,
    "profiled": _read_profiled,
}
