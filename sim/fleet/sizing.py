"""How many GPUs: the fewest with which the slowest hundredth of the requests still see their first token in time."""

from __future__ import annotations

import math
from functools import cache
from lazy_dataclasses import dataclass, replace

import numpy as np

from sim.config import InvalidConfig
from sim.fleet.availability import provisioned
from sim.fleet.erlang import Wait
from sim.fleet.fewest import NoneIsEnough, fewest
from sim.fleet.joining import Joining
from sim.fleet.profile import Busy, GpuProfile
from sim.fleet.workload import Floats, Lengths

MOST_ENGINES = 1_000_000
UTILIZATION_CAP = 0.85
"""Above this share of the seats taken, Erlang's formulas say less and a small error of the rate fills the fleet."""
PRECISION_S = 1e-6
AT_ONCE = Joining()


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What the fleet must keep. ``ttft_p99_s``: seconds; ``tpot_p99_s``: of the mean gap, None: any."""

    ttft_p99_s: float
    tpot_p99_s: float | None = None
    utilization_cap: float = UTILIZATION_CAP
    availability: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """A pool of engines, sized. ``engines``: as many as the objective needs; ``provisioned``: with those in repair.

    ``slots``: of one engine; ``utilization``: share of all seats that is taken, on average; ``active``: requests per
    engine; ``ttft_p99_s``, ``wait_p99_s``, ``tpot_s``, ``service_s`` (of a full engine): seconds. ``throughput``: of
    one full engine, requests/s. ``binding``: which limit requires this number: ttft, tpot or utilization. ``step_s``:
    the longest wait for a step under way; 0 of a profile that knows no steps.
    """

    engines: int
    provisioned: int
    slots: int
    utilization: float
    active: float
    ttft_p99_s: float
    wait_p99_s: float
    tpot_s: float
    service_s: float
    throughput: float
    binding: str
    step_s: float = 0.0


class Infeasible(InvalidConfig):
    """No number of GPUs keeps the objective."""


def pool_at(
    profile: GpuProfile,
    lengths: Lengths,
    rate_per_s: float,
    *,
    context: int,
    engines: int,
    busy: Busy | None = None,
) -> PoolSize:
    """Return what a pool of so many engines does at a rate. Raises Infeasible where nothing fits.

    Gaps between arrivals are as uneven as the lengths' ``arrival_cv2`` says. ``busy``: ``profile.busy(lengths)``, where
    it is known already.
    """
    slots = profile.slots_for(lengths, context)
    if slots == 0:
        raise Infeasible(
            f"context {context}: got a KV cache of {profile.num_blocks} blocks, which holds no such request"
        )
    busy = busy or profile.busy(lengths)
    service = busy.mean_iterations * busy.iteration_s(slots)
    wait = Wait.of(engines * slots, rate_per_s, 1.0 / service, busy.cv2, arrival_cv2=lengths.arrival_cv2)
    active = min(busy.active(rate_per_s / engines), float(slots))
    joining = Joining.of(profile, busy, active)
    return PoolSize(
        engines=engines,
        provisioned=engines,
        slots=slots,
        utilization=rate_per_s * service / (engines * slots),
        active=active,
        ttft_p99_s=percentile_with(
            wait,
            unqueued_s(profile, lengths, active=active, busy=busy),
            share=0.99,
            joining=joining,
        ),
        wait_p99_s=wait.percentile_s(0.99),
        tpot_s=busy.iteration_s(active) + profile.output_token_s,
        service_s=service,
        throughput=slots / service,
        binding="",
        step_s=joining.step_s,
    )


def percentile_with(wait: Wait, seconds: Floats, *, share: float, joining: Joining = AT_ONCE) -> float:
    """Return a percentile of the sum of a wait, the joining of a batch and a request's own time, all independent.

    The share of requests above x is the mean over all own times of P(wait + joining > x - own time).
    ``seconds``: float64 [n], the own times, equally likely.
    """
    if wait.decay_per_s == 0:
        return math.inf
    own, counts = np.unique(seconds, return_counts=True)  # a table's prompts take few different times
    weight = counts / len(seconds)
    low, high = 0.0, float(own[-1]) + wait.percentile_s(1 - (1 - share) / 10) + PRECISION_S
    high += joining.most_s
    while high - low > PRECISION_S:
        middle = (low + high) / 2
        if float(weight @ joining.longer_than(wait, middle - own)) > 1 - share:
            low = middle
        else:
            high = middle
    return high


def unqueued_s(
    profile: GpuProfile, lengths: Lengths, *, active: float, busy: Busy | None = None
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the seconds to the first token of each prompt that waits for no seat, other requests computing beside it.

    The front end's time, its iterations with the others' decodes in them, its own compute, and the handing on of the
    others' outputs.
    """
    busy = busy or profile.busy(lengths)
    beside = busy.w_s + active * busy.decode_s
    computed = profile.prefill_iterations(lengths) * beside + profile.prefill_compute_s(lengths)
    outside = profile.frontend_delay_s(lengths) + profile.handing_on_s(active * busy.decoding_frac)
    return np.asarray(outside + computed)


