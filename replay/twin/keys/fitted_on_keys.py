"""The flags of a server that ``latency.fitted_on`` keeps."""

from __future__ import annotations

WHOLE = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "num_gpu_blocks",
    "max_model_len",
    "pipeline_parallel_size",
    "num_speculative_tokens",
)
SWITCHES = ("enable_prefix_caching", "enable_chunked_prefill", "async_scheduling", "enforce_eager")
WORDS = ("scheduling_policy", "dtype", "quantization", "kv_cache_dtype")
FLAGS = (*WHOLE, *SWITCHES, *WORDS)
"""The server's flags that a profile keeps, under vLLM's names."""
