"""Prefill and decode on pools of their own: how many of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from lazy_dataclasses import dataclass, field, replace

import numpy as np

from sim.fleet.erlang import Wait
from sim.fleet.fewest import NoneIsEnough, fewest
from sim.fleet.profile import GpuProfile
from sim.fleet.sizing import MOST_ENGINES, Infeasible, Objective, percentile_with
from sim.fleet.step_pools import KVMoves, PromptSteps, StepPools, StepTimes, first_token_s
from sim.fleet.workload import Floats, Lengths

ALPHA_PREFILL, ALPHA_DECODE, BETA_TTFT = 0.90, 0.92, 1.80
"""What is left of a pool's throughput beside transfers, and what they make of TTFT (the fleet simulator's figures).

They hold for its own profiles, which know no steps; a twin's transfers take what its links take."""
SPREAD, SHOWN = 4, 24
"""Besides the smallest pool, pools of up to ``SPREAD`` times as many engines are shown, in ``SHOWN`` steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What moving the KV cache costs: shares of the pools' throughput that remain, and a factor on TTFT.

    None: the fleet simulator's figures for its profiles, and 1 for a twin's, whose KV moves over ``links``.
    """

    alpha_prefill: float | None = None
    alpha_decode: float | None = None
    beta_ttft: float | None = None
    links: KVMoves = field(default_factory=KVMoves)

    def factors(self, decode: GpuProfile) -> tuple[float, float, float]:
        """Return both shares and the factor."""
        own = (ALPHA_PREFILL, ALPHA_DECODE, BETA_TTFT) if decode.reserves_context else (1.0, 1.0, 1.0)
        given = (self.alpha_prefill, self.alpha_decode, self.beta_ttft)
        prefill, left, times = (a if b is None else b for a, b in zip(own, given, strict=True))
        return prefill, left, times


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregated:
    """A number of prefill and of decode engines. ``ttft_mean_s``, ``ttft_p99_s`` and ``tpot_s`` in seconds.

    ``decode_wait_p99_s``: until the decode pool has a seat, before the second token. ``rate_per_s``: what both pools
    can do; ``decode_active``: requests at once on a decode engine; ``cost_per_hour`` and ``gpus``: of both.
    ``is_border``: one of the pools is the largest that was tried.
    """

    prefill: int
    decode: int
    rate_per_s: float
    ttft_mean_s: float
    ttft_p99_s: float
    decode_wait_p99_s: float
    tpot_s: float
    prefill_utilization: float
    decode_utilization: float
    cost_per_hour: float
    decode_active: float = 0.0
    gpus: int = 0
    is_best: bool = False
    is_border: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prefill:
    """A prefill engine: prompts one after the other, seconds each."""

    seconds: Floats

    @property
    def mean_s(self) -> float:
        return float(self.seconds.mean())

    def wait(self, engines: int, rate_per_s: float, alpha: float, *, arrival_cv2: float) -> Wait:
        """Return how long prompts wait for an engine: G/G/c."""
        cv2 = float(self.seconds.var() / self.mean_s**2)
        return Wait.of(engines, rate_per_s, alpha / self.mean_s, cv2, arrival_cv2=arrival_cv2)


def disaggregated_at(
    profiles: tuple[GpuProfile, GpuProfile],
    lengths: Lengths,
    rate_per_s: float,
    *,
    engines: tuple[int, int],
    context: int,
    transfer: Transfer | None = None,
    steps: tuple[StepTimes, StepTimes] | None = None,
) -> Disaggregated:
    """Return what so many prefill and decode engines do at a rate. ``profiles`` and ``engines``: prefill, decode.

    ``steps``: of a twin's engines; None: as its profiles have them.

    A decode engine has seats; a request holds one for its answer. A prefill engine of a table's profile computes one
    prompt at a time, a twin's as many as fit into a step (``sim.fleet.step_pools``), and its decode engine makes the
    first token, too. Raises Infeasible where the decode engines hold no such request.
    """
    cost, decode = transfer or Transfer(), profiles[1]
    if not decode.reserves_context:
        times = steps or (StepTimes.of(profiles[0], lengths), StepTimes.of(decode, lengths))
        pools = StepPools(profiles=profiles, times=times, engines=engines, links=cost.links)
        return _in_steps(pools, lengths, rate_per_s, context=context, alphas=cost.factors(decode))
    alphas = cost.factors(decode)
    slots = _slots(decode, lengths, context)
    prefill = _Prefill(seconds=_alone(profiles[0], lengths))
    made = np.maximum(lengths.output_tokens - 1, 1)
    resident = float((made * (lengths.input_tokens + made)).sum() / made.sum())
    service = float(made.mean()) * decode.iteration_s(float(slots), resident) / alphas[1]
    wait = prefill.wait(engines[0], rate_per_s, alphas[0], arrival_cv2=lengths.arrival_cv2)
    seat = _seat_wait(engines[1] * slots, rate_per_s, service, made, lengths)
    active = min(_active(decode, rate_per_s / engines[1] * float(made.mean()), resident), float(slots))
    outside = _outside_s(profiles, lengths, active)
    cost_per_hour, gpus = _bill(profiles, engines)
    return Disaggregated(
        prefill=engines[0],
        decode=engines[1],
        cost_per_hour=cost_per_hour,
        gpus=gpus,
        rate_per_s=min(engines[0] * alphas[0] / prefill.mean_s, engines[1] * slots / service),
        ttft_mean_s=alphas[2] * (wait.mean_s + prefill.mean_s) + float(outside.mean()),
        ttft_p99_s=_ttft_p99_s(wait, prefill.seconds, outside, beta=alphas[2]),
        decode_wait_p99_s=seat.percentile_s(0.99),
        tpot_s=decode.iteration_s(active, resident) + decode.output_token_s,
        prefill_utilization=rate_per_s * prefill.mean_s / alphas[0] / engines[0],
        decode_utilization=rate_per_s * service / (engines[1] * slots),
        decode_active=active,
    )


