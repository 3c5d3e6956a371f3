"""What a fleet draws, how many tokens a watt gives, and how much power it can shed for how long within its SLO."""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass

from sim.fleet.erlang import Wait
from sim.fleet.joining import Joining
from sim.fleet.profile import GpuProfile
from sim.fleet.sizing import Objective, percentile_with, pool_at, unqueued_s
from sim.fleet.workload import Lengths

HOURS_PER_YEAR = 8766.0
NO_WAIT = Wait(probability=0.0, decay_per_s=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """A pool's power at a rate: ``power_w`` of all engines, ``tokens_per_joule`` (tokens per second and watt)."""

    power_w: float
    tokens_per_joule: float
    kwh_per_year: float


def energy(profile: GpuProfile, lengths: Lengths, rate_per_s: float, *, context: int, engines: int) -> Energy:
    """Return what a pool draws at a rate, with as many requests per engine as there are on average."""
    size = pool_at(profile, lengths, rate_per_s, context=context, engines=engines)
    power = engines * profile.power_w(size.active)
    tokens = rate_per_s * float(lengths.output_tokens.mean())
    return Energy(
        power_w=power,
        tokens_per_joule=tokens / power if power > 0 else math.nan,
        kwh_per_year=power * HOURS_PER_YEAR / 1000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Curtailment:
    """A fleet with a share of its power taken away. ``slots``: how many requests per engine the rest allows.

    ``lasts_s``: how long the SLO holds; infinite where the fleet keeps up, 0 where it breaks at once. ``ttft_p99_s``:
    in the long run, infinite where the queue grows without end.
    """

    shed_frac: float
    shed_w: float
    slots: int
    utilization: float
    ttft_p99_s: float
    lasts_s: float


def curtail(
    profile: GpuProfile,
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    context: int,
    engines: int,
    shares: Sequence[float],
) -> list[Curtailment]:
    """Return what shedding each share of the fleet's power at this rate does.

    Power is cut by fewer requests at once per engine, found from the power curve turned around. Where the rest still
    keeps up, the formulas of sizing say the TTFT, with the tail of what prompts take without a queue in it. Where it
    does not, the queue grows at rate - capacity, and the SLO holds until the queue is as long as the rest serves within
    what the limit leaves beside the 99th percentile of what prompts take without a queue.
    """
    full = pool_at(profile, lengths, rate_per_s, context=context, engines=engines)
    drawn = profile.power_w(full.active)
    return [
        _cut(
            profile,
            lengths,
            rate_per_s,
            objective,
            slots=full.slots,
            engines=engines,
            drawn_w=drawn,
            share=share,
        )
        for share in shares
    ]


def _cut(
    profile: GpuProfile,
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    slots: int,
    engines: int,
    drawn_w: float,
    share: float,
) -> Curtailment:
    allowed = min(float(slots), profile.active_at_power((1 - share) * drawn_w)) if share > 0 else float(slots)
    left = math.floor(allowed + 1e-9)
    if left < 1:
        return Curtailment(
            shed_frac=share,
            shed_w=share * drawn_w * engines,
            slots=0,
            utilization=math.inf,
            ttft_p99_s=math.inf,
            lasts_s=0.0,
        )
    busy = profile.busy(lengths)
    service = busy.mean_iterations * busy.iteration_s(left)
    capacity = engines * left / service
    wait = Wait.of(engines * left, rate_per_s, 1 / service, busy.cv2, arrival_cv2=lengths.arrival_cv2)
    active = min(busy.active(rate_per_s / engines), float(left))
    own, joining = unqueued_s(profile, lengths, active=active), Joining.of(profile, busy, active)
    ttft = percentile_with(wait, own, share=0.99, joining=joining)
    return Curtailment(
        shed_frac=share,
        shed_w=share * drawn_w * engines,
        slots=left,
        utilization=rate_per_s / capacity,
        ttft_p99_s=ttft,
        lasts_s=_lasts_s(
            rate_per_s,
            capacity,
            ttft=ttft,
            unqueued=percentile_with(NO_WAIT, own, share=0.99, joining=joining),
            limit=objective.ttft_p99_s,
        ),
    )


def _lasts_s(rate: float, capacity: float, *, ttft: float, unqueued: float, limit: float) -> float:
    """Return how long TTFT stays within a limit: without end, not at all, or until the queue has grown too long."""
    if ttft <= limit:
        return math.inf
    if unqueued > limit or rate <= capacity:
        return 0.0
    return (limit - unqueued) * capacity / (rate - capacity)
