"""What both sides of a recording take for granted. Only the standard library: vLLM's Python, too, reads this.

A prompt is given as ``prompt_token_ids``, or as ``prompt_len`` with, if it shares its head with others,
``prefix_group`` and ``prefix_len``. Everything else in a prompt, and every output, is the request's own. A
prompt that wants to repeat somebody's output spells out its ids. A line's ``adapter`` is the number of its LoRA
adapter, from 0; with ``max_loras`` 0, the default, there are none. With ``guided`` true a line's answer is held to a
grammar, which takes ``guided_compile_us`` from its arrival to compile.

A line's ``images`` are [position, tokens, content] each, by position; one that does not lie wholly in the prompt is
none. Their tokens stand in place of the others; equal contents are the same image. A step that has tokens lasts
``encoder_token_us`` longer for each token of an image that is encoded in it, ``encoder_token_pair_us`` for each pair of
them, n² of n, and ``encoder_step_us`` if there is any. With ``max_num_encoder_input_tokens`` 0,
the default, there is no encoder.

With ``num_speculative_tokens`` k every request that samples has k drafts afterwards. How many of those that a step
verifies hold is ``num_accepted``, of ``synthetic_acceptance_rates``, one per draft; those with which vLLM pads an
admission never hold. ``use_eagle`` true: the method is EAGLE, false: n-grams. Of ``groups``, those with
``is_eagle_group`` are the drafting model's; without any, all are. ``num_prefill_lookahead_tokens`` above 1: so many
modules draft (MTP), as many as drafts.
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
    "prefix_cache_retention_interval": None,
    "prefix_match_unit": None,
    "max_loras": 0,
    "guided_compile_us": 0,
    "num_speculative_tokens": 0,
    "synthetic_acceptance_rates": [],
    "use_eagle": False,
    "num_prefill_lookahead_tokens": 0,
    "max_num_encoder_input_tokens": 0,
    "encoder_cache_size": 0,
    "disable_chunked_mm_input": False,
    "encoder_step_us": 0,
    "encoder_token_us": 0,
    "encoder_token_pair_us": 0,
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
IMAGE_ORIGIN = 4 * 10**12
REQUEST_STRIDE = 10**6


def output_token_id(request: int, number: int) -> int:
    """Return the id of a request's output token ``number``, from 0."""
    return OUTPUT_ORIGIN + request * REQUEST_STRIDE + number


SEED = 42
"""Of ``num_accepted``: the engine's default."""
WORD = 2**64 - 1


def num_accepted(rates: list[float], request: int, num_tokens: int, *, num_scheduled: int) -> int:
    """Return how many of a request's drafts hold that has ``num_tokens`` so far: one draw decides (splitmix64)."""
    index = (request + 1) * 2**32 + num_tokens
    z = (SEED * 0x9E3779B97F4A7C15 + index * 0xD1B54A32D192ED03) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    draw = (((z ^ (z >> 31)) >> 11) + 0.5) / 2**53
    return next((i for i, rate in enumerate(rates[:num_scheduled]) if draw >= rate), num_scheduled)


def images_of(row: dict[str, Any]) -> list[list[int]]:
    """Return [position, tokens, content] of the images of a line's prompt."""
    if not row.get("images"):
        return []
    length = len(row.get("prompt_token_ids") or []) or row.get("prompt_len", 0)
    return [image for image in row["images"] if image[0] + image[1] <= length]


def prompt_token_ids(row: dict[str, Any], request: int) -> list[int]:
    """Return the prompt of line ``request`` of a trace, its images' tokens included."""
    ids = text_token_ids(row, request)
    for position, num_tokens, content in images_of(row):
        first = IMAGE_ORIGIN + content * REQUEST_STRIDE
        ids = [*ids[:position], *range(first, first + num_tokens), *ids[position + num_tokens :]]
    return ids


def text_token_ids(row: dict[str, Any], request: int) -> list[int]:
    """Return the prompt of line ``request`` of a trace, text in place of its images."""
    if row.get("prompt_token_ids") is not None:
        ids: list[int] = row["prompt_token_ids"]
        return ids
    length, group = row["prompt_len"], row.get("prefix_group")
    num_shared = 0 if group is None else min(row.get("prefix_len") or 0, length)
    first_shared = 0 if group is None else GROUP_STRIDE * (group + 1)
    first_own = PROMPT_ORIGIN + request * REQUEST_STRIDE
    shared = range(first_shared, first_shared + num_shared)
    return [*shared, *range(first_own, first_own + length - num_shared)]
