"""From token ids to the dense block numbers that the engine's prefix cache uses."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from hashlib import blake2b

from replay.serve.tokens import Tokens

_TRIES = 8
"""How many contents are examined to find one that can be forgotten."""

_DIGEST_BYTES = 16  # 2⁻⁶⁴ chance of one collision among 2³² blocks


class BlockNumbers:
    """Numbers full blocks by their content: equal tokens up to a block's end, equal number.

    A block's digest covers its own tokens and the digest before it, as vLLM chains its hashes (vllm 0.32.0
    v1/core/kv_cache_utils.py), and, where vLLM's does, the ``lookahead`` tokens behind the block. Beyond ``usual``
    contents, an old content is forgotten for each new one, which gets its number. A content that a cache
    (``is_cached``) or a request in flight (``hold``) has is kept, and then there are more than ``usual``, but never
    more than ``capacity``: numbers are below it.
    """

    def __init__(
        self,
        block_size: int,
        *,
        lookahead: int = 0,
        capacity: int,
        usual: int | None = None,
        is_cached: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._block_size, self._lookahead = block_size, lookahead
        self._capacity = capacity
        self._usual = min(capacity, capacity if usual is None else usual)
        self._is_cached = is_cached
        self._held: Counter[int] = Counter()
        self._numbers: OrderedDict[bytes, int] = OrderedDict()

    def hold(self, numbers: Iterable[int]) -> None:
        """Keep these numbers for their contents until ``release``."""
        self._held.update(numbers)

    def release(self, numbers: Iterable[int]) -> None:
        """Undo one ``hold``."""
        for number in numbers:
            self._held[number] -= 1
            if self._held[number] <= 0:
                del self._held[number]

    def of(self, tokens: Tokens, *, salt: str = "") -> list[int]:
        """Return the numbers of the tokens' full blocks; ``salt`` keeps those of different tenants apart."""
        raw = tokens.tobytes()
        stride = self._block_size * tokens.itemsize
        length = stride + self._lookahead * tokens.itemsize
        digest = salt.encode()
        numbers = []
        for start in range(0, len(raw) - length + 1, stride):
            digest = blake2b(digest + raw[start : start + length], digest_size=_DIGEST_BYTES).digest()
            numbers.append(self._number(digest))
        return numbers

    def _number(self, digest: bytes) -> int:
        known = self._numbers.get(digest)
        if known is not None:
            self._numbers.move_to_end(digest)
            return known
        number = self._free_number()
        self._numbers[digest] = number
        return number

    def _free_number(self) -> int:
        """Return a number for new content: the next one, or that of a content which is forgotten for it."""
        if len(self._numbers) >= self._usual:
            for _ in range(_TRIES):
                digest, number = self._numbers.popitem(last=False)
                if number not in self._held and not self._is_cached(number):
                    return number
                self._numbers[digest] = number  # in use: as good as seen just now
        if len(self._numbers) < self._capacity:
            return len(self._numbers)
        return self._numbers.popitem(last=False)[1]
