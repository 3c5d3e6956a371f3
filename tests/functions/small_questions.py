"""What small questions are asked of: texts of files, and loads."""

from __future__ import annotations

from traces.workload import WorkloadOptions

TWIN = """\
engine: {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: 4000, max_model_len: 8192}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 30, beta2: 20}
"""
POOLS = "pools: [{name: small, profile: A100, up_to: 1024}, {name: big, profile: H100}]\n"
GRID = """\
config: twin.yaml
set: {engine.max_num_seqs: [8, 64]}
workloads: {chat: {rate: 8, num_requests: 100, prompt_tokens: 600, output_tokens: 60}}
"""
SLO, LENGTHS = "ttft_p99=500ms", "--prompt-tokens 600 --output-tokens 60"
LOAD = WorkloadOptions(rate=8, num_requests=200, prompt_tokens=600, output_tokens=60, seed=1)
DRAWN = f"--rate 8 --num-requests 200 {LENGTHS} --seed 1"
