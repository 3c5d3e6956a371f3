"""A cluster's engines at the beginning: an engine per instance, all with one table of requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.draws import first_noise_draw
from sim.cluster.run.beginning.engine_copies import copies_of
from sim.cluster.run.world import NEVER
from sim.config import UNBOUNDED, EngineConfig, Record
from sim.engine import dtypes as dt
from sim.engine.beginning.first_of_requests import asked_for, check_moved_kv, with_asked_for
from sim.engine.beginning.first_transfers import with_kv_transfers
from sim.engine.beginning.longer_arrays import longer, longer_hashes
from sim.engine.initial_state import first_state, length_limits, request_records, rooms_for, size_for
from sim.engine.state import PER_REQUEST, Records, State
from sim.engine.state import records as aligned_records
from sim.latency.batch import StepBatch
from sim.requests import Int64s, Requests

MOST_HASH_BYTES = 1 << 30
"""So many bytes of address space at most are set aside for a pool's hash tables; they take memory as they fill."""

MOST_FINGER_BYTES = 1 << 28
"""So many bytes of address space at most are set aside for the fingers of a pool's engines, which seldom place any."""

CACHE_LOG_LENGTH = 8192
"""Size of an engine's log of contents that came or went: after more of them all contents are examined."""


def engine_states(
    requests: Requests,
    rows: Records,
    config: ClusterConfig,
    *,
    record: Record,
    hears: bool,
    pauses: bool,
    lays_rings: bool,
    logs_caches: bool,
) -> list[State]:
    """Return an engine per instance; they share the table of requests and the ids of their blocks.

    ``lays_rings``: False where their blocks are laid later (``lay_rings``), or never. ``logs_caches``: they log which
    contents come and go.
    """
    states: list[State] = []
    deadline_us = deadlines_of(requests)
    made: dict[tuple[object, ...], Records] = {("requests", False): rows}
    asked = asked_for(requests, [pool.engine for pool in config.pools])
    if config.moves_kv:
        check_moved_kv(asked)
    of_all = _of_all(rows, config, has_deadlines=len(deadline_us) > 0, hears=hears, pauses=pauses)
    for number, pool in enumerate(config.pools):
        if pool.role == "prefill" and ("requests", True) not in made:
            made["requests", True] = request_records(asked_of(pool, requests), pool.engine, pool.latency)
        size = size_of(pool, asked_of(pool, requests))
        rooms = rooms_for(pool.engine, pool.num_slots, record=record, num_requests=len(rows))
        for room in rooms[:2]:
            state = first_state(
                pool.engine, pool.latency, requests.hash_ids, size=size, record=record, room=room
            )
            state = state._replace(
                **shared_arrays(state, pool, number, made, num=len(rows), engine=len(states)),
                hash_ids=states[0].hash_ids if states else state.hash_ids,
                deadline_us=deadline_us,
                deadlines=np.zeros(len(deadline_us), np.int64),
                heap=longer(state.heap, 64),
                fingers=longer(state.fingers, num_fingers(len(state.fingers), len(rows), pool.num_slots)),
                **store_of(states, state),
            )
            state = state._replace(**_room_for_contents(state, pool))
            state = _with_limits(state, rows, requests, pool)
            state = with_asked_for(state, asked, requests, pool.engine)
            state = _with_logs(state, pool, hears=hears, logs_caches=logs_caches)
            _set_place(state, pool, of_all, number=len(states), num_requests=len(rows))
            states.append(state)
        states += copies_of(states, rooms[2:], lays_rings=lays_rings)
    return states


def _of_all(
    rows: Records, config: ClusterConfig, *, has_deadlines: bool, hears: bool, pauses: bool
) -> dict[str, bool]:
    """Return the settings that are those of every engine."""
    return {
        "outputs_are_shared": _outputs_are_shared(rows, config.pools[0].engine),
        "is_lockstep": config.lockstep,
        "has_deadlines": has_deadlines,
        "log_completions": hears,
        "pauses_at_completions": pauses,
    }


def _with_logs(state: State, pool: Pool, *, hears: bool, logs_caches: bool) -> State:
    """Return an engine with the logs that decisions read: of contents that come and go, of completions."""
    if logs_caches:
        state = state._replace(cache_log=np.zeros(CACHE_LOG_LENGTH, np.int32))
    if hears:
        length = 6 * pool.engine.max_num_seqs + 64
        state = state._replace(completions=aligned_records(length, dt.COMPLETION))
    return state


