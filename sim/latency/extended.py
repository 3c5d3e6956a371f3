"""Extended: blackbox plus what real GPUs need - attention, a floor for reading the weights, a clock that slows down."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from lazy_dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig
from sim.latency.batch import StepBatch
from sim.latency.blackbox import Blackbox
from sim.latency.latency_model import (
    BLACKBOX,
    EXTENDED,
    Int64s,
    LatencyModel,
    check_not_negative,
    coefficient,
)
from sim.latency.throttling import throttled_us

MICROSECONDS_PER_SECOND = 1_000_000
MOST_TILED_TOKENS = 65_536
"""Larger steps than any server takes; a factor is kept for each number of tokens."""
SHARES = ("u0", "concavity")
"""Coefficients of which none is larger than 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended(Blackbox):
    """Blackbox's coefficients and more, in µs unless said otherwise; all zero but ``tau_s``, it is blackbox.

    A step of P prefill and D decode tokens lasts

        beta0 + hypot(floor, beta1·T·s)·r + beta4·A·s + beta2·D^(1 - concavity) + beta3·C + beta5·Q,
        s = 1 + kappa·max(0, u - u0)

    with C the KV entries its decodes read, A the (query, key) pairs its prefills attend to, Q its prefilling
    requests. ``floor``: reading the weights takes this long however few tokens are computed, and hides under the
    compute of many; hypot(a, b) = √(a² + b²) is how measured matrix products go from one to the other
    (docs/decisions/0010-floor-and-compute.md). With a floor, T = P + D: both kinds of tokens go through the same
    products, and ``beta2`` is what a decode token costs beside them; without one T = P. ``u``: the share of recent
    time spent on the terms with s, an exponential average over ``tau_s`` seconds: a power-limited GPU lowers its
    clock when its power reaches the limit, which is at ``u0``. While a step computes, u rises towards 1, and s is the
    mean over that time (``sim.latency.throttling``): an H100's clock follows within 0.03 s, so that long steps, and
    steps behind others with prompts, take up to a tenth longer (docs/decisions/0032-slower-within-a-step.md).
    ``concavity``: on measured servers the tenth sequence that decodes along costs more than the hundredth
    (docs/explanation/latency-models.md).
    ``tiles``: pairs (tokens of a step, factor), from few tokens to many: r, at P + D tokens, is on the line between two
    pairs, beyond the last it stays. A matrix product is computed in tiles, and one token more than fills them takes
    another round of all: 7 ms of a step of 69, on an H100 (docs/decisions/0022-tiles.md). Without pairs r is 1.
    ``sigma``: step times scatter lognormally around this with mean 1; the scatter is a function of (``seed``, step
    number), and in a cluster of the instance. Computed in float64, rounded once to µs, half to even.
    """

    fit_terms: ClassVar[tuple[str, ...]] = ("beta3", "beta4", "floor", "concavity", "kappa", "u0", "tau_s")
    in_words: ClassVar[str] = (
        "A step lasts beta0 + √(floor² + (beta1 · tokens · s)²) + beta4 · pairs attended to · s + beta2 · "
        "decode tokens^(1 - concavity) + beta3 · context they read, s = 1 + kappa · (the share of the last tau_s "
        "seconds spent computing, as far as it is above u0)"
    )

    beta3: float = coefficient(0.0, "µs/context token read", "µs per KV entry that decodes read.")
    beta4: float = coefficient(
        0.0, "µs/(query, key) pair", "µs per (query, key) pair that prefills attend to."
    )
    beta5: float = coefficient(0.0, "µs/prefilling request", "µs per prefilling request.")
    floor: float = coefficient(
        0.0,
        "µs/step",
        "µs that a step's dense part lasts at least: reading the weights. Decode tokens are in it, too.",
    )
    kappa: float = coefficient(
        0.0,
        "per unit of duty",
        "Slowdown of the dense and attention parts per share of recent time above `u0` that the GPU computed.",
    )
    u0: float = coefficient(
        0.0,
        "share of time",
        "Share of recent time spent computing above which the GPU slows down (its power limit); 0 to 1.",
        most=1.0,
    )
    tau_s: float = coefficient(1.0, "s", "Seconds over which that share of time is averaged.")
    concavity: float = coefficient(
        0.0,
        "1 - exponent",
        "How much less each further decoding sequence costs: `beta2` counts D^(1 - concavity); 0 to 1.",
        most=0.9,
    )
    sigma: float = coefficient(
        0.0,
        "of log(step time)",
        "Scatter of step times: lognormal with mean 1, from `seed` and the step's number.",
    )
    seed: int = 0
    tiles: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """Check all; raises InvalidConfig."""
        Blackbox.__post_init__(self)
        for name in (each.name for each in fields(self) if each.name != "tiles"):
            check_not_negative(name, float(getattr(self, name)))
        for name in SHARES:
            if getattr(self, name) > 1:
                raise InvalidConfig(f"{name}: got {getattr(self, name)!r}, expected a share in [0, 1]")
        check_tiles(self.tiles)

    @classmethod
    def of(cls, model: LatencyModel) -> Extended:
        """Return a model that is fitted freely as an extended one: its coefficients, and none of the further terms."""
        if isinstance(model, Extended):
            return model
        return cls(**{each.name: getattr(model, each.name) for each in fields(model)})

    @property
    def scatter(self) -> float:
        """``sigma``."""
        return self.sigma

    @property
    def tile_factors(self) -> tuple[tuple[int, float], ...]:
        """``tiles``."""
        return self.tiles

    def scattered(self, sigma: float, *, seed: int | None = None) -> Self:
        """Return the model with another ``sigma``; ``seed``: None leaves the model's own."""
        return replace(self, sigma=sigma, seed=self.seed if seed is None else seed)

    def with_terms(self, names: Collection[str]) -> Self:
        """Return the model with those of ``fit_terms`` alone, the others at their defaults."""
        left_out = set(self.fit_terms) - set(names)
        return replace(self, **{each.name: each.default for each in fields(self) if each.name in left_out})  # type: ignore[arg-type]  # numbers

    def with_tiles(self, tiles: tuple[tuple[int, float], ...]) -> Self:
        """Return the model with other factors of its products."""
        return replace(self, tiles=tiles)

    @property
    def engine_kind(self) -> int:
        """Exact integers where every term beyond blackbox's is zero."""
        own = (self.beta3, self.beta4, self.beta5, self.floor, self.kappa, self.concavity, self.sigma)
        return EXTENDED if any(own) or self.tiles else BLACKBOX

    @property
    def least_step_us(self) -> int:
        """What is there without a token, or blackbox's; 0 with scatter, which has no bound."""
        if self.engine_kind == BLACKBOX:
            return int(Blackbox.least_step_us.__get__(self))
        factor = min((each for _, each in self.tiles), default=1.0)
        return 0 if self.sigma > 0 else int(np.rint(float(self.beta0) + self.floor * factor))

    def engine_terms(self) -> NDArray[np.float64]:
        """Return the coefficients in the order of ``sim.engine.step_time.step_duration``, then the factors of tiles."""
        coefficients = np.array(
            [
                float(self.beta0),
                float(self.beta1),
                float(self.beta2),
                self.beta3,
                self.beta4,
                self.beta5,
                self.floor,
                self.kappa,
                self.tau_s * MICROSECONDS_PER_SECOND if self.kappa else 0.0,
                self.sigma,
                float(self.seed),
                self.u0,
                1.0 - self.concavity,
            ],
            dtype=np.float64,
        )
        return np.concatenate([coefficients, factors_by_tokens(self.tiles)])

    def durations_us(self, batch: StepBatch) -> Int64s:
        """Return what steps take that start after a long idle time, without scatter, int64 µs."""
        if self.engine_kind == BLACKBOX:
            return self.step_us(batch.num_prefill_tokens, batch.num_decode_tokens)
        slowdown = self._slowdown_when_idle(self.compute_us(batch))
        return np.asarray(np.rint(self.slowed_us(batch, slowdown)), np.int64)

    def compute_us(self, batch: StepBatch) -> NDArray[np.float64]:
        """Return how long steps compute at full clock, float64 µs [n]: what a lower clock lengthens."""
        return self._dense_us(batch) + self.beta4 * batch.prefill_pairs

    def slowed_us(self, batch: StepBatch, slowdown: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what steps take whose computing takes ``slowdown`` [n] times as long, without scatter, float64 µs."""
        d, attention = batch.num_decode_tokens, self.beta4 * batch.prefill_pairs * slowdown
        many = np.power(d, 1.0 - self.concavity) if self.concavity > 0 else d
        reading = float(self.beta2) * many + self.beta3 * batch.decode_context_tokens
        dense = self._dense_us(batch) * slowdown
        hidden = np.sqrt(self.floor * self.floor + dense * dense)
        if self.tiles:
            factors = factors_by_tokens(self.tiles)
            hidden = hidden * factors[np.minimum(batch.num_prefill_tokens + d, len(factors) - 1)]
        return np.asarray(
            float(self.beta0) + hidden + attention + reading + self.beta5 * batch.num_prefill_seqs
        )

    def _dense_us(self, batch: StepBatch) -> NDArray[np.float64]:
        """Return how long the products of steps take at full clock, float64 µs [n]."""
        tokens = batch.num_prefill_tokens + (batch.num_decode_tokens if self.floor > 0 else 0)
        return np.asarray(float(self.beta1) * tokens)

    def _slowdown_when_idle(self, compute_us: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the factor on computing so long at full clock after an idle time, float64 [n]."""
        if self.kappa == 0:
            return np.ones(len(compute_us))
        tau_us = self.tau_s * MICROSECONDS_PER_SECOND
        took = [throttled_us(each, 0.0, self.kappa, self.u0, tau_us) for each in compute_us.tolist()]
        return np.divide(took, compute_us, out=np.ones(len(compute_us)), where=compute_us > 0)


def check_tiles(tiles: Sequence[tuple[int, float]]) -> None:
    """Raise InvalidConfig unless tokens rise from 1 or more, and factors are above 0."""
    tokens = [each for each, _ in tiles]
    if not all(0 < one < other for one, other in itertools.pairwise([*tokens, np.inf])):
        raise InvalidConfig("tiles: got numbers of tokens that do not rise, expected them to, from 1 or more")
    if tokens and tokens[-1] > MOST_TILED_TOKENS:
        raise InvalidConfig(f"tiles: got {tokens[-1]} tokens, expected at most {MOST_TILED_TOKENS:,}")
    for _, factor in tiles:
        if not (np.isfinite(factor) and factor > 0):
            raise InvalidConfig(f"tiles: got a factor of {factor!r}, expected one above 0")


def factors_by_tokens(tiles: Sequence[tuple[int, float]]) -> NDArray[np.float64]:
    """Return the factor of steps of 0, 1, … tokens up to the last pair's [last + 1], float64; empty without pairs."""
    if not tiles:
        return np.zeros(0)
    tokens, factors = zip(*tiles, strict=True)
    return np.asarray(np.interp(np.arange(tokens[-1] + 1), tokens, factors))
