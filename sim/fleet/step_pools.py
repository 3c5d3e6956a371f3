"""First tokens where prompts are computed on engines of their own, and engines work in steps, as a twin's do.

A prefill engine takes all prompts that have come while a step ran into the next one, as many as its token budget
allows. A decode engine asks for the KV between two steps, hears of it with the results of a step that began after it
had come, and makes the token in a step of its own. The parts are added up at ``POINTS`` points of a sequence that
fills their range evenly (Roberts 2018, the generalised golden ratio): the same points for every fleet.
"""

from __future__ import annotations

import math
from functools import cache
from lazy_dataclasses import dataclass

import numpy as np

from sim.fleet.erlang import Wait, erlang_c
from sim.fleet.profile import GpuProfile
from sim.fleet.workload import Floats, Lengths

POINTS, PARTS = 4096, 11
"""Points, and what is drawn at each: request, wait, step, place in it, others, backlog, seat, and two decode steps."""
NORMAL = ((2, 9), (4, 10))
"""The parts that take a second number each: the step under way, and what others compute."""
ROUNDS = 40
"""The number of prompts in a step follows from the step's length, and that from the number: so often, at most,"""
SAME = 1e-6
"""until it changes by less than this share of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVMoves:
    """What moves KV: seconds before the first byte, and per token at a link's whole bandwidth."""

    base_s: float = 0.0
    token_s: float = 0.0

    def seconds(self, tokens: Floats, rate_per_s: float) -> Floats:
        """Return how long each prompt's KV takes, others sharing the busiest link, to or from which so many come.

        A shared link gives each of n transfers 1/n of itself: 1 / (1 - load) times as long on average.
        """
        load = rate_per_s * self.token_s * float(tokens.mean())
        return self.base_s + self.token_s * tokens / (1 - load) if load < 1 else np.full(len(tokens), np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """An engine's steps: of ``num_decodes`` requests that decode, and of ``num_prompts`` mean prompts.

    ``decode_s``, ``prompts_s``: seconds, float64 of as many numbers, ascending from 1; between them on straight lines.
    A prompt that takes several steps has all of them. ``tokens_a_step``: of each request that decodes, drafts with it.
    """

    num_decodes: Floats
    decode_s: Floats
    num_prompts: Floats
    prompts_s: Floats
    tokens_a_step: float = 1.0

    @classmethod
    def of(cls, profile: GpuProfile, lengths: Lengths) -> StepTimes:
        """Return the steps of a profile that knows no more than its straight lines."""
        compute, context = float(profile.prefill_compute_s(lengths).mean()), profile.calibration_context
        decodes, prompts = (np.unique([1.0, most]) for most in (profile.max_slots, fitting(profile, lengths)))
        own = profile.w_s * float(profile.prefill_iterations(lengths).mean())
        each = profile.h_s * mean_context(lengths) / context
        return cls(
            num_decodes=decodes,
            decode_s=profile.w_s + each * decodes,
            num_prompts=prompts,
            prompts_s=own + compute * prompts,
        )

    def decoding_s(self, active: float) -> float:
        """Return the seconds of a step in which so many requests decode, one at least."""
        return float(np.interp(max(active, 1.0), self.num_decodes, self.decode_s))

    def computing_s(self, num: float) -> float:
        """Return the seconds of a step of so many prompts, one at least."""
        return float(np.interp(max(num, 1.0), self.num_prompts, self.prompts_s))

    def prompt_s(self, num: float, *, otherwise: float) -> float:
        """Return the seconds that one prompt more adds to a step of so many; ``otherwise``: where one step has one."""
        most = float(self.num_prompts[-1])
        low, high = max(num / 2, 1.0), min(2 * max(num, 1.0), most)
        return (self.computing_s(high) - self.computing_s(low)) / (high - low) if high > low else otherwise

    def active(self, tokens_per_s: float, most: float) -> float:
        """Return how many requests decode on an engine that makes so many tokens/s, by Little's law; ``most`` at most.

        Steps of n requests make n / step tokens/s, the more the larger n.
        """
        low, high = 0.0, most
        for _ in range(ROUNDS):
            middle = (low + high) / 2
            made = middle * self.tokens_a_step / self.decoding_s(middle)
            low, high = (middle, high) if made < tokens_per_s else (low, middle)
        return high


def mean_context(lengths: Lengths) -> float:
    """Return the tokens that a request has while it decodes, averaged over the tokens that are made."""
    made = lengths.output_tokens
    return float((made * (lengths.input_tokens + made / 2)).sum() / made.sum())


def fitting(profile: GpuProfile, lengths: Lengths) -> float:
    """Return how many mean prompts fit into a step, one at least."""
    tokens = max(float(lengths.new_tokens.mean()), 1.0)
    return max(min(float(profile.max_slots), profile.chunk_tokens / tokens), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSteps:
    """The steps of prefill engines. ``num``: prompts in one on average; ``most``: those that fit.

    ``step_s``, ``step_var``: how long one is, seconds and seconds². ``scale``: what a prompt adds to it, as a share of
    its compute. ``all_busy_frac``: the share of the prompts that find every engine at work; ``utilization``: of what
    full steps would do; 1 or more: it cannot keep up.
    """

    num: float
    most: float
    step_s: float
    step_var: float
    scale: float
    all_busy_frac: float
    utilization: float

    @classmethod
    def of(
        cls, steps: StepTimes, profile: GpuProfile, lengths: Lengths, rate_per_s: float, engines: int
    ) -> PromptSteps:
        """Return the steps at a rate of all engines together.

        While all are busy, one gets crowd = rate / engines x step prompts in a step; of steps that have any there are
        crowd / (1 - exp(-crowd)) in each (Poisson).
        """
        compute, each = profile.prefill_compute_s(lengths), rate_per_s / engines
        mean_s, most = float(compute.mean()), float(steps.num_prompts[-1])
        utilization = each * (
            _full_s(steps, profile, lengths) if most == 1 else steps.computing_s(most) / most
        )
        num, step, busy = 1.0, steps.computing_s(1.0), 1.0
        for _ in range(ROUNDS if utilization < 1 else 0):
            step = steps.computing_s(num)
            busy = erlang_c(engines, min(rate_per_s * step / num, engines * (1 - 1e-9)))
            crowd = each * step
            gated = crowd / -math.expm1(-crowd) if crowd > 0 else 1.0
            more = min(1 + busy * (gated - 1), most)
            if abs(more - num) <= SAME * num:
                break
            num = (num + more) / 2
        adds = steps.prompt_s(num, otherwise=mean_s)
        scale = adds / mean_s if mean_s > 0 else 1.0
        square = scale**2 * float((compute**2).mean())
        return cls(
            num=num,
            most=most,
            step_s=step,
            step_var=square * num / (1 - min(each * adds, 0.99) ** 2)
            if num > 1
            else scale**2 * float(compute.var()),
            scale=scale,
            all_busy_frac=busy,
            utilization=utilization,
        )


def _full_s(steps: StepTimes, profile: GpuProfile, lengths: Lengths) -> float:
    """Return the seconds of engine that a prompt of several steps takes where all steps are full, its last one, too."""
    compute = float(profile.prefill_compute_s(lengths).mean())
    filled = float(lengths.new_tokens.mean()) / profile.chunk_tokens
    whole = float(profile.prefill_iterations(lengths).mean())
    return compute + (steps.computing_s(1.0) - compute) * min(filled / whole, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPools:
    """Pools whose engines work in steps: of both (prefill, decode) profile, steps and number; ``links`` between."""

    profiles: tuple[GpuProfile, GpuProfile]
    times: tuple[StepTimes, StepTimes]
    engines: tuple[int, int]
    links: KVMoves


def first_token_s(
    pools: StepPools,
    lengths: Lengths,
    rate_per_s: float,
    *,
    steps: PromptSteps,
    decoding: float,
    seat: Wait,
) -> Floats:
    """Return the seconds to the first token of ``POINTS`` equally likely requests, float64; infinite without an end.

    ``steps``: of the prefill engines; ``decoding``: requests that decode on a decode engine; ``seat``: how long its
    seats are waited for.
    """
    if steps.utilization >= 1 or seat.decay_per_s == 0:
        return np.full(POINTS, np.inf)
    profiles, times, engines = pools.profiles, pools.times, pools.engines
    at = _points()
    rows = (at[:, 0] * len(lengths)).astype(np.int64)
    moved = pools.links.seconds(lengths.input_tokens, rate_per_s / min(engines))[rows]
    outside = sum(each.frontend_delay_s(lengths)[rows] for each in profiles)
    handing = profiles[0].handing_on_s(steps.num - 1) + profiles[1].handing_on_s(decoding)
    compute, iterations = profiles[0].prefill_compute_s(lengths), profiles[0].prefill_iterations(lengths)
    any_step_s = (times[0].computing_s(steps.num) - steps.num * steps.scale * float(compute.mean())) / max(
        float(iterations.mean()), 1.0
    )
    own = iterations * any_step_s + steps.scale * compute
    waited = _waited(profiles[0], lengths, steps, rate_per_s / engines[0], engines=engines[0], at=at)
    return np.asarray(
        outside
        + handing
        + own[rows]
        + np.where(at[:, 1] < steps.all_busy_frac, waited, 0.0)
        + _exponential(at[:, 6], seat.probability, 1 / seat.decay_per_s)
        + moved
        + _joined(profiles[1], times[1], decoding, at)
    )


def _joined(profile: GpuProfile, times: StepTimes, decoding: float, at: Floats) -> Floats:
    """Return the seconds that a decode engine's steps take, from a request that comes to its token.

    The rest of the step under way, until KV is asked for; once it is there, the rest of a step, the step that hears of
    it and the step that makes the token, each of the two behind as many as are scheduled ahead. An idle engine does all
    at once.
    """
    whole = 2 + 2 * (profile.max_concurrent_batches - 1)
    is_busy = at[:, 7] < -math.expm1(-decoding)
    u = at[:, 7] / max(-math.expm1(-decoding), 1e-12)
    return np.where(is_busy, (u + at[:, 8] + whole) * times.decoding_s(decoding), times.decoding_s(1.0))


def _waited(
    profile: GpuProfile, lengths: Lengths, steps: PromptSteps, rate_per_s: float, *, engines: int, at: Floats
) -> Floats:
    """Return how much longer a prompt takes that finds all engines busy: the step under way, others in its own, more.

    ``rate_per_s``: of one engine. A newcomer meets long steps more often than short ones. Where more have come than fit
    into a step, which is the likelier the fewer fit, some wait for further steps.
    """
    compute = steps.scale * profile.prefill_compute_s(lengths)
    under_way = _gamma(at[:, 2], steps.step_s + steps.step_var / steps.step_s, steps.step_var)
    others = np.minimum(rate_per_s * under_way, steps.most - 1)
    beside = _gamma(at[:, 4], others * float(compute.mean()), others * float((compute**2).mean()))
    rest = at[:, 3] * under_way
    left = steps.utilization**steps.most
    more = _exponential(at[:, 5], left, float(rest.mean()) / engines / (1 - left))
    return np.asarray(rest + beside + more)


def _exponential(u: Floats, share: float, mean_s: float) -> Floats:
    """Return times that are 0 but for a share of them, which are exponential."""
    return np.where(u < share, -np.log(np.maximum(u, 1e-12) / max(share, 1e-12)) * mean_s, 0.0)


def _gamma(normal: Floats, mean: Floats | float, variance: Floats | float) -> Floats:
    """Return quantiles of gamma distributions, by Wilson and Hilferty's cube (1931), no less than 0."""
    of_shape = np.asarray(variance) / np.maximum(np.asarray(mean) ** 2, 1e-300) / 9
    return np.asarray(mean * np.maximum(1 - of_shape + normal * np.sqrt(of_shape), 0.0) ** 3)


@cache
def _points() -> Floats:
    """Return the points, float64 [POINTS, PARTS] in (0, 1); the first columns of ``NORMAL`` are normal."""
    root = 2.0
    for _ in range(ROUNDS):
        root = (1 + root) ** (1 / (PARTS + 1))
    steps = root ** -np.arange(1.0, PARTS + 1)
    at = (0.5 + np.arange(1, POINTS + 1)[:, None] * steps) % 1
    for part, other in NORMAL:  # by Box and Muller (1958)
        at[:, part] = np.sqrt(-2 * np.log(at[:, part])) * np.cos(2 * np.pi * at[:, other])
    return np.asarray(at)
