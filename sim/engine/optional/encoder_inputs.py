"""Images that an encoder has to see before their tokens are computed (vllm 0.32.0 v1/core/sched/scheduler.py).

A step encodes so many tokens of images (``max_num_encoder_input_tokens``), and the encoder cache has room for so many
(``encoder_cache_size``). An image is encoded as a whole, in the step that computes its first token; what comes out is
kept until its last token is computed. A share of a step that meets an image that cannot be encoded, or kept, ends
before it. An image that lies wholly in a prefix hit is passed over. With ``disable_chunked_mm_input`` a share ends
before an image that it would not reach the end of. A drafting model that reads ahead (EAGLE) wants an image so many
tokens earlier, and ends a share as many earlier.

Runs without images never come here.
"""

from __future__ import annotations

import numpy as np

from sim.engine.dtypes import NEVER
from sim.engine.optional.encoder_cache import (
    allocate_entry,
    can_allocate,
    check_and_update_cache,
    free_encoder_input,
)
from sim.engine.optional.held_images import add_held, image_at, num_places
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def has_images(s: State, request: int) -> bool:
    """Return whether a request has images, in a run that has any."""
    return s.engine[0].settings.has_images == 1 and s.images_of[request].count > 0


@part
def begin_encoding(s: State) -> None:
    """Give the step in hand its budget."""
    s.engine[0].encoder.compute_budget = s.engine[0].settings.max_num_encoder_input_tokens


@part
def take_in_hand(s: State, image: int) -> None:
    """Note an image that the request in hand takes along if it is scheduled; -1 - i: its content is taken already."""
    encoder = s.engine[0].encoder
    s.images_in_hand[encoder.num_in_hand] = image
    encoder.num_in_hand += 1


@part
def is_in_hand(s: State, image: int) -> bool:
    """Return whether the content of an image is taken along already."""
    if s.images[image].is_repeated == 0:
        return False
    for i in range(s.engine[0].encoder.num_in_hand):
        other = s.images_in_hand[i]
        if other >= 0 and s.images[other].content == s.images[image].content:
            return True
    return False


@part
def is_cut(s: State, image: int, computed: int, num_tokens: int) -> bool:
    """Return whether a share would end within an image that it does not begin behind the start of, and must not."""
    settings, x = s.engine[0].settings, s.images[image]
    is_inside = computed + 1 - settings.keeps_whole_images_together > x.position
    is_beyond = computed + num_tokens >= x.position + x.num_tokens
    return settings.disable_chunked_mm_input == 1 and not is_inside and not is_beyond


@part
def num_tokens_before(s: State, image: int, computed: int, num_tokens: int) -> int:
    """Return how many of ``num_tokens`` behind ``computed`` a request can have without an image."""
    settings, position = s.engine[0].settings, s.images[image].position
    if settings.encodes_without_lookahead:
        return min(num_tokens, max(position - computed, 0))
    return max(position - computed - settings.num_prefill_lookahead_tokens, 0)


@phase
def try_schedule_encoder_inputs(s: State, request: int, computed: int, num_tokens: int) -> int:
    """Return how many of ``num_tokens`` behind ``computed`` a request can have with its images; note which it needs.

    A cached image is held from here on, whether or not the request is scheduled.
    """
    settings, encoder, r = s.engine[0].settings, s.engine[0].encoder, s.images_of[request]
    encoder.num_in_hand, encoder.budget_behind = 0, encoder.compute_budget
    if num_tokens <= 0 or computed >= r.end:
        return num_tokens
    shift, num_embeds = settings.num_prefill_lookahead_tokens, 0
    window_end = computed + num_tokens + shift
    for image in range(r.first, r.first + r.count):
        x = s.images[image]
        end, num_before = x.position + x.num_tokens, max(x.position - computed - shift, 0)
        if end <= computed:
            continue
        if x.position >= window_end:
            break
        must_cut = is_cut(s, image, computed, num_tokens)
        if must_cut and settings.cuts_before_cached_images:
            return num_before
        if is_in_hand(s, image):
            if settings.holds_repeated_images:
                take_in_hand(s, -1 - image)
        elif not check_and_update_cache(s, request, image):
            if must_cut:
                return num_before
            if not can_allocate(s, image, encoder.budget_behind, num_embeds):
                return num_tokens_before(s, image, computed, num_tokens)
            if x.position < computed + num_tokens or settings.encodes_ahead:
                num_embeds += x.num_tokens
                encoder.budget_behind -= x.num_tokens
                take_in_hand(s, image)
    return num_tokens


@phase
def allocate_encoder_inputs(s: State, request: int) -> None:
    """Have the images in hand encoded in this step: their request is scheduled."""
    encoder, current, r = s.engine[0].encoder, s.engine[0].current_step, s.images_of[request]
    if encoder.num_in_hand == 0:
        return
    num_encoded = largest = 0
    num_pairs = 0.0
    for i in range(encoder.num_in_hand):
        image = s.images_in_hand[i]
        if image >= 0:
            allocate_entry(s, request, image)
            num_tokens = int(np.int64(s.images[image].num_tokens))
            num_encoded += num_tokens
            num_pairs += float(num_tokens) * num_tokens
            largest = max(largest, num_tokens)
        else:
            add_held(s, request, -1 - image)
    encoder.compute_budget, encoder.num_in_hand = encoder.budget_behind, 0
    r.num_encoded, r.step = num_encoded, s.engine[0].totals.num_steps
    r.num_pairs, r.largest = num_pairs, largest
    current.num_encoder_tokens += num_encoded


@part
def give_budget_back(s: State, request: int) -> None:
    """Take back what a request that is preempted in the step in hand was to have encoded in it."""
    encoder, r = s.engine[0].encoder, s.images_of[request]
    if r.step == s.engine[0].totals.num_steps:
        encoder.compute_budget += r.num_encoded
        s.engine[0].current_step.num_encoder_tokens -= r.num_encoded
        r.step = NEVER


@phase
def free_encoder_inputs(s: State, request: int) -> None:
    """Have a request let go of the images whose last token a batch that has ended computed."""
    r = s.requests[request]
    if s.images_of[request].num_held == 0:
        return
    settings = s.engine[0].settings
    shift = 0 if settings.encodes_without_lookahead else settings.num_prefill_lookahead_tokens
    num_computed = r.num_computed_tokens
    if settings.frees_images_once_read:
        num_computed -= r.num_output_placeholders + shift
    for place in range(num_places(s, request)):
        image = image_at(s, request, place)
        if image != NEVER and s.images[image].position + s.images[image].num_tokens <= num_computed:
            free_encoder_input(s, request, image)


@phase
def running_hold_images(s: State) -> bool:
    """Return whether a running request holds an image: a step may let go of it."""
    for i in range(s.engine[0].queues.num_running):  # noqa: SIM110 - numba knows no any() of a generator
        if s.images_of[s.running[i]].num_held > 0:
            return True
    return False
