"""Block hashes of prompts, numbered so that equal means equal from the prompt's beginning on.

Some files hash each block by itself. A prefix cache looks at a block together with all before it, so each block is
numbered anew by its content and the number of the block before it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

_BEGINNING: Final = -1


class PrefixNumbers:
    """Numbers of blocks, dense from 0, over all prompts of a file."""

    def __init__(self) -> None:
        self._number: dict[tuple[int, Hashable], int] = {}

    def of_blocks(self, blocks: Sequence[Hashable]) -> str | None:
        """Return the numbers of a prompt's blocks, separated by spaces; None of none."""
        before, numbers = _BEGINNING, []
        for block in blocks:
            before = self._number.setdefault((before, block), len(self._number))
            numbers.append(before)
        return " ".join(map(str, numbers)) or None

    def of_tokens(self, ids: Sequence[int], block_size: int) -> str | None:
        """Return the numbers of a prompt's whole blocks of ``block_size`` tokens."""
        whole = range(0, len(ids) - block_size + 1, block_size)
        return self.of_blocks([tuple(ids[start : start + block_size]) for start in whole])
