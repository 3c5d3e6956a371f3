"""A cluster before its first event: engines that share one table of requests, the gateway, what is to arrive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sim.cluster.arrays import records
from sim.cluster.client_plans import ClientPlan
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.draws import PREFILL_ROUTE, first_noise_draw
from sim.cluster.events import EventQueue, EventRank, new_event_queue, plan_event
from sim.cluster.exits import Exit
from sim.cluster.fleet import Fleet, RequestTable, new_fleet, set_candidates
from sim.cluster.gateway.admission import AlwaysAdmit, RejectAll, TokenBucket, new_admission
from sim.cluster.gateway.eviction import new_sheddable_in_flight
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.gateway.queue import new_queue
from sim.cluster.routing.router_state import new_router
from sim.cluster.routing.routing_policies import (
    KvCost,
    OwnPolicy,
    PowerOfTwo,
    RandomChoice,
    RoundRobin,
    Session,
    VllmDp,
    Weighted,
)
from sim.cluster.run.prefill_to_decode import EVERYBODY, NOBODY, WHO_LACKS_A_PREFIX
from sim.cluster.run.tables import address_of_run
from sim.cluster.run.world import (
    CLIENTS,
    DECISION,
    FOREVER,
    JOURNEY,
    LOAD,
    LOOP,
    NEVER,
    UNDECIDED,
    Clients,
    DecisionLog,
    World,
)
from sim.cluster.transfer.kv_links import new_links
from sim.config import UNBOUNDED, EngineConfig, InvalidConfig, Record
from sim.engine import dtypes as dt
from sim.engine.initial_state import (
    first_state,
    length_limits,
    longer,
    request_records,
    rooms_for,
    size_for,
    trait_records,
    with_kv_transfers,
    with_traits,
)
from sim.engine.kv_cache.session_kv import lineage_records, with_session_kv
from sim.engine.optional.encoder_cache import ImageTables, asks_for_images, image_tables, with_images
from sim.engine.state import PER_REQUEST, Records, State
from sim.engine.state import records as aligned_records
from sim.jit.references import table_of
from sim.latency.batch import StepBatch
from sim.requests import Int64s, Requests

ROLES = ("shared", "prefill", "decode")
"""In the order of their codes (``handoff``)."""

DECIDER_CODES = {"never": NOBODY, "always": EVERYBODY, "prefix-threshold": WHO_LACKS_A_PREFIX}

NO_LIMIT = 1 << 31
"""Of adapters on an instance."""

SEES_KV = ("kv-utilization", "load-balance")
SEES_QUEUES = ("queue-depth", "running-requests", "load-aware", "vllm-dp")


CACHE_LOG_LENGTH = 8192
"""Of an engine's log of contents that came or went: after more of them all contents are looked at."""


