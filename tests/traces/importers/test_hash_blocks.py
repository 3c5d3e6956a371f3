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


def size_of(tokens: list[int], hashes: list[int], given: int | None = None) -> tuple[int, str | None]:
    return block_size_of(np.array(tokens), np.array(hashes), usual=512, given=given, file="f")


def test_without_hashes_the_size_is_the_given_one_or_the_usual() -> None:
    assert size_of([], []) == (512, None)
    assert size_of([], [], given=16) == (16, None)


def test_the_only_size_that_fits_is_found_even_where_it_is_no_power_of_two() -> None:
    assert size_of([9], [9])[0] == 1
    assert size_of([3000], [1000])[0] == 3
    assert size_of([1000], [3])[0] == 256  # 251 to 499 fit
    assert size_of([100], [4])[0] == 32  # 21 to 33
    assert size_of([252], [3])[0] == 64  # 64 to 125
    assert size_of([193], [4])[0] == 64  # 39 to 64
    assert size_of([1 << 30, 1 << 29], [2, 1])[0] == 1 << 29


@pytest.mark.parametrize(
    ("tokens", "hashes", "told"),
    [
        (
            [4096, 6000],
            [9, 12],
            "got 9 hash_ids for a prompt of 4,096 tokens, expected 8 in blocks of 512 "
            "(sizes from 462 to 511 fit)",
        ),
        ([4096, 4096], [9, 12], "(no one size fits all prompts)"),
        ([512, 3], [1, 3], "got 3 hash_ids for a prompt of 3 tokens, expected 1 in blocks of 512 (no one"),
    ],
)
def test_a_refusal_says_which_sizes_would_fit(tokens: list[int], hashes: list[int], told: str) -> None:
    try:
        size_of(tokens, hashes)
    except TraceError as refusal:
        assert told in str(refusal)
    else:
        pytest.fail("not refused")


def test_a_given_size_has_a_hash_for_a_rest_and_says_nothing_of_whole_prompts() -> None:
    assert size_of([1025], [3], given=512) == (512, "a hash stands for 512 tokens, as you say")
    assert size_of([1025], [2], given=512) == (512, "a hash stands for 512 tokens, as you say")
    with pytest.raises(
        TraceError, match="got 4 for a prompt of 1,025 tokens, expected at most 3 in blocks of 512"
    ):
        size_of([5, 1025], [1, 4], given=512)
