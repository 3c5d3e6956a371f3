"""One model on several GPUs: what fits, the latencies under a load, and how much load each takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from lazy_dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

import numpy as np

from replay.capacity.capacity import Capacity, capacity_of_draws
from replay.model.gpu_memory import tokens_held
from replay.model.gpus import Gpu
from replay.model.hf_config import read_model_config
from replay.model.shape import ModelShape
from replay.profiles.known_errors import KnownError, known_error
from replay.search.ceiling import ceiling_of
from replay.search.evaluation import Evaluation, Evaluator
from replay.search.load import loads_of
from replay.search.workload_draws import Drawing
from replay.twin.config_read import load_config
from replay.twin.server.startup import lowered_limits
from replay.twin.twin_config import TwinConfig
from replay.verdict.kv_doubt import KvDoubt, kv_doubt
from sim import UNBOUNDED, EngineConfig
from traces import ConfigError, RunLimit

if TYPE_CHECKING:
    from traces import Trace

Unfitted = Literal["physics", "roofline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuQuestion:
    """What is compared. ``engine``: keys of TWIN.yaml's section, the same on all GPUs; ``rate_per_s``: the load.

    ``checks_memory``: also tell where the figures at the load hang on the KV cache's size.
    """

    model_config: str
    latency_model: Unfitted
    engine: Mapping[str, object]
    dtype: str
    kv_cache_dtype: str
    mamba_ssm_cache_dtype: str = "auto"
    quantization: str = "auto"
    vllm_version: str | None
    rate_per_s: float
    limits: Sequence[RunLimit]
    checks_memory: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLoad:
    """Medians and 99th percentiles of a load, µs, and whether the server keeps up with it."""

    ttft_us: tuple[float, float]
    tpot_us: tuple[float, float]
    keeps_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuResult:
    """One model on one GPU, or on several together. ``refusal``: why it does not start there; then nothing else is.

    ``max_model_len``: the model's own, or as much as the KV cache holds. ``capacity``: within the limits, or, without
    limits, the throughput of a server with work at all times. ``price_per_hour``: of all its GPUs.
    """

    gpu: Gpu
    tp: int
    refusal: str = ""
    twin: TwinConfig | None = None
    num_kv_tokens: int = 0
    max_model_len: int = 0
    is_shortened: bool = False
    at_load: AtLoad | None = None
    capacity: Capacity | None = None
    ceiling_per_s: float | None = 0.0
    output_tokens_per_request: float = 0.0
    price_per_hour: float | None = None
    error: KnownError | None = None
    kv_doubt: KvDoubt | None = None

    @property
    def rate_per_s(self) -> float | None:
        """The highest rate: within the limits, or at all; None where there is none."""
        return self.ceiling_per_s if self.capacity is None else self.capacity.rate_per_s

    @property
    def is_ranked(self) -> bool:
        """Whether it has a rate, from runs that are long enough to rank servers by."""
        return bool(self.rate_per_s) and not (self.capacity is not None and self.capacity.is_too_short)

    @property
    def output_tokens_per_s(self) -> float | None:
        """Output tokens per second at that rate."""
        return None if self.rate_per_s is None else self.rate_per_s * self.output_tokens_per_request

    @property
    def output_tokens_per_unit(self) -> float | None:
        """Output tokens per unit of the prices' currency at that rate; None without a price, or a rate."""
        if self.price_per_hour is None or self.output_tokens_per_s is None:
            return None
        return self.output_tokens_per_s * 3600 / self.price_per_hour


def compared_gpus(
    gpus: Sequence[tuple[Gpu, int]],
    asked: GpuQuestion,
    traces: Sequence[Trace],
    *,
    prices: Mapping[str, float],
    drawing: Drawing | None = None,
    tell: Callable[[int], None] = lambda _: None,
) -> list[GpuResult]:
    """Return each (GPU, tp) with what it does; ``traces``: the same load drawn several times.

    ``drawing``: draws it with more requests, where a capacity takes more; None: the given ones are all there are.
    Raises ConfigError where the model or the load is wrong, whatever the GPU.
    """
    shape = read_model_config(
        asked.model_config,
        kv_cache_dtype=asked.kv_cache_dtype,
        mamba_ssm_cache_dtype=asked.mamba_ssm_cache_dtype,
        dtype=asked.dtype,
        quantization=asked.quantization,
    )
    found = []
    for number, (gpu, tp) in enumerate(gpus):
        found.append(_one(gpu, tp, shape, asked, traces, drawing=drawing, price=prices.get(gpu.name)))
        tell(number + 1)
    return found


