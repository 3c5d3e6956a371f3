"""What every latency model is to the engine: delays on the way in and out, and how a step's duration is computed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig
from sim.latency.batch import StepBatch

Number = str | int | float | Decimal
Int64s = NDArray[np.int64]

SCALE = 1_000_000
"""Coefficients are kept to 10⁻⁶ µs, as integers, so that a tie is a tie on every machine."""

ALPHAS = ("alpha0", "alpha1", "alpha2", "alpha3")
"""The ways in and out of the engine."""

BLACKBOX, EXTENDED, TABULATED, PROFILED = 0, 1, 2, 3
"""Kinds of steps that the engine computes: exact integers; Extended's formula; a table by tokens, and attention; four
tables."""

LARGEST_US = {
    "alpha0": 10**9,
    "alpha1": 10**6,
    "alpha2": 10**6,
    "alpha3": 10**6,
    "beta0": 10**9,
    "beta1": 10**6,
    "beta2": 10**6,
}
"""Beyond 1000 s, or 1 s per token, is a mistake of unit; times nine million tokens it would overflow int64."""


def scaled(value: Number, name: str) -> int:
    """Return a coefficient in 10⁻⁶ µs, rounded half to even; raise InvalidConfig on what is not one."""
    try:
        number = _millionths(value)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise InvalidConfig(f"{name}: got {value!r}, expected a number of µs") from error
    if not 0 <= number <= LARGEST_US[name] * SCALE:
        raise InvalidConfig(f"{name}: got {value!r}, expected 0 to {LARGEST_US[name]:,} µs")
    return number


@lru_cache(1024)
def _millionths(value: Number) -> int:
    """Return a number in 10⁻⁶, rounded half to even; a fit asks for the same few a million times."""
    decimal = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return int((decimal * SCALE).to_integral_value(ROUND_HALF_EVEN))


def token_delay(alpha2: int, token_number: Any) -> Any:  # noqa: ANN401 - of a number or of an array, compiled too
    """Return how long after its step the k-th token, k from 1, is seen, in the unit of alpha2: said here alone."""
    return alpha2 * token_number


def divided_half_even(value: Int64s) -> Int64s:
    """Return value / SCALE, an even number, rounded half to even; values must not be negative."""
    raised = value + SCALE // 2
    rounded: Int64s = raised // SCALE
    rounded -= (rounded * SCALE == raised) & (rounded & 1)
    return rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyModel:
    """The way in and out of the engine, which all models share; what a step takes, each says itself.

    A request joins the queue ``alpha0 + alpha1·prompt tokens`` µs after it arrives; its k-th output token is seen
    ``k·alpha2`` after its step, the first one another ``alpha3·place`` later: a server's front end hands on the outputs
    of a step one after another, and a request that is new is among the last of them. Each is rounded once, half to
    even. Raises InvalidConfig on a negative or endless one.
    """

    alpha0: Number = 0
    alpha1: Number = 0
    alpha2: Number = 0
    alpha3: Number = 0

    def __post_init__(self) -> None:
        """Check the four."""
        for name in ALPHAS:
            scaled(getattr(self, name), name)

    @property
    def engine_kind(self) -> int:
        """Which of its ways of computing a step the engine takes: BLACKBOX, EXTENDED, TABULATED or PROFILED."""
        raise NotImplementedError

    @property
    def is_blackbox(self) -> bool:
        """Whether steps are computed in exact integers."""
        return self.engine_kind == BLACKBOX

    def engine_coefficients(self) -> Int64s:
        """Return (beta0, beta1, beta2, alpha2, alpha3) in 10⁻⁶ µs, as the engine takes them."""
        delays = [scaled(getattr(self, name), name) for name in ("alpha2", "alpha3")]
        return np.array([0, 0, 0, *delays], dtype=np.int64)

    def engine_terms(self) -> NDArray[np.float64]:
        """Return what the engine's float path reads, in the layout of its kind."""
        raise NotImplementedError

    def durations_us(self, batch: StepBatch) -> Int64s:
        """Return what steps take after a long idle time, without scatter, int64 µs: what the engine does, in numpy."""
        raise NotImplementedError

    def queue_delay_us(self, prompt_tokens: Int64s) -> Int64s:
        """Return how long after their arrival requests join the queue, int64 µs."""
        delay = scaled(self.alpha0, "alpha0") + scaled(self.alpha1, "alpha1") * prompt_tokens.astype(np.int64)
        return divided_half_even(delay)

    def output_delay_us(self, token_number: Int64s) -> Int64s:
        """Return how long after its step the k-th token (k from 1) is seen, int64 µs."""
        return divided_half_even(token_delay(scaled(self.alpha2, "alpha2"), token_number.astype(np.int64)))