def new_world(
    work: ClusterWork,
    config: ClusterConfig,
    *,
    record: Record = "none",
    records_decisions: bool = False,
    forced: Int64s | None = None,
    runs_engines: bool = True,
) -> tuple[World, list[State]]:
    """Return a cluster at its beginning, and its engines' states, which must live as long as it does.

    ``runs_engines``: False where nobody will arrive, so that no engine need be compiled.
    """
    table, n = work.table(), len(work.requests)
    rows, delays_us, entries = shared_rows(work.requests, config)
    transfers = new_transfers(n if config.moves_kv else 0)
    loop = loop_of(config, work, records_decisions=records_decisions)
    hears = bool(
        loop["is_coupled"][0]
        or loop["looks_at_all"][0]
        or loop["looks_at_two"][0]
        or loop["admission_looks"][0]
    )
    hears = hears or config.changes
    states = engine_states(
        work.requests, rows, config, record=record, hears=hears, pauses=bool(loop["is_coupled"][0])
    )
    if config.moves_kv:
        states = connected(states, config, transfers)
    if sees_stale_caches(loop):
        states = [state._replace(cache_log=np.zeros(CACHE_LOG_LENGTH, np.int32)) for state in states]
    engines = table_of(states)
    run_addresses = [address_of_run(state) if runs_engines else 0 for state in states]
    fleet = new_fleet(
        config.num_instances,
        block_size=config.pools[0].engine.block_size,
        num_adapters=0 if work.adapter is None else int(work.adapter.max(initial=-1)) + 1,
    )
    prefill_fleet = split_fleet(fleet, config)
    most = [pool.engine.max_loras or NO_LIMIT for pool in config.pools for _ in range(pool.num_slots)]
    fleet.instances["max_adapters"] = most
    counts = [pool.num_slots for pool in config.pools]
    firsts = np.cumsum([0, *counts[:-1]]) if config.lockstep else np.full(len(counts), NEVER, np.int64)
    policy = RoundRobin() if isinstance(config.routing, OwnPolicy) else config.routing
    num_seats = sum(pool.num_slots * pool.engine.max_num_seqs for pool in config.pools)
    flow = config.flow_control or FlowControl()
    most_decisions = 2 * n if config.moves_kv else n
    order = np.argsort(work.requests.arrival_us, kind="stable")
    order = order[order < int(loop["num_requests"][0])]
    if work.clients is not None:
        order = order[work.clients.arrives[order]]
    world = World(
        loop=loop,
        engines=engines,
        coalesces=np.array(
            [can_jump(pool, record) for pool in config.pools for _ in range(pool.num_slots)], np.int64
        ),
        run_addresses=np.array(run_addresses, np.int64),
        pool_of=np.repeat(np.arange(len(config.pools)), [pool.num_slots for pool in config.pools]),
        first_rank=np.repeat(firsts, counts),
        end_rank=np.repeat(np.cumsum(counts), counts),
        stepping_us=np.full(config.num_instances, NEVER, np.int64),
        rows=rows,
        delays_us=delays_us,
        entries=entries,
        fleet=fleet,
        requests=table,
        router=new_router(policy, fleet, table, seed=config.seed, compatibility=config.compatibility),
        admission=new_admission(
            config.admission, num_seats=num_seats, tenants=work.tenants, compatibility=config.compatibility
        ),
        queue=new_queue(flow, table if config.flow_control else empty_table(), num_tenants=len(work.tenants)),
        sheddable=new_sheddable_in_flight(n if config.flow_control else 0),
        events=first_events(loop, n, config.num_instances),
        arrivals=order,
        arrivals_us=work.requests.arrival_us[order].astype(np.int64),
        journeys=new_journeys(work.requests),
        forced=np.zeros(0, np.int64) if forced is None else forced.astype(np.int64),
        num_with_adapter=np.zeros(fleet.adapters.shape, np.int64),
        loads=records(config.num_instances, LOAD),
        timeouts_us=timeouts_of(work, num_originals=int(loop["num_requests"][0])),
        deadline_us=states[0].deadline_us,
        cached=new_cache_snapshot(loop, config.num_instances, work.requests),
        clients=clients_of(work.clients),
        log=new_decision_log(most_decisions if records_decisions else 0, config.num_instances),
        prefill_fleet=prefill_fleet,
        prefill_router=new_router(
            config.prefill_routing or policy,
            prefill_fleet,
            table if config.moves_kv else empty_table(),
            seed=config.seed,
            stream=PREFILL_ROUTE,
            compatibility=config.compatibility,
        ),
        roles=np.array([ROLES.index(role) for role in config.role_of], np.int64),
        transfers=transfers,
        links=new_links(
            config.disaggregation,
            num_requests=n,
            num_instances=config.num_instances,
            block_size=config.pools[0].engine.block_size,
            is_blis=config.compatibility == "blis",
        ),
    )
    return world, states


def split_fleet(fleet: Fleet, config: ClusterConfig) -> Fleet:
    """Make those that serve requests whole, or decode, the fleet's candidates; return it with the others as such."""
    prefill = [number for number, role in enumerate(config.role_of) if role == "prefill"]
    set_candidates(fleet, [number for number in range(config.num_instances) if number not in set(prefill)])
    others = fleet._replace(candidates=fleet.candidates.copy(), counts=fleet.counts.copy())
    set_candidates(others, prefill)
    fleet.instances["is_candidate"] = 1  # each router asks only for what it has chosen itself
    return others


