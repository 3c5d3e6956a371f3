"""Drawn prompts of an exact length: shared parts are equal, the rest is unique to its request.

A prompt is a row of segments, each named by a key. Equal keys give equal leading content at any length,
distinct keys give unrelated content. Randomness is indexed by (salt, key), so that no draw depends on
another; the salt keeps two runs against one server from meeting each other's prefix cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

TOKEN_LOW, TOKEN_HIGH = 1000, 4000
"""Token ids that are drawn, the upper bound excluded: above the special ones of the usual vocabularies (below
1000, or at the end) and within the smallest (4096)."""

OWN, GROUP, BLOCK = 0, 1, 2
"""Kinds of segments: a request's own, a prefix group's, a hashed block's."""


@dataclass(frozen=True, slots=True)
class Segment:
    """``length`` units (tokens or words) of the content that (``kind``, ``key``) names."""

    kind: int
    key: int
    length: int


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Hashed blocks, one behind the other: block b is ``lengths[b]`` units of the content that ``keys[b]`` names.

    ``keys``: uint64, ``lengths``: int64. Each is what ``Segment(BLOCK, key, length)`` is, without an object for it.
    """

    keys: NDArray[np.uint64]
    lengths: NDArray[np.int64]


Part: TypeAlias = Segment | Blocks


class Prompts(Protocol):
    """Makes prompts for one API."""

    @property
    def source(self) -> str:
        """How the length was made exact, in words, for the header."""

    def render(self, parts: Sequence[Part]) -> bytes:
        """Return the JSON value of a prompt of these parts; lengths are in tokens."""

    def salted(self, salt: int) -> Prompts:
        """Return the same kind of prompts with other content."""


def key_of(name: str) -> int:
    """Return the key of a name: 64 bits, the same in every run."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())


def num_tokens(parts: Sequence[Part]) -> int:
    """Return the tokens of a prompt of these parts."""
    return sum(int(_lengths(part).sum()) for part in parts)


def _lengths(part: Part) -> NDArray[np.int64]:
    return part.lengths if isinstance(part, Blocks) else np.array([part.length], np.int64)


def draw(salt: int, part: Part, choices: int) -> NDArray[np.int64]:
    """Return as many numbers in [0, choices) as the part is long; a longer segment of that key begins alike."""
    if isinstance(part, Blocks):
        return _draw_blocks(salt, part, choices)
    segment = part
    if segment.kind == BLOCK:
        keys, lengths = np.array([segment.key], np.uint64), np.array([segment.length], np.int64)
        return _draw_blocks(salt, Blocks(keys, lengths), choices)
    bits = np.random.PCG64(np.random.SeedSequence((salt, segment.kind, segment.key)))
    return np.random.Generator(bits).integers(choices, size=segment.length, dtype=np.int64)


_GOLDEN, _MIX_1, _MIX_2 = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _draw_blocks(salt: int, blocks: Blocks, choices: int) -> NDArray[np.int64]:
    """Return the blocks' numbers in [0, choices), one behind the other.

    Number i of a block is number i of splitmix64 seeded by salt and key (Steele, Lea, Flood: Fast Splittable
    Pseudorandom Number Generators, 2014): all blocks of a long prompt are drawn at once, in 2 ms of 100,000 tokens.
    """
    salted = np.random.SeedSequence((salt, BLOCK)).generate_state(1, np.uint64)
    starts = np.cumsum(blocks.lengths) - blocks.lengths
    places = np.arange(int(blocks.lengths.sum())) - np.repeat(starts, blocks.lengths)
    with np.errstate(over="ignore"):  # modulo 2**64
        seeds = _mixed(_mixed(blocks.keys + salted) + salted)
        bits = _mixed(np.repeat(seeds, blocks.lengths) + (places + 1).astype(np.uint64) * _GOLDEN)
        scaled = (bits >> np.uint64(32)) * np.uint64(choices) >> np.uint64(
            32
        )  # below choices, without a division
    return scaled.astype(np.int64)


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64's finalizer of each number."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))


