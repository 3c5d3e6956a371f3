"""Profiled: a step as the sum of operators whose times were measured, tabulated and looked up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from lazy_dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig
from sim.latency.batch import StepBatch
from sim.latency.latency_model import (
    ALPHAS,
    HANDED_ON_US,
    PROFILED,
    Fitting,
    LatencyModel,
    check_not_negative,
    coefficient,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTS = 16
"""Knots per doubling: an axis has every integer up to here, then this many equal parts of each doubling."""

REST_BITS = 48
"""Bits of a float64's mantissa behind the four that tell the PARTS apart."""

FIRST_KNOT = (1023 + 4) * PARTS - PARTS
"""What the bits before those say of PARTS itself, less its number as a knot."""

AXES = (
    *("tokens", "sequences", "decode_sequences", "decode_keys", "prefill_tokens", "prefill_keys"),
    *("chunk_sequences", "chunk_tokens"),
)
"""The axes by name, in the order in which their numbers of knots stand in the engine's terms."""

HEADER = 5 + len(AXES)
"""The engine's terms: scale, step, what batches do to both attentions, the number of knots of each axis (0 of a table
that the model has not), where the values just after the knots of tokens begin; then the tables, row by row, and these
values, if any."""

PREFILL_ATTENTION, DECODE_ATTENTION, STATE_PREFILL, COLLECTIVE = (
    "prefill_attention",
    "decode_attention",
    "state_prefill",
    "tensor_parallel_comm",
)
"""Operators that a table is, or that the model adds to."""

VIDURS = ("decode_batching", "prefill_batching", "nccl_launch", "nccl_skew")
"""Settings that Vidur's predictor has and the tables do not: 0 leaves a term out."""

SKEW_EXPONENT = 1.25
"""How the GPUs' waiting for each other grows with their number, by Vidur."""

TABLES = {
    "tokens_us": ("tokens",),
    "sequences_us": ("sequences",),
    "decode_us": ("decode_sequences", "decode_keys"),
    "prefill_us": ("prefill_tokens", "prefill_keys"),
    "chunks_us": ("chunk_sequences", "chunk_tokens"),
}
"""Which axes each table has."""

OPTIONAL = ("chunks_us",)
"""Tables that only some models have: what layers with a state take of a step's prompts."""


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


def knot_value(number: int) -> float:
    """Return the knot of a number."""
    if number <= PARTS:
        return float(number)
    doublings, part = divmod(number - PARTS, PARTS)
    return float((PARTS + part) << doublings)


def between(value: Floats, num_knots: int) -> tuple[Ints, Floats]:
    """Return (the knot below, how far to the next) on an axis; at its end beyond it."""
    knot, share = place(value)
    low = np.minimum(knot, num_knots - 2)
    return low, np.where(value > knot_value(num_knots - 1), 1.0, (knot - low) + share)


def excess(value: Floats, num_knots: int) -> Floats:
    """Return how many times the end of an axis each value is, 1 for those within."""
    return np.asarray(np.maximum(value / knot_value(num_knots - 1), 1.0))


def look_up(table: Floats, value: Floats, after: Floats | None = None) -> Floats:
    """Return a table's values, linear between knots, proportional beyond the last.

    ``after``: its values just after each knot, from which the line to the next one starts; None: those at the knots.
    """
    low, share = between(value, len(table))
    below = table[low] if after is None else np.where(share == 0, table[low], after[low])
    found: Floats = below + share * (table[low + 1] - below)
    return found * excess(value, len(table))


