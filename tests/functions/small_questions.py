"""What small questions are asked of: texts of files, and loads."""

from __future__ import annotations

from traces.workload import WorkloadOptions

POOLS = "pools: [{name: small, profile: A100, up_to: 1024}, {name: big, profile: H100}]\n"
GRID = """\
config: twin.yaml
set: {engine.max_num_seqs: [8, 64]}
workloads: {chat: {rate: 8, num_requests: 100, prompt_tokens: 600, output_tokens: 60}}
"""
SLO, LENGTHS = "ttft_p99=500ms", "--prompt-tokens 600 --output-tokens 60"
LOAD = WorkloadOptions(rate=8, num_requests=200, prompt_tokens=600, output_tokens=60, seed=1)
DRAWN = f"--rate 8 --num-requests 200 {LENGTHS} --seed 1"
