"""From token ids to the dense block numbers that the engine's prefix cache goes by."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

from replay.serve.tokens import Tokens

_DIGEST_BYTES = 16  # 2⁻⁶⁴ chance of one collision among 2³² blocks


class BlockNumbers:
    """Numbers full blocks by their content: equal tokens up to a block's end, equal number.

    A block's digest covers its own tokens and the digest before it, as vLLM chains its hashes (vllm 0.32.0
    v1/core/kv_cache_utils.py). Only the ``capacity`` blocks seen last are remembered; with several times the
    KV cache's blocks, what is forgotten has left the cache long before, and its number goes to new content: numbers
    stay below ``capacity``.
    """

    def __init__(self, block_size: int, *, capacity: int) -> None:
        self._block_size = block_size
        self._capacity = capacity
        self._numbers: OrderedDict[bytes, int] = OrderedDict()

    def of(self, tokens: Tokens, *, salt: str = "") -> list[int]:
        """Return the numbers of the tokens' full blocks; ``salt`` keeps those of different tenants apart."""
        raw = tokens.tobytes()
        stride = self._block_size * tokens.itemsize
        digest = salt.encode()
        numbers = []
        for start in range(0, len(raw) - stride + 1, stride):
            digest = blake2b(digest + raw[start : start + stride], digest_size=_DIGEST_BYTES).digest()
            numbers.append(self._number(digest))
        return numbers

    def _number(self, digest: bytes) -> int:
        known = self._numbers.get(digest)
        if known is not None:
            self._numbers.move_to_end(digest)
            return known
        if len(self._numbers) < self._capacity:
            number = len(self._numbers)
        else:
            _, number = self._numbers.popitem(last=False)
        self._numbers[digest] = number
        return number
