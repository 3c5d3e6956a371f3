"""Time that a step takes beyond its latency model, and requests that cost it: grammars, adapters, encoders, drafts.

Off unless the configuration and, but for the last two, some request say so. Of a step:

- each guided request that samples in it: ``guided_mask_us``, for its bitmask;
- an encoder at work: ``encoder_step_us`` once, ``encoder_token_us`` for each multimodal token, in the step in which its
  request is scheduled for the first time; of images whose places are known, in the step that encodes them
  (``encoder_inputs``), and ``encoder_token_pair_us`` for each (token, token) pair of an image. Where
  ``encoder_data_parallel_size`` GPUs share the images out, the step waits for the largest one at least;
- drafting: ``draft_us`` for each of the k tokens that are drafted for all requests at once, where any sampled;
- requests with LoRA adapters: the latency model's time times ``lora_step_factor``, and ``lora_load_us`` for each
  adapter that has no place on the GPU yet. There are ``max_loras`` places, as many as adapters where that is 0; the
  adapter goes whose last step is longest ago (vLLM's LRUCacheLoRAModelManager);
- more tokens than a CUDA graph was captured for: at least ``launch_us``, in which the CPU starts the kernels;
- without async scheduling: ``host_step_us``, and with prompts ``host_prefill_us``, for what the CPU does in between.

A batch holds ``max_loras`` adapters at most: a waiting request of another is passed over and keeps its place (vllm
0.32.0 v1/core/sched/scheduler.py:schedule).
"""

from __future__ import annotations

import numpy as np

from sim.engine.dtypes import NEVER, SAMPLES
from sim.engine.state import State
from sim.engine.step_time.step_duration import lengthened_us
from sim.engine.waiting import earlier, skip_head
from sim.jit.compile import part, phase
from sim.latency.latency_model import EXTENDED


@part
def adapter_of(s: State, request: int) -> int:
    """Return a request's adapter, NEVER where it has none."""
    return s.traits[request].adapter


@phase
def place_of(s: State, adapter: int) -> int:
    """Return which place on the GPU an adapter has, NEVER where it has none."""
    for i in range(len(s.lora_places)):
        if s.lora_places[i].adapter == adapter:
            return i
    return NEVER


@phase
def load_adapter(s: State, adapter: int, step: int) -> int:
    """Use an adapter in a step; return what loading it takes, 0 when it has its place already."""
    at = place_of(s, adapter)
    takes_us = 0
    if at == NEVER:
        at = 0
        for i in range(1, len(s.lora_places)):
            if s.lora_places[i].last_step < s.lora_places[at].last_step:
                at = i
        s.lora_places[at].adapter = adapter
        takes_us = s.engine[0].settings.lora_load_us
        s.engine[0].totals.num_lora_loads += 1
    s.lora_places[at].last_step = step
    return takes_us


@part
def hold_duty(s: State, added_us: int) -> None:
    """Keep a latency model's slow state as it is for added time."""
    if s.engine[0].settings.latency_kind == EXTENDED:
        s.engine[0].clock.duty_time_us += added_us // s.engine[0].settings.pipeline_parallel_size


@part
def launched_us(s: State, num_tokens: int, compute_us: int) -> int:
    """Return how long a step computes that has so many tokens: the CPU starts the kernels where no graph does."""
    settings = s.engine[0].settings
    if num_tokens <= settings.num_graph_tokens:
        return compute_us
    return max(compute_us, int(np.rint(settings.launch_us)))


@phase
def encoder_us(s: State, batch: int) -> float:
    """Return how long the encoder takes in a step in which it makes any tokens."""
    settings, b = s.engine[0].settings, s.batches[batch]
    num_pairs, largest = 0.0, 0
    if settings.has_images:
        for i in range(b.num_entries):
            r = s.images_of[s.entries[batch, i].request]
            if r.step == b.step + 1:  # steps count from 1 there
                num_pairs += r.num_pairs
                largest = max(largest, r.largest)
    per_token, per_pair = settings.encoder_token_us, settings.encoder_token_pair_us
    shared = (
        per_token * s.engine[0].current_step.num_encoder_tokens + per_pair * num_pairs
    ) / settings.encoder_data_parallel_size
    return settings.encoder_step_us + max(shared, per_token * largest + per_pair * largest * largest)


@phase
def with_added_time(s: State, batch: int, compute_us: int) -> int:
    """Return how long a batch takes that its latency model gives ``compute_us``."""
    settings, current, b = s.engine[0].settings, s.engine[0].current_step, s.batches[batch]
    num_guided = num_samples = load_us = 0
    has_adapter = False
    for i in range(b.num_entries):
        entry = s.entries[batch, i]
        is_sampled = entry.kind & SAMPLES != 0
        num_samples += is_sampled
        if settings.has_traits:
            num_guided += is_sampled and s.traits[entry.request].is_guided == 1
            adapter = adapter_of(s, entry.request)
            if adapter != NEVER:
                has_adapter = True
                load_us += load_adapter(s, adapter, b.step)
    added = settings.guided_mask_us * num_guided
    if current.num_encoder_tokens > 0:
        added += encoder_us(s, batch)
    if num_samples > 0:
        added += settings.draft_us * settings.num_speculative_tokens
    added += settings.host_step_us
    if b.num_prefill_tokens > 0:
        added += settings.host_prefill_us
    launched = launched_us(s, b.num_prefill_tokens + b.num_decode_tokens, compute_us)
    duration_us = lengthened_us(launched, settings.lora_step_factor if has_adapter else 1.0, added) + load_us
    hold_duty(s, duration_us - compute_us)
    return duration_us


