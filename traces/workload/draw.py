"""Numbers drawn by index: value i of a stream is a function of (seed, stream, i) alone.

Every draw is a transformation of uniforms that Philox, a counter-based generator, gives for a key made of the
seed and the stream's name. So the first n values do not change when more are drawn, no stream moves when
another is added or longer, and numpy's own samplers, which may change between versions, are not used.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from traces.workload.lengths import (
    Bounded,
    Constant,
    Distribution,
    Empirical,
    Exponential,
    Gaussian,
    Lognormal,
    ParetoLognormal,
    Separate,
    TotalSplit,
    Uniform,
    Zipf,
)
from traces.workload.model import Arrival

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_TOKENS = 2**31 - 1
"""The upper bound of unbounded draws: a heavy tail has values that no integer holds."""


def uniforms(seed: int, stream: str, *, n: int, each: int = 1) -> Floats:
    """Uniforms in the open interval (0, 1), shape (n, each): row i is the draw with index i.

    53 bits each, at the middle of their cell, so that no logarithm sees 0 or 1.
    """
    digest = hashlib.blake2b(f"{seed}\0{stream}".encode(), digest_size=16).digest()
    philox = np.random.Philox(key=int.from_bytes(digest, "little"))
    bits = philox.random_raw(n * each) >> np.uint64(11)
    return ((bits.astype(np.float64) + 0.5) * 2.0**-53).reshape(n, each)


def normals(pairs: Floats) -> Floats:
    """Return standard normals, one per row of two uniforms (Box and Muller 1958)."""
    radius: Floats = np.sqrt(-2.0 * np.log(pairs[:, 0]))
    return radius * np.cos(2.0 * np.pi * pairs[:, 1])


def gammas(seed: int, stream: str, *, n: int, shape: float) -> Floats:
    """Gamma(shape, scale 1) by rejection from a cubed normal (Marsaglia and Tsang 2000).

    Attempt k has a stream of its own, so an index that is rejected does not shift its neighbours.
    Below shape 1: Gamma(shape) = Gamma(shape + 1) · U^(1/shape).
    """
    boosted = shape if shape >= 1 else shape + 1
    d = boosted - 1 / 3
    c = 1 / math.sqrt(9 * d)
    drawn = np.zeros(n)
    pending = np.arange(n)
    attempt = 0
    while pending.size:
        # an attempt needs only a prefix up to the last pending index
        u = uniforms(seed, f"{stream}/attempt {attempt}", n=int(pending[-1]) + 1, each=3)[pending]
        x = normals(u[:, :2])
        v = np.maximum(1 + c * x, 0.0) ** 3
        with np.errstate(divide="ignore"):  # v = 0 is a rejection, since log 0 = -inf
            accepted = np.log(u[:, 2]) < 0.5 * x**2 + d - d * v + d * np.log(v)
        drawn[pending[accepted]] = d * v[accepted]
        pending = pending[~accepted]
        attempt += 1
    if shape < 1:
        drawn *= uniforms(seed, f"{stream}/boost", n=n)[:, 0] ** (1 / shape)
    return drawn


def weibull_shape(cv: float) -> float:
    """Return the shape k of a Weibull whose coefficient of variation is ``cv``.

    cv² + 1 = Γ(1 + 2/k) / Γ(1 + 1/k)², which falls in k, so bisection in log k finds it to float precision.
    """
    target = math.log1p(cv * cv)
    low, high = math.log(0.05), math.log(200.0)  # cv from 1e5 down to 0.006
    for _ in range(100):
        middle = (low + high) / 2
        k = math.exp(middle)
        if math.lgamma(1 + 2 / k) - 2 * math.lgamma(1 + 1 / k) > target:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def unit_gaps(arrival: Arrival, *, seed: int, stream: str, n: int) -> Floats:
    """Return the first ``n`` gaps of an arrival process whose mean gap is 1."""
    match arrival.process:
        case "constant":
            return np.ones(n)
        case "poisson":
            return -np.log(uniforms(seed, stream, n=n)[:, 0])
        case "gamma":
            shape = arrival.cv**-2
            return gammas(seed, stream, n=n, shape=shape) / shape
        case "weibull":
            k = weibull_shape(arrival.cv)
            unscaled = (-np.log(uniforms(seed, stream, n=n)[:, 0])) ** (1 / k)
            return unscaled / math.gamma(1 + 1 / k)


def draw_lengths(lengths: Separate | TotalSplit, *, seed: int, stream: str, n: int) -> tuple[Ints, Ints]:
    """Return the first ``n`` (prompt, output) lengths in tokens, int64, each at least 1."""
    if isinstance(lengths, Separate):
        prompt = draw_tokens(lengths.prompt, seed=seed, stream=f"{stream}/prompt", n=n)
        return prompt, draw_tokens(lengths.output, seed=seed, stream=f"{stream}/output", n=n)
    total = draw_tokens(lengths.total, seed=seed, stream=f"{stream}/total", n=n)
    output = np.ceil(total / (1 + lengths.prefill_to_decode_ratio)).astype(np.int64)
    return np.maximum(total - output, 1), output


def draw_tokens(distribution: Distribution, *, seed: int, stream: str, n: int) -> Ints:
    """Return the first ``n`` draws of ``distribution`` in whole tokens, clipped to its bounds, int64."""
    if isinstance(distribution, Constant):
        return np.full(n, distribution.value, dtype=np.int64)
    drawn = _SAMPLERS[type(distribution)](distribution, seed, stream, n)
    if isinstance(distribution, Bounded):
        most = MAX_TOKENS if distribution.max is None else distribution.max
        drawn = np.rint(np.clip(drawn, distribution.min, most))
    return drawn.astype(np.int64)


def _gaussian(it: Gaussian, seed: int, stream: str, n: int) -> Floats:
    return it.mean + it.std_dev * normals(uniforms(seed, stream, n=n, each=2))


def _exponential(it: Exponential, seed: int, stream: str, n: int) -> Floats:
    return -it.mean * np.log(uniforms(seed, stream, n=n)[:, 0])


def _lognormal(it: Lognormal | ParetoLognormal, seed: int, stream: str, n: int) -> Floats:
    with np.errstate(over="ignore"):  # inf is clipped to the bound
        return np.exp(it.mu + it.sigma * normals(uniforms(seed, stream, n=n, each=2)))


def _pareto_lognormal(it: ParetoLognormal, seed: int, stream: str, n: int) -> Floats:
    choice, tail = uniforms(seed, f"{stream}/pareto", n=n, each=2).T
    with np.errstate(over="ignore"):  # inf is clipped to the bound
        pareto = it.xm * tail ** (-1 / it.alpha)
    return np.where(choice < it.mix_weight, pareto, _lognormal(it, seed, stream, n))


def _empirical(it: Empirical, seed: int, stream: str, n: int) -> Floats:
    return np.array(it.tokens, dtype=np.float64)[_ranks(np.array(it.weights), seed, stream, n)]


def _uniform(it: Uniform, seed: int, stream: str, n: int) -> Floats:
    return np.floor(it.min + (it.max - it.min + 1) * uniforms(seed, stream, n=n)[:, 0])


def _zipf(it: Zipf, seed: int, stream: str, n: int) -> Floats:
    ranks = np.arange(1, it.max - it.min + 2, dtype=np.float64)
    return it.min + _ranks(ranks**-it.theta, seed, stream, n).astype(np.float64)


def _ranks(weights: Floats, seed: int, stream: str, n: int) -> npt.NDArray[np.intp]:
    """Positions drawn in proportion to ``weights``; a weight of 0 is never drawn."""
    cumulative = np.cumsum(weights)
    drawn = uniforms(seed, stream, n=n)[:, 0] * cumulative[-1]
    ranks: npt.NDArray[np.intp] = np.searchsorted(cumulative, drawn, side="right")
    return ranks


_SAMPLERS: dict[type, Callable[..., Floats]] = {
    Gaussian: _gaussian,
    Exponential: _exponential,
    Lognormal: _lognormal,
    ParetoLognormal: _pareto_lognormal,
    Empirical: _empirical,
    Uniform: _uniform,
    Zipf: _zipf,
}