def new_transfers(num_requests: int) -> Records:
    """Return the record of each request's KV, which is nowhere yet."""
    return aligned_records(num_requests, dt.TRANSFER)


def connected(states: list[State], config: ClusterConfig, transfers: Records) -> list[State]:
    """Return the engines, with KV connectors where their pools hand KV on or take it."""
    return [
        state if role == "shared" else with_kv_transfers(state, transfers, is_producer=role == "prefill")
        for state, role in zip(states, config.role_of, strict=True)
    ]


def can_jump(pool: Pool, record: Record) -> bool:
    """Return whether an engine may take many decode steps at once."""
    engine = pool.engine
    steps_singly = engine.num_speculative_tokens or engine.has_blis_tier or engine.pipeline_parallel_size > 1
    return not steps_singly and record not in ("steps", "blocks")


def shared_rows(requests: Requests, config: ClusterConfig) -> tuple[Records, Int64s, Int64s]:
    """Return the table of requests, and per pool how long each takes to join and how long it may become."""
    delays, entries, first = [], [], None
    for pool in config.pools:
        rows = request_records(asked_of(pool, requests), pool.engine, pool.latency)
        if first is None and pool.role != "prefill":
            first = rows
        delays.append(rows["queued_us"] - rows["arrival_us"])
        entries.append(np.where(rows["status"] == dt.REJECTED, NEVER, rows["max_total_tokens"]))
    assert first is not None  # noqa: S101 - a cluster has a pool that answers
    return first, np.array(delays, np.int64), np.array(entries, np.int64)


def asked_of(pool: Pool, requests: Requests) -> Requests:
    """Return requests as a pool gets them: one that computes prompts for others makes one token of each."""
    if pool.role != "prefill":
        return requests
    return replace(requests, output_tokens=np.minimum(requests.output_tokens, 1))