def _one(
    gpu: Gpu,
    tp: int,
    shape: ModelShape,
    asked: GpuQuestion,
    traces: Sequence[Trace],
    *,
    drawing: Drawing | None,
    price: float | None,
) -> GpuResult:
    try:
        twin, is_shortened = _twin(gpu, tp, asked)
    except ConfigError as error:
        return GpuResult(gpu=gpu, tp=tp, refusal=str(error).rpartition(" (")[0] or str(error))
    loads = loads_of(traces, twin)
    evaluator = Evaluator(loads=loads, limits=asked.limits)
    capacity = None
    if asked.limits:
        capacity = capacity_of_draws(
            traces,
            twin,
            asked.limits,
            drawing=drawing,
            least=len(traces) * len(traces[0]),
            with_binding=False,
            with_curve=False,
        )
    ceiling = None if capacity is None else capacity.ceiling_per_s
    if ceiling is None:
        ceiling = ceiling_of(loads)
    at = evaluator.at(asked.rate_per_s)
    engine = twin.engine
    return GpuResult(
        gpu=gpu,
        tp=tp,
        twin=twin,
        num_kv_tokens=0 if engine.num_gpu_blocks == UNBOUNDED else _tokens_held(engine),
        max_model_len=engine.max_model_len,
        is_shortened=is_shortened,
        at_load=AtLoad(ttft_us=at.curve_us["ttft"], tpot_us=at.curve_us["tpot"], keeps_up=not at.is_behind),
        capacity=capacity,
        ceiling_per_s=ceiling,
        output_tokens_per_request=float(np.mean([_mean_output(trace) for trace in traces])),
        price_per_hour=None if price is None else price * tp,
        error=known_error(shape, gpu.name, asked.latency_model, twin.latency),
        kv_doubt=_doubt(twin, at, asked, traces) if asked.checks_memory else None,
    )


def _doubt(twin: TwinConfig, at: Evaluation, asked: GpuQuestion, traces: Sequence[Trace]) -> KvDoubt | None:
    """Return how far the times at the load hang on the size of the KV cache."""

    def measure(other: TwinConfig) -> dict[str, float]:
        return _times_at(Evaluator(loads=loads_of(traces, other), limits=asked.limits).at(asked.rate_per_s))

    return kv_doubt(twin, _times_at(at), measure)


def _times_at(at: Evaluation) -> dict[str, float]:
    """Return the times at the load that may hang on the KV cache's size, µs; infinite where it does not keep up."""
    found = {f"{name.upper()} p99": at.curve_us[name][1] for name in ("ttft", "e2e")}
    return {name: float("inf") if at.is_behind else value for name, value in found.items()}


def _tokens_held(engine: EngineConfig) -> int:
    groups = engine.kv_cache_groups
    return tokens_held(groups, num_gpu_blocks=engine.num_gpu_blocks, block_size=engine.block_size)


def _mean_output(trace: Trace) -> float:
    return float(trace.column("output_tokens").astype("float64").mean())


def _twin(gpu: Gpu, tp: int, asked: GpuQuestion) -> tuple[TwinConfig, bool]:
    """Return the twin, and whether max_model_len had to be lowered so that the KV cache holds one sequence.

    Raises ConfigError where the model does not fit.
    """
    twin = _read(gpu, tp, asked, {})
    try:
        more = lowered_limits(twin.engine, twin.will_not_start)
    except ConfigError as error:
        raise ConfigError(f"{error} ()") from error
    if not more:
        return twin, False
    found = twin if more.keys() & asked.engine.keys() else _read(gpu, tp, asked, more)
    if found.will_not_start:
        raise ConfigError(f"{found.will_not_start[0]} ()")
    return found, "max_model_len" in more


def _read(gpu: Gpu, tp: int, asked: GpuQuestion, more: Mapping[str, object]) -> TwinConfig:
    """Return what a TWIN.yaml with these sections says."""
    document: dict[str, object] = {
        "engine": {**asked.engine, **more},
        "latency": {
            "model": asked.latency_model,
            "model_config": asked.model_config,
            "dtype": asked.dtype,
            "kv_cache_dtype": asked.kv_cache_dtype,
            "mamba_ssm_cache_dtype": asked.mamba_ssm_cache_dtype,
            "quantization": asked.quantization,
        },
        "hardware": {"gpu": gpu.name, "tp": tp},
    }
    if asked.vllm_version is not None:
        document["vllm_version"] = asked.vllm_version
    if not document["engine"]:
        del document["engine"]
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{gpu.name}-tp{tp}.yaml"
        path.write_text(json.dumps(document))
        return load_config(path, allows_cluster=False)
