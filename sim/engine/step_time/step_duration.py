"""How long a step takes, compiled: the one place where a duration is rounded to whole microseconds."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sim.engine.state import State
from sim.jit.compile import part, phase
from sim.latency.batch import StepSums
from sim.latency.latency_model import BLACKBOX, PROFILED, SCALE, TABULATED, token_delay
from sim.latency.profiled_lookup import profiled_us
from sim.latency.tabulated import stage_frac, tabulated_us
from sim.latency.throttling import throttled_us

_token_delay = part(token_delay)
_throttled_us = part(throttled_us)

BETA0, BETA1, BETA2, ALPHA2, ALPHA3 = 0, 1, 2, 3, 4
"""Where Blackbox's coefficients stand in ``State.latency``, in 10⁻⁶ µs."""

STEP, PREFILL, DECODE, CONTEXT, PAIRS, PREFILL_SEQ, FLOOR, KAPPA, TAU, SIGMA, SEED, U0, EXPONENT = range(13)
"""Where Extended's coefficients stand in ``State.terms``."""
TILES = 13
"""Where its factors by a step's tokens begin, if it has any: of 0 tokens, of 1, …"""


@part
def half_even(scaled: int) -> int:
    """Return ``scaled`` / SCALE, rounded half to even."""
    quotient = scaled // SCALE
    rest = scaled - quotient * SCALE
    if 2 * rest > SCALE or (2 * rest == SCALE and quotient % 2 == 1):
        quotient += 1
    return quotient


@part
def lengthened_us(duration_us: int, factor: float, added_us: float) -> int:
    """Return a duration times a factor, and what comes on top of it."""
    return int(np.rint(duration_us * factor + added_us))


@part
def blackbox_us(latency: NDArray[np.int64], num_prefill_tokens: int, num_decode_tokens: int) -> int:
    """Return Blackbox's duration of a step that has tokens."""
    return half_even(
        latency[BETA0] + latency[BETA1] * num_prefill_tokens + latency[BETA2] * num_decode_tokens
    )


@part
def output_delay_us(latency: NDArray[np.int64], token_number: int) -> int:
    """Return how long after its step the k-th token, k from 1, is seen."""
    return half_even(_token_delay(latency[ALPHA2], token_number))


@part
def first_seen_us(latency: NDArray[np.int64], now_us: int, place: int) -> int:
    """Return when a first token is seen, but for alpha2, that is the ``place``-th output, from 1, of a step."""
    return now_us + half_even(latency[ALPHA3] * place)


LONGEST_OUTPUT = 1 << 32
"""Draws of one request never meet another's, nor a step's noise: they have (request + 1) · LONGEST_OUTPUT + tokens."""


@part
def uniform(seed: int, index: int) -> float:
    """Return a number in (0, 1) that is a function of (seed, index) alone: splitmix64 (Steele et al. 2014)."""
    z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(index) * np.uint64(0xD1B54A32D192ED03)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (np.float64(z >> np.uint64(11)) + 0.5) / 9007199254740992.0


@part
def step_noise(s: State, step: int) -> float:
    """Return a step's factor around 1: lognormal with mean 1, by Box and Muller from two indexed uniforms."""
    sigma = s.terms[SIGMA]
    if sigma == 0.0:
        return 1.0
    seed, first = int(s.terms[SEED]), s.engine[0].settings.first_noise_draw + 2 * step
    radius = math.sqrt(-2.0 * math.log(uniform(seed, first)))
    normal = radius * math.cos(2.0 * math.pi * uniform(seed, first + 1))
    return math.exp(sigma * normal - 0.5 * sigma * sigma)


@part
def duty_at(s: State, time_us: int) -> float:
    """Return the share of recent time spent computing: it fades with the time constant while nothing runs."""
    clock = s.engine[0].clock
    tau_us = s.terms[TAU]
    if tau_us <= 0.0:
        return 0.0
    return clock.compute_duty * math.exp(-(time_us - clock.duty_time_us) / tau_us)


