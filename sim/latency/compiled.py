"""The one place where a step's duration is rounded to whole microseconds, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.compile import part

SCALE = 1_000_000

BETA0, BETA1, BETA2, ALPHA2 = 0, 1, 2, 3
"""Where the coefficients stand in the engine's ``latency`` array, in 10⁻⁶ µs."""


@part
def half_even(scaled: int) -> int:
    """Return ``scaled`` / SCALE, rounded half to even."""
    quotient = scaled // SCALE
    rest = scaled - quotient * SCALE
    if 2 * rest > SCALE or (2 * rest == SCALE and quotient % 2 == 1):
        quotient += 1
    return quotient


@part
def step_duration_us(latency: NDArray[np.int64], num_prefill_tokens: int, num_decode_tokens: int) -> int:
    """Return a step's duration; a step without tokens takes no time."""
    if num_prefill_tokens + num_decode_tokens == 0:
        return 0
    return half_even(latency[BETA0] + latency[BETA1] * num_prefill_tokens + latency[BETA2] * num_decode_tokens)


@part
def output_delay_us(latency: NDArray[np.int64], token_number: int) -> int:
    """Return how long after its step the k-th token, k from 1, is seen."""
    return half_even(latency[ALPHA2] * token_number)
