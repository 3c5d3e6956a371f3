"""The settings of the loop over events: what decisions read, and when clients retry."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.cluster.arrays import num_words, records
from sim.cluster.cluster_config import ClusterConfig
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.exits import Exit
from sim.cluster.gateway.admission import AlwaysAdmit, RejectAll, TokenBucket
from sim.cluster.routing.decide import functions_of
from sim.cluster.routing.router_state import NUMBERS
from sim.cluster.routing.routing_policies import OwnPolicy, RoutingPolicy, Weighted
from sim.cluster.routing.weighted import compares_alone
from sim.cluster.run.beginning.shared_engines import deadlines_of
from sim.cluster.run.prefill_to_decode import EVERYBODY, NOBODY, WHO_LACKS_A_PREFIX
from sim.cluster.run.world import (
    FOREVER,
    LOOP,
    NEVER,
    UNDECIDED,
)
from sim.engine.run_variants import variant_for
from sim.engine.state import Records, State
from sim.requests import Int64s

DECIDER_CODES = {"never": NOBODY, "always": EVERYBODY, "prefix-threshold": WHO_LACKS_A_PREFIX}

MOST_BYTES_OF_CACHES = 1 << 30
"""So much memory is given at most to who has what cached, where nobody asked for snapshots of it."""


def loop_of(config: ClusterConfig, work: ClusterWork, *, records_decisions: bool) -> Records:
    """Return the loop's settings: what decisions read determines which engines must keep step with the clock."""
    loop = records(1, LOOP)
    policy, admission, flow = config.routing, config.admission, config.flow_control
    policies = [each for each in (policy, config.prefill_routing) if each is not None]
    loop["admission_us"], loop["routing_us"] = config.latency.admission_us, config.latency.routing_us
    intervals = config.snapshot_interval_us
    loop["queue_interval_us"], loop["kv_interval_us"] = intervals.queue, intervals.kv
    loop["cache_interval_us"] = intervals.cache
    loop["has_queue"] = flow is not None
    loop["evicts"] = flow is not None and flow.evicts
    loop["has_own_policy"] = is_own = isinstance(policy, OwnPolicy)
    loop["has_clients"] = work.clients is not None
    loop["has_deadlines"] = len(deadlines_of(work.requests)) > 0
    loop["is_coupled"] = (
        flow is not None or work.clients is not None or config.moves_kv or config.retries is not None
    ) or any(pool.engine.has_shared_store for pool in config.pools)
    loop["num_requests"] = len(work.requests) // num_attempts(config)
    set_retries(loop, config)
    if config.disaggregation is not None:
        loop["decider"] = DECIDER_CODES[config.disaggregation.decider]
        loop["prefix_threshold"] = config.disaggregation.prefix_threshold
    asks_decode_caches = loop["decider"][0] == WHO_LACKS_A_PREFIX
    knows_loads = config.compatibility == "vllm" and not records_decisions
    loop["looks_at_two"] = policy.looks_at == "two" and knows_loads
    loop["looks_at_all"] = any(
        not ((each.looks_at == "none" and not records_decisions) or (each.looks_at == "two" and knows_loads))
        for each in policies
    )
    loop["admission_looks"] = not isinstance(admission, AlwaysAdmit | RejectAll | TokenBucket)
    sees_all = is_own or records_decisions or config.compatibility == "blis" or loop["admission_looks"][0]
    uses_detector = flow is not None and (flow.detector == "utilization")
    reports = frozenset().union(*(each.reports for each in policies))
    loop["sees_queues"] = sees_all or uses_detector or "queues" in reports
    loop["sees_kv"] = sees_all or uses_detector or "kv" in reports
    loop["sees_caches"] = is_own or asks_decode_caches or "caches" in reports
    loop["settles"] = loop["sees_queues"][0] or loop["sees_kv"][0]
    loop["hears_first_tokens"] = work.waits_for_first_tokens or any(
        hears_first_tokens(each) for each in policies
    )
    loop["reads_engines"] = loop["hears_first_tokens"][0] or any(reads_now(loop))
    loop["matches_caches"] = matches_caches(config, work, loop)
    loop["counts_ends"] = counts_ends(config, work, loop)
    loop["records_decisions"] = records_decisions
    for name in ("queues_seen", "kv_seen", "caches_seen", "dispatch_planned", "transfer_planned"):
        loop[f"{name}_us"] = NEVER
    loop["chosen"], loop["look_us"] = UNDECIDED, FOREVER
    return loop


