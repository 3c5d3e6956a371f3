"""What both sides of a recording take for granted. Only the standard library: vLLM's Python, too, reads this.

A prompt is given as ``prompt_token_ids``, or as ``prompt_len`` with, if it shares its head with others,
``prefix_group`` and ``prefix_len``. Everything else in a prompt, and every output, is the request's own. A
prompt that wants to repeat somebody's output spells out its ids. A line's ``adapter`` is the number of its LoRA
adapter, from 0; with ``max_loras`` 0, the default, there are none. With ``guided`` true a line's answer is held to a
grammar, which takes ``guided_compile_us`` from its arrival to compile.
"""

from __future__ import annotations

from typing import Any

DEFAULTS: dict[str, Any] = {
    "block_size": 16,
    "num_gpu_blocks": 1000,
    "max_num_seqs": 128,
    "max_num_batched_tokens": 2048,
    "long_prefill_token_threshold": 0,
    "long_prefill_token_threshold_adaptive": False,
    "max_model_len": 4096,
    "enable_prefix_caching": True,
    "policy": "fcfs",
    "enable_chunked_prefill": True,
    "async_scheduling": False,
    "pipeline_parallel_size": 1,
    "watermark": 0.0,
    "scheduler_reserve_full_isl": True,
    "frontend": "openai",
    "groups": [],
    "max_loras": 0,
    "guided_compile_us": 0,
    "beta0": "5000",
    "beta1": "20",
    "beta2": "100",
}
"""What a config.json need not say."""

MOST_FRUITLESS_STEPS = 300
"""So many preempting steps with no token for anybody, and nobody new, will go on for ever."""

GROUP_STRIDE = 10**6
PROMPT_ORIGIN = 10**12
OUTPUT_ORIGIN = 2 * 10**12
REQUEST_STRIDE = 10**6


def output_token_id(request: int, number: int) -> int:
    """Return the id of a request's output token ``number``, from 0."""
    return OUTPUT_ORIGIN + request * REQUEST_STRIDE + number


def prompt_token_ids(row: dict[str, Any], request: int) -> list[int]:
    """Return the prompt of line ``request`` of a trace."""
    if row.get("prompt_token_ids") is not None:
        ids: list[int] = row["prompt_token_ids"]
        return ids
    length, group = row["prompt_len"], row.get("prefix_group")
    num_shared = 0 if group is None else min(row.get("prefix_len") or 0, length)
    first_shared = 0 if group is None else GROUP_STRIDE * (group + 1)
    first_own = PROMPT_ORIGIN + request * REQUEST_STRIDE
    shared = range(first_shared, first_shared + num_shared)
    return [*shared, *range(first_own, first_own + length - num_shared)]
