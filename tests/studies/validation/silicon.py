"""Measured TTFT and TPOT of vLLM on H100 to B300 (AIConfigurator's silicon samples), simulated from config.json alone.

Each point is a closed loop of given concurrency and lengths. A third of the configurations, drawn by a hash of what
they are, may be tuned on; the tables are of the others.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from replay.model import ModelShape, Serving, find_gpu, kv_cache_size, read_model_config
from replay.model.kernels.launch_time import launch_us
from replay.model.layout import Layout
from replay.model.model_peak import peak_times
from replay.twin.latency import EXPERTS_PHYSICS, physics_sets, usual_physics
from sim import EngineConfig, LatencyModel, PeakTimes, Physics, Requests, Roofline, simulate

HOPPER = ("H100", "H200")
GPUS = {"h100_sxm": "H100", "h200_sxm": "H200", "b200_sxm": "B200", "b300_sxm": "B300"}
MODEL_CLASSES = {
    "meta-llama/Llama-3.1-70B": "dense",
    "Qwen/Qwen3-32B": "dense",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "dense",
    "openai/gpt-oss-120b": "MoE",
    "MiniMaxAI/MiniMax-M2.5": "MoE",
    "Qwen/Qwen3-235B-A22B-FP8": "MoE",
    "moonshotai/Kimi-K2.5": "MoE, MLA",
}
KEPT_AS_THEY_ARE = ("openai/gpt-oss-120b",)
"""Models whose points say nvfp4 of a checkpoint in another format of 4 bits."""
MAKES = dict[str, Callable[[PeakTimes], LatencyModel]]

SERVED_TOKENS, SERVED_SEQS = 8192, 1024
"""max_num_batched_tokens and max_num_seqs that vLLM's server takes on these GPUs without a flag."""

CAPTURED = {"openai/gpt-oss-120b": 2048}
"""--max-cudagraph-capture-size, 0 being the default: InferenceMAX's gptoss_fp4_*.sh, after vLLM's recipe, give it."""

FP8_CACHE = {("openai/gpt-oss-120b", "B200"), ("meta-llama/Llama-3.1-70B", "B200")}
"""Servers with --kv-cache-dtype fp8: it is in vLLM's recipes for these models on Blackwell, and in InferenceMAX's."""

UNKNOWN_VERSION = "0.19"
"""What a point's server is taken to run where nothing tells."""

ROUNDS, SHORTEST = 10, 0.8
"""InferenceMAX, where most points are from, sends ten requests per slot, lengths uniform from 0.8 of the nominal ones
up. The others do not say what they did; the same is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement; ``is_ours_to_tune``: it is of the third that may be tuned on.

    ``has_whole_experts``: each GPU has whole experts. ``dp``: engines in step that share them, of which ``concurrency``
    is one's. ``fp4``: weights in NVFP4, where the checkpoint is wider.
    ``version``: of vLLM, empty where nothing tells it. ``id``: the source's name of the measurement.
    """

    model: str
    gpu: str
    fp8: bool
    tp: int
    isl: int
    osl: int
    concurrency: int
    ttft_ms: float
    tpot_ms: float
    fp4: bool = False
    has_whole_experts: bool = False
    dp: int = 1
    version: str = ""
    id: str = ""

    @property
    def is_ours_to_tune(self) -> bool:
        """Whether the configuration, not the measurement, hashes into the third."""
        name = f"{self.model} {self.gpu} {self.fp8} {self.tp} {self.isl} {self.osl} {self.concurrency}"
        return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 3 == 0


def read_points(path: Path, *, gpus: Collection[str] = HOPPER) -> tuple[list[Point], Counter[str]]:
    """Return the points that one engine can stand for, each once, and how many were left out why."""
    points: dict[tuple[object, ...], Point] = {}
    left_out: Counter[str] = Counter()
    with path.open() as file:
        for row in csv.DictReader(file):
            if GPUS.get(row["system"]) not in gpus:
                left_out[f"not on {', '.join(gpus)}"] += 1
                continue
            reason = unfit(row)
            if reason:
                left_out[reason] += 1
                continue
            point = _point(row)
            key = (point.model, point.gpu, point.fp8, point.tp, point.isl, point.osl, point.concurrency)
            key += (point.fp4, point.has_whole_experts)
            key += (round(point.ttft_ms, 1), round(point.tpot_ms, 1))
            if key in points:
                left_out["the same measurement listed again"] += 1
            points.setdefault(key, point)
    return list(points.values()), left_out