def counts_ends(config: ClusterConfig, work: ClusterWork, loop: Records) -> bool:
    """Return whether nothing waits for an answer, or remembers its request: an instance has one less in flight."""
    asks = ("is_coupled", "has_clients", "has_deadlines", "hears_first_tokens", "admission_looks")
    numbers = [
        NUMBERS.get(type(each)) for each in (config.routing, config.prefill_routing) if each is not None
    ]
    return (
        not any(loop[name][0] for name in asks)
        and not config.changes
        and not work.waits_for_first_tokens
        and isinstance(config.admission, AlwaysAdmit)
        and all(number is not None and functions_of()[number].note_departure is None for number in numbers)
    )


def hears_first_tokens(policy: RoutingPolicy) -> bool:
    """Return whether a policy reckons with who has a first token."""
    number = NUMBERS.get(type(policy))  # none of a user's own, which is told of nothing
    return number is not None and functions_of()[number].note_first_token is not None


def reads_now(loop: Records) -> tuple[bool, bool, bool]:
    """Return whether decisions read queues, KV usage and caches as they are, without an interval."""
    queues, kv, caches = (
        bool(loop[f"sees_{report}"][0] and loop[f"{signal}_interval_us"][0] == 0)
        for report, signal in (("queues", "queue"), ("kv", "kv"), ("caches", "cache"))
    )
    return queues, kv, caches


def is_searched(config: ClusterConfig, loop: Records) -> bool:
    """Return whether decisions search instances by shelves (``sim.cluster.routing.shelves``)."""
    policy = config.routing
    return (
        isinstance(policy, Weighted)
        and compares_alone(policy)
        and policy.has("kv-utilization")  # without it nothing was gained at 1,000 instances
        and config.compatibility == "vllm"
        and config.prefill_routing is None
        and not config.moves_kv
        and not loop["records_decisions"][0]
    )


def least_steps(loop: Records, config: ClusterConfig, states: Sequence[State]) -> Int64s:
    """Return, int64 µs per instance, what no step is shorter than.

    0 where decisions miss something of an engine that is left alone until a request of it may end: its caches, its KV
    usage where not only few are asked for it, what rare features do, a step that gives several tokens.
    """
    _, reads_kv, reads_caches = reads_now(loop)
    asks_few = is_searched(config, loop) and not loop["admission_looks"][0]
    is_missed = loop["is_coupled"][0] or reads_caches or (reads_kv and not asks_few)
    firsts = np.cumsum([0, *(pool.num_slots for pool in config.pools)]).tolist()
    least_us = [
        pool.latency.least_step_us
        if pool.engine.gives_one_token
        and not is_missed
        and (not loop["reads_engines"][0] or variant_for(states[first].engine) == "plain")
        else 0
        for pool, first in zip(config.pools, firsts, strict=False)
    ]
    return np.repeat(np.array(least_us, np.int64), [pool.num_slots for pool in config.pools])


def num_attempts(config: ClusterConfig) -> int:
    """Return how many rows each request has: one per attempt."""
    return 1 if config.retries is None else config.retries.max_attempts


def set_retries(loop: Records, config: ClusterConfig) -> None:
    """Set after which exits a client retries, and when."""
    if config.retries is None:
        return
    loop["retried_exits"] = sum(1 << int(Exit[way.upper()]) for way in config.retries.on)
    loop["backoff_us"], loop["backoff_factor"] = config.retries.backoff_us, config.retries.backoff_factor
    loop["most_backoff_us"], loop["jitter_frac"] = config.retries.max_backoff_us, config.retries.jitter_frac
    loop["retry_seed"] = config.seed


def notes_caches(loop: Records) -> bool:
    """Return whether it is noted which instances have which content: as of the last snapshot, or always."""
    is_stale = loop["sees_caches"][0] and loop["cache_interval_us"][0] > 0
    return bool(is_stale or loop["matches_caches"][0])


def matches_caches(config: ClusterConfig, work: ClusterWork, loop: Records) -> bool:
    """Return whether what instances have cached of a prompt is matched all at once.

    Each content then stands for a block on the device. Without an interval, engines must be advanced by decisions
    alone, and the notes must not need too much memory.
    """
    engines = [pool.engine for pool in config.pools]
    is_plain = not any(
        each.kv_cache_groups or each.num_cpu_blocks or each.prefix_match_unit is not None for each in engines
    )
    if not is_plain or config.moves_kv or not loop["sees_caches"][0]:
        return False
    num_bytes = 8 * num_words(config.num_instances) * int(work.requests.hash_ids.max(initial=0))
    is_alone = not (loop["is_coupled"][0] or config.lockstep) and num_bytes <= MOST_BYTES_OF_CACHES
    return bool(loop["cache_interval_us"][0] > 0 or is_alone)
