"""What drafts for a twin's model: its own MTP layers, a head or a model that the file names; and how long it takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from replay.model.drafting.draft_times import draft_us
from replay.model.drafting.read_drafter import HeadMethod, read_drafter
from replay.model.layers.drafter import mtp_drafter
from replay.twin.kv_cache.groups import DRAFT_MODEL, GROUPS, HEAD_METHODS, METHOD, MTP, read_method
from sim.latency import Profiled
from traces import ConfigError

if TYPE_CHECKING:
    from replay.model.layers.drafter import Drafter
    from replay.model.shape import ModelShape
    from replay.twin.hardware import Hardware
    from sim import EngineConfig
    from sim.latency import LatencyModel
    from traces.strict.section import Section

TIME: Final = "draft_us"


def drafter_of(
    engine: EngineConfig, root: Section, *, shape: ModelShape | None, folder: Path
) -> Drafter | None:
    """Return what drafts for a model, None where nothing does that is known. ``folder``: the file's.

    Raises ConfigError: a method without drafts, layers that the model has not, a head that cannot be read.
    """
    section = root.section("engine")
    method = read_method(engine, section)
    named = None if section is None else section.text(DRAFT_MODEL)
    named = None if named == "none" else named
    if section is None or shape is None:
        return None
    if named is not None and method not in HEAD_METHODS:
        section.fail(DRAFT_MODEL, got=named, expected=f"{METHOD} {', '.join(HEAD_METHODS)} beside it")
    if method == MTP:
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
    file = folder / named
    return read_drafter(file if file.exists() else named, method=cast(HeadMethod, method), of=shape)


def with_drafting(
    engine: EngineConfig,
    root: Section,
    *,
    model: LatencyModel,
    drafter: Drafter | None,
    hardware: Hardware | None,
) -> tuple[EngineConfig, tuple[str, ...]]:
    """Return the engine with what a draft takes, where the file leaves ``draft_us`` open, and a line that says so.

    With a latency model that goes by the model and the GPU; coefficients that were fitted say nothing of it.
    """
    section = root.section("engine")
    is_written = section is not None and TIME in section
    goes_by_gpu = hasattr(model, "peak") or isinstance(model, Profiled)
    if drafter is None or hardware is None or is_written or not goes_by_gpu:
        return engine, ()
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


def uncounted_notes(engine: EngineConfig, root: Section, *, drafter: Drafter | None) -> tuple[str, ...]:
    """Return that the drafts' layers are in no count, where they are made by layers that the file does not name."""
    section = root.section("engine")
    if drafter is not None or engine.num_speculative_tokens == 0 or section is None:
        return ()
    method = read_method(engine, section)
    if method not in HEAD_METHODS and not engine.use_eagle:
        return ()
    if "num_gpu_blocks" in section:
        return ()
    return (
        f"engine.{DRAFT_MODEL} is not given: the weights of what drafts, and its own KV, are not counted, so that "
        "num_gpu_blocks is too high. Give its config.json",
    )
