"""The served model's tokenizer and vocabulary: small, stateless, reversible, the same on every machine.

A token is a piece of text of at most six bytes: a word with the space before it where that fits, else part
of it. Its id is the piece itself, packed (256 one-byte ids, then the two-byte ones, and so on): there is no
vocabulary to load, every text has one tokenization, and decoding gives the text back. English takes about 1.3
tokens a word.

The answers are words, too. Which ones follows from the prompt, as with a model at temperature 0, so that a
conversation that quotes an earlier answer finds that answer's KV blocks in the prefix cache.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]

LONGEST_PIECE = 6
"""Bytes: 256⁶ is below 2⁵³, so ids survive JSON readers that keep numbers as floats."""

_PIECES = re.compile(rb" ?[^\s]{1,5}|\s")
_FIRST_IDS = [0]
for _length in range(1, LONGEST_PIECE + 1):
    _FIRST_IDS.append(_FIRST_IDS[-1] + 256**_length)

NUM_IDS = _FIRST_IDS[-1]
"""Ids run from 0 to this, the latter not included."""

LARGEST_SMALL = 2**31 - 1
"""A prime: the number of ids that clients with 32-bit ids can take."""

_WORDS = (
    "and all any arm art ask bay bed bird blue boat book box bread cat chair city clay cloud coat cold cup "
    "dark day deep deer dog door dusk ear east egg fair far farm fern field fire fish five flag fog four fox "
    "gate gold good hand harp hat hen hill home ice ink iron jar key kind king lake lamp land leaf"
)
WORDS = tuple(" " + word for word in _WORDS.split())
"""The words of answers: 64, each one token together with the space before it."""


def encode(text: str) -> Tokens:
    """Return a text's token ids, int64."""
    return np.array([_id_of(piece) for piece in _PIECES.findall(text.encode())], dtype=np.int64)


def decode(tokens: Sequence[int]) -> str:
    """Return the text of token ids; ids that ``encode`` did not give may decode to replacement characters."""
    return b"".join(map(_piece_of, tokens)).decode(errors="replace")


def answer(prompt: Tokens, length: int) -> NDArray[np.int64]:
    """Return ``length`` numbers of ``WORDS``: what the model says to this prompt.

    A counter, seeded by the prompt, hashed as splitmix64 does (Steele, Lea, Flood: Fast Splittable
    Pseudorandom Number Generators, 2014).
    """
    seed = np.uint64(zlib.crc32(prompt.tobytes()))
    with np.errstate(over="ignore"):
        x = (np.arange(1, length + 1, dtype=np.uint64) + (seed << np.uint64(32))) * np.uint64(
            0x9E3779B97F4A7C15
        )
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x >> np.uint64(58)).astype(np.int64)


def _id_of(piece: bytes) -> int:
    return _FIRST_IDS[len(piece) - 1] + int.from_bytes(piece)


def _piece_of(token: int) -> bytes:
    length = next(n for n in range(1, LONGEST_PIECE + 1) if token < _FIRST_IDS[n])
    return int(token - _FIRST_IDS[length - 1]).to_bytes(length)


WORD_IDS: Tokens = np.array([_id_of(word.encode()) for word in WORDS], dtype=np.int64)
"""Token ids of ``WORDS``."""


def small_ids(tokens: Tokens) -> Tokens:
    """Return ids below 2^31: larger ones by their remainder, so that equal tokens stay equal."""
    return np.where(tokens < LARGEST_SMALL, tokens, tokens % LARGEST_SMALL)
