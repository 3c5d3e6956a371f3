"""Which runs may count KV blocks instead of handing them out (``sim/engine/counting``): a list that refuses."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.engine import dtypes as dt
from sim.engine.records.group_records import CHUNKED
from sim.engine.run_variants import variant_for
from sim.engine.state import State, columns
from sim.requests import Int64s, Requests

CHANGED_BY_COUNTING = (
    "engine",
    "requests",
    "taken_in_us",
    "deadline_us",
    "deadlines",
    "batch_sizes",
    "step_tokens",
    "step_times",
)
"""Arrays whose contents a run that counts changes and another run reads; it uses others for scratch."""


def may_be_counted(
    state: State, requests: Requests, *, is_paced: bool, longest: Int64s | None = None
) -> bool:
    """Return whether an engine that has these requests, all that it gets, may count blocks until one might lack.

    ``is_paced``: a completion lets the next request go. ``longest``: int64 tokens per request that it may come to, -1
    where it is refused; None: as its row says. Of the log of completions such a run writes the ends alone.
    """
    settings = columns(state.engine)[0]["settings"]
    return (
        variant_for(state.engine) != "whole"
        and _are_known(state, settings)
        and _is_simple(settings)
        and _are_simple(state, settings, is_paced=is_paced, longest=longest)
        and not (settings["enable_prefix_caching"] and shares_blocks(requests))
    )


def _are_known(state: State, settings: Any) -> bool:  # noqa: ANN401 - numpy's record
    """Return whether no hit of a KV cache group loses a block, or has chunks before the last that nobody computed."""
    has_chunks = bool((columns(state.kv_cache_groups)["kind"] == CHUNKED).any())
    return not settings["use_eagle"] and not (has_chunks and settings["enable_prefix_caching"])


def _is_simple(settings: Any) -> bool:  # noqa: ANN401 - numpy's record
    """Return whether all that the settings ask for is what a run that counts knows."""
    unknown = ("log_steps", "log_tokens", "pauses_at_completions")
    return (
        not any(settings[name] for name in unknown)
        and settings["max_num_seqs"] <= settings["max_num_batched_tokens"]
        and settings["max_concurrent_batches"] <= 2
    )


def _are_simple(
    state: State,
    settings: Any,  # noqa: ANN401 - numpy's record
    *,
    is_paced: bool,
    longest: Int64s | None,
) -> bool:
    """Return whether each request can be computed alone, and none that another waits for is refused."""
    rows = columns(state.requests)
    is_in: Any = rows["status"] != dt.REJECTED if longest is None else longest != dt.NEVER
    if is_in.all():
        is_in = True  # an array takes ten times as long
    elif is_paced:
        return False
    most = (rows["max_total_tokens"] if longest is None else longest).max(initial=0, where=is_in)
    prompt = rows["num_prompt_tokens"].max(initial=0, where=is_in)
    fits_a_step = settings["enable_chunked_prefill"] or prompt <= settings["max_num_batched_tokens"]
    sizes = (
        columns(state.kv_cache_groups)["block_size"] if len(state.kv_cache_groups) else settings["block_size"]
    )
    num_blocks = np.sum(-(-(most + settings["async_scheduling"]) // sizes))
    is_short = most <= settings["max_model_len"] and num_blocks < len(state.blocks)
    return bool(is_short and fits_a_step)


def shares_blocks(requests: Requests) -> bool:
    """Return whether a content stands in the prompts of two requests, or twice in one's."""
    with_hashes = np.flatnonzero(requests.num_hashes)  # 64 mostly share some, where any do
    return any(_has_any_twice(requests, rows) for rows in (with_hashes[:64], with_hashes) if len(rows))


def _has_any_twice(requests: Requests, rows: Int64s) -> bool:
    """Return whether a content stands twice in the prompts of these requests, each of which has one."""
    counts, starts = requests.num_hashes[rows], requests.hash_starts[rows]
    places = np.arange(int(counts.sum())) + np.repeat(starts - np.cumsum(counts) + counts, counts)
    found = np.sort(requests.hash_ids[places])
    return bool((found[1:] == found[:-1]).any())
