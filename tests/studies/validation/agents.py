"""Agents' sessions: the twin's prefix hits with an unlimited cache beside the trace's own, session by session."""

from __future__ import annotations

import tempfile
from pathlib import Path

from replay import load_config, run
from traces import prompt_tokens
from traces.importers import read_public
from traces.trace_summary import prefix_hit_ceiling_frac

TWIN = """\
engine: {max_num_seqs: 64, max_num_batched_tokens: 8192, max_model_len: 1000000, num_gpu_blocks: 1000000}
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 10, beta2: 1}}
"""


def table(data: Path) -> str:
    """Return the table: how many sessions, requests and prompt tokens, and the largest difference in points."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "twin.yaml").write_text(TWIN)
        twin = load_config(Path(name) / "twin.yaml")
    num_requests, num_tokens, worst = 0, 0, 0.0
    files = sorted((data / "agent_traces").glob("*.json.gz"))
    for file in files:
        trace = read_public("weka", file)
        done = run(trace, twin)
        tokens = int(prompt_tokens(trace).sum())
        hits = int(done.trace.cells("num_cached_tokens").filled(0).sum()) / tokens
        worst = max(worst, abs(hits - (prefix_hit_ceiling_frac(trace) or 0.0)))
        num_requests, num_tokens = num_requests + len(trace), num_tokens + tokens
    return "\n".join(
        [
            "| sessions | requests | prompt tokens | largest difference of hit rates, points |",
            "|---|---|---|---|",
            f"| {len(files)} | {num_requests:,} | {num_tokens:,} | {100 * worst:.3f} |",
        ]
    )