def unfit(row: dict[str, str]) -> str:
    """Return why one engine cannot stand for a row, or nothing."""
    tp = float(row["tp_size"])
    group = float(row["moe_tp_size"] or 1) * float(row["moe_ep_size"] or 1)
    if float(row["attention_dp_size"] or 1) > 1 or (
        MODEL_CLASSES[row["model_path"]] != "dense" and group > tp
    ):
        return "data-parallel attention: several engines in step, which waits for clusters"
    concurrency = _concurrency(row)
    if concurrency != float(row["batch_size"]):
        return "batch and concurrency differ"
    return ""


def _concurrency(row: dict[str, str]) -> float:
    found = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"])
    return float(found[1]) if found else float(row["batch_size"])


def _point(row: dict[str, str]) -> Point:
    return Point(
        model=row["model_path"],
        gpu=GPUS[row["system"]],
        fp8=row["precision"] == "fp8",
        tp=int(float(row["tp_size"])),
        isl=int(row["isl"]),
        osl=int(row["osl"]),
        concurrency=int(_concurrency(row)),
        ttft_ms=float(row["silicon_ttft_ms"]),
        tpot_ms=float(row["silicon_tpot_ms"]),
        fp4=row["moe_quant_mode"] == "nvfp4" and row["model_path"] not in KEPT_AS_THEY_ARE,
        has_whole_experts=float(row["moe_ep_size"] or 1) > 1,
        version=row["backend_version"] if row["backend_version"][:1].isdigit() else "",
        id=row["id"],
    )


def shape_of(point: Point) -> ModelShape:
    """Return the model as it was served: narrower weights where the point says so and the checkpoint is wider."""
    cache = "fp8" if (point.model, point.gpu) in FP8_CACHE else None
    return _shape_of(point.model, cache, fp8=point.fp8, fp4=point.fp4)


@lru_cache(maxsize=32)
def _shape_of(model: str, cache: str | None, *, fp8: bool, fp4: bool) -> ModelShape:
    from replay.model.quantized.online import _NVFP4
    from replay.model.quantized.quantization import FP8

    shape = read_model_config(model, **({"kv_cache_dtype": cache} if cache else {}))
    if fp4 and shape.experts is not None:
        others = tuple(each for each in shape.products if each[0] != "moe")
        return replace(shape, expert_precision=_NVFP4, products=others)
    if fp4:
        return replace(shape, attention_precision=_NVFP4, mlp_precision=_NVFP4)
    if fp8 and shape.attention_precision.matmul == "16bit":
        shape = replace(shape, attention_precision=FP8, mlp_precision=FP8)
    return shape


def requests_of(point: Point) -> Requests:
    """Return the closed loop's requests."""
    n = ROUNDS * point.concurrency
    rng = np.random.default_rng(1)
    prompts, outputs = (
        rng.integers(int(SHORTEST * length), length + 1, n) for length in (point.isl, point.osl)
    )
    none = np.zeros(0, np.int64)
    return Requests(
        arrival_us=np.zeros(n, np.int64),
        prompt_tokens=prompts,
        output_tokens=outputs,
        priority=np.zeros(n, np.int64),
        hash_offsets=np.zeros(n + 1, np.int64),
        hash_ids=none,
    )


def layout_of(point: Point) -> Layout:
    """Return how the server's GPUs share the experts."""
    return Layout(dp=point.dp, enable_expert_parallel=point.has_whole_experts)


