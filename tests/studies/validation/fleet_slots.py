"""How many requests an engine holds at once, by formula and in a saturated run, where layers cache differently.

Requests come all at once, and as many run as the KV cache lets in. Their number is averaged over time, from when a
quarter of all have ended to when the last one that waits is admitted. The formula: the slots of the twin's profile.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from replay.fleet.inputs.profiles import from_twin
from replay.twin.config_read import load_config
from replay.twin.twin_config import TwinConfig
from sim import EngineConfig, Int64s, LatencyModel, Outcomes, Requests, simulate
from sim.fleet import Lengths

TURNS, LEAST_REQUESTS, MOST_REQUESTS = 12, 1000, 6000
"""So many times the slots by formula are sent, within these limits."""
SPREAD = {"alike": 0.0, "spread": 0.6}
"""Of the logarithms of lengths: their standard deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsCase:
    """A model on GPUs, and the mean lengths of its requests."""

    model: str
    gpu: str
    tp: int = 1
    prompt: int
    output: int = 400


CASES = (
    SlotsCase(model="google/gemma-3-12b-it", gpu="H100", prompt=3000),
    SlotsCase(model="google/gemma-3-27b-it", gpu="H100", prompt=6000),
    SlotsCase(model="google/gemma-4-26B-A4B", gpu="H100", prompt=3000),
    SlotsCase(model="openai/gpt-oss-120b", gpu="H100", prompt=3000),
    SlotsCase(model="openai/gpt-oss-20b", gpu="H100", prompt=12_000),
    SlotsCase(model="meta-llama/Llama-4-Scout-17B-16E-Instruct", gpu="H100", tp=4, prompt=12_000),
    SlotsCase(model="Qwen/Qwen3.5-397B-A17B", gpu="B200", tp=8, prompt=12_000),
    SlotsCase(model="nvidia/Nemotron-H-56B-Base-8K", gpu="H100", tp=4, prompt=3000),
    SlotsCase(model="nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", gpu="H100", prompt=3000),
    SlotsCase(model="nvidia/DeepSeek-V4-Flash-NVFP4", gpu="B200", tp=2, prompt=20_000, output=2000),
    SlotsCase(model="XiaomiMiMo/MiMo-V2-Flash", gpu="H200", tp=4, prompt=24_000, output=2000),
    SlotsCase(model="stepfun-ai/Step-3.7-Flash", gpu="H200", tp=4, prompt=24_000, output=2000),
    SlotsCase(model="meta-llama/Llama-3.1-8B", gpu="H100", prompt=3000),
)
"""A model for each way to keep KV, and last one that keeps all."""


def twin_of(case: SlotsCase) -> TwinConfig:
    """Return the twin of a model on its GPUs, with vLLM's own settings there."""
    document = {
        "engine": {"max_model_len": min(65_536, 8192 if case.prompt < 4000 else 65_536)},
        "latency": {"model": "physics", "model_config": case.model},
        "hardware": {"gpu": case.gpu, "tp": case.tp},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "twin.yaml"
        path.write_text(json.dumps(document))
        return load_config(path, allows_cluster=False)


def drawn(case: SlotsCase, spread: float, number: int) -> Lengths:
    """Return lengths whose means are the case's, a row per request."""
    rng = np.random.default_rng(7)

    def around(mean: int) -> Int64s:
        values = rng.lognormal(-(spread**2) / 2, spread, number) * mean
        return np.rint(values).clip(1, 4 * mean).astype(np.int64)

    return Lengths(
        input_tokens=around(case.prompt).astype(np.float64),
        output_tokens=around(case.output).astype(np.float64),
    )


def held_in_run(lengths: Lengths, engine: EngineConfig, latency: LatencyModel) -> tuple[float, int]:
    """Return how many requests run at once, on average over a saturated stretch of time, and the preemptions."""
    n = len(lengths)
    requests = Requests(
        arrival_us=np.zeros(n, np.int64),
        prompt_tokens=lengths.input_tokens.astype(np.int64),
        output_tokens=lengths.output_tokens.astype(np.int64),
        priority=np.zeros(n, np.int64),
        hash_offsets=np.zeros(n + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )
    done: Outcomes = simulate(requests, engine, latency).outcomes
    starts, ends = done.scheduled_us.astype(np.float64), done.last_token_us.astype(np.float64)
    low, high = float(np.quantile(ends, 0.25)), float(starts.max())
    there = np.clip(np.minimum(ends, high) - np.maximum(starts, low), 0, None)
    there *= 1 - done.preempted_us / np.maximum(ends - starts, 1)
    return float(there.sum() / (high - low)), int(done.num_preemptions.sum())


def rows_of(case: SlotsCase) -> Iterator[str]:
    """Yield a case's rows: lengths, slots by formula and in the run, preemptions."""
    twin = twin_of(case)
    for name, spread in SPREAD.items():
        many = drawn(case, spread, MOST_REQUESTS)
        context = int(many.total_tokens.max())
        profile = from_twin(twin, many, context=context, name="twin").profile
        lengths = many.at(
            np.arange(min(MOST_REQUESTS, max(TURNS * profile.slots_for(many, context), LEAST_REQUESTS)))
        )
        slots = profile.slots_for(lengths, context)
        as_one = replace(profile, kv_cache_groups=()).slots_for(lengths, context)
        held, preempted = held_in_run(lengths, twin.engine, twin.latency)
        yield (
            f"| {case.model.split('/')[-1]} | {case.tp} {case.gpu} | {case.prompt:,} + {case.output:,}, {name} | "
            f"{as_one:,} | {slots:,} | {held:,.1f} | {100 * (slots / held - 1):+.1f} % | "
            f"{preempted / len(lengths):.2f} |"
        )


def table() -> str:
    """Return the Markdown table."""
    head = "| model | on | tokens | as one full group | formula | in the run | off | preempted per request |"
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for case in CASES:
        for line in rows_of(case):
            lines.append(line)
            print(line, flush=True)
    return "\n".join(lines)
