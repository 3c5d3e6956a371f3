"""Profiled: a step as the sum of operators whose times were measured, tabulated and looked up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig
from sim.latency.blackbox import Blackbox

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTS = 16
"""Knots per doubling: an axis has every integer up to here, then this many equal parts of each doubling."""

REST_BITS = 48
"""Bits of a float64's mantissa behind the four that tell the PARTS apart."""

FIRST_KNOT = (1023 + 4) * PARTS - PARTS
"""What the bits before those say of PARTS itself, less its number as a knot."""

AXES = ("tokens", "sequences", "decode_sequences", "decode_keys", "prefill_tokens", "prefill_keys")
"""The axes by name, in the order in which their numbers of knots stand in the engine's terms."""

HEADER = 2 + len(AXES)
"""The engine's terms: scale, step, the number of knots of each axis; then the four tables, row by row."""

TABLES = {
    "tokens_us": ("tokens",),
    "sequences_us": ("sequences",),
    "decode_us": ("decode_sequences", "decode_keys"),
    "prefill_us": ("prefill_tokens", "prefill_keys"),
}
"""Which axes each table has."""


def axis_knots(most: int) -> Floats:
    """Return the knots of an axis from 0 to at least ``most``: 0, 1, ... 16, 17, ... 32, 34, ... 64, 68, ...

    They are the numbers of a float with four bits of mantissa, so that a value's place is found from its exponent.
    """
    if most < 1:
        raise InvalidConfig(f"an axis: got {most} as its end, expected >= 1")
    knots = [float(i) for i in range(PARTS + 1)]
    width = 1
    while knots[-1] < most:
        knots += [knots[-1] + width * (i + 1) for i in range(PARTS)]
        width *= 2
    kept = int(np.searchsorted(knots, most)) + 1
    return np.array(knots[: max(2, kept)], np.float64)


def place(value: Floats) -> tuple[Ints, Floats]:
    """Return (the number of the knot at or below each value, how far it is from there to the next, 0 to 1).

    From 16 on, a float64's exponent and first four bits of mantissa, read as an integer, count the knots, and the
    other 48 bits are the way between two of them: no search, no logarithm.
    """
    bits = np.ascontiguousarray(value, np.float64).view(np.int64)
    is_small = value < PARTS
    knot = np.where(is_small, value.astype(np.int64), (bits >> REST_BITS) - FIRST_KNOT)
    share = np.where(is_small, value - knot, (bits & ((1 << REST_BITS) - 1)) / (1 << REST_BITS))
    return knot, share


def look_up(table: Floats, value: Floats) -> Floats:
    """Return a table's values, linear between knots and beyond the last two."""
    at, share = place(value)
    low = np.minimum(at, len(table) - 2)
    below = table[low]
    found: Floats = below + ((at - low) + share) * (table[low + 1] - below)
    return found


def look_up_both(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """Return a table's values by row and column, linear along each axis."""
    (at_row, row_share), (at_column, column_share) = place(rows), place(columns)
    row = np.minimum(at_row, table.shape[0] - 2)
    column = np.minimum(at_column, table.shape[1] - 2)
    right = (at_column - column) + column_share
    upper = table[row, column] + right * (table[row, column + 1] - table[row, column])
    lower = table[row + 1, column] + right * (table[row + 1, column + 1] - table[row + 1, column])
    found: Floats = upper + ((at_row - row) + row_share) * (lower - upper)
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Profiled(Blackbox):
    """Four tables of µs, and blackbox's alphas around them; its betas are not used and stay 0.

    A step of P prefill and D decode tokens, whose decodes read C KV entries and whose Q prefills attend to A (query,
    key) pairs, lasts

        step + scale · (tokens[P + D] + sequences[D + Q] + decode[D, C/D] + prefill[P, A/P])

    without the decode term where D is 0 and the prefill term where P is 0; rounded once, half to even. Tables are on
    the knots of ``axis_knots``, linear between them along each axis, and beyond the last two. ``scale`` and ``step``
    (µs) are what calibration may change: a GPU that is slower than the profiled one, and time between steps.
    Not slotted: the flattened tables are kept once made. Raises InvalidConfig on what cannot be a time.
    """

    tokens_us: Floats
    sequences_us: Floats
    decode_us: Floats
    prefill_us: Floats
    scale: float = 1.0
    step: float = 0.0
    origin: str = ""

    def __post_init__(self) -> None:
        """Check the tables and the coefficients."""
        Blackbox.__post_init__(self)
        for name, axes in TABLES.items():
            table = getattr(self, name)
            if table.ndim != len(axes) or min(table.shape) < 2:
                raise InvalidConfig(
                    f"{name}: got shape {table.shape}, expected {len(axes)} axes of 2 knots or more"
                )
            if not np.all(np.isfinite(table)) or table.min() < 0:
                raise InvalidConfig(f"{name}: got a time that is negative or endless, expected µs >= 0")
        for name in ("scale", "step"):
            value = float(getattr(self, name))
            if not np.isfinite(value) or value < 0:
                raise InvalidConfig(f"{name}: got {value!r}, expected a number >= 0")

    def __eq__(self, other: object) -> bool:
        """Return whether two models take the same time for every step."""
        if not isinstance(other, Profiled):
            return NotImplemented
        coefficients = np.array_equal(self.engine_coefficients(), other.engine_coefficients())
        return bool(coefficients) and np.array_equal(self.engine_terms(), other.engine_terms())

    def __hash__(self) -> int:
        """Return a hash of where the tables came from: cheap, and equal where models are."""
        return hash((self.scale, self.step, self.tokens_us.shape))

    @property
    def is_blackbox(self) -> bool:
        """Whether the engine may compute steps in exact integers: never."""
        return False

    @cached_property
    def _terms(self) -> Floats:
        sizes = [size for name in TABLES for size in getattr(self, name).shape]
        tables = [getattr(self, name).ravel() for name in TABLES]
        return np.concatenate([np.array([self.scale, self.step, *sizes], np.float64), *tables])

    def engine_terms(self) -> Floats:
        """Return the coefficients, the axes and the tables as the engine takes them."""
        return self._terms

    def times_us(
        self, *, prefill_tokens: Ints, decode_tokens: Ints, context: Ints, pairs: Ints, prefill_seqs: Ints
    ) -> Ints:
        """Return the durations of steps that have tokens, int64 µs: what the engine computes, as columns."""
        p, d = prefill_tokens.astype(np.float64), decode_tokens.astype(np.float64)
        work = look_up(self.tokens_us, p + d) + look_up(self.sequences_us, d + prefill_seqs)
        keys = np.divide(context, d, out=np.zeros_like(d), where=d > 0)
        work += np.where(d > 0, look_up_both(self.decode_us, d, keys), 0.0)
        keys = np.divide(pairs, p, out=np.zeros_like(p), where=p > 0)
        work += np.where(p > 0, look_up_both(self.prefill_us, p, keys), 0.0)
        return np.rint(self.step + self.scale * work).astype(np.int64)