@part
def effective_decodes(c: NDArray[np.float64], num_decode_tokens: int) -> float:
    """Return D^(1 - concavity), what beta2 is charged for."""
    if c[EXPONENT] == 1.0 or num_decode_tokens == 0:
        return float(num_decode_tokens)
    return math.pow(float(num_decode_tokens), c[EXPONENT])


@part
def tile_factor(c: NDArray[np.float64], num_tokens: int) -> float:
    """Return how much longer than a smooth curve says the products of a step of so many tokens take."""
    last = len(c) - TILES - 1
    return c[TILES + min(num_tokens, last)] if last >= 0 else 1.0


@part
def extended_us(s: State, sums: StepSums, duty: float, noise: float) -> tuple[int, float]:
    """Return (duration of a step, how much of it is compute)."""
    num_prefill_tokens, num_decode_tokens, context, pairs, num_prefill_seqs, _ = sums
    c = s.terms
    # With a floor, one read of the weights serves both kinds of tokens.
    num_dense_tokens = num_prefill_tokens + num_decode_tokens * int(c[FLOOR] > 0.0)
    dense, attention = c[PREFILL] * num_dense_tokens, c[PAIRS] * pairs
    if c[KAPPA] > 0.0 and dense + attention > 0.0:
        slowdown = _throttled_us(dense + attention, duty, c[KAPPA], c[U0], c[TAU]) / (dense + attention)
        dense, attention = dense * slowdown, attention * slowdown
    reading = c[DECODE] * effective_decodes(c, num_decode_tokens) + c[CONTEXT] * context
    products = math.sqrt(c[FLOOR] * c[FLOOR] + dense * dense)
    total = (
        c[STEP]
        + products * tile_factor(c, num_prefill_tokens + num_decode_tokens)
        + attention
        + reading
        + c[PREFILL_SEQ] * num_prefill_seqs
    )
    return int(np.rint(total * noise)), (dense + attention) * noise


@phase
def stage_us(s: State, sums: StepSums, duration_us: int) -> int:
    """Return how much of a step's duration each pipeline stage takes but the last, which has the rest.

    Models that do not tell parts of a step apart have it divided evenly.
    """
    settings = s.engine[0].settings
    if settings.latency_kind == TABULATED:
        return int(duration_us * stage_frac(s.terms, sums, settings.pipeline_parallel_size))
    return duration_us // settings.pipeline_parallel_size


@part
def take_step(s: State, sums: StepSums, start_us: int, step: int) -> int:
    """Return the duration of a step that starts at ``start_us``; a model with a slow state passes it through."""
    settings = s.engine[0].settings
    if sums.num_prefill_tokens + sums.num_decode_tokens == 0:
        return 0
    if settings.latency_kind == BLACKBOX:
        return blackbox_us(s.latency, sums.num_prefill_tokens, sums.num_decode_tokens)
    if settings.latency_kind == TABULATED:
        return int(np.rint(tabulated_us(s.terms, sums) * step_noise(s, step)))
    if settings.latency_kind == PROFILED:
        return profiled_us(s.terms, sums)
    return take_extended_step(s, sums, start_us, step)


@phase
def take_extended_step(s: State, sums: StepSums, start_us: int, step: int) -> int:
    """Return the duration of a step under Extended, and let its slow state pass through it."""
    clock = s.engine[0].clock
    duty = duty_at(s, start_us)
    duration_us, compute_us = extended_us(s, sums, duty, step_noise(s, step))
    busy_us = (
        duration_us // s.engine[0].settings.pipeline_parallel_size
    )  # of the first stage, whose clock it is
    if s.terms[TAU] > 0.0 and busy_us > 0:
        faded = math.exp(-busy_us / s.terms[TAU])
        duty = duty * faded + (1.0 - faded) * min(1.0, compute_us / duration_us)
    clock.compute_duty, clock.duty_time_us = duty, start_us + busy_us
    return duration_us
