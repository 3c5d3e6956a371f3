"""The drafter of a twin's model: its own MTP layers, or a head or a model that the file names; and its time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from replay.twin.kv_cache.groups import (
    DRAFT_MODEL,
    GROUPS,
    HEAD_METHODS,
    METHOD,
    MTP,
    NUMBER,
    has_no_drafts,
    read_method,
)
from traces import ConfigError
from traces.strict.yaml_nodes import place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replay.model.drafting.read_drafter import HeadMethod
    from replay.model.layers.drafter import Drafter
    from replay.model.layout import Hardware
    from replay.model.shape import ModelShape
    from sim import EngineSettings
    from sim.latency import LatencyModel
    from traces.strict.section import Section

TIME: Final = "draft_us"
WITH_DRAFTS: Final = (
    "synthetic_acceptance_rates",
    "num_lookahead_tokens",
    "use_eagle",
    "num_prefill_lookahead_tokens",
)
"""Keys of the engine that have an effect only with drafts."""
_UNKNOWN_MODEL: Final = (
    f"engine.{DRAFT_MODEL} counts for nothing: latency.model_config names no model beside it",
)


def without_drafts(given: Mapping[str, object]) -> dict[str, object]:
    """Return an engine section's values, without those of drafts if their number is 0, for comparisons by ``--set``."""
    is_off = given.get(NUMBER) == 0
    return {key: value for key, value in given.items() if not (is_off and key in WITH_DRAFTS)}


def drafter_of(
    engine: EngineSettings, root: Section, *, shape: ModelShape | None, folder: Path
) -> Drafter | None:
    """Return the drafter of a model, None if none is known. ``folder``: the file's.

    Raises ConfigError on a method without drafts, layers that the model does not have, a head that cannot be read.
    """
    section = root.section("engine")
    method = read_method(engine, section)
    named = None if section is None else section.text(DRAFT_MODEL)
    named = None if named == "none" else named
    if section is None or shape is None or has_no_drafts(section):
        return None
    if named is not None and method not in HEAD_METHODS:
        section.fail(DRAFT_MODEL, got=named, expected=f"{METHOD} {', '.join(HEAD_METHODS)} beside it")
    if method == MTP:
        from replay.model.layers.drafter import mtp_drafter

        found = mtp_drafter(shape)
        if found is None and GROUPS not in section:
            section.fail(
                METHOD,
                got=f"{MTP} for {shape.name}",
                expected="a model whose config.json says how many such layers it has, and whose layers with keys and "
                f"values are alike; else engine.{GROUPS}, with is_eagle_group, and num_gpu_blocks written out",
            )
        return found
    if named is None:
        return None
    from replay.model.drafting.read_drafter import read_drafter

    file = folder / named
    try:
        return read_drafter(file if file.is_file() else named, method=cast("HeadMethod", method), of=shape)
    except ConfigError as error:
        where = place(section.file, section.key_lines[DRAFT_MODEL])
        raise ConfigError(f"{section.path(DRAFT_MODEL)}: {error} ({where})") from error


def with_drafting(
    engine: EngineSettings,
    root: Section,
    *,
    model: LatencyModel,
    drafter: Drafter | None,
    hardware: Hardware | None,
) -> tuple[EngineSettings, tuple[str, ...]]:
    """Return the engine with a draft's time, if the file leaves ``draft_us`` open, and a line that says so.

    With a latency model that is derived from the model and the GPU; fitted coefficients do not give it.
    """
    section = root.section("engine")
    is_written = section is not None and TIME in section
    if drafter is None or hardware is None or is_written or not model.goes_by_gpu:
        return engine, ()
    from replay.model.drafting.draft_times import draft_us

    try:
        took = draft_us(
            drafter,
            hardware.gpu,
            num_drafts=engine.num_speculative_tokens,
            max_num_seqs=engine.max_num_seqs,
            tp=hardware.tp,
            layout=hardware.layout,
        )
    except ConfigError as error:
        return engine, (f"engine.{TIME} is not derived: {error}",)
    note = f"engine.{TIME}: {took:g} µs a draft, the roofline of {drafter.shape.name} on {hardware.gpu.name}"
    return replace(engine, draft_us=took), (note,)


def drafter_notes(
    engine: EngineSettings, root: Section, *, drafter: Drafter | None, shape: ModelShape | None
) -> tuple[str, ...]:
    """Return notes on a file's drafts that have no effect, or would not start. ``shape``: the model's."""
    section = root.section("engine")
    if section is None:
        return ()
    if has_no_drafts(section):
        return _off_notes(section)
    if drafter is not None and shape is not None:
        return _vocabulary_notes(section, drafter, shape)
    if shape is None:
        names_one = section.text(DRAFT_MODEL) not in (None, "none")
        return _UNKNOWN_MODEL if names_one else ()
    return _uncounted_notes(engine, section)


def _off_notes(section: Section) -> tuple[str, ...]:
    """Return which keys of drafts a file gives although it has 0 drafts."""
    given = [key for key in (*WITH_DRAFTS, METHOD, DRAFT_MODEL) if key in section and _says(section, key)]
    return (f"engine.{NUMBER}: 0, so that {', '.join(given)} count for nothing",) if given else ()


def _says(section: Section, key: str) -> bool:
    """Return whether a key of drafts is not at its default."""
    if key == "synthetic_acceptance_rates":
        return bool(section.fractions(key))
    if key == "use_eagle":
        return bool(section.boolean(key))
    if key in (METHOD, DRAFT_MODEL):
        return section.text(key) not in (None, "none")
    return bool(section.integer(key, least=0))


def _vocabulary_notes(section: Section, drafter: Drafter, shape: ModelShape) -> tuple[str, ...]:
    """Return that vLLM would refuse a smaller model with another vocabulary (config/speculative.py)."""
    found = drafter.shape.vocab_size
    if section.text(METHOD) != "draft_model" or found == shape.vocab_size:
        return ()
    return (
        f"engine.{DRAFT_MODEL}: {drafter.shape.name} knows {found:,} tokens, {shape.name} {shape.vocab_size:,}: vLLM "
        "refuses to start unless it is told use_heterogeneous_vocab",
    )


def _uncounted_notes(engine: EngineSettings, section: Section) -> tuple[str, ...]:
    """Return a note if the drafting layers are not counted, since the file does not name them."""
    method = read_method(engine, section)
    if engine.num_speculative_tokens == 0 or "num_gpu_blocks" in section:
        return ()
    if method not in HEAD_METHODS and not engine.use_eagle:
        return ()
    return (
        f"engine.{DRAFT_MODEL} is not given: the weights of what drafts, and its own KV, are not counted, so that "
        "num_gpu_blocks is too high. Give its config.json",
    )
