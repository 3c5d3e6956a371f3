"""``compatibility: blis``: where the peer decides otherwise than vLLM. All of it is here; callers only ask.

1. A request whose prompt and outputs together exceed max_model_len, or whose prompt needs more blocks than the cache
   has, is refused when it arrives.
2. A sequence ends at max_model_len - 1 tokens, not at max_model_len.
3. Admission asks for the blocks of the first chunk only: no full-sequence gate, no watermark.
4. The long-prefill threshold holds for a lone request, too, and is never adapted.
5. A prompt that is cached whole computes nothing; a step without tokens lasts 1 µs.
6. Freed blocks all go to the back of the free queue, hashed or not: least recently used first.
7. A preempted request starts over from its prompt. Its outputs are lost and made anew, its first token with them.
8. Of requests that tie for being preempted the one with the highest number goes: under 7 two that took turns would
   never end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.config import UNBOUNDED, EngineConfig
from sim.engine.state import Records, State
from sim.jit.compile import part
from sim.requests import Int64s
from sim.versions import VersionRules

LEAST_STEP_US = 1


def refused_on_arrival(
    config: EngineConfig, *, prompt_tokens: Int64s, output_tokens: Int64s
) -> NDArray[np.bool_]:
    """Return which requests are refused (1)."""
    refused = prompt_tokens + output_tokens > config.max_model_len
    if config.num_gpu_blocks != UNBOUNDED:
        refused |= -(-prompt_tokens // config.block_size) > config.num_gpu_blocks - 1
    return refused


def longest_sequence(config: EngineConfig) -> int:
    """Return at how many tokens a sequence ends (2)."""
    return config.max_model_len - (config.compatibility == "blis")


def apply_settings(settings: Records, config: EngineConfig, _: VersionRules) -> None:
    """Set what the peer has no switch for (3, 4, 6), where its rules hold."""
    if config.compatibility != "blis":
        return
    settings["is_blis"] = 1
    settings["scheduler_reserve_full_isl"] = settings["watermark_blocks"] = 0
    settings["long_prefill_token_threshold_adaptive"] = 0
    settings["enable_chunked_prefill"] = 1
    settings["lifts_threshold_for_lone_request"] = settings["frees_unhashed_blocks_first"] = 0


@part
def num_tokens_to_look_up(s: State, request: int) -> int:
    """Return how many leading tokens may come from the cache: all but the last, for the peer all (5)."""
    return s.requests[request].num_tokens - 1 + s.engine[0].settings.is_blis


@part
def least_step_us(s: State, num_entries: int) -> int:
    """Return what a step lasts at least: only the peer's have a floor, for admissions that compute nothing (5)."""
    return LEAST_STEP_US if s.engine[0].settings.is_blis and num_entries > 0 else 0


@part
def loses_tie(s: State, request: int, victim: int) -> bool:
    """Return whether ``request`` is preempted in place of ``victim`` though they tie (8); vLLM keeps the first."""
    return s.engine[0].settings.is_blis == 1 and request > victim


@part
def repeats_preempting_all(s: State) -> bool:
    """Return whether preemption left no request running, as before, and none has come or finished in between (7).

    The request that needs more than the whole cache would then begin again for ever.
    """
    queues, totals = s.engine[0].queues, s.engine[0].totals
    if queues.num_running > 0:
        return False
    now = totals.num_completed + queues.num_joined
    gained_nothing = queues.fruitless_since == now
    queues.fruitless_since = now
    return gained_nothing


@part
def forget_outputs(s: State, request: int) -> None:
    """Restart a preempted request from its prompt (7)."""
    if s.engine[0].settings.is_blis:
        s.requests[request].num_tokens = s.requests[request].num_prompt_tokens