def look_up_both(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """Return a table's values by row and column, linear along each axis, proportional beyond its end.

    Straight lines drawn on along two axes at once can fall below zero; what attention costs is about a product.
    """
    row, down = between(rows, table.shape[0])
    column, right = between(columns, table.shape[1])
    upper = table[row, column] + right * (table[row, column + 1] - table[row, column])
    lower = table[row + 1, column] + right * (table[row + 1, column + 1] - table[row + 1, column])
    found: Floats = upper + down * (lower - upper)
    return found * excess(rows, table.shape[0]) * excess(columns, table.shape[1])


@dataclass(frozen=True, kw_only=True, eq=False)
class Profiled(LatencyModel):
    """Tables of µs, one of them for each way in which an operator's time grows.

    A step of P prefill and D decode tokens, whose decodes read C KV entries and whose Q prefills attend to A (query,
    key) pairs, lasts

        step + scale · (tokens[P + D] + sequences[D + Q] + decode[D, C/D] + prefill[P, A/P] + chunks[Q, P/Q])

    without the decode term where D is 0 and the last two where P is 0; rounded once, half to even. ``chunks_us``:
    what layers that keep a state take of chunks, whatever their context; None: there are none. Tables are on the
    knots of ``axis_knots``, linear between them along each axis, and proportional beyond the last. A matrix product
    is computed in tiles, and one token more than fills them takes another round of all: ``tokens_after_us``, as
    long as ``tokens_us``, has what a step of a little more than each knot takes, None: no more. ``scale`` and
    ``step`` (µs) are what calibration may change: a GPU that is slower than the profiled one, and time between
    steps.

    Three terms of Vidur's (arXiv:2405.05465), 0 unless given: the decode term counts 1 + ``decode_batching`` times
    where D > 1, the prefill term 1 + ``prefill_batching`` times where several requests prefill, and each of a step's
    ``num_collectives`` adds ``nccl_launch + nccl_skew·tp^1.25`` µs, which ``scale`` leaves alone.

    ``parts``: by operator (its axis, "tokens" or "sequences"; µs on the knots, and just after them or None), what the
    first two tables are sums of, for ``operators`` alone. Not slotted: the flattened tables are kept once made. Raises
    InvalidConfig on what cannot be a time.
    """

    fitting: ClassVar[Fitting] = Fitting.NEARBY
    first_guesses: ClassVar[Mapping[str, float]] = {
        "alpha0": 5_000.0,
        "alpha1": 3.0,
        "alpha3": HANDED_ON_US,
        "step": 1_000.0,
    }
    has_operators: ClassVar[bool] = True
    in_words: ClassVar[str] = (
        "A step lasts step + scale · what the profile's tables say of its tokens, sequences, decodes and prefills"
    )

    tokens_us: Floats
    sequences_us: Floats
    decode_us: Floats
    prefill_us: Floats
    scale: float = coefficient(1.0, "x profile", "Factor on the table's times.", prior=0.25)
    step: float = coefficient(0.0, "µs/step", "µs per step in addition.", told="the table's", prior=0.8)
    decode_batching: float = coefficient(
        0.0,
        "x table",
        "Share by which attention of several decodes takes longer than the table's; only for grouped queries. "
        "Vidur has 0.1.",
        told="0",
    )
    prefill_batching: float = coefficient(
        0.0, "x table", "The same for several prompts in a step. Vidur has 0.1.", told="0"
    )
    nccl_launch: float = coefficient(
        0.0,
        "µs/collective",
        "µs of CPU time for each all-reduce beside the measured time. Vidur has 20.",
        told="0",
    )
    nccl_skew: float = coefficient(
        0.0,
        "µs/collective",
        "µs for each all-reduce, times tp^1.25: GPUs that wait for each other. Vidur has 0.",
        told="0",
    )
    tp: int = 1
    num_collectives: float = 0.0
    origin: str = ""
    parts: Mapping[str, tuple[str, Floats, Floats | None]] = field(default_factory=dict)
    tokens_after_us: Floats | None = None
    chunks_us: Floats | None = None

    def __post_init__(self) -> None:
        """Check the tables and the coefficients."""
        LatencyModel.__post_init__(self)
        for name, axes in TABLES.items():
            table = getattr(self, name)
            if table is None and name in OPTIONAL:
                continue
            if table.ndim != len(axes) or min(table.shape) < 2:
                raise InvalidConfig(
                    f"{name}: got shape {table.shape}, expected {len(axes)} axes of 2 knots or more"
                )
            if not np.all(np.isfinite(table)) or table.min() < 0:
                raise InvalidConfig(f"{name}: got a time that is negative or endless, expected µs >= 0")
        after = self.tokens_after_us
        if after is not None and not (
            after.shape == self.tokens_us.shape and np.all(np.isfinite(after)) and after.min() >= 0
        ):
            raise InvalidConfig(
                f"tokens_after_us: got {after.size:,} values, expected {self.tokens_us.size:,} times >= 0"
            )
        for name in ("scale", "step", *VIDURS):
            check_not_negative(name, float(getattr(self, name)))

    def __eq__(self, other: object) -> bool:
        """Return whether two models take the same time for every step."""
        if not isinstance(other, Profiled):
            return NotImplemented
        coefficients = all(getattr(self, name) == getattr(other, name) for name in ALPHAS)
        return coefficients and np.array_equal(self.engine_terms(), other.engine_terms())

    def __hash__(self) -> int:
        """Return a hash of where the tables came from: cheap, and equal where models are."""
        return hash((self.scale, self.step, self.tokens_us.shape))

    @classmethod
    def coefficient_names(cls) -> tuple[str, ...]:
        """Return the ways in and out, and what is not in the file of the tables."""
        return tuple(cls.coefficients())

    @property
    def goes_by_gpu(self) -> bool:
        """The tables are one model's on one GPU."""
        return True

    @property
    def table_file(self) -> str:
        """``origin``."""
        return self.origin

    @property
    def engine_kind(self) -> int:
        """Tables."""
        return PROFILED

    @cached_property
    def _terms(self) -> Floats:
        each = [np.zeros((0, 0)) if getattr(self, name) is None else getattr(self, name) for name in TABLES]
        sizes = [size for table in each for size in table.shape]
        tables = [table.ravel() for table in each]
        after_at = HEADER if self.tokens_after_us is None else HEADER + sum(map(len, tables))
        head = [
            self.scale,
            self._between,
            1 + self.decode_batching,
            1 + self.prefill_batching,
            *sizes,
            after_at,
        ]
        after = [] if self.tokens_after_us is None else [self.tokens_after_us]
        return np.concatenate([np.array(head, np.float64), *tables, *after])

    @property
    def _between(self) -> float:
        """What a step takes whatever is in it, µs."""
        return self.step + self._collectives

    @property
    def _collectives(self) -> float:
        """What launching all collectives of a step takes beside their own time, µs."""
        return self.num_collectives * (self.nccl_launch + self.nccl_skew * math.pow(self.tp, SKEW_EXPONENT))

    def engine_terms(self) -> Floats:
        """Return the coefficients, the axes and the tables as the engine takes them."""
        return self._terms

    def durations_us(self, batch: StepBatch) -> Ints:
        """Return what steps take, int64 µs; one without tokens takes none."""
        tokens, sequences, decodes, prefills = self._lookups(batch)
        has_tokens = batch.num_prefill_tokens + batch.num_decode_tokens > 0
        work = tokens + sequences + decodes + prefills + self._chunks(batch)
        return np.where(has_tokens, np.rint(self._between + self.scale * work), 0).astype(np.int64)

    def operators(self, batch: StepBatch) -> dict[str, Floats]:
        """Return what each operator of ``parts`` and the time between steps take of each step, float64 µs, unrounded.

        A table without parts is one operator; both tables of attention always are, and that of chunks. What states take
        of decodes is in the attention of decodes.
        """
        tokens, sequences, decodes, prefills = self._lookups(batch)
        found = self._parts_of("tokens", batch.num_prefill_tokens + batch.num_decode_tokens, tokens)
        found |= self._parts_of("sequences", batch.num_decode_tokens + batch.num_prefill_seqs, sequences)
        found |= {DECODE_ATTENTION: decodes, PREFILL_ATTENTION: prefills}
        if self.chunks_us is not None:
            found[STATE_PREFILL] = self._chunks(batch)
        operators = {name: self.scale * part for name, part in found.items()}
        if self._collectives:
            operators[COLLECTIVE] = operators.get(COLLECTIVE, 0.0) + np.full(len(batch), self._collectives)
        operators["between_steps"] = np.full(len(batch), self.step)
        has_tokens = batch.num_prefill_tokens + batch.num_decode_tokens > 0
        return {name: np.where(has_tokens, part, 0.0) for name, part in operators.items()}

    def _parts_of(self, axis: str, value: Ints, whole: Floats) -> dict[str, Floats]:
        """Return the parts of a table of one axis, the table alone where it has none."""
        tables = {name: (table, after) for name, (along, table, after) in self.parts.items() if along == axis}
        at = value.astype(np.float64)
        return {name: look_up(table, at, after) for name, (table, after) in tables.items()} or {axis: whole}

    def _lookups(self, batch: StepBatch) -> tuple[Floats, Floats, Floats, Floats]:
        """Return what the four tables say of steps, unscaled, batches' overhead included."""
        p, d = batch.num_prefill_tokens.astype(np.float64), batch.num_decode_tokens.astype(np.float64)
        keys = np.divide(batch.decode_context_tokens, d, out=np.zeros_like(d), where=d > 0)
        decodes = np.where(d > 0, look_up_both(self.decode_us, d, keys), 0.0)
        decodes *= np.where(d > 1, 1 + self.decode_batching, 1.0)
        keys = np.divide(batch.prefill_pairs, p, out=np.zeros_like(p), where=p > 0)
        prefills = np.where(p > 0, look_up_both(self.prefill_us, p, keys), 0.0)
        prefills *= np.where(batch.num_prefill_seqs > 1, 1 + self.prefill_batching, 1.0)
        return (
            look_up(self.tokens_us, p + d, self.tokens_after_us),
            look_up(self.sequences_us, d + batch.num_prefill_seqs),
            decodes,
            prefills,
        )

    def _chunks(self, batch: StepBatch) -> Floats:
        """Return what layers with a state take of the prompts of steps, unscaled."""
        q, p = batch.num_prefill_seqs.astype(np.float64), batch.num_prefill_tokens.astype(np.float64)
        if self.chunks_us is None:
            return np.zeros(len(batch))
        length = np.divide(p, q, out=np.zeros_like(p), where=q > 0)
        return np.where(p > 0, look_up_both(self.chunks_us, q, length), 0.0)
