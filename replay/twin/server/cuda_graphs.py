"""Steps outside CUDA graphs: how long they take at least, by the twin's model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sim.latency import Profiled

if TYPE_CHECKING:
    from replay.model.shape import ModelShape
    from replay.twin.twin_config import TwinConfig
    from sim import EngineSettings
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
    section, latency = root.section("engine"), root.section("latency")
    is_written = section is not None and LAUNCH in section
    is_fitted = latency is not None and "fitted_range" in latency
    goes_by_gpu = hasattr(model, "peak") or isinstance(model, Profiled)
    if is_written or is_fitted or shape is None or not goes_by_gpu or engine.batching != "vllm":
        return engine
    from replay.model.kernels.launch_time import launch_us

    return replace(engine, launch_us=launch_us(shape, enforce_eager=engine.enforce_eager))