def _in_steps(
    pools: StepPools,
    lengths: Lengths,
    rate_per_s: float,
    *,
    context: int,
    alphas: tuple[float, float, float],
) -> Disaggregated:
    """Return the same of engines that work in steps, a twin's; its decode engines make the first token, too."""
    profiles, times, engines, made = pools.profiles, pools.times, pools.engines, lengths.output_tokens
    slots = _slots(profiles[1], lengths, context)
    service = float(made.mean()) * times[1].decoding_s(slots) / times[1].tokens_a_step / alphas[1]
    seat = _seat_wait(engines[1] * slots, rate_per_s, service, made, lengths)
    active = times[1].active(rate_per_s / engines[1] * float(made.mean()), float(slots))
    steps = PromptSteps.of(times[0], profiles[0], lengths, rate_per_s / alphas[0], engines[0])
    first = alphas[2] * first_token_s(pools, lengths, rate_per_s, steps=steps, decoding=active, seat=seat)
    cost_per_hour, gpus = _bill(profiles, engines)
    return Disaggregated(
        prefill=engines[0],
        decode=engines[1],
        cost_per_hour=cost_per_hour,
        gpus=gpus,
        rate_per_s=min(rate_per_s / steps.utilization, engines[1] * slots / service),
        ttft_mean_s=float(first.mean()),
        ttft_p99_s=float(np.percentile(first, 99, method="inverted_cdf")),
        decode_wait_p99_s=seat.percentile_s(0.99),
        tpot_s=times[1].decoding_s(active) / times[1].tokens_a_step + profiles[1].output_token_s,
        prefill_utilization=steps.utilization,
        decode_utilization=rate_per_s * service / (engines[1] * slots),
        decode_active=active,
    )


def _seat_wait(seats: int, rate_per_s: float, service_s: float, made: Floats, lengths: Lengths) -> Wait:
    """Return how long decode seats are waited for; what leaves prefill comes as unevenly as it went in."""
    cv2 = float(made.var() / made.mean() ** 2)
    return Wait.of(seats, rate_per_s, 1 / service_s, cv2, arrival_cv2=lengths.arrival_cv2)


def _bill(profiles: tuple[GpuProfile, GpuProfile], engines: tuple[int, int]) -> tuple[float, int]:
    """Return what both pools cost in an hour, and their GPUs."""
    cost = sum(number * each.cost_per_hour for number, each in zip(engines, profiles, strict=True))
    return cost, sum(number * each.num_gpus for number, each in zip(engines, profiles, strict=True))


def _ttft_p99_s(wait: Wait, prefill_s: Floats, outside_s: Floats, *, beta: float) -> float:
    """Return the 99th percentile of TTFT: transfers make wait and prefill longer, not what is outside of engines."""
    return beta * percentile_with(wait, prefill_s + outside_s / beta, share=0.99)


def _outside_s(profiles: tuple[GpuProfile, GpuProfile], lengths: Lengths, decoding: float) -> Floats:
    """Return the seconds outside of engines of each first token: a request asks one engine, then the other.

    A prefill engine has no other output to hand on, a decode engine those of the requests that decode there.
    """
    handing = profiles[0].handing_on_s(0.0) + profiles[1].handing_on_s(decoding)
    return np.asarray(profiles[0].frontend_delay_s(lengths) + profiles[1].frontend_delay_s(lengths) + handing)


def _slots(decode: GpuProfile, lengths: Lengths, context: int) -> int:
    """Return how many requests run at once on a decode engine. Raises Infeasible where it holds none."""
    slots = decode.slots_for(lengths, context)
    if slots == 0:
        raise Infeasible(
            f"context {context}: got a KV cache of {decode.num_blocks} blocks, which holds no such request"
        )
    return slots


def _active(profile: GpuProfile, tokens_per_s: float, resident: float) -> float:
    """Return how many requests of ``resident`` tokens an engine has at once so that it makes so many tokens/s."""
    per_request = profile.h_s * resident / profile.calibration_context
    spare = 1 - tokens_per_s * per_request
    return tokens_per_s * profile.w_s / spare if spare > 0 else math.inf


