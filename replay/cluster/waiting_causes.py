"""What requests in one engine's queue wait for besides seats and KV blocks, told from the outcomes of a run.

A grammar that compiles and an adapter without a place hold up their own request alone: others pass it. A step's token
budget, and the encoder's, hold up the head of the queue and all behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim import EngineConfig, Int64s, Outcomes, Requests

Floats = NDArray[np.float64]
Resource = Literal[
    "seats",
    "KV blocks",
    "token budget",
    "adapter",
    "grammar",
    "encoder",
    "KV transfer",
    "step time",
    "gateway",
    "none",
]
IN_WORDS: Mapping[Resource, str] = {
    "token budget": "the token budget of a step (engine.max_num_batched_tokens)",
    "adapter": "a place for their adapter (engine.max_loras)",
    "grammar": "their grammars to compile (engine.guided_compile_us)",
    "encoder": "the encoder's budget (engine.max_num_encoder_input_tokens)",
    "KV transfer": "the KV of their prompts to arrive",
    "step time": "steps that take long (seats, KV blocks and token budget are free)",
    "gateway": "the gateway's queue",
}
"""What a sentence says requests wait for, where that is not the resource's own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCauses:
    """At T looks: ``alone``, how many wait for something that holds up nobody else; float64 [T] by resource.

    ``whole_queue``: whether the head of the queue waits for it if seats and blocks are free; bool [T] by resource.
    """

    alone: Mapping[Resource, Floats] = field(default_factory=dict)
    whole_queue: Mapping[Resource, NDArray[np.bool_]] = field(default_factory=dict)


def own_causes(
    requests: Requests, outcomes: Outcomes, here: NDArray[np.bool_], engine: EngineConfig, time_us: Int64s
) -> OwnCauses:
    """Return what the requests ``here`` wait for at these times, ascending; the rest are of other engines."""
    rows = np.flatnonzero(here & (outcomes.scheduled_us >= 0))
    if len(rows) == 0:
        return OwnCauses()
    queue = _Queue(
        queued_us=outcomes.queued_us[rows],
        scheduled_us=outcomes.scheduled_us[rows],
        first_us=np.maximum(outcomes.first_token_us[rows], outcomes.scheduled_us[rows]),
        left_us=np.maximum(outcomes.last_token_us[rows], outcomes.scheduled_us[rows]),
    )
    alone: dict[Resource, Floats] = {}
    ready_us = queue.queued_us
    if requests.is_guided is not None and engine.guided_compile_us:
        ready_us = ready_us + requests.is_guided[rows] * engine.guided_compile_us
        compiled_us = np.minimum(ready_us, queue.scheduled_us)
        alone["grammar"] = number_between(queue.queued_us, compiled_us, time_us)
    if requests.adapter is not None and engine.max_loras:
        alone["adapter"] = _without_a_place(
            replaced(queue, ready_us), requests.adapter[rows], engine.max_loras, time_us
        )
    uncached = np.maximum(requests.prompt_tokens[rows] - np.maximum(outcomes.num_cached_tokens[rows], 0), 1)
    return OwnCauses(alone=alone, whole_queue=_of_budgets(queue, requests, rows, uncached, engine, time_us))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queue:
    """When requests joined one engine's queue, were scheduled, had their first token, and left; µs, int64 [n]."""

    queued_us: Int64s
    scheduled_us: Int64s
    first_us: Int64s
    left_us: Int64s


def replaced(queue: _Queue, queued_us: Int64s) -> _Queue:
    """Return the queue with other times of joining."""
    return _Queue(
        queued_us=queued_us,
        scheduled_us=queue.scheduled_us,
        first_us=queue.first_us,
        left_us=queue.left_us,
    )


def number_between(from_us: Int64s, to_us: Int64s, time_us: Int64s, weights: Int64s | None = None) -> Floats:
    """Return how many, or how much by weight, there is at each time of what is there from one time to another."""
    weights = np.ones(len(from_us), np.int64) if weights is None else weights

    def before(at_us: Int64s) -> Floats:
        order = np.argsort(at_us, kind="stable")
        passed = np.concatenate([[0], np.cumsum(weights[order])]).astype(np.float64)
        return np.asarray(passed[np.searchsorted(at_us[order], time_us, side="right")], np.float64)

    return before(from_us) - before(to_us)


def _without_a_place(queue: _Queue, adapter: Int64s, num_places: int, time_us: Int64s) -> Floats:
    """Return how many wait at each time while as many other adapters run as have places."""
    found = np.zeros(len(time_us))
    waiting = number_between(queue.queued_us, np.maximum(queue.scheduled_us, queue.queued_us), time_us)
    for place in np.flatnonzero(waiting > 0).tolist():
        at_us = time_us[place]
        runs = (queue.scheduled_us <= at_us) & (at_us < queue.left_us) & (adapter >= 0)
        running = np.unique(adapter[runs])
        if len(running) >= num_places:
            waits = (queue.queued_us <= at_us) & (at_us < queue.scheduled_us) & (adapter >= 0)
            found[place] = (~np.isin(adapter[waits], running)).sum()
    return found


def _of_budgets(
    queue: _Queue,
    requests: Requests,
    rows: Int64s,
    uncached: Int64s,
    engine: EngineConfig,
    time_us: Int64s,
) -> dict[Resource, NDArray[np.bool_]]:
    """Return when prompts that are computed take up a step's token budget, or the encoder's with the next in line."""
    cap = engine.long_prefill_token_threshold
    shares = (
        np.minimum(uncached, cap) if cap and not engine.long_prefill_token_threshold_adaptive else uncached
    )
    taken = number_between(queue.scheduled_us, queue.first_us, time_us, shares)
    decoding = number_between(queue.first_us, queue.left_us, time_us)
    budget = engine.max_num_batched_tokens
    found: dict[Resource, NDArray[np.bool_]] = {
        "token budget": (taken > 0) & (taken + decoding * engine.tokens_per_decode >= budget)
    }
    if requests.encoder_tokens is None or not engine.encodes_images:
        return found
    images = requests.encoder_tokens[rows]
    encoding = number_between(queue.scheduled_us, queue.first_us, time_us, images)
    head = head_at(queue.queued_us, queue.scheduled_us, time_us)
    needs = np.where(head >= 0, images[head], 0)
    places = [each or budget for each in (engine.max_num_encoder_input_tokens, engine.encoder_cache_size)]
    found["encoder"] = (needs > 0) & (encoding > 0) & (encoding + needs > min(places))
    return found


def head_at(queued_us: Int64s, scheduled_us: Int64s, time_us: Int64s) -> Int64s:
    """Return who is at the head of the queue at each time: whoever is scheduled next of those that came; -1: nobody."""
    order = np.argsort(scheduled_us, kind="stable")
    place = np.searchsorted(scheduled_us[order], time_us, side="right")
    head = order[np.minimum(place, len(order) - 1)]
    return np.where((place < len(order)) & (queued_us[head] <= time_us), head, -1)