def size_pool(
    profile: GpuProfile, lengths: Lengths, rate_per_s: float, objective: Objective, *, context: int
) -> PoolSize:
    """Return the smallest pool that keeps an objective at a rate. Raises Infeasible where none does."""
    if rate_per_s <= 0:
        raise InvalidConfig(f"rate: got {rate_per_s}, expected requests per second > 0")
    busy = profile.busy(lengths)
    _check_possible(profile, lengths, objective, busy=busy)

    @cache
    def size(engines: int) -> PoolSize:
        return pool_at(profile, lengths, rate_per_s, context=context, engines=engines, busy=busy)

    least = max(1, math.ceil(size(1).utilization / objective.utilization_cap - 1e-9))
    try:
        engines = fewest(
            lambda number: broken(size(number), objective) is None,
            near=(least,),
            least=least,
            most=MOST_ENGINES,
        )
    except NoneIsEnough as error:
        raise Infeasible(
            f"rate: got {rate_per_s:g} requests/s, expected less: {MOST_ENGINES:,} engines do not do"
        ) from error
    binding = broken(size(engines - 1), objective) if engines > 1 else None
    return _final(size(engines), objective, binding=binding or "utilization")


def broken(pool: PoolSize, objective: Objective) -> str | None:
    """Return the part of the objective that a pool does not keep, None where it keeps all."""
    if pool.ttft_p99_s > objective.ttft_p99_s:
        return "ttft"
    if objective.tpot_p99_s is not None and pool.tpot_s > objective.tpot_p99_s:
        return "tpot"
    return None if pool.utilization <= objective.utilization_cap + 1e-9 else "utilization"


def _final(pool: PoolSize, objective: Objective, *, binding: str) -> PoolSize:
    return replace(pool, provisioned=provisioned(pool.engines, objective.availability), binding=binding)


def _check_possible(profile: GpuProfile, lengths: Lengths, objective: Objective, *, busy: Busy) -> None:
    """Raise Infeasible where no number helps: a prefill, or an iteration, takes too long on an idle GPU."""
    alone = float(
        np.percentile(unqueued_s(profile, lengths, active=0.0, busy=busy), 99, method="inverted_cdf")
    )
    if alone >= objective.ttft_p99_s:
        raise Infeasible(
            f"ttft_p99: got {objective.ttft_p99_s * 1e3:.0f} ms, expected more than {alone * 1e3:.0f} ms: the longest "
            "prompts take so long on an idle GPU"
        )
    gap_s = profile.w_s + profile.output_token_s
    if objective.tpot_p99_s is not None and gap_s >= objective.tpot_p99_s:
        raise Infeasible(
            f"tpot_p99: got {objective.tpot_p99_s * 1e3:.1f} ms, expected more than {gap_s * 1e3:.1f} ms: an "
            "iteration takes so long on an idle GPU"
        )