def _alone(profile: GpuProfile, lengths: Lengths) -> Floats:
    """Return the seconds of each prompt on an engine that does nothing else: its steps, and what it computes in them.

    Where no compute of prompts is known, a step reads the prompt's tokens as a decode does.
    """
    read = profile.h_s * lengths.input_tokens / profile.calibration_context
    is_known = profile.prefill_token_s > 0 or profile.prefill_pair_s > 0
    compute = profile.prefill_compute_s(lengths)
    return np.asarray(
        profile.prefill_iterations(lengths) * (profile.w_s + (0 if is_known else read)) + compute
    )


def sweep_disaggregated(
    profiles: tuple[GpuProfile, GpuProfile],
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    context: int,
    transfer: Transfer | None = None,
    steps: tuple[StepTimes, StepTimes] | None = None,
) -> list[Disaggregated]:
    """Return fleets (prefill, decode) that keep the objective, cheapest first; best in cost, TTFT and TPOT are marked.

    Where a pool has no price, GPUs stand for the cost. ``steps``: as ``disaggregated_at`` takes them.

    Each figure falls as either pool grows. So the smallest of either pool is found beside as many of the other as there
    can be, ``SHOWN`` numbers of each are tried, up to ``SPREAD`` times as many, and for each number of prefill engines
    the fewest decode engines that keep the objective together with them. Empty if none keeps it.
    """

    @cache
    def at(prefill: int, decode: int) -> Disaggregated:
        return disaggregated_at(
            profiles,
            lengths,
            rate_per_s,
            engines=(prefill, decode),
            context=context,
            transfer=transfer,
            steps=steps,
        )

    try:
        prefill = fewest(
            lambda number: _keeps_prefill(at(number, MOST_ENGINES), objective), most=MOST_ENGINES
        )
        decode = fewest(lambda number: _keeps_decode(at(MOST_ENGINES, number), objective), most=MOST_ENGINES)
    except NoneIsEnough:
        return []
    counts = [np.unique(np.linspace(n, SPREAD * n + SPREAD, SHOWN).astype(int)) for n in (prefill, decode)]
    pairs = {(int(p), int(d)) for p in counts[0] for d in counts[1]}
    if not profiles[1].reserves_context:
        pairs |= set(_border_of(lambda p, d: keeps_by_formula(at(p, d), objective), counts[0], least=decode))
    found = [each for pair in sorted(pairs) if keeps_by_formula(each := at(*pair), objective)]
    most = [int(each[-1]) for each in counts]
    found = [replace(x, is_border=x.prefill >= most[0] or x.decode >= most[1]) for x in found]
    return _cheapest_first(found, has_prices=all(profile.cost_per_hour > 0 for profile in profiles))


def _cheapest_first(found: Sequence[Disaggregated], *, has_prices: bool) -> list[Disaggregated]:
    """Return the fleets by their cost, or GPUs, then engines and TTFT; those marked that none beats."""

    def amount(each: Disaggregated) -> float:
        return each.cost_per_hour if has_prices else each.gpus

    ordered = sorted(found, key=lambda each: (amount(each), each.prefill + each.decode, each.ttft_p99_s))
    return _marked(ordered, [amount(each) for each in ordered])


def _border_of(
    keeps: Callable[[int, int], bool], prefills: Iterable[int], *, least: int
) -> Iterator[tuple[int, int]]:
    """Yield, for each number of prefill engines, the fewest decode engines that keep the objective beside them."""
    near: tuple[int, ...] = ()
    for prefill in map(int, prefills):
        try:
            number = fewest(partial(keeps, prefill), near=near or (least,), least=least, most=MOST_ENGINES)
        except NoneIsEnough:
            continue
        near = (number,)
        yield prefill, number


def _keeps_prefill(fleet: Disaggregated, objective: Objective) -> bool:
    return (
        fleet.ttft_p99_s <= objective.ttft_p99_s
        and fleet.prefill_utilization <= objective.utilization_cap + 1e-9
    )


def _keeps_decode(fleet: Disaggregated, objective: Objective) -> bool:
    tpot = objective.tpot_p99_s
    return (
        fleet.decode_wait_p99_s <= objective.ttft_p99_s
        and (tpot is None or fleet.tpot_s <= tpot)
        and fleet.decode_utilization <= objective.utilization_cap + 1e-9
    )


def keeps_by_formula(fleet: Disaggregated, objective: Objective) -> bool:
    """Say whether both pools keep all limits of the objective."""
    return _keeps_prefill(fleet, objective) and _keeps_decode(fleet, objective)


def _marked(fleets: Sequence[Disaggregated], amounts: Sequence[float]) -> list[Disaggregated]:
    """Return the fleets, those marked that none beats in what they take, TTFT and TPOT."""
    figures = np.array(
        [(amount, each.ttft_p99_s, each.tpot_s) for amount, each in zip(amounts, fleets, strict=True)]
    ).reshape(-1, 3)
    return [
        replace(each, is_best=not bool(((figures <= own).all(1) & (figures < own).any(1)).any()))
        for each, own in zip(fleets, figures, strict=True)
    ]
