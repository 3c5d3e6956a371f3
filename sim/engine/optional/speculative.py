"""Speculative decoding: drafts are scheduled with a request's newest token; how many hold is drawn, not computed.

A request that sampled in its last step has k drafts in hand; a prompt still being computed and a preempted request
have none. Its next step computes 1 + k tokens, fewer where the budget or max_model_len cuts (what is cut is lost), and
gives one token more than the accepted drafts; the rejected are taken back from its computed tokens. As vLLM 0.32 does,
async too: there the placeholders count every draft until the results are in. A request that is admitted with one token
to compute, beside decoding ones, is padded to 1 + k with drafts that no drafter made, so that the batch stays uniform.
"""

from __future__ import annotations

import numpy as np

from sim.engine.dtypes import IS_DECODE, IS_PADDED, SAMPLES
from sim.engine.records.draft_records import NEVER_PADS, PADS_BESIDE_HITS, PADS_OR_WAITS
from sim.engine.state import State
from sim.engine.step_time.step_duration import LONGEST_OUTPUT, uniform
from sim.jit.compile import part, phase

NO_ROOM = 1 << 30
"""More drafts than fit into any step."""


@part
def num_tokens_to_verify(s: State, request: int) -> int:
    """Return how many drafts a running request has in hand."""
    return s.num_drafts[request] if s.engine[0].settings.num_speculative_tokens > 0 else 0


@part
def propose_tokens(s: State, request: int, kind: int) -> None:
    """Give a request that samples its next drafts; what it had is used up or lost."""
    k = s.engine[0].settings.num_speculative_tokens
    if k > 0:
        s.num_drafts[request] = k if kind & SAMPLES else 0


@part
def note_running(s: State, request: int) -> None:
    """Note that a running request is scheduled: without drafts it is still computing known tokens."""
    settings, current = s.engine[0].settings, s.engine[0].current_step
    if settings.num_speculative_tokens > 0 and s.num_drafts[request] == 0:
        current.has_prefill = 1


@part
def padding_of_admission(s: State, request: int, num_found: int) -> int:
    """Return with how many drafts that no drafter made the admission of a request is padded: k or 0.

    ``num_found``: its tokens that need not be computed. With a version that has it wait where these drafts are too
    long for the model, it is ``NO_ROOM`` there (``VersionRules.pads_admissions``).
    """
    is_one_token = s.requests[request].num_tokens - num_found == 1
    if is_one_token and s.engine[0].settings.pads_admissions != NEVER_PADS:
        return padding_of_one_token(s, num_found)
    return 0


@phase
def padding_of_one_token(s: State, num_found: int) -> int:
    """Return ``padding_of_admission`` of one token to compute behind ``num_found``."""
    settings, current = s.engine[0].settings, s.engine[0].current_step
    k = settings.num_speculative_tokens
    beside_hits = settings.pads_admissions == PADS_BESIDE_HITS and num_found > 0
    if current.has_prefill or (current.has_company == 0 and not beside_hits):
        return 0
    if settings.pads_admissions == PADS_OR_WAITS:
        return k if num_found + k + 1 <= settings.max_model_len else NO_ROOM
    return k if num_found + k + 2 <= settings.max_model_len else 0


@part
def clear_of_prompt_end(s: State, request: int, start: int, num_tokens: int) -> int:
    """Return how many of a request's next tokens behind ``start`` to compute where drafts read on in the prompt.

    A chunk ends a prompt, or leaves as much of it as several drafting modules read ahead; may be 0
    (vllm 0.32.0 v1/core/sched/scheduler.py:_reserve_prefill_lookahead).
    """
    num_ahead = s.engine[0].settings.num_prefill_lookahead_tokens
    num_left = s.requests[request].num_tokens - start - num_tokens
    if 0 < num_left < num_ahead:
        num_tokens -= num_ahead - num_left
    return max(num_tokens, 0)


@part
def mark_padding(s: State, batch: int, padding: int) -> None:
    """Mark the entry just made as padded."""
    if padding > 0:
        s.entries[batch, s.batches[batch].num_entries - 1].kind += IS_PADDED


@part
def drop_drafts(s: State, request: int) -> None:
    """Take the drafts of a request that is preempted."""
    if s.engine[0].settings.num_speculative_tokens > 0:
        s.num_drafts[request] = 0


@part
def num_accepted_of(s: State, request: int, num_scheduled: int) -> int:
    """Return how many of the scheduled drafts hold: a function of (seed, request, its tokens so far) alone.

    One draw decides: rate i is the chance that the first i drafts all hold (vLLM's synthetic acceptance rates).
    """
    first = (np.int64(request) + 1) * LONGEST_OUTPUT  # in plain Python a record's number has 32 bits
    draw = uniform(s.engine[0].settings.seed, first + s.requests[request].num_tokens)
    num_accepted = 0
    while num_accepted < num_scheduled and draw < s.acceptance_rates[num_accepted]:
        num_accepted += 1
    return num_accepted


@part
def verify_drafts(s: State, request: int, num_tokens: int, kind: int, is_stale: bool) -> int:
    """Take back a request's rejected drafts of its step of ``num_tokens``; return how many hold.

    Results from before a preemption take nothing back: the request starts over anyhow.
    """
    settings, totals, r = s.engine[0].settings, s.engine[0].totals, s.requests[request]
    if not kind & (IS_DECODE + IS_PADDED):
        return 0
    num_scheduled, num_accepted = num_tokens - 1, 0
    if not kind & IS_PADDED:
        num_accepted = num_accepted_of(s, request, num_scheduled)
        totals.num_draft_tokens += num_scheduled
        totals.num_accepted_tokens += num_accepted
    if not is_stale:
        r.num_computed_tokens -= num_scheduled - num_accepted
        if settings.async_scheduling:
            r.num_output_placeholders -= num_scheduled - num_accepted
    return num_accepted
