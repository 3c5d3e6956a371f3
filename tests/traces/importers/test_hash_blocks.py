"""How many tokens a hash stands for: found from drawn prompts, said by the user, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces import TraceError
from traces.importers.hash_blocks import block_size_of

LENGTHS = st.lists(st.integers(1, 40_000), min_size=8, max_size=40)


@given(lengths=LENGTHS, power=st.integers(4, 12), has_rest=st.booleans())
def test_the_size_that_hashes_were_made_with_is_found_or_asked_for(
    lengths: list[int], power: int, has_rest: bool
) -> None:
    tokens, size = np.array(lengths), 1 << power
    hashes = -(-tokens // size) if has_rest else tokens // size
    known = hashes > 0
    try:
        found, note = block_size_of(tokens[known], hashes[known], usual=512, given=None, file="f")
    except TraceError as error:
        assert "--block-size N" in str(error)  # short prompts leave several sizes open
        return
    fits = (hashes[known] == tokens[known] // found) | (hashes[known] == -(-tokens[known] // found))
    assert fits.all()
    assert (note is None) == (found == 512 or not known.any())


def test_long_prompts_leave_one_size() -> None:
    tokens = np.array([4096, 6000, 131_072])
    for size in (16, 64, 1024, 2048):
        assert block_size_of(tokens, -(-tokens // size), usual=512, given=None, file="f")[0] == size
    assert block_size_of(tokens, -(-tokens // 512), usual=512, given=None, file="f") == (512, None)


@pytest.mark.parametrize("hashes", [[1, 12], [9, 12], [4, 2]])
def test_too_few_are_as_impossible_as_too_many(hashes: list[int]) -> None:
    with pytest.raises(
        TraceError, match=r"f: hash_ids: got \d+ hash_ids for a prompt of 4,096 tokens, expected 8 in"
    ):
        block_size_of(np.array([4096, 6000]), np.array(hashes), usual=512, given=None, file="f")


def test_a_size_that_is_said_holds_and_what_is_behind_the_hashes_is_new() -> None:
    tokens = np.array([4096, 6000])
    size, note = block_size_of(tokens, np.array([2, 12]), usual=512, given=512, file="f")
    assert size == 512
    assert note is not None
    assert "1 prompts have fewer hashes than blocks" in note
    with pytest.raises(TraceError, match="got 12 for a prompt of 6,000 tokens, expected at most 6"):
        block_size_of(tokens, np.array([2, 12]), usual=512, given=1024, file="f")