def engine_of(point: Point) -> EngineConfig:
    """Return the server's settings: vLLM's own defaults, the KV cache as the GPU leaves room for."""
    serving = Serving(
        max_num_batched_tokens=SERVED_TOKENS,
        max_num_seqs=SERVED_SEQS,
        gpu_memory_utilization=0.9,
        vllm_version="0.18",
    )
    shape = shape_of(point)
    capacity = kv_cache_size(
        shape, find_gpu(point.gpu), tp=point.tp, layout=layout_of(point), serving=serving
    )
    return EngineConfig(
        max_num_seqs=SERVED_SEQS,
        max_num_batched_tokens=SERVED_TOKENS,
        num_gpu_blocks=capacity.num_gpu_blocks,
        max_model_len=point.isl + point.osl + 256,
        launch_us=launch_us(shape),
        max_cudagraph_capture_size=CAPTURED.get(point.model, 0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A point made ready, so that a model costs no more than its simulation."""

    point: Point
    peak: PeakTimes
    engine: EngineConfig
    requests: Requests


def prepare(points: Iterable[Point]) -> list[Prepared]:
    """Return points made ready."""
    return [
        Prepared(
            point=point,
            peak=peak_times(
                shape_of(point),
                find_gpu(point.gpu),
                tp=point.tp,
                layout=layout_of(point),
                version=point.version or UNKNOWN_VERSION,
            ),
            engine=engine_of(point),
            requests=requests_of(point),
        )
        for point in points
    ]


def times_ms(ready: Prepared, model: LatencyModel) -> np.ndarray:
    """Return TTFT, TPOT and E2E of each request, ms, [3, n]."""
    loop = (ready.point.concurrency, 0)
    outcomes = simulate(ready.requests, ready.engine, model, closed_loop=loop).outcomes
    ttft, e2e = (each - outcomes.arrival_us for each in (outcomes.first_token_us, outcomes.last_token_us))
    return np.array([ttft, (e2e - ttft) / np.maximum(outcomes.num_output_tokens - 1, 1), e2e]) / 1e3


def simulated(ready: Prepared, make: Callable[[PeakTimes], LatencyModel]) -> tuple[float, float]:
    """Return the mean TTFT and TPOT in ms."""
    ttft, tpot, _ = times_ms(ready, make(ready.peak)).mean(axis=1).tolist()
    return ttft, tpot


def log_errors(prepared: Sequence[Prepared], make: Callable[[PeakTimes], LatencyModel]) -> np.ndarray:
    """Return log(simulated / measured) of TTFT and TPOT, [n, 2]."""
    rows = []
    for ready in prepared:
        ttft, tpot = simulated(ready, make)
        rows.append((np.log(ttft / ready.point.ttft_ms), np.log(tpot / ready.point.tpot_ms)))
    return np.array(rows)


def without_measured(peak: PeakTimes) -> PeakTimes:
    """Return peak times with the formula for experts in place of what was measured."""
    return replace(peak, experts_tokens=(), experts_us=())


def physics(name: str | None = None) -> Callable[[PeakTimes], LatencyModel]:
    """Return what makes physics of a named set of coefficients, or of the one that it takes without a name."""

    def make(peak: PeakTimes) -> LatencyModel:
        if name not in (None, EXPERTS_PHYSICS):
            peak = without_measured(peak)
        coefficients = physics_sets()[name] if name else usual_physics(peak)
        return Physics(peak=peak, **coefficients)  # type: ignore[arg-type]

    return make


MODELS: MAKES = {
    "roofline": lambda peak: Roofline(peak=peak),
    "physics": physics(),
    "physics, silicon-2026": physics("silicon-2026"),
    "physics, blis-iter29": physics("blis-iter29"),
}


def _is_shown(name: str, group: str) -> bool:
    """Return whether a row says something: the older set is another for experts alone, BLIS's is shown by class."""
    if name == "physics, silicon-2026":
        return (
            group.startswith("MoE") or MODEL_CLASSES.get(group.split(",", maxsplit=1)[0], "dense") != "dense"
        )
    return name in ("roofline", "physics") or group in MODEL_CLASSES.values()


def table(data: Path) -> str:
    """Return the Markdown tables: errors per class, per GPU, per model; and the coverage."""
    points, left_out = read_points(data / "vllm_agg.csv", gpus=GPUS.values())
    judged = prepare(point for point in points if not point.is_ours_to_tune)
    num_tuned = len(points) - len(judged)
    errors = {name: np.abs(np.expm1(log_errors(judged, make))) * 100 for name, make in MODELS.items()}
    groups: dict[str, list[int]] = {}
    for number, ready in enumerate(judged):
        point = ready.point
        kind = MODEL_CLASSES[point.model]
        for group in (kind, f"{kind}, {point.gpu}", f"{point.model}, {point.gpu}"):
            groups.setdefault(group, []).append(number)
    lines = [
        "| points | n | model | TPOT median % | p90 % | TTFT median % | p90 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for group in sorted(groups, key=lambda name: (name.count("/"), name)):
        for name in MODELS:
            if not _is_shown(name, group):
                continue
            ttft, tpot = errors[name][groups[group]].T
            figures = [np.median(tpot), np.quantile(tpot, 0.9), np.median(ttft), np.quantile(ttft, 0.9)]
            shown = " | ".join(f"{figure:.1f}" for figure in figures)
            lines.append(f"| {group} | {len(groups[group])} | {name} | {shown} |")
    reasons = "; ".join(f"{count} {reason}" for reason, count in left_out.most_common())
    return "\n".join(
        [*lines, "", f"Simulated {len(points)}, of which {num_tuned} to tune on; left out: {reasons}."]
    )
