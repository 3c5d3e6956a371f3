"""Steps outside CUDA graphs: how long they take at least, by the twin's model, and what is told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from yaml import MappingNode

if TYPE_CHECKING:
    from replay.model.gpus import Gpu
    from replay.model.shape import ModelShape
    from replay.twin.twin_config import TwinConfig
    from sim import EngineConfig, EngineSettings
    from sim.latency import LatencyModel
    from traces.strict.section import Section

LAUNCH: Final = "launch_us"


def without_derived_launch(config: TwinConfig) -> TwinConfig:
    """Return the configuration for a fit: a ``launch_us`` that its file does not give is none.

    Another CPU starts kernels faster or slower, and no coefficient could take a step below it.
    """
    if config.written is None or LAUNCH in config.written:
        return config
    return replace(config, engine=replace(config.engine, launch_us=0.0))


def with_launch(
    engine: EngineSettings, root: Section, *, model: LatencyModel, shape: ModelShape | None
) -> EngineSettings:
    """Return the engine with its model's ``launch_us``, where the file leaves it open.

    It is set with a latency model that is derived from the model and the GPU. Coefficients that were fitted were so
    with the ``launch_us`` of their file, and without any where it has none.
    """
    if _is_given(root) or shape is None or not model.goes_by_gpu or engine.batching != "vllm":
        return engine
    from replay.model.kernels.launch_time import launch_us

    return replace(engine, launch_us=launch_us(shape, enforce_eager=engine.enforce_eager))


def without_captured_sizes(model: LatencyModel, engine: EngineConfig, root: Section) -> LatencyModel:
    """Return roofline or physics that pads no step to a captured size where no step has a graph."""
    if not engine.enforce_eager:
        return model
    latency = root.section("latency")
    coefficients = None if latency is None else latency.nodes.get("coefficients")
    is_written = isinstance(coefficients, MappingNode) and any(
        key.value == "max_capture_size" for key, _ in coefficients.value
    )
    return model if is_written else model.unpadded()


def eager_notes(engine: EngineConfig, root: Section, *, gpu: Gpu | None) -> tuple[str, ...]:
    """Return what a run without CUDA graphs is told: how long its steps take at least, and on what that rests."""
    if not engine.enforce_eager or _is_given(root):
        return ()
    if not engine.launch_us:
        return (
            "engine.enforce_eager: the steps' coefficients have it in them if they were fitted on such a server; else "
            "engine.launch_us, what a step takes at least, is to be given: it is 0",
        )
    from replay.model.kernels.launch_time import LAUNCH_US_PER_LAYER, MEASURED_WITH

    where = ", ".join(MEASURED_WITH)
    if gpu is not None and gpu.name not in MEASURED_WITH:
        where += f", not with {gpu.name}"
    return (
        f"engine.enforce_eager: each step takes {engine.launch_us / 1e3:.1f} ms at least (engine.launch_us), "
        f"{LAUNCH_US_PER_LAYER:g} µs of CPU for each layer, as measured on machines with {where}",
    )


def _is_given(root: Section) -> bool:
    """Return whether a file says what launches take, or has coefficients that were fitted with what it says."""
    section, latency = root.section("engine"), root.section("latency")
    is_written = section is not None and LAUNCH in section
    return is_written or (latency is not None and "fitted_range" in latency)
