"""``engine.batching``: what others than vLLM's scheduler put into a batch; vLLM's own rule is in ``schedule``.

1. Orca, sarathi and static: first come, first served. No prefix cache. Every running request that decodes gets its
   token in every step, in the order of admission; no token budget stops it.
2. Orca and static: at admission a request reserves blocks for its prompt and all the tokens that it may make. There is
   no token budget: a prompt is computed in one piece. None is ever preempted.
3. Static: while any request runs none is admitted. A batch runs to its end; one that is done early leaves, and gives
   its seat to none.
4. Sarathi: ``max_num_batched_tokens`` is the budget of a step. Decodes take theirs of it first, then running requests
   that still prefill, then waiting ones, each at most what is left. At admission a request reserves the blocks of all
   its known tokens. A decode that finds no block preempts the one admitted last, which may be itself; that one goes to
   the front of the queue and computes all its known tokens again.
5. Sarathi: a request decodes where one output token is all that it has to compute.
6. vllm-v0, vLLM's first engine without chunked prefill: a step computes whole prompts, as many from the head of the
   queue as the token budget takes, or, where none is admitted, one token for each running request. Prompts go first:
   while they come, nobody decodes. A prompt is admitted where as many blocks as it has are free beside the watermark,
   whatever of it is cached; cached tokens take nothing of the budget. (vllm 0.8.5 core/scheduler.py:
   _schedule_default, _schedule_prefills; core/block_manager.py: can_allocate.)

Orca: Yu et al., "Orca: A Distributed Serving System for Transformer-Based Generative Models", OSDI 2022, algorithm 1.
Sarathi: Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", OSDI 2024, algorithm
3. Static is what Orca's paper compares with (FasterTransformer). Vidur has all of them as replica schedulers (Agrawal
et al., "Vidur: A Large-Scale Simulation Framework for LLM Inference", MLSys 2024); docs/explanation/batching.md says
where these rules differ from Vidur's.
"""

from __future__ import annotations

from sim.config import EngineConfig
from sim.engine.records.batching_records import ORCA, SARATHI, STATIC, VLLM, VLLM_V0
from sim.engine.state import Records, State
from sim.jit.compile import part, phase
from sim.versions import VersionRules

CODES = {"vllm": VLLM, "orca": ORCA, "sarathi": SARATHI, "static": STATIC, "vllm-v0": VLLM_V0}
NO_BUDGET = 1 << 40
"""A token budget that no batch reaches (2)."""


def apply_settings(settings: Records, config: EngineConfig, _: VersionRules) -> None:
    """Set how batches are made."""
    settings["batching"] = CODES[config.batching]
    if config.batching in {"orca", "static"}:
        settings["max_num_batched_tokens"] = NO_BUDGET


@part
def is_decode(s: State, request: int) -> bool:
    """Return whether a running request decodes (5)."""
    r = s.requests[request]
    return r.num_computed_tokens == r.num_tokens - 1 and r.num_tokens > r.num_prompt_tokens


@part
def is_stopped_by_company(s: State) -> bool:
    """Return whether no request is admitted because one runs (3)."""
    return s.engine[0].settings.batching == STATIC and s.engine[0].queues.num_running > 0


@part
def reserves_sequences(s: State) -> bool:
    """Return whether a running request has all the blocks that it will ever need (2)."""
    return s.engine[0].settings.batching in (ORCA, STATIC)


@part
def num_blocks_reserved(s: State, request: int) -> int:
    """Return how many blocks a request reserves at admission (2, 4)."""
    settings, r = s.engine[0].settings, s.requests[request]
    num_tokens = r.num_tokens if settings.batching == SARATHI else r.max_total_tokens
    return -(-num_tokens // settings.block_size)


@phase
def steps_until_one_ends(s: State) -> int:
    """Return for how many steps every running request has a token to compute, where sequences are reserved.

    As ``jump.steps_while_all_decode``, but no request will need a block. Sync engines only.
    """
    queues, current = s.engine[0].queues, s.engine[0].current_step
    fewest, context = 0, 0
    for i in range(queues.num_running):
        r = s.requests[s.running[i]]
        if not is_decode(s, s.running[i]):
            return 0
        left = r.max_total_tokens - r.num_tokens
        fewest = left if i == 0 else min(fewest, left)
        context += r.num_computed_tokens + 1
    current.decode_context_tokens, current.must_enter_blocks = context, 0
    return fewest
