"""Blackbox: a step's duration as a straight line in its prefill and decode tokens, exact to the microsecond."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sim.latency.batch import StepBatch
from sim.latency.latency_model import (
    BLACKBOX,
    Fitting,
    Int64s,
    LatencyModel,
    Number,
    divided_half_even,
    exact,
    scaled,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blackbox(LatencyModel):
    """Coefficients in µs (BLIS's blackbox model, with vLLM's clock, and alpha3).

    A step of P prefill and D decode tokens lasts ``beta0 + beta1·P + beta2·D``; a request joins the queue
    ``alpha0 + alpha1·prompt tokens`` after it arrives; its k-th output token is seen ``k·alpha2`` after its step, and
    with ``alpha3``, vtwin's own, the first one later by its place among its step's outputs. Each of these is rounded
    once, half to even. Raises InvalidConfig on a negative or endless coefficient.
    """

    fitting: ClassVar[Fitting] = Fitting.FREELY
    in_words: ClassVar[str] = "A step lasts beta0 + beta1 · prefill tokens + beta2 · decode tokens"

    beta0: Number = exact("beta0", "µs/step", "µs per step.")
    beta1: Number = exact(
        "beta1", "µs/prefill token", "µs per prefill token computed in the step (cache hits are not)."
    )
    beta2: Number = exact("beta2", "µs/decode token", "µs per decode token of the step.")

    def __post_init__(self) -> None:
        """Check all."""
        LatencyModel.__post_init__(self)
        for name in ("beta0", "beta1", "beta2"):
            scaled(getattr(self, name), name)

    @property
    def engine_kind(self) -> int:
        """Exact integers."""
        return BLACKBOX

    @property
    def least_step_us(self) -> int:
        """A step of one token, of the cheaper kind."""
        one, none = np.ones(1, np.int64), np.zeros(1, np.int64)
        return min(int(self.step_us(one, none)[0]), int(self.step_us(none, one)[0]))

    def engine_coefficients(self) -> Int64s:
        """Return (beta0, beta1, beta2, alpha2, alpha3) in 10⁻⁶ µs, as the engine takes them."""
        names = ("beta0", "beta1", "beta2", "alpha2", "alpha3")
        return np.array([scaled(getattr(self, name), name) for name in names], dtype=np.int64)

    def engine_terms(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the coefficients of the engine's float path: none."""
        return np.zeros(0, np.float64)

    def durations_us(self, batch: StepBatch) -> Int64s:
        """Return the durations of steps, int64 µs."""
        return self.step_us(batch.num_prefill_tokens, batch.num_decode_tokens)

    def step_us(self, prefill_tokens: Int64s, decode_tokens: Int64s) -> Int64s:
        """Return the durations of steps, int64 µs: what the engine computes, as columns."""
        b = self.engine_coefficients()
        return divided_half_even(b[0] + b[1] * prefill_tokens + b[2] * decode_tokens)
