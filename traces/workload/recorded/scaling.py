"""Recorded requests made longer or shorter: lengths times a factor, and no longer than a bound."""

from __future__ import annotations

import numpy as np
import pandas as pd

from traces.metrics import prompt_tokens
from traces.trace import Trace, typed


def scale_lengths(trace: Trace, *, prompt: float = 1.0, output: float = 1.0) -> Trace:
    """Return the trace with prompts and outputs times these factors, rounded, each at least 1 token.

    A shared prefix scales with its prompt. Block hashes keep their blocks, which become so much longer or
    shorter themselves: what was shared between two prompts stays shared, in proportion.
    """
    if prompt != 1.0:
        trace = _scale_prompts(trace, prompt)
    if output != 1.0:
        scaled = (trace.column("output_tokens").astype("Float64") * output).round().clip(lower=1)
        trace = trace.with_columns(output_tokens=scaled.astype("Int64"))
    return trace


def clip_lengths(trace: Trace, *, prompt: int | None = None, output: int | None = None) -> Trace:
    """Return the trace with prompts (a shared prefix included) and outputs no longer than these; None: any."""
    if prompt is not None:
        prefix = trace.column("prefix_length").fillna(0).clip(upper=prompt)
        own = trace.column("input_tokens")
        kept = own.where(own <= prompt - prefix, prompt - prefix)
        trace = _with_hashes_that_fit(trace.with_columns(prefix_length=prefix, input_tokens=kept))
    if output is not None:
        trace = trace.with_columns(output_tokens=trace.column("output_tokens").clip(upper=output))
    return trace


def _scale_prompts(trace: Trace, factor: float) -> Trace:
    total = np.maximum(np.rint(prompt_tokens(trace) * factor), 1).astype(np.int64)
    prefix = trace.column("prefix_length").fillna(0).to_numpy(dtype=np.int64)
    prefix = np.minimum(np.rint(prefix * factor).astype(np.int64), total)
    columns = {"prefix_length": prefix, "input_tokens": total - prefix}
    if "new_input_tokens" in trace.requests.columns:
        grown = (trace.column("new_input_tokens").astype("Float64") * factor).round().clip(lower=1)
        columns["new_input_tokens"] = grown.astype("Int64")
    block = trace.header.hash_block_size
    if block is not None:
        trace = trace.with_header(hash_block_size=max(round(block * factor), 1))
    return _with_hashes_that_fit(trace.with_columns(**columns))


def _with_hashes_that_fit(trace: Trace) -> Trace:
    """Return the trace without the hashes of blocks that its prompts no longer reach."""
    block = trace.header.hash_block_size
    if block is None or "prefix_hashes" not in trace.requests.columns:
        return trace
    most = (-(-prompt_tokens(trace) // block)).tolist()
    hashes = [
        " ".join(text.split()[:number]) if isinstance(text, str) else None
        for text, number in zip(trace.column("prefix_hashes"), most, strict=True)
    ]
    return trace.with_columns(prefix_hashes=typed("prefix_hashes", pd.array(hashes, dtype="string")))
