"""AISimulate: the answers that it gave, and how it is asked.

``python -m tests.studies.validation.scoreboard.tools.aisimulate_answers VENV`` asks about points without an answer;
VENV has ``pip install aisimulate==0.13.0.dev202610270000000085`` (Python 3.11 to 3.13; vLLM data 0.24.0).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.studies.validation.scoreboard.points import default_data, read_scored
from tests.studies.validation.scoreboard.tools.recorded import Answers, ask_the_rest, recorded
from tests.studies.validation.silicon import SERVED_SEQS, SERVED_TOKENS, Point, Prepared

NAME = "AISimulate"
BLOCK = 512
SECONDS = 240
"""After so long a point counts as not answered."""
NVFP4 = {
    "MiniMaxAI/MiniMax-M2.5": "nvidia/MiniMax-M2.5-NVFP4",
    "moonshotai/Kimi-K2.5": "nvidia/Kimi-K2.5-NVFP4",
}
"""Checkpoints of models that were served in 4 bits, as the tool names them."""
DENSE = {
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
}
"""Dense models as the tool names them; the precision is told beside."""


def answers(points: Sequence[Prepared]) -> Answers:
    """Return the recorded answers."""
    return recorded("aisimulate", points)


def ask(ready: Prepared, command: Path) -> tuple[float, float]:
    """Return TTFT and TPOT of one point, ms. Raises RuntimeError with the tool's own words."""
    found = predicted(ready, command)
    return found["mean_ttft_ms"], found["mean_tpot_ms"]


def predicted(ready: Prepared, command: Path) -> dict[str, float]:
    """Return all that the tool says of one point. Raises RuntimeError with the tool's own words."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "trace.jsonl").write_text(_mooncake(ready))
        (work / "asked.yaml").write_text(json.dumps(_question(ready, work / "trace.jsonl")))
        call = [str(command), "predict", "-c", str(work / "asked.yaml"), "--format", "json"]
        call += ["--output-dir", str(work / "out")]
        try:
            done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"no answer in {SECONDS} s") from error
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr).strip().splitlines()[0][:300])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _mooncake(ready: Prepared) -> str:
    """Return the point's requests as the tool reads them; no two share a block."""
    lines, taken = [], 0
    for prompt, output in zip(ready.requests.prompt_tokens, ready.requests.output_tokens, strict=True):
        blocks = -(-int(prompt) // BLOCK)
        row = {"timestamp": 0, "input_length": int(prompt), "output_length": int(output)}
        lines.append(json.dumps({**row, "hash_ids": list(range(taken, taken + blocks))}))
        taken += blocks
    return "\n".join(lines) + "\n"


def name_of(point: Point) -> str:
    """Return a point's model as the tool names it."""
    return (NVFP4 if point.fp4 and point.model in NVFP4 else DENSE).get(point.model, point.model)


def parallelism_of(ready: Prepared) -> dict[str, int]:
    """Return how the point's GPUs share the experts; nothing for a dense model."""
    point = ready.point
    if not ready.peak.num_experts:
        return {}
    whole = point.has_whole_experts
    return {"moe_tensor": 1 if whole else point.tp, "moe_expert": point.tp if whole else 1}


def precision_of(ready: Prepared) -> dict[str, str]:
    """Return the products' precision where the name of the checkpoint does not tell it."""
    point = ready.point
    if point.fp4 and point.model not in NVFP4:
        return {"gemm_quant_mode": "nvfp4"}
    return {"gemm_quant_mode": "fp8"} if point.fp8 and not ready.peak.num_experts else {}


def _question(ready: Prepared, trace: Path) -> dict[str, object]:
    point = ready.point
    shared = {"replicas": 1, "tensor": point.tp, "pipeline": 1, "attention_data": 1}
    worker = {
        "parallelism": {**shared, **parallelism_of(ready)},
        "scheduler": {"max_batched_tokens": SERVED_TOKENS, "max_sequences": SERVED_SEQS},
        "kv_cache": {"prefix_caching": False},
        "timing": precision_of(ready),
    }
    return {
        "traffic": {
            "source": {"type": "trace", "paths": [str(trace)], "block_size": BLOCK},
            "load": {"type": "concurrency", "concurrency": point.concurrency},
        },
        "engine": {
            "mode": "aggregated",
            "model": name_of(point),
            "hardware": f"{point.gpu.lower()}_sxm",
            "backend": "vllm",
            "workers": {"aggregated": worker},
        },
    }


if __name__ == "__main__":
    tool = Path(sys.argv[1]) / "bin" / "aisimulate"
    ask_the_rest("aisimulate", read_scored(default_data()), lambda ready: ask(ready, tool))
