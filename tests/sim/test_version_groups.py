"""KV cache groups that a version of vLLM refuses are refused; those that it serves are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim import EngineConfig, InvalidConfig, KVCacheGroup
from sim.versions import NEWEST, OLDEST

FULL = KVCacheGroup(kind="full")
WINDOW, OTHER_WINDOW = (KVCacheGroup(kind="sliding", window=window) for window in (64, 128))
LARGE_WINDOW = KVCacheGroup(kind="sliding", window=64, block_size=32)
CHUNK = KVCacheGroup(kind="chunked", chunk=64)
ALIGNED, STATE = KVCacheGroup(kind="state", mode="align"), KVCacheGroup(kind="state")
SAVED = replace(ALIGNED, num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=16)
UNCACHED = {"enable_prefix_caching": False}
DRAFTS = {"num_speculative_tokens": 1, "synthetic_acceptance_rates": (0.5,)}
EAGLE = DRAFTS | {"use_eagle": True, "num_lookahead_tokens": 1}
MODULES = {
    "num_speculative_tokens": 2,
    "synthetic_acceptance_rates": (0.5, 0.5),
    "use_eagle": True,
    "num_lookahead_tokens": 2,
    "num_prefill_lookahead_tokens": 2,
}

CASES: list[tuple[tuple[KVCacheGroup, ...], dict[str, Any], set[int], str]] = [
    ((FULL, WINDOW), {}, {20}, "got a window or a chunk"),
    ((WINDOW, WINDOW, FULL), {}, {20}, "got a window or a chunk"),
    ((FULL, CHUNK), UNCACHED, {20}, "got a window or a chunk"),
    ((FULL, WINDOW, FULL), {}, {12, 13, 20}, "got "),
    ((FULL, WINDOW, OTHER_WINDOW), {}, {12, 13, 20}, "got "),
    ((FULL, WINDOW, OTHER_WINDOW), UNCACHED, {20}, "got a window or a chunk"),
    ((WINDOW, WINDOW), {}, set(range(12, 29)), "got "),
    ((WINDOW, WINDOW), UNCACHED, {20}, "got a window or a chunk"),
    ((FULL, ALIGNED), {}, {12, 13, 14}, "got a state group of mode align with vllm_version"),
    ((FULL, STATE), UNCACHED, set(), ""),
    ((FULL, SAVED), {}, set(range(12, 29)), "got "),
    ((FULL, replace(SAVED, prefill_checkpoint_alignment=0)), {}, {*range(12, 29), *range(30, 34)}, "got "),
    ((FULL, SAVED), DRAFTS, set(range(12, 29)), "got "),
    ((FULL, SAVED), EAGLE, set(range(12, 29)), "got "),
    ((FULL, ALIGNED), DRAFTS, set(range(12, 20)), "got "),
    ((FULL, WINDOW), EAGLE, {20}, "got a window or a chunk"),
    ((FULL, LARGE_WINDOW), EAGLE, set(range(12, 21)), "got "),
    ((FULL, LARGE_WINDOW), EAGLE | UNCACHED, {20}, "got a window or a chunk"),
    ((replace(FULL, is_eagle_group=True), CHUNK), EAGLE, set(range(12, 21)), "got "),
    ((FULL, WINDOW), DRAFTS, {20}, "got a window or a chunk"),
    ((FULL,), MODULES, set(range(12, 28)), "num_prefill_lookahead_tokens: got 2"),
    (
        (FULL, WINDOW),
        {"prefix_cache_retention_interval": 0},
        set(range(12, 23)),
        "prefix_cache_retention_interval: got 0",
    ),
]


@pytest.mark.parametrize("minor", range(OLDEST, NEWEST + 1))
@pytest.mark.parametrize(("groups", "settings", "refused", "complaint"), CASES)
def test_groups_are_refused_with_the_versions_that_do_not_have_them(
    minor: int,
    groups: tuple[KVCacheGroup, ...],
    settings: dict[str, Any],
    refused: set[int],
    complaint: str,
) -> None:
    version = f"0.{minor}.0"
    if minor not in refused:
        EngineConfig.for_version(version, kv_cache_groups=groups, **settings)
        return
    with pytest.raises(InvalidConfig) as error:
        EngineConfig.for_version(version, kv_cache_groups=groups, **settings)
    assert complaint in str(error.value)
    assert f"vllm_version {version}, expected " in str(error.value)


@pytest.mark.parametrize(
    ("group", "settings", "complaint"),
    [
        (
            {"kind": "full", "num_prefill_checkpoint_blocks": 1},
            {},
            r"\[1\].num_prefill_checkpoint_blocks: got 1, exp",
        ),
        (
            {"num_prefill_checkpoint_blocks": 2, "prefill_checkpoint_alignment": 8},
            {},
            r"num_prefill_checkpoint_blocks: got 2, expected 0 or 1",
        ),
        (
            {"prefill_checkpoint_alignment": 8},
            {},
            r"alignment: got 8 with num_prefill_checkpoint_blocks 0, exp",
        ),
        ({"prefill_checkpoint_alignment": -8}, {}, r"alignment: got -8, expected an integer"),
        (
            {"num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": 8},
            EAGLE | {"block_size": 1},
            r"num_speculative_tokens: got 1 with num_prefill_checkpoint_blocks 1 and block_size 1, expected fewer",
        ),
        (
            {"num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": 8},
            MODULES,
            r"num_prefill_lookahead_tokens: got 2 with num_prefill_checkpoint_blocks 1, expected 0 or 1",
        ),
    ],
)
def test_what_cannot_be_saved_inside_chunks_is_refused(
    group: dict[str, Any], settings: dict[str, Any], complaint: str
) -> None:
    usual = {} if "kind" in group else {"kind": "state", "mode": "align"}
    with pytest.raises(InvalidConfig, match=complaint):
        EngineConfig(kv_cache_groups=(FULL, KVCacheGroup(**usual | group)), **settings)
