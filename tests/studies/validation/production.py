"""Production traces replayed whole: Azure 2023 and Mooncake's conversations, through the commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

VTWIN = Path(sys.executable).parent / "vtwin"

AZURE = "{max_num_seqs: 256, max_num_batched_tokens: 8192, num_gpu_blocks: 60000}"
MOONCAKE = "{max_num_batched_tokens: 8192, num_gpu_blocks: 31000, block_size: 512, max_model_len: 131072}"
LATENCY = (
    "{model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 20, beta2: 30}}"
)

TRACES = (
    ("azure", "azure_llm_2023/AzureLLMInferenceTrace_conv.csv", AZURE),
    ("azure", "azure_llm_2023/AzureLLMInferenceTrace_code.csv", AZURE),
    ("mooncake", "mooncake_fast25/conversation_trace.jsonl.gz", MOONCAKE),
    ("mooncake", "mooncake_fast25/synthetic_trace.jsonl.gz", MOONCAKE),
)


def vtwin(*arguments: str) -> str:
    """Run a command and return what it printed."""
    return subprocess.run([VTWIN, *arguments], check=True, capture_output=True, text=True).stdout


def table(data: Path, work: Path) -> str:
    """Return the Markdown table of every trace: converted, checked, replayed in full."""
    lines = [
        "| trace | requests | finished | prefix hits | hit ceiling | simulated s | engine CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for source, path, engine in TRACES:
        stem = str(work / Path(path).name.split(".")[0])
        vtwin("trace", "convert", "--from", source, str(data / path), "--output", stem)
        vtwin("trace", "check", stem)
        info = json.loads(vtwin("trace", "info", stem, "--json"))
        twin = work / "twin.yaml"
        twin.write_text(f"engine: {engine}\nlatency: {LATENCY}\n")
        replayed = vtwin("replay", stem, "--config", str(twin), "--output", f"{stem}.sim", "--json")
        summary = json.loads(replayed)
        ceiling = info.get("prefix_hit_ceiling_frac")
        lines.append(
            f"| {Path(path).name} | {summary['num_requests']:,} | {summary['num_by_status'].get('ok', 0):,} "
            f"| {summary['prefix_hit_frac']:.3f} | {'-' if ceiling is None else f'{ceiling:.3f}'} "
            f"| {summary['duration_us'] / 1e6:,.0f} | {summary['engine_cpu_s']:.2f} |"
        )
    return "\n".join(lines)
