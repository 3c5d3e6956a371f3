"""How many tokens one of a trace's block hashes stands for: as the numbers of hashes beside the prompts show it."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.errors import TraceError

Int64s = NDArray[np.int64]

WAY_OUT: Final = "name the block's tokens: --block-size N, or FILE#block_size=N"


def block_size_of(
    tokens: Int64s, hashes: Int64s, *, usual: int, given: int | None, file: str
) -> tuple[int, str | None]:
    """Return (tokens per hash, a note where it is not the ``usual`` number or hashes are missing).

    ``tokens``, ``hashes``: int64, of each prompt that has hashes. A prompt has a hash for every whole block, and may
    have one for the rest. A ``given`` size may leave the end of a prompt without hashes: that is new text. Raises
    TraceError, naming the line, where no size, or more than one, fits.
    """
    if len(tokens) == 0:
        return given or usual, None
    if given is not None:
        return given, _given_note(tokens, hashes, size=given, file=file)
    if _fits(tokens, hashes, usual).all():
        return usual, None
    low, high = _bounds(tokens, hashes)
    powers = [1 << power for power in range(31) if low <= 1 << power <= high]
    if low > high or (len(powers) != 1 and low != high):
        raise TraceError(_misfit(tokens, hashes, usual=usual, file=file, low=low, high=high))
    size = powers[0] if powers else low
    return (
        size,
        f"a hash stands for {size:,} tokens, as the numbers of hash_ids show (the format's own is {usual:,})",
    )


def _fits(tokens: Int64s, hashes: Int64s, size: int) -> NDArray[np.bool_]:
    """Return which prompts have a hash for every whole block, and at most one more."""
    return np.asarray((hashes == tokens // size) | (hashes == -(-tokens // size)))


def _bounds(tokens: Int64s, hashes: Int64s) -> tuple[int, int]:
    """Return the smallest and the largest size that fit every prompt, the rest of a prompt having a hash or none.

    ``n`` hashes of ``L`` tokens: L / (n + 1) < size < L / (n - 1).
    """
    low = int((tokens // (hashes + 1) + 1).max())
    several = hashes > 1
    high = int(((tokens[several] - 1) // (hashes[several] - 1)).min()) if several.any() else int(tokens.max())
    return low, high


def _given_note(tokens: Int64s, hashes: Int64s, *, size: int, file: str) -> str | None:
    """Return how many prompts have fewer hashes than blocks. Raises TraceError for one that has more."""
    many = np.flatnonzero(hashes > -(-tokens // size))
    if len(many):
        row = int(many[0])
        raise TraceError(
            f"{file}: hash_ids: got {hashes[row]} for a prompt of {tokens[row]:,} tokens, expected at most "
            f"{-(-tokens[row] // size)} in blocks of {size}"
        )
    few = int((hashes < tokens // size).sum())
    said = f"a hash stands for {size:,} tokens, as you say"
    return (
        said
        if not few
        else f"{said}; {few:,} prompts have fewer hashes than blocks: what is behind them is new text"
    )


def _misfit(tokens: Int64s, hashes: Int64s, *, usual: int, file: str, low: int, high: int) -> str:
    row = int(np.flatnonzero(~_fits(tokens, hashes, usual))[0])
    got = f"{hashes[row]} hash_ids for a prompt of {tokens[row]:,} tokens"
    expected = f"{-(-tokens[row] // usual)} in blocks of {usual}"
    others = f" (sizes from {low} to {high} fit)" if low <= high else " (no one size fits all prompts)"
    return f"{file}: hash_ids: got {got}, expected {expected}{others}; {WAY_OUT}"
