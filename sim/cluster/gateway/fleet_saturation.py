"""How full the fleet is: 1 and above is saturated. A fleet without instances is."""

from __future__ import annotations

from sim.cluster.fleet import Fleet
from sim.jit.compile import phase

UTILIZATION, CONCURRENCY, NEVER_SATURATED = 0, 1, 2
"""How saturation is measured: reported queues and KV caches, the gateway's count in flight, or not at all."""


@phase
def saturation_of(
    fleet: Fleet, detector: int, queue_threshold: float, kv_threshold: float, max_concurrency: float
) -> float:
    """Return the fleet's saturation.

    utilization: the mean over instances of max(waiting / ``queue_threshold``, KV usage / ``kv_threshold``), as the
    gateway-api-inference-extension has it. concurrency: requests in flight / (instances * ``max_concurrency``).
    """
    num = fleet.counts[0].num_candidates
    if num == 0:
        return 1.0
    if detector == NEVER_SATURATED:
        return 0.0
    total = 0.0
    for place in range(num):
        state = fleet.instances[fleet.candidates[place]]
        if detector == CONCURRENCY:
            total += state.num_in_flight / max_concurrency
        else:
            total += max(state.num_waiting / queue_threshold, state.kv_usage / kv_threshold)
    return total / num