def size_of(pool: Pool, requests: Requests) -> tuple[int, int]:
    """Return ``size_for`` a pool, where requests that do not run hold blocks, too, with room for all of them."""
    num_blocks, width = size_for(pool.engine, requests)
    if pool.role != "shared" and pool.engine.num_gpu_blocks == UNBOUNDED:
        longest = requests.prompt_tokens + requests.output_tokens
        num_blocks += int((longest // pool.engine.block_size + 2).sum())
    return num_blocks, width


def engine_states(
    requests: Requests, rows: Records, config: ClusterConfig, *, record: Record, hears: bool, pauses: bool
) -> list[State]:
    """Return an engine per instance; they share the table of requests and the ids of their blocks."""
    states: list[State] = []
    deadline_us = deadlines_of(requests)
    engine = config.pools[0].engine
    end = rows["num_hashes"] * engine.hash_block_size + engine.num_hash_lookahead_tokens
    shares_outputs = bool(np.any(end > rows["num_prompt_tokens"]))
    made: dict[tuple[object, ...], Records] = {("requests", False): rows}
    traits, skipped = traits_of(requests, config), np.zeros(0, np.int64)
    if traits is not None or any(passes_over(pool.engine) for pool in config.pools):
        skipped = np.zeros(len(rows), np.int64)
    images = images_asked_for(requests, config)
    for number, pool in enumerate(config.pools):
        if pool.role == "prefill" and ("requests", True) not in made:
            made["requests", True] = request_records(asked_of(pool, requests), pool.engine, pool.latency)
        size = size_of(pool, asked_of(pool, requests))
        rooms = rooms_for(pool.engine, pool.num_slots, record=record, num_requests=len(rows))
        for room in rooms:
            state = first_state(
                pool.engine, pool.latency, requests.hash_ids, size=size, record=record, room=room
            )
            state = state._replace(
                **shared_arrays(state, pool, number, made, num=len(rows), engine=len(states)),
                hash_ids=states[0].hash_ids if states else state.hash_ids,
                deadline_us=deadline_us,
                deadlines=np.zeros(len(deadline_us), np.int64),
                heap=longer(state.heap, 64),
                skipped=skipped,
                **store_of(states, state),
            )
            limits = None if pool.role != "shared" else length_limits(requests, pool.engine)
            if limits is not None:
                state = state._replace(
                    length_limit=np.maximum(rows["max_total_tokens"], limits).astype(np.int32)
                )
            if traits is not None and pool.engine.charges_traits:
                state = with_traits(state, traits, skipped, pool.engine)
            if images is not None and pool.engine.encodes_images:
                state = with_images(state, images, pool.engine)
            if pool.engine.session_kv_ttl_us > 0:
                if ("lineage", None) not in made:
                    made["lineage", None] = lineage_records(state, requests)
                lineage = made["lineage", None]
                state = with_session_kv(state, requests, lineage, pool.engine.session_kv_ttl_us)
            if hears:
                state = state._replace(
                    completions=aligned_records(8 * pool.engine.max_num_seqs + 64, dt.COMPLETION)
                )
            state.engine.queues["num_requests"] = len(rows)
            state.engine.settings["outputs_are_shared"] = shares_outputs
            state.engine.settings["is_lockstep"] = config.lockstep
            if config.lockstep and pool.engine.prefill_schedule_interval > 1:
                state.engine.settings["balances_prefills"] = state.engine.settings["may_sit_out"] = 1
            state.engine.settings["first_noise_draw"] = first_noise_draw(len(states))
            state.engine.settings["dummy_step_us"] = dummy_step_us(pool)
            state.engine.settings["has_deadlines"] = len(deadline_us) > 0
            state.engine.settings["log_completions"] = hears
            state.engine.settings["pauses_at_completions"] = pauses
            states.append(state)
    return states


def store_of(states: list[State], state: State) -> dict[str, Records]:
    """Return the store that an engine shares with those before it; its own where it is the first."""
    if len(state.kv_store) == 0:
        return {}
    owner = next((each for each in states if len(each.kv_store)), state)
    return {name: getattr(owner, name) for name in ("store_blocks", "store_slots", "kv_store")}


def passes_over(engine: EngineConfig) -> bool:
    """Return whether an engine passes over waiting requests, whatever they are."""
    return engine.pipeline_parallel_size > 1 or engine.has_native_offloading


def shared_arrays(
    state: State, pool: Pool, number: int, made: dict[tuple[object, ...], Records], *, num: int, engine: int
) -> dict[str, Records]:
    """Return an engine's arrays with a row per request, those that it has from the start.

    ``made``: those that there are, by name and by who shares them; what is missing is added. ``number``: the pool's.
    """
    found: dict[str, Records] = {}
    for name, each in PER_REQUEST.items():
        if not each.exists(pool.engine):
            continue
        is_prefill = pool.role == "prefill"
        key = (name, {"fleet": None, "side": is_prefill, "pool": number, "engine": (engine,)}[each.shared_by])
        if key not in made:
            made[key] = each.rows(getattr(state, name), num)
        found[name] = made[key]
    return found


def traits_of(requests: Requests, config: ClusterConfig) -> Records | None:
    """Return what costs time beyond lengths, of each request; None where nothing does, or no engine charges for it."""
    asked = (requests.adapter, requests.is_guided, requests.encoder_tokens)
    charges = any(pool.engine.charges_traits for pool in config.pools)
    return trait_records(requests) if charges and any(column is not None for column in asked) else None


def images_asked_for(requests: Requests, config: ClusterConfig) -> ImageTables | None:
    """Return the tables of images that some pool's engines encode, None where there are none.

    Raises InvalidConfig where other instances compute the prompts.
    """
    if not any(asks_for_images(requests, pool.engine) for pool in config.pools):
        return None
    if config.moves_kv:
        raise InvalidConfig(
            "disaggregation: cannot be combined with images, expected instances that serve requests whole, or "
            "language_model_only true: images are then text"
        )
    return image_tables(requests)


def dummy_step_us(pool: Pool) -> int:
    """Return what a step takes in which a single request decodes its first tokens, as vLLM's dummy batch does."""
    none, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    batch = StepBatch(
        num_prefill_tokens=none,
        num_decode_tokens=one,
        decode_context_tokens=one,
        prefill_pairs=none,
        num_prefill_seqs=none,
        prefill_context_tokens=none,
    )
    return int(pool.latency.durations_us(batch)[0])


def deadlines_of(requests: Requests) -> Int64s:
    """Return when each request's client gives up; nothing where none ever does."""
    if requests.deadline_us is None or (requests.deadline_us == NEVER).all():
        return np.zeros(0, np.int64)
    return requests.deadline_us.astype(np.int64)


def timeouts_of(work: ClusterWork, *, num_originals: int) -> Int64s:
    """Return how long after its arrival each request's client gives up, NEVER where the time of that is fixed.

    Nothing where all times are: under a cap a deadline stays where it is, and who arrives by himself arrives as given.
    """
    deadline_us, n = deadlines_of(work.requests), len(work.requests)
    if len(deadline_us) == 0 or (work.clients is None and n == num_originals):
        return np.zeros(0, np.int64)
    lasts_us = np.where(deadline_us == NEVER, NEVER, deadline_us - work.requests.arrival_us)
    if work.clients is not None and (work.clients.due_us > 0).any():
        lasts_us[:num_originals] = NEVER
    return lasts_us.astype(np.int64)


def loop_of(config: ClusterConfig, work: ClusterWork, *, records_decisions: bool) -> Records:
    """Return the loop's settings: what decisions look at decides which engines must keep step with the clock."""
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
    loop["looks_at_two"] = isinstance(policy, PowerOfTwo) and knows_loads
    loop["looks_at_all"] = any(
        not (
            (isinstance(each, RoundRobin | RandomChoice | Session) and not records_decisions)
            or (isinstance(each, PowerOfTwo) and knows_loads)
        )
        for each in policies
    )
    loop["admission_looks"] = not isinstance(admission, AlwaysAdmit | RejectAll | TokenBucket)
    scorers = {
        name
        for each in policies
        if isinstance(each, Weighted)
        for name, weight in each.scorers.items()
        if weight > 0
    }
    follows_reports = any(isinstance(each, VllmDp) for each in policies)
    sees_all = is_own or records_decisions or config.compatibility == "blis" or loop["admission_looks"][0]
    uses_detector = flow is not None and (flow.detector == "utilization")
    loop["sees_queues"] = sees_all or uses_detector or follows_reports or not scorers.isdisjoint(SEES_QUEUES)
    loop["sees_kv"] = sees_all or uses_detector or follows_reports or not scorers.isdisjoint(SEES_KV)
    counts_hits = any(isinstance(each, KvCost) for each in policies)
    loop["sees_caches"] = is_own or counts_hits or asks_decode_caches or "precise-prefix-cache" in scorers
    loop["records_decisions"] = records_decisions
    for name in (
        "queues_seen_us",
        "kv_seen_us",
        "caches_seen_us",
        "dispatch_planned_us",
        "transfer_planned_us",
    ):
        loop[name] = NEVER
    loop["chosen"], loop["look_us"] = UNDECIDED, FOREVER
    return loop


def num_attempts(config: ClusterConfig) -> int:
    """Return how many rows each request has: one per attempt."""
    return 1 if config.retries is None else config.retries.max_attempts


def set_retries(loop: Records, config: ClusterConfig) -> None:
    """Set after which ways out a client tries again, and when."""
    if config.retries is None:
        return
    loop["retried_exits"] = sum(1 << int(Exit[way.upper()]) for way in config.retries.on)
    loop["backoff_us"], loop["backoff_factor"] = config.retries.backoff_us, config.retries.backoff_factor
    loop["most_backoff_us"], loop["jitter_frac"] = config.retries.max_backoff_us, config.retries.jitter_frac
    loop["retry_seed"] = config.seed


def first_events(loop: Records, num_requests: int, num_instances: int) -> EventQueue:
    """Return the queue of events; where engines keep step, with the first snapshot."""
    is_coupled = bool(loop["is_coupled"][0])
    events = new_event_queue(4 * num_instances + 1024 + (num_requests if is_coupled else 0))
    sees = (
        (loop["sees_queues"][0] and loop["queue_interval_us"][0] > 0)
        or (loop["sees_kv"][0] and loop["kv_interval_us"][0] > 0)
        or (loop["sees_caches"][0] and loop["cache_interval_us"][0] > 0)
    )
    if is_coupled and sees:
        plan_event(events, 0, int(EventRank.SNAPSHOT), 0, 0)
        loop["is_snapshot_planned"] = 1
    return events


def new_journeys(requests: Requests) -> Records:
    """Return the journeys of requests that have not arrived."""
    first = records(1, JOURNEY)
    for name in (
        "arrival_us",
        "admitted_us",
        "dispatched_us",
        "routed_us",
        "left_us",
        "instance",
        "prefill_instance",
        "prefilled_us",
    ):
        first[name] = NEVER
    return first.repeat(len(requests))  # row by row: to fill column by column takes three times as long


def sees_stale_caches(loop: Records) -> bool:
    """Return whether routers see prefix caches as they were at the last snapshot."""
    return bool(loop["sees_caches"][0] and loop["cache_interval_us"][0] > 0)


def new_cache_snapshot(loop: Records, num_instances: int, requests: Requests) -> NDArray[np.int8]:
    """Return what instances have cached: nothing; no rows where caches are seen as they are."""
    num_keys = int(requests.hash_ids.max(initial=-1)) + 1 if sees_stale_caches(loop) else 0
    return np.zeros((num_instances, num_keys), np.int8)


def empty_table() -> RequestTable:
    """Return a table of no requests, for a gateway without a queue."""
    none = np.zeros(0, np.int64)
    return RequestTable(*([none] * len(RequestTable._fields)))


def clients_of(plan: ClientPlan | None) -> Clients:
    """Return a plan as compiled code reads it."""
    counts, none = records(1, CLIENTS), np.zeros(0, np.int64)
    if plan is None:
        return Clients(counts, *([none] * (len(Clients._fields) - 1)))
    wave = none if plan.wave is None else plan.wave
    sizes = np.bincount(wave, minlength=1) if len(wave) else none
    counts["has_waves"] = plan.wave is not None
    counts["has_loop"] = plan.wave is None and len(plan.held) > 0
    counts["has_sessions"] = plan.session is not None
    counts["wave_pause_us"] = plan.wave_pause_us
    return Clients(
        counts=counts,
        held=plan.held.astype(np.int64),
        due_us=plan.due_us.astype(np.int64),
        **_waiting_of(plan),
        think_us=plan.think_us.astype(np.int64),
        wave=wave,
        wave_start=np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]).astype(np.int64),
        wave_open=sizes.astype(np.int64),
    )


