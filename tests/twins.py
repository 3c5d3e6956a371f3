"""TWIN.yaml's that several tests ask, as texts: what one needs to be else, its test replaces or appends."""

from __future__ import annotations

LATENCY = """\
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 10, beta2: 20}
"""
"""Steps of 6 ms and more."""

EIGHT_SEATS = """\
engine: {max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 400, max_model_len: 2048}
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 10, beta2: 20}}
"""

SIXTEEN_SEATS = f"""\
engine: {{max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 400, max_model_len: 2048}}
{LATENCY}"""

SIXTEEN_SEATS_SYNC = f"""\
engine:
  {{max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 400, max_model_len: 2048, async_scheduling: false}}
{LATENCY}"""

SIXTY_FOUR_SEATS = """\
engine: {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: 6000, max_model_len: 8192}
latency: {model: blackbox, coefficients: {alpha0: 2000, alpha1: 0, alpha2: 0, beta0: 9000, beta1: 20, beta2: 20}}
"""

FOUR_THOUSAND_BLOCKS = """\
engine: {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: 4000, max_model_len: 8192}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 30, beta2: 20}
"""

EIGHT_SEATS_ALONE = """\
engine: {max_num_seqs: 8}
latency: {model: blackbox, coefficients: {alpha0: 9, alpha1: 1, alpha2: 0, beta0: 5000, beta1: 10, beta2: 9}}
"""

THOUSAND_BLOCKS = """\
engine: {max_num_seqs: 8, num_gpu_blocks: 1000}
latency: {model: blackbox, coefficients: {alpha0: 9, alpha1: 1, alpha2: 0, beta0: 5000, beta1: 10, beta2: 10}}
"""

SHORT_OF_BLOCKS = """\
engine: {max_num_seqs: 16, max_num_batched_tokens: 64, num_gpu_blocks: 20, max_model_len: 300,
  async_scheduling: false}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 3000, beta1: 10, beta2: 20}
"""
"""It has to preempt."""

LLAMA_ON_H100 = """\
engine: {num_gpu_blocks: 4000, max_num_seqs: 32, max_num_batched_tokens: 2048, max_model_len: 2048}
latency: {model: roofline, model_config: meta-llama/Llama-3.1-8B-Instruct}
hardware: {gpu: H100, tp: 1}
"""

ONE_US_EACH = (
    "latency: {model: blackbox, "
    "coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 1, beta1: 1, beta2: 1}}"
)
"""The latency of tests that ask of no time."""
