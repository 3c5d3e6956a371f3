"""The ``hardware`` section of TWIN.yaml, and a model on it: which GPUs, how many, and the peak times of a step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from lazy_dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from replay.model.gpus import NUMBERS, find_gpu, read_gpu
from replay.model.layout import Hardware, Layout
from replay.model.shape import ModelShape
from replay.twin.keys.hardware_keys import HARDWARE, hardware_keys
from replay.twin.keys.key import Key, keys_held_by, keys_of_fields, names_under
from replay.twin.keys.latency_keys import LATENCY
from replay.twin.keys.read_keys import held_by, values_of
from sim import DEFAULT_VERSION, EngineConfig, InvalidConfig
from sim.latency import LatencyModel, PeakTimes
from traces import ConfigError
from traces.strict.section import Section
from traces.strict.whole_file import is_a_file

if TYPE_CHECKING:
    from replay.model.gpu_memory import KvCacheSize, Serving

OF_KV_CACHE = ("pp", "dp")
"""Keys of a layout that bear on the size of the KV cache, too."""
FOREIGN_NAMES = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "expert_parallel_size": "enable_expert_parallel",
    "ep": "enable_expert_parallel",
    "num_devices_per_node": "gpus_per_node",
}
"""vLLM's and Vidur's names of these keys."""


def _without_peak(written: Sequence[str], model: LatencyModel) -> tuple[str, ...]:
    """Return notes on keys of a layout that a model without peak times does not read; the engine may read some."""
    of_engine = [name for name in written if name in OF_KV_CACHE]
    notes = []
    for names, effect in (
        (of_engine, "here it bears on the KV cache alone"),
        ([name for name in written if name not in of_engine], "here it has no effect"),
    ):
        own = {name: name.removesuffix("_us") for name in names if hasattr(model, name.removesuffix("_us"))}
        instead = ", ".join(f"latency.coefficients.{each}" for each in own.values())
        where = (
            f"instead: {instead}"
            if own and len(own) == len(names)
            else "in the latency's coefficients, if at all"
        )
        if names:
            notes.append(f"{', '.join(f'hardware.{name}' for name in names)}: {where}; {effect}")
    return tuple(notes)


def hardware_notes(hardware: Hardware, model: LatencyModel, *, ranks: int | None = None) -> tuple[str, ...]:
    """Return notes on what is assumed of it, and on what a latency model ignores.

    ``ranks``: how many engines are simulated in step; None where none are, 0 where it is not known.
    """
    if not hasattr(model, "peak"):
        of_layout = {"nccl_launch_us", *(each.name for each in fields(Layout))}
        written = [name for name in HARDWARE if name in of_layout and name in hardware.written]
        return _without_peak(written, model)
    notes, dp = [], hardware.layout.dp
    if model.peak.ep > 1 and not hardware.layout.enable_expert_parallel:
        notes.append(
            f"hardware.tp {hardware.tp}: the experts' FP8 weights are in blocks that so many GPUs would cut, which "
            "vLLM refuses; each GPU is taken to have whole experts (enable_expert_parallel)"
        )
    if ranks and ranks != dp:
        notes.append(
            f"cluster.lockstep: {ranks} instances in step, hardware.dp {dp}; expected the same "
            "number, that of the engines that share the experts"
        )
    elif dp > 1 and ranks is None:
        notes.append(
            f"hardware.dp {dp}: one engine of {dp} is simulated; the others, whose tokens pass the same experts, are "
            "taken to be as loaded and in step. Rates, GPUs and cost are those of this one: give it "
            f"1/{dp} of the requests, or simulate all with cluster.instances and cluster.lockstep"
        )
    return tuple(notes)


def read_hardware(root: Section) -> Hardware | None:
    """Return the ``hardware`` section: a name of the table, or a mapping; None where there is none.

    Pipeline stages that it does not name are ``engine.pipeline_parallel_size``'s.
    """
    stages = stages_of_engine(root)
    node = root.nodes.get("hardware")
    if node is None:
        return None
    where = f"hardware ({root.file}:{root.key_lines['hardware']})"
    if isinstance(node, yaml.ScalarNode):
        return Hardware(gpu=find_gpu(str(node.value), where=where), pp=stages or 1)
    section = root.section("hardware", expected="a GPU's name, or a mapping")
    assert section is not None  # noqa: S101 - the key is there
    section.refuse_unknown([*names_under("", HARDWARE), *NUMBERS, "name"], elsewhere=FOREIGN_NAMES)
    given = values_of(section, hardware_keys())
    named, tiers = given.pop("gpu", None), given.pop("kv_offloading_size", None)
    return Hardware(
        gpu=read_gpu(section, base=find_gpu(named, where=where) if named else None),
        layout=Layout(**held_by(Layout, given)),
        kv_offloading_size=tiers or None,
        written=tuple(section.nodes),
        **held_by(Hardware, given) | {"pp": _stages(section, stages)},
    )


def stages_of_engine(root: Section) -> int | None:
    """Return ``engine.pipeline_parallel_size``, None where it is not written."""
    engine = root.section("engine")
    return None if engine is None else engine.integer("pipeline_parallel_size", least=1)


def _stages(section: Section, of_engine: int | None) -> int:
    """Return ``hardware.pp``; it may not contradict the engine's. Raises ConfigError."""
    stages = section.integer("pp", least=1)
    if None not in (stages, of_engine) and stages != of_engine:
        section.fail(
            "pp", got=str(stages), expected=f"engine.pipeline_parallel_size's {of_engine}, or nothing"
        )
    return stages or of_engine or 1


