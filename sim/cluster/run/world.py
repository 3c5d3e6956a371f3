"""A running cluster as compiled functions take it: engines, gateway, requests, planned events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cluster.arrays import Records
from sim.cluster.events import EventQueue
from sim.cluster.fleet import Fleet, RequestTable
from sim.cluster.gateway.admission import Admission
from sim.cluster.gateway.eviction import SheddableInFlight
from sim.cluster.gateway.queue import GatewayQueue
from sim.cluster.routing.router_state import Router
from sim.cluster.transfer.kv_links import Links
from sim.requests import Int64s

NEVER = -1
FOREVER = 1 << 62


JOURNEY = np.dtype(
    [
        ("arrival_us", np.int64),
        ("admitted_us", np.int64),
        ("dispatched_us", np.int64),  # left the gateway's queue
        ("routed_us", np.int64),
        ("left_us", np.int64),
        ("instance", np.int32),
        ("exit", np.int16),
        ("got_first_token", np.int16),
        ("prefill_instance", np.int32),
        ("is_prefilling", np.int32),  # there
        ("prefilled_us", np.int64),
    ],
    align=True,
)
"""What happened to a request, and when; NEVER where it did not."""

LOOP = np.dtype(
    [
        # what the cluster was configured with
        ("admission_us", np.int64),
        ("routing_us", np.int64),
        ("queue_interval_us", np.int64),
        ("kv_interval_us", np.int64),
        ("cache_interval_us", np.int64),
        ("has_queue", np.int64),
        ("evicts", np.int64),
        ("has_own_policy", np.int64),
        (
            "is_coupled",
            np.int64,
        ),  # a completion may cause an arrival or a hand-over, or a store is shared: they keep step
        ("looks_at_all", np.int64),  # a routing decision looks at every candidate, two of them, or
        ("looks_at_two", np.int64),  # none
        ("admission_looks", np.int64),
        ("sees_queues", np.int64),  # decisions read what instances report of their queues,
        ("sees_kv", np.int64),  # their KV usage,
        ("sees_caches", np.int64),  # and what of the prompt they have cached
        ("hears_first_tokens", np.int64),  # and who has a first token
        ("reads_engines", np.int64),  # some of this as it is now, not as it was at a snapshot
        ("matches_caches", np.int64),  # what they have cached of a prompt is all in ``World.cached``
        ("counts_ends", np.int64),  # of an answer nothing but how many an instance has left
        ("has_clients", np.int64),
        ("has_deadlines", np.int64),
        ("num_requests", np.int64),  # rows beyond these are further attempts of theirs, in the same order
        ("retried_exits", np.int64),  # bit by bit: ways out after which a client tries again
        ("backoff_us", np.int64),  # before the second attempt,
        ("backoff_factor", np.float64),  # each further one this many times as long,
        ("most_backoff_us", np.int64),  # but no longer;
        ("jitter_frac", np.float64),  # the share of it that is random
        ("retry_seed", np.int64),
        ("records_decisions", np.int64),
        ("decider", np.int64),  # which prompts go to prefill instances
        ("prefix_threshold", np.int64),
        # where it stands
        ("next_arrival", np.int64),  # place in `arrivals`
        ("has_hand", np.int64),  # the event in hand; what could not be finished is taken up again
        ("hand_us", np.int64),
        ("hand_rank", np.int64),
        ("hand_subject", np.int64),
        ("queues_seen_us", np.int64),
        ("kv_seen_us", np.int64),
        ("caches_seen_us", np.int64),
        ("dispatch_planned_us", np.int64),
        ("is_snapshot_planned", np.int64),
        ("num_idle_plans", np.int64),  # planned events that do not keep the run going: of ``changes``
        ("transfer_planned_us", np.int64),
        (
            "settles",
            np.int64,
        ),  # what engines that count their blocks tell of themselves is read before their end
        ("look_us", np.int64),  # no engine runs past it: the instances' states are recorded then (``watch``)
        ("num_in_transit", np.int64),  # left the gateway's queue, not routed yet
        ("num_decisions", np.int64),
        ("waits_for", np.int64),  # the engine, or the request, for which Python must do something
        ("chosen", np.int64),  # by a user's policy for the event in hand, UNDECIDED before
    ],
    align=True,
)

UNDECIDED = -3

FORESEEN = np.dtype(
    [
        ("old_end_us", np.int64),  # one of those that it had then may end, at the soonest
        ("new_end_us", np.int64),  # likewise of those that have come since; or anything else happens
        ("num_new", np.int64),
        ("num_new_tokens", np.int64),  # of their prompts; TOO_MANY: it is not known when they are admitted
    ],
    align=True,
)
"""What is foreseen of an engine that counts its blocks, since it was last advanced (``foresight``)."""

TOO_MANY = 1 << 40
"""More prompt tokens than fit into a step."""

LOAD = np.dtype([("num_waiting", np.int64), ("num_running", np.int64), ("kv_usage", np.float64)], align=True)
"""An instance's present load, which an autoscaler reads. Routers have their own, older, snapshots."""