def _waiting_of(plan: ClientPlan) -> dict[str, Int64s]:
    """Return who waits for whose answer as compiled code reads it: under each request those that wait for it."""
    none = np.zeros(0, np.int64)
    names = ("child_start", "children", "num_awaited", "session", "session_open")
    if plan.session is None or plan.waiting is None or plan.awaited is None:
        return dict.fromkeys(names, none)
    n = len(plan.session)
    counts = np.bincount(plan.awaited, minlength=n)
    order = np.argsort(plan.awaited, kind="stable")
    columns = (
        np.concatenate([[0], np.cumsum(counts)]),
        plan.waiting[order],
        np.bincount(plan.waiting, minlength=n),
        plan.session,
        np.bincount(plan.session[plan.session >= 0], minlength=1),
    )
    return {name: column.astype(np.int64) for name, column in zip(names, columns, strict=True)}


def new_decision_log(capacity: int, num_instances: int) -> DecisionLog:
    """Return an empty log of decisions."""
    shape = (capacity, num_instances if capacity else 0)
    return DecisionLog(
        decisions=records(capacity, DECISION),
        scores=np.zeros(shape),
        num_in_flight=np.zeros(shape, np.int32),
        num_waiting=np.zeros(shape, np.int32),
        num_running=np.zeros(shape, np.int32),
        kv_usage=np.zeros(shape, np.float32),
    )
