"""Profiled, compiled: a few lookups a step, each found from the exponents of what the step holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.jit.compile import part
from sim.latency.batch import StepSums

(
    SCALE,
    STEP,
    DECODE_BATCHING,
    PREFILL_BATCHING,
    TOKENS,
    SEQUENCES,
    DECODE_ROWS,
    DECODE_COLUMNS,
    PREFILL_ROWS,
    PREFILL_COLUMNS,
    CHUNK_ROWS,
    CHUNK_COLUMNS,
    AFTER,
    HEADER,
) = range(14)
"""Where Profiled's coefficients and numbers of knots stand in ``State.terms``; the tables begin at HEADER. At AFTER
stands where the values just after the knots of tokens begin; without a jump these are the values at the knots."""

PARTS, REST_BITS, FIRST_KNOT = 16.0, 48, (1023 + 4) * 16 - 16
"""As in ``sim.latency.profiled``, where ``place`` has the idea."""


@part
def knot_at(value: float) -> int:
    """Return the number of the knot at or below a value."""
    if value < PARTS:
        return int(value)
    return int(np.float64(value).view(np.int64) >> REST_BITS) - FIRST_KNOT


@part
def share_beyond(value: float) -> float:
    """Return how far a value is from that knot to the next, 0 to 1."""
    if value < PARTS:
        return value - int(value)
    return int(np.float64(value).view(np.int64) & ((1 << REST_BITS) - 1)) / (1 << REST_BITS)


@part
def knot_value(number: int) -> float:
    """Return the knot of a number."""
    if number <= PARTS:
        return float(number)
    doublings = (number - int(PARTS)) // int(PARTS)
    return float((number - doublings * int(PARTS)) << doublings)


@part
def way_beyond(value: float, knot: int, num_knots: int) -> float:
    """Return how far a value is from ``knot``, the one below it or the last but one, to the next; 1 beyond the end."""
    if value > knot_value(num_knots - 1):
        return 1.0
    return (knot_at(value) - knot) + share_beyond(value)


@part
def excess(value: float, num_knots: int) -> float:
    """Return how many times the end of an axis a value is, 1 within."""
    return max(value / knot_value(num_knots - 1), 1.0)


@part
def look_up(terms: NDArray[np.float64], start: int, num_knots: int, value: float) -> float:
    """Return the value of the table that begins at ``start``, linear between knots, proportional beyond the last."""
    low = min(knot_at(value), num_knots - 2)
    below = terms[start + low]
    found = below + way_beyond(value, low, num_knots) * (terms[start + low + 1] - below)
    return found * excess(value, num_knots)


@part
def look_up_after(terms: NDArray[np.float64], start: int, after: int, num_knots: int, value: float) -> float:
    """Return the same of a table that jumps: between knots from the value just after the one below."""
    low = min(knot_at(value), num_knots - 2)
    share = way_beyond(value, low, num_knots)
    below = terms[start + low] if share == 0.0 else terms[after + low]
    return (below + share * (terms[start + low + 1] - below)) * excess(value, num_knots)


@part
def look_up_both(
    terms: NDArray[np.float64], start: int, num_rows: int, num_columns: int, row: float, column: float
) -> float:
    """Return the value of a table of two axes, linear along each, proportional beyond its end."""
    i, j = min(knot_at(row), num_rows - 2), min(knot_at(column), num_columns - 2)
    upper_at = start + i * num_columns + j
    lower_at = upper_at + num_columns
    right = way_beyond(column, j, num_columns)
    upper = terms[upper_at] + right * (terms[upper_at + 1] - terms[upper_at])
    lower = terms[lower_at] + right * (terms[lower_at + 1] - terms[lower_at])
    found = upper + way_beyond(row, i, num_rows) * (lower - upper)
    return found * excess(row, num_rows) * excess(column, num_columns)


@part
def profiled_us(terms: NDArray[np.float64], sums: StepSums) -> int:
    """Return the duration of a step that has tokens."""
    num_prefill_tokens, num_decode_tokens, context, pairs, num_prefill_seqs, _ = sums
    num_tokens, num_sequences = int(terms[TOKENS]), int(terms[SEQUENCES])
    start = HEADER
    tokens = float(num_prefill_tokens + num_decode_tokens)
    total = look_up_after(terms, start, int(terms[AFTER]), num_tokens, tokens)
    start += num_tokens
    total += look_up(terms, start, num_sequences, float(num_decode_tokens + num_prefill_seqs))
    start += num_sequences
    rows, columns = int(terms[DECODE_ROWS]), int(terms[DECODE_COLUMNS])
    if num_decode_tokens > 0:
        sequences = float(num_decode_tokens)
        decodes = look_up_both(terms, start, rows, columns, sequences, context / sequences)
        total += decodes * (terms[DECODE_BATCHING] if num_decode_tokens > 1 else 1.0)
    start += rows * columns
    if num_prefill_tokens > 0:
        rows, columns = int(terms[PREFILL_ROWS]), int(terms[PREFILL_COLUMNS])
        tokens = float(num_prefill_tokens)
        prefills = look_up_both(terms, start, rows, columns, tokens, pairs / tokens)
        total += prefills * (terms[PREFILL_BATCHING] if num_prefill_seqs > 1 else 1.0)
        start += rows * columns
        rows, columns = int(terms[CHUNK_ROWS]), int(terms[CHUNK_COLUMNS])
        if rows > 0:
            chunks = float(num_prefill_seqs)
            total += look_up_both(terms, start, rows, columns, chunks, tokens / chunks)
    return int(np.rint(terms[STEP] + terms[SCALE] * total))
