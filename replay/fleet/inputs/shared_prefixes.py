"""What formulas know of prefix caching: how many tokens of each prompt an engine has already.

The rule. A block counts as cached where several sessions of the trace have it, as if the cache were unlimited and warm.
Of these blocks, the ones that most requests have come first, until they fill half of the KV cache; the other half is
for the requests that run. What one session alone repeats is not counted: behind a least-loaded router its next round
seldom comes to the same engine. A prompt's last token is always computed (vllm 0.32.0
v1/core/kv_cache_manager.py:get_computed_blocks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from replay.fleet.inputs.profiles import ProfileSource
from replay.fleet.inputs.whole_requests import WholeRequests
from replay.trace.request_columns import requests_from_trace
from sim import UNBOUNDED, EngineConfig
from sim.fleet import Lengths

Ints = NDArray[np.int64]

KEPT_FRAC = 0.5
"""The share of an engine's KV blocks that shared prefixes may fill; with more, running requests would push them out."""


def with_hits(lengths: Lengths, whole: WholeRequests | None, engine: EngineConfig) -> Lengths:
    """Return lengths with the tokens that an engine finds in its prefix cache; unchanged where it keeps none.

    Raises TraceError where the trace's hashes do not fit the engine's blocks.
    """
    if whole is None or not engine.enable_prefix_caching:
        return lengths
    whole = whole.of(lengths)
    requests = requests_from_trace(
        whole.trace,
        block_size=engine.hash_block_size,
        hash_lookahead=engine.num_hash_lookahead_tokens,
        closed_loop=True,
    )
    within = np.minimum(
        requests.num_hashes, np.maximum(requests.prompt_tokens - 1, 0) // engine.hash_block_size
    )
    owner = np.repeat(np.arange(len(lengths)), within)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(within) - within, within)
    block = requests.hash_ids[requests.hash_starts[owner] + place]
    kept = _kept_blocks(block, whole, owner, most=_most(engine))
    lost = np.where(kept[block], np.iinfo(np.int64).max, place)
    first_lost = within.copy()
    np.minimum.at(first_lost, owner, lost)
    found = np.unique(block[place < first_lost[owner]])
    if len(found) == 0:
        return lengths
    return replace(
        lengths,
        cached_tokens=np.asarray(first_lost * engine.hash_block_size, np.float64),
        shared_tokens=float(len(found) * engine.hash_block_size),
    )


def _most(engine: EngineConfig) -> int:
    """Return how many blocks of shared prefixes an engine keeps."""
    if engine.num_gpu_blocks == UNBOUNDED:
        return UNBOUNDED
    return int(KEPT_FRAC * (engine.num_gpu_blocks - 1) * engine.block_size / engine.hash_block_size)


def _kept_blocks(block: Ints, whole: WholeRequests, owner: Ints, *, most: int) -> NDArray[np.bool_]:
    """Return which blocks are kept: those of several sessions, the ones that most requests have first."""
    number = int(block.max(initial=-1)) + 1
    session = np.searchsorted(np.array(whole.recorded.first_row), owner, side="right")
    pairs = np.unique(block * (whole.num_sessions + 1) + session)
    sessions = np.bincount(pairs // (whole.num_sessions + 1), minlength=number)
    users = np.where(sessions > 1, np.bincount(block, minlength=number), 0)
    kept = np.zeros(number, np.bool_)
    kept[np.argsort(-users, kind="stable")[:most]] = True
    return kept & (users > 0)


def hits_note(lengths: Lengths) -> list[str]:
    """Return what the formulas take as cached; nothing where they take nothing."""
    if lengths.cached_tokens is None:
        return []
    share = 1 - float(lengths.new_tokens.sum() / lengths.input_tokens.sum())
    return [
        f"{share:.0%} of the prompts' tokens are prefixes that several sessions share; the formulas count them as "
        "cached, the simulation as its engines find them"
    ]


def known_to(lengths: Lengths, sources: Sequence[ProfileSource]) -> Lengths:
    """Return lengths without hits where one of the engines keeps no prefixes."""
    if all(each.engine.enable_prefix_caching for each in sources):
        return lengths
    return lengths.without_hits
