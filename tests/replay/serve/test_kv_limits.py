"""Which requests a KV cache can never hold, where layers cache differently."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from replay.serve.protocol import Refusal
from replay.serve.request_limits import check_kv
from sim import EngineConfig, KVCacheGroup

FULL, WINDOW = KVCacheGroup(kind="full"), KVCacheGroup(kind="sliding", window=17)


def refused(prompt: int, answer: int, *groups: KVCacheGroup) -> str:
    """Return what is said of a request, "" where it is let in."""
    job: Any = SimpleNamespace(prompts=[[7] * prompt])
    answers: Any = [SimpleNamespace(texts=["a"] * answer)]
    engine = EngineConfig(
        num_gpu_blocks=21, max_num_batched_tokens=32, async_scheduling=False, kv_cache_groups=groups
    )
    try:
        check_kv(job, answers, [engine])
    except Refusal as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize(
    ("groups", "most"),
    [
        ((), 320),
        ((FULL, FULL), 160),
        (
            (FULL, WINDOW),
            256,
        ),  # at most 16 + 32 tokens in flight: 3 blocks, one more as it may begin within one
        ((WINDOW, WINDOW), 100_000),  # no window ever fills the cache
    ],
)
def test_the_longest_request_is_what_all_groups_hold_together(
    groups: tuple[KVCacheGroup, ...], most: int
) -> None:
    assert refused(most - 9, 10, *groups) == ""
    if most < 100_000:
        said = refused(most - 8, 10, *groups)
        assert f"KV cache holds {most} tokens" in said
        assert f"needs {most + 1} of them" in said