DECISION = np.dtype(
    [("time_us", np.int64), ("request", np.int64), ("instance", np.int64), ("is_prefill", np.int64)],
    align=True,
)
"""``is_prefill``: of the instance that computes the prompt, where another instance decodes."""


class DecisionLog(NamedTuple):
    """Every routing decision with what was seen of each instance; empty arrays if decisions are not recorded."""

    decisions: Records  # DECISION[capacity]
    scores: NDArray[np.float64]  # [capacity, num_instances]
    num_in_flight: NDArray[np.int32]
    num_waiting: NDArray[np.int32]
    num_running: NDArray[np.int32]
    kv_usage: NDArray[np.float32]


class Clients(NamedTuple):
    """Requests that answers release: a closed loop or cap, sessions, waves. Empty arrays if there are none."""

    counts: Records  # CLIENTS[1]
    held: Int64s  # requests in the order in which a loop or cap releases them
    due_us: Int64s  # per request: it arrives no sooner
    child_start: Int64s  # per request: where in `children` those begin that wait for its answer; and the end
    children: Int64s  # requests of sessions
    num_awaited: Int64s  # per request: answers that it still waits for
    session: Int64s  # per request, NEVER of none
    session_open: Int64s  # per session: requests that are not answered
    think_us: Int64s  # per request: from the answer before it to its arrival
    wave: Int64s  # per request
    wave_start: Int64s  # where in `held` each wave begins, and the end
    wave_open: Int64s  # per wave: requests that are not gone


CLIENTS = np.dtype(
    [
        ("has_loop", np.int64),
        ("next_held", np.int64),
        ("has_sessions", np.int64),
        ("has_waves", np.int64),
        ("wave_pause_us", np.int64),
    ],
    align=True,
)


class World(NamedTuple):
    """The whole cluster; compiled functions take it and change it in place."""

    loop: Records  # LOOP[1]
    engines: NDArray[np.int64]  # a table of states (``tables``)
    coalesces: Int64s  # per instance
    run_addresses: Int64s  # per instance: where the machine code of its ``run`` is
    counted_addresses: Int64s  # and of ``run_counted``, 0 if it hands out its blocks (``counted_engines``)
    pool_of: Int64s  # per instance
    first_rank: Int64s  # per instance: the first of the ranks that it is in step with, NEVER if it is in step with none
    end_rank: Int64s  # per instance: behind the last of them
    stepping_us: Int64s  # per instance: when its next step is planned, NEVER if none is
    due_us: (
        Int64s  # a tree (``arrays``) over the instances: no decision sees a change of one before; not in step
    )
    foreseen: Records  # FORESEEN per instance
    least_step_us: (
        Int64s  # per instance: no step is shorter; 0 where decisions look at each (``least_steps``)
    )
    rows: Records  # REQUEST[n], shared by all engines
    delays_us: Int64s  # [num_pools, n]: from being handed over to joining the queue
    entries: Int64s  # [num_pools, n]: max_total_tokens, NEVER where the front end refuses
    fleet: Fleet
    requests: RequestTable
    router: Router
    admission: Admission
    queue: GatewayQueue
    sheddable: SheddableInFlight
    events: EventQueue
    arrivals: Int64s  # requests that arrive by themselves, by (arrival, number)
    arrivals_us: Int64s
    journeys: Records  # JOURNEY[n]
    forced: Int64s  # per request: the instance it must go to, NEVER where the policy decides; or of no rows
    loads: Records  # LOAD[num_instances]
    timeouts_us: (
        Int64s  # per request: what its client gives each further attempt, NEVER without end; or of no rows
    )
    deadline_us: Int64s  # per request, shared by all engines; or of no rows
    cached: (
        Int64s  # per content the instances that have it, as bits: now, or at the last snapshot; or of no rows
    )
    clients: Clients
    log: DecisionLog
    prefill_fleet: Fleet  # the same instances; candidates are those that compute prompts for others
    prefill_router: Router
    roles: Int64s  # per instance: SHARED, PREFILL or DECODE (``handoff``)
    transfers: Records  # TRANSFER[n], shared by all engines; or of no rows
    links: Links


ROWS_OF_WORLD = ("rows", "journeys", "transfers", "timeouts_us", "deadline_us", "forced")
"""The arrays of ``World`` with a row per request."""
