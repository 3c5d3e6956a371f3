"""Recorded requests made longer or shorter: lengths times a factor, cut to a bound."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.metrics import own_prompt_tokens, prompt_tokens
from traces.tables.cells import Cells, cells_where, text_cells
from traces.tables.hash_chains import own_hashes
from traces.tables.image_lists import scaled_images
from traces.trace import Trace

Most = int | NDArray[np.int64]
ENGINES_BLOCK: Final = 16
"""Tokens of a block of the KV cache, vLLM's default on GPUs; larger ones are multiples of it."""
_OUTPUTS: Final = ("output_tokens", "max_tokens")
_COUNTED: Final = ("server_input_tokens",)
"""The whole prompt, prefix included, as the server counted it."""


def scale_lengths(trace: Trace, *, prompt: float = 1.0, output: float = 1.0) -> Trace:
    """Return the trace with prompts and outputs times these factors, rounded, each at least 1 token.

    The server's counts are scaled like the client's own, ``max_tokens`` like the output, a shared prefix like its
    prompt. Block hashes keep their blocks, which are scaled, too, to whole blocks of an engine: text shared between two
    prompts stays shared, nearly in proportion.
    """
    if prompt != 1.0:
        trace = _scale_prompts(trace, prompt)
    if output != 1.0:
        trace = trace.with_columns(
            **{name: _scaled(trace.cells(name), output) for name in _there(trace, _OUTPUTS)}
        )
    return trace


def clip_lengths(trace: Trace, *, prompt: Most | None = None, output: Most | None = None) -> Trace:
    """Return the trace with prompts (a shared prefix included) and outputs no longer than these; None: any.

    A number holds for all requests, an array has one for each.
    """
    if prompt is not None:
        prefix = np.minimum(trace.cells("prefix_length").values, prompt)
        kept = np.minimum(trace.cells("input_tokens").values, prompt - prefix)
        counted = {name: _at_most(trace.cells(name), prompt) for name in _there(trace, _COUNTED)}
        clipped = trace.with_columns(prefix_length=prefix, input_tokens=kept, **counted)
        trace = _with_images(_with_hashes_that_fit(clipped))
    if output is not None:
        trace = trace.with_columns(
            **{name: _at_most(trace.cells(name), output) for name in _there(trace, _OUTPUTS)}
        )
    return trace


def _there(trace: Trace, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name in trace.table)


def _at_most(counts: Cells, most: Most) -> Cells:
    return cells_where(np.minimum(counts.values, most), counts.is_known)


def _scaled(counts: Cells, factor: float) -> Cells:
    """Return numbers of tokens times a factor, rounded, each at least 1."""
    return cells_where(np.maximum(np.rint(counts.values * factor), 1).astype(np.int64), counts.is_known)


def _scale_prompts(trace: Trace, factor: float) -> Trace:
    total = np.maximum(np.rint(own_prompt_tokens(trace) * factor), 1).astype(np.int64)
    prefix = trace.cells("prefix_length").values
    prefix = np.minimum(np.rint(prefix * factor).astype(np.int64), total)
    columns: dict[str, object] = {"prefix_length": prefix, "input_tokens": total - prefix}
    for name in _there(trace, (*_COUNTED, "new_input_tokens")):
        columns[name] = _scaled(trace.cells(name), factor)
    block = trace.header.hash_block_size
    if block is not None:
        trace = trace.with_header(hash_block_size=_scaled_block(block, factor))
    return _with_images(_with_hashes_that_fit(trace.with_columns(**columns)), factor)


def _scaled_block(block: int, factor: float) -> int:
    """Return the size of scaled blocks of hashes: a multiple of an engine's blocks, as the recorded ones are."""
    unit = math.gcd(block, ENGINES_BLOCK)
    return max(round(block * factor / unit), 1) * unit


def _with_images(trace: Trace, factor: float = 1.0) -> Trace:
    """Return the trace with scaled images, without those that its prompts no longer hold."""
    if "images" not in trace.table:
        return trace
    lists = zip(trace.cells("images").values.tolist(), prompt_tokens(trace).tolist(), strict=True)
    return trace.with_columns(images=text_cells([scaled_images(text, factor, most) for text, most in lists]))


def _with_hashes_that_fit(trace: Trace) -> Trace:
    """Return the trace without the hashes of blocks that its prompts no longer reach."""
    block = trace.header.hash_block_size
    if block is None or "prefix_hashes" not in trace.table:
        return trace
    most = -(-own_prompt_tokens(trace) // block)
    if "num_parent_hashes" in trace.table:
        return _with_chains_that_fit(trace, most)
    hashes = [
        None if text is None else " ".join(text.split()[:number])
        for text, number in zip(trace.cells("prefix_hashes").values.tolist(), most.tolist(), strict=True)
    ]
    return trace.with_columns(prefix_hashes=hashes)


def _with_chains_that_fit(trace: Trace, most: NDArray[np.int64]) -> Trace:
    """Do the same if prompts continue others: hashes that one has lost are not kept by its followers."""
    own = own_hashes(trace.table)
    texts = trace.cells("prefix_hashes").values.tolist()
    kept, counts, parents, limits = own.kept.tolist(), own.counts.tolist(), own.parent.tolist(), most.tolist()
    for row, text in enumerate(texts):
        there = min(kept[row], counts[parents[row]] if parents[row] >= 0 else 0, limits[row])
        names = [] if text is None or there < kept[row] else text.split()[: limits[row] - there]
        kept[row], counts[row], texts[row] = there, there + len(names), " ".join(names) or None
    known = trace.cells("num_parent_hashes").is_known
    return trace.with_columns(
        prefix_hashes=text_cells(texts), num_parent_hashes=cells_where(np.array(kept, np.int64), known)
    )