def num_fingers(least: int, num_requests: int, num_engines: int) -> int:
    """Return how many places of a list of pending requests an engine keeps: with one for eight it is found in O(log n).

    ``least``: at least so many. All requests may be one engine's.
    """
    return max(least, min(num_requests // 8, MOST_FINGER_BYTES // 8 // num_engines))


def _room_for_contents(state: State, pool: Pool) -> dict[str, Records]:
    """Return the hash table with room for what the running requests may leave in it, if it is not too large.

    Every engine that runs asks for it (``sim.engine.log.has_room``), and to make it longer then takes 0.2 ms.
    """
    settings = state.engine[0].settings
    most_ids = pool.engine.max_num_seqs * (state.block_table.shape[1] + 1)
    num_bytes = most_ids * pool.num_slots * state.hashes.dtype.itemsize
    if not settings.enable_prefix_caching or num_bytes > MOST_HASH_BYTES:
        return {}
    return longer_hashes(state, len(state.hashes) // int(settings.num_kv_cache_groups) + most_ids)


def _outputs_are_shared(rows: Records, engine: EngineConfig) -> bool:
    """Return whether the hashes of some request run on past its prompt."""
    end = rows["num_hashes"] * engine.hash_block_size + engine.num_hash_lookahead_tokens
    return bool(np.any(end > rows["num_prompt_tokens"]))


def _with_limits(state: State, rows: Records, requests: Requests, pool: Pool) -> State:
    """Return the state with how long each request may become, where the engine asks."""
    limits = None if pool.role != "shared" else length_limits(requests, pool.engine)
    if limits is None:
        return state
    return state._replace(length_limit=np.maximum(rows["max_total_tokens"], limits).astype(np.int32))


def _set_place(
    state: State, pool: Pool, of_all: Mapping[str, bool], *, number: int, num_requests: int
) -> None:
    """Say of an engine, in its settings, what it is among the engines of a cluster."""
    settings = state.engine.settings
    state.engine.queues["num_requests"] = num_requests
    for name, value in of_all.items():
        settings[name] = value
    if of_all["is_lockstep"] and pool.engine.prefill_schedule_interval > 1:
        settings["balances_prefills"] = settings["may_sit_out"] = 1
    settings["first_noise_draw"] = first_noise_draw(number)
    settings["dummy_step_us"] = dummy_step_us(pool)


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
    """Return requests as a pool gets them: a prefill pool makes one token of each."""
    if pool.role != "prefill":
        return requests
    return replace(requests, output_tokens=np.minimum(requests.output_tokens, 1))


def size_of(pool: Pool, requests: Requests) -> tuple[int, int]:
    """Return ``size_for`` a pool; where requests that do not run also hold blocks, with room for all of them."""
    num_blocks, width = size_for(pool.engine, requests)
    if pool.role != "shared" and pool.engine.num_gpu_blocks == UNBOUNDED:
        longest = requests.prompt_tokens + requests.output_tokens
        num_blocks += int((longest // pool.engine.block_size + 2).sum())
    return num_blocks, width


def can_jump(pool: Pool, record: Record) -> bool:
    """Return whether an engine may take many decode steps at once."""
    return not pool.engine.steps_singly and record not in ("steps", "blocks")


def connected(states: list[State], config: ClusterConfig, transfers: Records) -> list[State]:
    """Return the engines, with KV connectors where their pools hand KV on or take it."""
    return [
        state if role == "shared" else with_kv_transfers(state, transfers, is_producer=role == "prefill")
        for state, role in zip(states, config.role_of, strict=True)
    ]


def store_of(states: list[State], state: State) -> dict[str, Records]:
    """Return the store that an engine shares with those before it; its own where it is the first."""
    if len(state.kv_store) == 0:
        return {}
    owner = next((each for each in states if len(each.kv_store)), state)
    return {name: getattr(owner, name) for name in ("store_blocks", "store_slots", "kv_store")}


def shared_arrays(
    state: State, pool: Pool, number: int, made: dict[tuple[object, ...], Records], *, num: int, engine: int
) -> dict[str, Records]:
    """Return an engine's arrays with a row per request, those that it has from the start.

    ``made``: the existing ones, by name and by what shares them; missing ones are added. ``number``: the pool's.
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
    """Return when each request's client gives up; no rows if none ever does."""
    if requests.deadline_us is None or (requests.deadline_us == NEVER).all():
        return np.zeros(0, np.int64)
    return requests.deadline_us.astype(np.int64)
