"""Whether two prompts share a block: some requests are asked first, and all of them where these share none."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sim import Requests
from sim.countable import shares_blocks


def with_hashes(hashes: list[list[int]]) -> Requests:
    n = len(hashes)
    zeros = np.zeros(n, np.int64)
    return Requests(
        arrival_us=zeros,
        prompt_tokens=np.array([16 * len(each) + 1 for each in hashes], np.int64),
        output_tokens=np.ones(n, np.int64),
        priority=zeros,
        hash_offsets=np.cumsum([0, *map(len, hashes)], dtype=np.int64),
        hash_ids=np.array([each for row in hashes for each in row], np.int64),
    )


@pytest.mark.parametrize("seed", range(40))
def test_what_is_shared_is_found_wherever_it_stands(seed: int) -> None:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 3, size=generator.integers(1, 200))
    ids = generator.permutation(int(lengths.sum()))
    if len(ids) > 1 and seed % 4:  # one content more than once, at drawn places
        first, second = generator.choice(len(ids), 2, replace=False)
        ids[first] = ids[second]
    ends = np.cumsum(lengths)
    hashes = [ids[end - length : end].tolist() for end, length in zip(ends, lengths, strict=True)]
    expected = max(Counter(each for row in hashes for each in row).values(), default=0) > 1
    assert shares_blocks(with_hashes(hashes)) == expected


def test_prompts_that_are_kept_at_one_place_share_it() -> None:
    kept = with_hashes([[0, 1, 2], []])
    twice = np.array([0, 0, 3])
    assert shares_blocks(
        Requests(
            **{
                name: getattr(kept, name)
                for name in ("arrival_us", "prompt_tokens", "output_tokens", "priority")
            },
            hash_offsets=twice,
            hash_ids=kept.hash_ids,
            hash_counts=np.array([3, 1]),
        )
    )
