"""Blackbox: a step's duration as a straight line in its prefill and decode tokens, exact to the microsecond."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig

Number = str | int | float | Decimal

SCALE = 1_000_000
"""Coefficients are kept to 10⁻⁶ µs, as integers, so that a tie is a tie on every machine."""

LARGEST_US = {
    "alpha0": 10**9,
    "alpha1": 10**6,
    "alpha2": 10**6,
    "beta0": 10**9,
    "beta1": 10**6,
    "beta2": 10**6,
}
"""Beyond 1000 s, or 1 s per token, is a mistake of unit; times nine million tokens it would overflow int64."""


def scaled(value: Number, name: str) -> int:
    """Return a coefficient in 10⁻⁶ µs, rounded half to even; raise InvalidConfig on what is not one."""
    try:
        decimal = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        number = int((decimal * SCALE).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, OverflowError, ValueError, TypeError) as error:
        raise InvalidConfig(f"{name}: got {value!r}, expected a number of µs") from error
    if not 0 <= number <= LARGEST_US[name] * SCALE:
        raise InvalidConfig(f"{name}: got {value!r}, expected 0 to {LARGEST_US[name]:,} µs")
    return number


def divided_half_even(value: NDArray[np.int64], divisor: int = SCALE) -> NDArray[np.int64]:
    """Return value / divisor, rounded half to even; values must not be negative."""
    quotient, rest = np.divmod(value, divisor)
    up = (2 * rest > divisor) | ((2 * rest == divisor) & (quotient % 2 == 1))
    rounded: NDArray[np.int64] = quotient + up
    return rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Blackbox:
    """Six coefficients in µs (BLIS's blackbox model, with vLLM's clock).

    A step of P prefill and D decode tokens lasts ``beta0 + beta1·P + beta2·D``; a request joins the queue
    ``alpha0 + alpha1·prompt tokens`` after it arrives; its k-th output token is seen ``k·alpha2`` after its step.
    Each of the three is rounded once, half to even. Raises InvalidConfig on a negative or endless coefficient.
    """

    alpha0: Number = 0
    alpha1: Number = 0
    alpha2: Number = 0
    beta0: Number = 0
    beta1: Number = 0
    beta2: Number = 0

    def __post_init__(self) -> None:
        """Check all six."""
        for name in ("alpha0", "alpha1", "alpha2", "beta0", "beta1", "beta2"):
            scaled(getattr(self, name), name)

    def engine_coefficients(self) -> NDArray[np.int64]:
        """Return (beta0, beta1, beta2, alpha2) in 10⁻⁶ µs, as the engine takes them."""
        names = ("beta0", "beta1", "beta2", "alpha2")
        return np.array([scaled(getattr(self, name), name) for name in names], dtype=np.int64)

    @property
    def is_blackbox(self) -> bool:
        """Whether the engine may compute steps in exact integers: always, for blackbox itself."""
        return True

    def engine_terms(self) -> NDArray[np.float64]:
        """Return the coefficients of the engine's float path: none."""
        return np.zeros(0, np.float64)

    def queue_delay_us(self, prompt_tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how long after their arrival requests join the queue, int64 µs."""
        delay = scaled(self.alpha0, "alpha0") + scaled(self.alpha1, "alpha1") * prompt_tokens.astype(np.int64)
        return divided_half_even(delay)

    def output_delay_us(self, token_number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how long after its step the k-th token (k from 1) is seen, int64 µs."""
        return divided_half_even(scaled(self.alpha2, "alpha2") * token_number.astype(np.int64))

    def step_us(
        self, prefill_tokens: NDArray[np.int64], decode_tokens: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the durations of steps, int64 µs: what the engine computes, as columns."""
        b = self.engine_coefficients()
        return divided_half_even(b[0] + b[1] * prefill_tokens + b[2] * decode_tokens)
