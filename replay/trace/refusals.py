"""Why a simulated server did not answer a request: too long, empty, or more than its KV cache ever holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim import EngineConfig, Int64s, Status


def refusals(
    status: NDArray[np.int8], engine: EngineConfig, *, prompt_tokens: Int64s, output_tokens: Int64s
) -> NDArray[Any]:
    """Return the reason for each request that was rejected or is stuck, empty for all others.

    All arrays [requests]; ``output_tokens``: as asked for. In the order of ``sim/engine/initial_state.py``, whose tests
    these are: of several reasons the first.
    """
    found = np.full(len(status), "", dtype=object)
    most = engine.max_model_len
    rejected = status == Status.REJECTED
    usable = engine.num_gpu_blocks - 1  # without the null block
    held = f"{usable * engine.block_size} tokens"
    if engine.kv_cache_groups:
        held = f"{usable} blocks for {engine.num_kv_cache_groups} groups of layers"
    reasons = [
        (rejected & (prompt_tokens < 1), "the prompt is empty"),
        (rejected & (output_tokens < 1), "it asks for no output token"),
    ]
    if engine.frontend == "openai":
        reasons += [
            (
                rejected & (prompt_tokens >= most),
                f"the prompt is too long for engine.max_model_len {most}, which must hold a token of output, too",
            ),
            (rejected & (output_tokens > most), f"it asks for more output than engine.max_model_len {most}"),
        ]
    reasons += [
        (
            rejected,
            f"prompt and output do not fit into engine.max_model_len {most} or the KV cache",
        ),
        (
            status == Status.STUCK,
            f"the KV cache (engine.num_gpu_blocks {engine.num_gpu_blocks}, {held}) is too small for it, "
            "or for one that it waits behind",
        ),
    ]
    for applies, reason in reasons:
        found[applies & (found == "")] = reason
    return found
