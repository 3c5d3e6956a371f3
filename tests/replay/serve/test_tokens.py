from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from replay.serve.block_numbers import BlockNumbers
from replay.serve.tokens import NUM_IDS, WORD_IDS, WORDS, answer, decode, encode, small_ids

TOKENS = st.lists(st.integers(0, 9), max_size=60).map(lambda items: np.array(items, dtype=np.int64))


@given(st.text(st.characters(codec="utf-8")))
def test_every_text_comes_back_from_its_tokens(text: str) -> None:
    tokens = encode(text)
    assert decode(tokens.tolist()) == text
    assert all(0 <= token < NUM_IDS for token in tokens)


@given(st.lists(st.integers(0, NUM_IDS - 1)))
def test_any_ids_decode_to_text(tokens: list[int]) -> None:
    assert isinstance(decode(tokens), str)


def test_ids_stay_below_what_a_float_holds_exactly() -> None:
    assert NUM_IDS < 2**53


def test_a_word_of_five_letters_and_its_space_are_one_token() -> None:
    assert len(encode("hello world there")) == 3
    assert len(encode(" everybody")) == 2


def test_there_are_sixty_four_answer_words_of_one_token_each() -> None:
    assert len(set(WORDS)) == 64
    assert [encode(word).tolist() for word in WORDS] == WORD_IDS.reshape(-1, 1).tolist()


@given(TOKENS, st.integers(0, 50))
def test_an_answer_is_the_same_every_time_and_a_longer_one_begins_with_it(prompt: np.ndarray, n: int) -> None:
    long = answer(prompt, 60)
    assert answer(prompt, n).tolist() == long[:n].tolist()
    assert set(long.tolist()) <= set(range(64))


def test_an_answer_quoted_later_has_the_tokens_it_was_made_of() -> None:
    numbers = answer(encode("a question"), 200)
    text = "".join(WORDS[n] for n in numbers)
    assert encode(text).tolist() == WORD_IDS[numbers].tolist()


@given(TOKENS, TOKENS, st.integers(1, 8), st.integers(0, 3))
def test_block_numbers_agree_exactly_as_far_as_the_tokens_do(
    one: np.ndarray, two: np.ndarray, size: int, lookahead: int
) -> None:
    blocks = BlockNumbers(size, lookahead=lookahead, capacity=1000)
    a, b = blocks.of(one), blocks.of(two)
    assert (len(a), len(b)) == tuple(max(len(each) - lookahead, 0) // size for each in (one, two))
    for i in range(min(len(a), len(b))):
        end = (i + 1) * size + lookahead
        assert (a[i] == b[i]) == (one[:end].tolist() == two[:end].tolist())


def test_block_numbers_are_dense_and_a_salt_keeps_them_apart() -> None:
    blocks = BlockNumbers(4, capacity=1000)
    tokens = np.arange(12)
    assert blocks.of(tokens) == [0, 1, 2]
    assert blocks.of(tokens, salt="tenant") == [3, 4, 5]
    assert blocks.of(tokens) == [0, 1, 2]


def test_only_the_blocks_seen_last_are_remembered_and_a_forgotten_one_gives_its_number_away() -> None:
    blocks = BlockNumbers(1, capacity=2)
    first, second, third = (np.array([n]) for n in range(3))
    assert [blocks.of(first), blocks.of(second), blocks.of(first), blocks.of(third)] == [[0], [1], [0], [1]]
    assert blocks.of(first) == [0]
    assert blocks.of(second) == [1]


def test_a_number_that_a_cache_or_a_request_has_is_not_given_away() -> None:
    cached = {0}
    blocks = BlockNumbers(1, capacity=6, usual=3, is_cached=cached.__contains__)
    contents = [np.array([n]) for n in range(9)]
    assert [blocks.of(each) for each in contents[:3]] == [[0], [1], [2]]
    blocks.hold([1])
    assert blocks.of(contents[3]) == [2]  # the only one that nobody has
    assert blocks.of(contents[0]) == [0]
    blocks.hold([2])
    assert blocks.of(contents[4]) == [3]  # all are in use: one more
    cached.clear()
    blocks.release([1])
    taken = {blocks.of(each)[0] for each in contents[5:8]}
    assert 2 not in taken
    assert max(taken) <= 3


def test_small_ids_keep_equal_tokens_equal_and_small_ones_as_they_are() -> None:
    ids = encode("alpha beta alpha a")
    small = small_ids(ids)
    assert ids.max() > 2**31 > small.max()
    assert small_ids(np.array([7, 500])).tolist() == [7, 500]
    assert small_ids(encode("alpha")).tolist() == small[:1].tolist()
    assert len(set(small.tolist())) == len(set(ids.tolist()))
