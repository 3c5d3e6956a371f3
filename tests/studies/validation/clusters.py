"""Production traces over replicas under every router: times, balance, cache hits."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

TWIN = """\
engine: {max_num_seqs: 256, max_num_batched_tokens: 8192, num_gpu_blocks: 16385, block_size: 64, max_model_len: 200000,
  async_scheduling: false, frontend: none}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 10000, beta1: 20, beta2: 0}}
cluster:
  instances: %d
  routing: %s
"""
"""Steps of 10 ms and 20 µs per prompt token: the linear clock under which Dynamo's offline replay was run."""

ROUTERS = {
    "round-robin": "{policy: round-robin}",
    "random": "{policy: random}",
    "power-of-two": "{policy: power-of-two}",
    "least-loaded": "{policy: least-loaded}",
    "vllm-dp": "{policy: vllm-dp}",
    "weighted, default": "{policy: weighted}",
    "weighted, llm-d's 3:2:2": (
        "{policy: weighted, scorers: {prefix-affinity: 3, queue-depth: 2, kv-utilization: 2}}"
    ),
    "weighted, precise": "{policy: weighted, scorers: {precise-prefix-cache: 2, active-requests: 3}}",
    "cache-aware": "{policy: cache-aware}",
    "kv-cost": "{policy: kv-cost}",
}


def replay(trace: Path, work: Path, *, instances: int, routing: str) -> dict[str, Any]:
    """Return the JSON of ``vtwin replay`` of a converted trace."""
    twin = work / "twin.yaml"
    twin.write_text(TWIN % (instances, routing))
    command = [
        sys.executable,
        "-m",
        "vtwin",
        "replay",
        str(trace),
        "--config",
        str(twin),
        "--json",
        "--overwrite",
    ]
    command += ["--output", str(work / "simulated.parquet")]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    document: dict[str, Any] = json.loads(answer.stdout)
    return document


def converted(data: Path, work: Path) -> dict[str, Path]:
    """Return the traces as TraceV2."""
    sources = {
        "Mooncake conversations": ("mooncake", data / "mooncake_fast25" / "conversation_trace.jsonl.gz"),
        "Azure conversations": ("azure", data / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv"),
    }
    traces = {}
    for name, (kind, path) in sources.items():
        traces[name] = work / f"{kind}.parquet"
        command = [sys.executable, "-m", "vtwin", "trace", "convert", str(path), "--from", kind]
        subprocess.run([*command, "--output", str(traces[name])], check=True, capture_output=True)
    return traces


def row(name: str, router: str, instances: int, document: dict[str, Any]) -> str:
    """Return a row of the table."""
    shares = [instance["num_requests"] for instance in document["instances"]]
    return (
        f"| {name}, {instances} | {router} | {document['ttft_us']['mean'] / 1000:,.2f} "
        f"| {document['ttft_us']['p99'] / 1000:,.0f} | {document['e2e_us']['mean'] / 1000:,.2f} "
        f"| {100 * document['prefix_hit_frac']:.1f} | {min(shares):,} to {max(shares):,} |"
    )


def table(data: Path, work: Path) -> str:
    """Return the table of both traces over eight replicas, and of Mooncake over 4 and 16 for Dynamo's figures."""
    lines = [
        "| trace, replicas | router | mean TTFT ms | p99 TTFT ms | mean E2E ms | hits % | requests per replica |",
        "|---|---|---|---|---|---|---|",
    ]
    traces = converted(data, work)
    for name, trace in traces.items():
        for router, routing in ROUTERS.items():
            lines.append(row(name, router, 8, replay(trace, work, instances=8, routing=routing)))
    name = "Mooncake conversations"
    for instances, router in product((4, 16), ("round-robin", "kv-cost")):
        document = replay(traces[name], work, instances=instances, routing=ROUTERS[router])
        lines.append(row(name, router, instances, document))
    return "\n".join(lines)