def stages_notes(engine: EngineConfig, model: LatencyModel) -> tuple[str, ...]:
    """Return how a batch's time is divided among pipeline stages, if the latency model does not do so."""
    stages = engine.pipeline_parallel_size
    at_peak = getattr(model, "peak", None)
    if stages == 1 or (at_peak is not None and at_peak.pp == stages):
        return ()
    return (
        f"engine.pipeline_parallel_size {stages}: a step's time is taken for that of a batch through all stages, and "
        "divided evenly among them",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What ``latency`` says of the model: its config.json, or its name, and the types that vLLM serves it in."""

    model_config: str | None = None
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    quantization: str = "auto"


@lru_cache(maxsize=1)
def checkpoint_keys() -> tuple[Key, ...]:
    """Return the keys of ``latency`` that name the model."""
    return keys_held_by("latency", LATENCY, Checkpoint)


def read_shape(latency: Section, *, folder: Path) -> ModelShape | None:
    """Return the model of ``latency.model_config``: a file beside TWIN.yaml or a model that ships; None without."""
    words = values_of(latency, checkpoint_keys())
    if "model_config" not in words:
        return None
    from replay.model.hf_config import read_model_config

    named = words.pop("model_config")
    file = folder / named
    return read_model_config(file if is_a_file(file) else named, **words)


def capacity_of(shape: ModelShape, hardware: Hardware, *, serving: Serving) -> KvCacheSize:
    """Return the number of KV blocks of a server with this hardware, ``serving`` as its engine says."""
    from replay.model.gpu_memory import kv_cache_size

    told = replace(
        serving,
        gpu_memory_utilization=hardware.gpu_memory_utilization,
        kv_cache_memory_bytes=hardware.kv_cache_memory_bytes,
        has_data_towers=hardware.has_data_towers,
    )
    return kv_cache_size(
        shape, hardware.gpu, tp=hardware.tp, pp=hardware.pp, layout=hardware.layout, serving=told
    )


def kv_bytes_of(shape: ModelShape | None, hardware: Hardware | None) -> int | None:
    """Return what a token's KV takes on all GPUs of a server, all layers together; None without a model.

    Heads that several GPUs keep a copy of count for each. Layers with a window count as if they kept everything; states
    are not counted.
    """
    if shape is None:
        return None
    tp = hardware.tp if hardware else 1
    return round(tp * (shape.kv_bytes_per_token(tp) + shape.kv_bytes_per_token(tp, windowed=True)))


def peak_of(
    root: Section, latency: Section, *, shape: ModelShape | None, hardware: Hardware | None
) -> PeakTimes:
    """Return an analytic model's peak times: derived from model and hardware, or as given in ``latency.peak``."""
    written = latency.section("peak")
    if written is not None:
        return read_peak(written)
    if shape is None:
        latency.fail(
            "model_config", got="nothing", expected="a Hugging Face config.json, or a model that ships"
        )
    if hardware is None:
        root.fail("hardware", got="nothing", expected="a GPU's name, such as H100, or a mapping")
    from replay.model.model_peak import peak_times

    return peak_times(
        shape,
        hardware.gpu,
        tp=hardware.tp,
        pp=hardware.pp,
        layout=hardware.layout,
        version=root.text("vllm_version") or DEFAULT_VERSION,
    )


def read_peak(section: Section) -> PeakTimes:
    """Return the times that ``latency.peak`` writes out, in µs. Raises ConfigError."""
    keys = [replace(key, unit="µs") for key in keys_of_fields("latency.peak", PeakTimes)]
    section.refuse_unknown([key.name for key in keys])
    try:
        return PeakTimes(**values_of(section, keys))
    except (InvalidConfig, TypeError) as error:
        raise ConfigError(f"latency.peak: {error} ({section.file}:{section.line})") from error


def peak_lines(peak: PeakTimes) -> list[str]:
    """Return ``latency.peak`` as lines of TWIN.yaml."""
    values = {field.name: getattr(peak, field.name) for field in fields(PeakTimes)}
    return ["  peak:", *(f"    {name}: {_written(value)}" for name, value in values.items())]


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return repr(list(value))
    return str(value).lower() if isinstance(value, bool) else repr(value)
