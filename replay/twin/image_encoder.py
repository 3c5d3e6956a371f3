"""A twin's images, by its model: how long they take to encode, whether a step may compute a part of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from replay.model.layout import Hardware
    from replay.model.shape import ModelShape
    from replay.model.towers.tower_times import TowerTimes
    from sim import EngineSettings
    from sim.latency import LatencyModel
    from traces.strict.section import Section

PER_TOKEN = "encoder_token_us"  # noqa: S105 - of a prompt, not of a login
WHOLE = "disable_chunked_mm_input"
TIMES: Final[Mapping[str, str]] = {
    "encoder_step_us": "step_us",
    PER_TOKEN: "token_us",
    "encoder_token_pair_us": "pair_us",
    "encoder_data_parallel_size": "ranks",
}
"""The engine's keys, and the parts of ``TowerTimes``."""


def with_encoder(
    engine: EngineSettings,
    root: Section,
    *,
    model: LatencyModel,
    shape: ModelShape | None,
    hardware: Hardware | None,
) -> EngineSettings:
    """Return the engine with its model's settings of images, where the file leaves them open.

    Their time is set with a latency model that is derived from the model and the GPU. A file's own ``encoder_token_us``
    replaces all of it; each other key that the file gives replaces its own part. Images are computed as a whole if
    their tokens see each other in both directions, as vLLM ensures (vllm 0.32.0
    platforms/cuda.py:check_and_update_config). An engine that encodes nothing gets neither.
    """
    section = root.section("engine")
    written = frozenset() if section is None else frozenset(section.nodes)
    if shape is None or not engine.encodes_images:
        return engine
    if shape.is_mm_prefix_lm and WHOLE not in written:
        engine = replace(engine, disable_chunked_mm_input=True)
    times = None if PER_TOKEN in written else times_of_model(model, shape=shape, hardware=hardware)
    if times is None:
        return engine
    found = {key: getattr(times, part) for key, part in TIMES.items() if key not in written}
    return replace(engine, **found)


def times_of_model(model: LatencyModel, *, shape: ModelShape, hardware: Hardware | None) -> TowerTimes | None:
    """Return how long a model's images take to encode; None where its vision tower or GPU is not known.

    Also None with fitted coefficients: how they relate to a GPU is not known.
    """
    if shape.vision is None or hardware is None or not model.goes_by_gpu:
        return None
    from replay.model.towers.tower_kernels import on_gpus
    from replay.model.towers.tower_times import tower_times

    return tower_times(
        on_gpus(
            shape.vision,
            hardware.gpu,
            tp=hardware.tp,
            layout=hardware.layout,
            is_data=hardware.has_data_towers,
        )
    )