class TokenPrompts:
    """Prompts as lists of token ids: exact by construction."""

    source = f"token ids {TOKEN_LOW} to {TOKEN_HIGH - 1}"

    def __init__(self, salt: int) -> None:
        self.salt = salt
        # All ids have four digits: a prompt is one gather from fixed-width text, whatever its length.
        self._text = np.array([f"{token}," for token in range(TOKEN_LOW, TOKEN_HIGH)], dtype="S5")

    def render(self, parts: Sequence[Part]) -> bytes:
        """Return a JSON list of token ids."""
        texts = [self._text[draw(self.salt, part, len(self._text))].tobytes() for part in parts]
        return b"[" + b"".join(texts)[:-1] + b"]"

    def salted(self, salt: int) -> TokenPrompts:
        """Return prompts of other token ids."""
        return TokenPrompts(salt)


@dataclass(frozen=True, slots=True, kw_only=True)
class WordPrompts:
    """Prompts as text: a constant ``anchor``, then words of ``tokens_per_word`` each.

    ``overhead``: tokens of the anchor and of what the server adds itself, ``lead`` of them before the words.
    ``chat`` wraps the text in a message.
    """

    salt: int
    words: tuple[str, ...]
    anchor: str
    tokens_per_word: float
    overhead: int
    lead: int
    chat: bool
    source: str

    def render(self, parts: Sequence[Part]) -> bytes:
        """Return a JSON string, or a list of one message: at least one word in all, never a word too many."""
        lengths = [_lengths(part) for part in parts]
        counts = np.array(self.word_counts(np.concatenate(lengths)), np.int64)
        drawn: list[str] = [self.anchor]
        for part, own in zip(
            parts, np.split(counts, np.cumsum([len(each) for each in lengths])), strict=False
        ):
            if isinstance(part, Blocks):
                sized: Part = Blocks(part.keys, own)
            else:
                sized = Segment(part.kind, part.key, int(own[0]))
            drawn += [self.words[pick] for pick in draw(self.salt, sized, len(self.words)).tolist()]
        text = b'"' + " ".join(drawn).encode() + b'"'
        return b'[{"role":"user","content":' + text + b"}]" if self.chat else text

    def salted(self, salt: int) -> WordPrompts:
        """Return prompts of the same words, drawn otherwise."""
        return replace(self, salt=salt)

    def word_counts(self, lengths: Sequence[int] | NDArray[np.int64]) -> list[int]:
        """Return how many words of each segment make ``lengths`` tokens, the overhead taken from the ends.

        Overhead before the text is taken from the first segments, overhead behind it from the last.
        """
        last = max(int(np.sum(lengths)) - self.overhead, 1)
        ends = np.clip(np.cumsum(lengths) - self.lead, 0, last)
        ends[-1] = last
        bounds = np.rint(ends / self.tokens_per_word)
        bounds[-1] = max(bounds[-1], 1)
        return [int(count) for count in np.diff(bounds, prepend=0)]


_WORDS = """
able across after air always animal appear arm baby bank beat began better bird blue body bottom
bring build business came care cat center chance choose class close color complete control copy cost
country cross cut daughter deal deep direct dog down dress drop each earth edge eight end engine
equal event example eye fair famous fast fear feet fight final finger first five flow food force
forward fresh front game gather gentle give gold govern gray grew grow gun hand hard head heat help
high history home hot how hundred ice inch insect island joy keep kill knew lake large laugh lead
leave leg let lie light list live lost love made man mark master matter measure men middle milk mine
mix money more mother mouth music nation neck new nine north nothing now off often once open order
out page paper pass pattern person piece plan plant point pose post practice press problem proper
provide put quiet radio ran reach real record remember report rest ride rise rock root round rule
said same save scale sea seat see select send separate settle shall sharp shell shoe should show
sign simple single six skin slow smile soil solve song south special spell spot square start stay
step stone store strange string study such sugar summer support surprise system take teach
temperature test that them these thin third though three tiny told took total town train triangle
truck tube two unit valley verb village vowel wall warm watch way week went what where white whose
wife win winter with wonder work write yard yes young
"""

COMMON_WORDS: tuple[str, ...] = tuple(_WORDS.split())
"""Plain English words: candidates for text whose tokens can be counted by its words."""
