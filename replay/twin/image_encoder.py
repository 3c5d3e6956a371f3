"""What a twin's model says of its images: how long they take to encode, whether a step may compute a part of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from replay.model.encoders.encoder_kernels import on_gpus
from replay.model.encoders.encoder_times import EncoderTimes, encoder_times
from sim.latency import Profiled

if TYPE_CHECKING:
    from replay.model.shape import ModelShape
    from replay.twin.hardware import Hardware
    from sim import EngineConfig
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
"""The engine's keys, and the parts of ``EncoderTimes``."""


def with_encoder(
    engine: EngineConfig,
    root: Section,
    *,
    model: LatencyModel,
    shape: ModelShape | None,
    hardware: Hardware | None,
) -> EngineConfig:
    """Return the engine with what its model says of images, where the file leaves it open.

    Their time: with a latency model that goes by the model and the GPU. A file's own ``encoder_token_us`` stands for
    all of it; of the other keys, each that is written stands for itself. Whether they are computed as a whole: vLLM
    sees to it where an image's tokens see each other in both directions (vllm 0.32.0
    platforms/cuda.py:check_and_update_config). Who encodes nothing has neither.
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


def times_of_model(
    model: LatencyModel, *, shape: ModelShape, hardware: Hardware | None
) -> EncoderTimes | None:
    """Return how long a model's images take to encode; None where its vision tower or GPU is not known.

    And where step times are coefficients that were fitted: what they say of a GPU, nobody knows.
    """
    goes_by_gpu = hasattr(model, "peak") or isinstance(model, Profiled)
    if shape.vision is None or hardware is None or not goes_by_gpu:
        return None
    is_data = hardware.mm_encoder_tp_mode == "data"
    return encoder_times(
        on_gpus(shape.vision, hardware.gpu, tp=hardware.tp, layout=hardware.layout, is_data=is_data)
    )
