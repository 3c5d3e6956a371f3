"""Prefill and decode on pools of their own: how many of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sim.fleet.erlang import Wait
from sim.fleet.fewest import NoneIsEnough, fewest
from sim.fleet.profile import GpuProfile
from sim.fleet.sizing import MOST_ENGINES, Infeasible, Objective, percentile_with
from sim.fleet.workload import Floats, Lengths

ALPHA_PREFILL, ALPHA_DECODE, BETA_TTFT = 0.90, 0.92, 1.80
"""What is left of a pool's throughput beside transfers, and what they make of TTFT (the fleet simulator's figures)."""
SPREAD, SHOWN = 4, 24
"""Besides the smallest pool, pools of up to ``SPREAD`` times as many engines are shown, in ``SHOWN`` steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What moving the KV cache costs: shares of the pools' throughput that remain, and a factor on TTFT."""

    alpha_prefill: float = ALPHA_PREFILL
    alpha_decode: float = ALPHA_DECODE
    beta_ttft: float = BETA_TTFT


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregated:
    """A number of prefill and of decode engines. ``ttft_p99_s`` and ``tpot_s`` in seconds.

    ``decode_wait_p99_s``: until the decode pool has a seat, before the second token. ``rate_per_s``: what both pools
    can do; ``cost_per_hour`` and ``gpus``: of both. ``is_border``: one of the pools is the largest that was tried.
    """

    prefill: int
    decode: int
    rate_per_s: float
    ttft_p99_s: float
    decode_wait_p99_s: float
    tpot_s: float
    prefill_utilization: float
    decode_utilization: float
    cost_per_hour: float
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
) -> Disaggregated:
    """Return what so many prefill and decode engines do at a rate. ``profiles`` and ``engines``: prefill, decode.

    A prefill engine computes one prompt at a time. A decode engine has seats; a request holds one for its answer.
    Raises Infeasible where the decode engines hold no such request.
    """
    cost = transfer or Transfer()
    prefill = _Prefill(seconds=_alone(profiles[0], lengths))
    decode = profiles[1]
    slots = _slots(decode, lengths, context)
    answers = Lengths(
        input_tokens=lengths.input_tokens, output_tokens=np.maximum(lengths.output_tokens - 1, 1)
    )
    weight = answers.output_tokens
    resident = float((weight * answers.total_tokens).sum() / weight.sum())
    full = decode.iteration_s(float(slots), resident)
    service = float(weight.mean()) * full / cost.alpha_decode
    wait = prefill.wait(engines[0], rate_per_s, cost.alpha_prefill, arrival_cv2=lengths.arrival_cv2)
    decode_wait = Wait.of(  # what leaves prefill comes as unevenly as it went in
        engines[1] * slots,
        rate_per_s,
        1 / service,
        float(weight.var() / weight.mean() ** 2),
        arrival_cv2=lengths.arrival_cv2,
    )
    load = rate_per_s / engines[1] * float(weight.mean())
    active = min(_active(decode, load, resident), float(slots))
    return Disaggregated(
        prefill=engines[0],
        decode=engines[1],
        rate_per_s=min(engines[0] * cost.alpha_prefill / prefill.mean_s, engines[1] * slots / service),
        ttft_p99_s=_ttft_p99_s(
            wait, prefill.seconds, _outside_s(profiles, lengths, active), beta=cost.beta_ttft
        ),
        decode_wait_p99_s=decode_wait.percentile_s(0.99),
        tpot_s=decode.iteration_s(active, resident) + decode.output_token_s,
        prefill_utilization=rate_per_s * prefill.mean_s / cost.alpha_prefill / engines[0],
        decode_utilization=rate_per_s * service / (engines[1] * slots),
        cost_per_hour=engines[0] * profiles[0].cost_per_hour + engines[1] * decode.cost_per_hour,
        gpus=engines[0] * profiles[0].num_gpus + engines[1] * decode.num_gpus,
    )


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
    """Return the seconds of each prompt on an engine that does nothing else."""
    one = profile.iteration_s(1.0, 1.0) if profile.prefill_token_s == 0 else profile.w_s
    iterations = profile.prefill_iterations(lengths)
    if profile.prefill_token_s == 0 and profile.prefill_pair_s == 0:
        return np.asarray(
            iterations * (profile.w_s + profile.h_s * lengths.input_tokens / profile.calibration_context)
        )
    return np.asarray(np.maximum(iterations * one, profile.prefill_compute_s(lengths)))


def sweep_disaggregated(
    profiles: tuple[GpuProfile, GpuProfile],
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    context: int,
    transfer: Transfer | None = None,
) -> list[Disaggregated]:
    """Return fleets (prefill, decode) that keep the objective, cheapest first; best in cost, TTFT and TPOT are marked.

    Where a pool has no price, GPUs stand for the cost.

    TTFT depends on the prefill engines alone, the decode wait and TPOT on the decode engines alone, and each falls as
    their number grows. So the smallest of either pool is found separately, and both together are the cheapest fleet.
    Besides it, ``SHOWN`` numbers of each are tried, up to ``SPREAD`` times as many. Empty if none keeps it.
    """

    def at(prefill: int, decode: int) -> Disaggregated:
        return disaggregated_at(
            profiles, lengths, rate_per_s, engines=(prefill, decode), context=context, transfer=transfer
        )

    try:
        prefill = fewest(lambda number: _keeps_prefill(at(number, 1), objective), most=MOST_ENGINES)
        decode = fewest(lambda number: _keeps_decode(at(1, number), objective), most=MOST_ENGINES)
    except NoneIsEnough:
        return []
    counts = [np.unique(np.linspace(n, SPREAD * n + SPREAD, SHOWN).astype(int)) for n in (prefill, decode)]
    found = [at(int(p), int(d)) for p in counts[0] for d in counts[1]]
    has_prices = all(profile.cost_per_hour > 0 for profile in profiles)

    def amount(each: Disaggregated) -> float:
        return each.cost_per_hour if has_prices else each.gpus

    found.sort(key=lambda each: (amount(each), each.prefill + each.decode, each.ttft_p99_s))
    most = [int(each[-1]) for each in counts]
    found = [replace(x, is_border=x.prefill == most[0] or x.decode == most[1]) for x in found]
    return _marked(found, [amount(each) for each in found])


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