@part
def with_host_time(s: State, num_tokens: int, has_prefill: bool, compute_us: int) -> int:
    """Return how long a step of requests without traits takes that its latency model gives ``compute_us``."""
    settings = s.engine[0].settings
    added = settings.host_step_us
    if has_prefill:
        added += settings.host_prefill_us
    duration_us = lengthened_us(launched_us(s, num_tokens, compute_us), 1.0, added)
    hold_duty(s, duration_us - compute_us)
    return duration_us


@phase
def describe_running(s: State, num_steps: int) -> bool:
    """Note what a jump of the running requests adds to each of its steps; return False when it would load an adapter.

    With ``num_steps`` > 0 the jump is taken: their adapters were used in its last step.
    """
    queues, current, totals = s.engine[0].queues, s.engine[0].current_step, s.engine[0].totals
    current.num_guided = current.has_adapter = 0
    for i in range(queues.num_running):
        t = s.traits[s.running[i]]
        current.num_guided += t.is_guided
        if t.adapter != NEVER:
            current.has_adapter = 1
            at = place_of(s, t.adapter)
            if at == NEVER:
                return False
            if num_steps > 0:
                s.lora_places[at].last_step = totals.num_steps + num_steps - 1
    return True


@part
def with_time_added_in_jump(s: State, compute_us: int) -> int:
    """Return how long a step of a jump takes that its latency model gives ``compute_us``."""
    settings, current = s.engine[0].settings, s.engine[0].current_step
    if not settings.adds_time:
        return compute_us
    factor = settings.lora_step_factor if current.has_adapter else 1.0
    added = settings.guided_mask_us * current.num_guided + settings.host_step_us
    duration_us = lengthened_us(launched_us(s, s.engine[0].queues.num_running, compute_us), factor, added)
    hold_duty(s, duration_us - compute_us)
    return duration_us


@part
def note_first_schedule(s: State, request: int) -> None:
    """Count what an encoder computes for a request that is scheduled for the first time."""
    settings = s.engine[0].settings
    if not settings.has_traits:
        return
    if settings.has_kv_transfers and s.transfers[request].num_external_computed_tokens > 0:
        return  # the engine that computed its prompt has done it
    num_tokens = s.traits[request].num_encoder_tokens
    if settings.has_images:  # they count when they are encoded
        num_tokens = max(num_tokens - s.images_of[request].num_tokens, 0)
    s.engine[0].current_step.num_encoder_tokens += num_tokens


# -- adapters of a batch --------------------------------------------------------------------------------------


@phase
def note_adapter(s: State, batch: int, request: int) -> None:
    """Count a request's adapter among those of a batch."""
    adapter, step = adapter_of(s, request), s.batches[batch].step
    if adapter != NEVER and s.adapter_steps[adapter] != step:
        s.adapter_steps[adapter] = step
        s.engine[0].current_step.num_adapters += 1


@phase
def note_adapters(s: State, batch: int) -> None:
    """Count the adapters of a batch that holds running requests only; with some versions of all that run."""
    current = s.engine[0].current_step
    current.num_adapters = 0
    if s.engine[0].settings.counts_adapters_of_all_running:
        for i in range(s.engine[0].queues.num_running):
            note_adapter(s, batch, s.running[i])
        return
    for i in range(s.batches[batch].num_entries):
        note_adapter(s, batch, s.entries[batch, i].request)


@phase
def skips_for_adapter(s: State, batch: int, request: int) -> bool:
    """Pass over the head of the queue if its adapter is one too many for a batch; return whether it was."""
    settings, current = s.engine[0].settings, s.engine[0].current_step
    adapter = adapter_of(s, request)
    if (
        adapter == NEVER
        or current.num_adapters < settings.max_loras
        or s.adapter_steps[adapter] == s.batches[batch].step
    ):
        return False
    skip_head(s, request)
    return True


# -- grammars that compile ------------------------------------------------------------------------------------


@phase
def skips_for_grammar(s: State, request: int) -> bool:
    """Pass over the head of the queue while its grammar compiles; return whether it does.

    It joined with its grammar's compilation begun. vLLM's status WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR.
    """
    settings, queues = s.engine[0].settings, s.engine[0].queues
    ready_us = s.requests[request].queued_us + s.traits[request].is_guided * settings.guided_compile_us
    if ready_us <= s.engine[0].clock.now_us:
        return False
    queues.next_grammar_us = earlier(queues.next_grammar_us, ready_us)
    skip_head(s, request)
    return True


@part
def next_grammar_us(s: State) -> int:
    """Return when the first grammar is there that the last step missed, NEVER where it missed none."""
    queues = s.engine[0].queues
    if s.engine[0].settings.waits_for_grammars == 0 or queues.num_waiting == 0:
        return NEVER
    return queues.next_grammar_us


@part
def has_new_grammar(s: State) -> bool:
    """Return whether a grammar has come since the last step missed it."""
    ready_us = next_grammar_us(s)
    return ready_us != NEVER and ready_us <= s.engine[0].clock.now_us
