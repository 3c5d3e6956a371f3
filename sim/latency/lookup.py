"""Profiled, compiled: four lookups a step, each found from the exponents of what the step holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.compile import part

SCALE, STEP, TOKENS, SEQUENCES, DECODE_ROWS, DECODE_COLUMNS, PREFILL_ROWS, PREFILL_COLUMNS, HEADER = range(9)
"""Where Profiled's coefficients and numbers of knots stand in ``State.terms``; the tables begin at HEADER."""

PARTS, REST_BITS, FIRST_KNOT = 16.0, 48, (1023 + 4) * 16 - 16
"""As in ``sim.latency.profiled``, where ``place`` has the idea."""


@part
def knot_at(value: float) -> int:
    """Return the number of the knot at or below a value."""
    if value < PARTS:
        return int(value)
    return (np.float64(value).view(np.int64) >> REST_BITS) - FIRST_KNOT


@part
def share_beyond(value: float) -> float:
    """Return how far a value is from that knot to the next, 0 to 1."""
    if value < PARTS:
        return value - int(value)
    return (np.float64(value).view(np.int64) & ((1 << REST_BITS) - 1)) / (1 << REST_BITS)


@part
def look_up(terms: NDArray[np.float64], start: int, num_knots: int, value: float) -> float:
    """Return the value of the table that begins at ``start``, linear between knots and beyond the last two."""
    at = knot_at(value)
    low = min(at, num_knots - 2)
    below = terms[start + low]
    return below + ((at - low) + share_beyond(value)) * (terms[start + low + 1] - below)


@part
def look_up_both(
    terms: NDArray[np.float64], start: int, num_rows: int, num_columns: int, row: float, column: float
) -> float:
    """Return the value of a table of two axes, linear along each."""
    at_row, at_column = knot_at(row), knot_at(column)
    i, j = min(at_row, num_rows - 2), min(at_column, num_columns - 2)
    upper_at = start + i * num_columns + j
    lower_at = upper_at + num_columns
    right = (at_column - j) + share_beyond(column)
    upper = terms[upper_at] + right * (terms[upper_at + 1] - terms[upper_at])
    lower = terms[lower_at] + right * (terms[lower_at + 1] - terms[lower_at])
    return upper + ((at_row - i) + share_beyond(row)) * (lower - upper)


@part
def profiled_us(terms: NDArray[np.float64], work: tuple[int, int, int, int, int]) -> int:
    """Return the duration of a step that has tokens; ``work`` as ``sim.latency.compiled.take_step`` has it."""
    num_prefill_tokens, num_decode_tokens, context, pairs, num_prefill_seqs = work
    num_tokens, num_sequences = int(terms[TOKENS]), int(terms[SEQUENCES])
    start = HEADER
    total = look_up(terms, start, num_tokens, float(num_prefill_tokens + num_decode_tokens))
    start += num_tokens
    total += look_up(terms, start, num_sequences, float(num_decode_tokens + num_prefill_seqs))
    start += num_sequences
    rows, columns = int(terms[DECODE_ROWS]), int(terms[DECODE_COLUMNS])
    if num_decode_tokens > 0:
        sequences = float(num_decode_tokens)
        total += look_up_both(terms, start, rows, columns, sequences, context / sequences)
    start += rows * columns
    if num_prefill_tokens > 0:
        rows, columns = int(terms[PREFILL_ROWS]), int(terms[PREFILL_COLUMNS])
        tokens = float(num_prefill_tokens)
        total += look_up_both(terms, start, rows, columns, tokens, pairs / tokens)
    return int(np.rint(terms[STEP] + terms[SCALE] * total))
