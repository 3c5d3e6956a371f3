"""An engine that can be fed, paused and looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sim.config import EngineConfig, Record
from sim.engine.control import abort_request, hold_requests, join_requests
from sim.engine.dtypes import ABORTED, FINISHED, NEVER, PENDING
from sim.engine.initial_state import (
    first_state,
    length_limits,
    longer,
    longer_hashes,
    request_records,
    row_of_content,
    size_for,
    trait_records,
    with_more_room,
    with_traits,
)
from sim.engine.run import NEEDS_ROOM, run
from sim.engine.state import State, columns, forget_rows, with_fresh_rows, with_rows_of
from sim.jit.references import Table, point_to, table_of
from sim.latency.model import LatencyModel
from sim.records.itl import InterTokenLatencies
from sim.records.results import EngineRecord, View, outcomes_of, view_of
from sim.records.steps import Step
from sim.requests import Int64s, Outcomes, Requests

FOREVER = 1 << 62

NO_HASH_IDS = NO_REQUESTS = np.zeros(0, np.int64)


class Engine:
    """One vLLM engine. Feed it with ``submit``, let time pass with ``advance``, look with ``view``.

    Every step that starts before the time given is taken; what a step decides depends only on the requests that
    joined by its start, so one call to the end and a thousand small ones give the same bits.
    """

    def __init__(
        self, config: EngineConfig, latency: LatencyModel, *, record: Record = "none", coalesce: bool = True
    ) -> None:
        self._open(config, latency, size=size_for(config, None), record=record, coalesce=coalesce)

    @classmethod
    def holding(
        cls,
        requests: Requests,
        config: EngineConfig,
        latency: LatencyModel,
        *,
        record: Record = "none",
        coalesce: bool = True,
    ) -> Engine:
        """Return an engine that holds all its requests from the start, its tables sized by them."""
        engine = cls.__new__(cls)
        size = size_for(config, requests)
        engine._open(config, latency, size=size, record=record, coalesce=coalesce, hash_ids=requests.hash_ids)
        engine._add(requests)
        return engine

    def _open(
        self,
        config: EngineConfig,
        latency: LatencyModel,
        *,
        size: tuple[int, int],
        record: Record,
        coalesce: bool,
        hash_ids: Int64s = NO_HASH_IDS,
    ) -> None:
        """Lay out the arrays."""
        self._config, self._latency, self._record = config, latency, record
        self._num_taken = np.zeros(0, np.int64)
        self._num_known_hashes = len(hash_ids)
        self._key_of_id = np.zeros(0, np.int64)
        self._forgotten: dict[int, int] = {}  # steps taken by then, by number, the first to go first
        self._room_for_hashes: dict[int, int] = {}  # of each number that a request was given anew
        has_stages = config.pipeline_parallel_size > 1
        can_jump = not (config.num_speculative_tokens or config.has_blis_tier or has_stages)
        self._coalesce = coalesce and can_jump and record not in ("steps", "blocks")
        self._state = first_state(config, latency, hash_ids, size=size, record=record)
        self._state_in_row: State | None = None
        self._row: Table = None

    def _engines(self) -> Table:
        """Return the table of this one engine, as compiled functions take it, with the arrays that it has now."""
        if self._state_in_row is None:
            self._row = table_of([self._state])
        elif self._state_in_row is not self._state:
            point_to(self._row, 0, self._state, before=self._state_in_row)
        self._state_in_row = self._state
        return self._row

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy is made of: not the row, which would lead the copy to this engine's arrays."""
        return {**self.__dict__, "_state_in_row": None, "_row": None}

    # -- feeding it -------------------------------------------------------------------------------------------

    def _add(self, requests: Requests) -> None:
        """Append requests that have not arrived yet; ``hash_ids`` are already in place."""
        state, engine = self._state, columns(self._state.engine)
        first = int(engine["queues"]["num_requests"][0])
        rows = request_records(requests, self._config, self._latency)
        if np.any(rows["num_hashes"] * self._config.hash_block_size > rows["num_prompt_tokens"]):
            engine["settings"]["outputs_are_shared"] = 1
        needed = first + len(rows)
        if needed > len(state.requests):
            capacity = needed if first == 0 else max(needed, 2 * len(state.requests))
            state = with_fresh_rows(state, capacity, self._config)
            state = state._replace(heap=longer(state.heap, capacity + 1))
            if self._config.pipeline_parallel_size > 1 or self._config.has_native_offloading:
                state = state._replace(skipped=longer(state.skipped, capacity))
            self._state = state
        state.requests[first:needed] = rows
        engine["queues"]["num_requests"] = needed
        self._add_length_limits(requests, first)
        self._add_traits(requests, first)
        by_deadline = self._add_deadlines(requests, first)
        order = joining_order(rows["queued_us"], rows["arrival_us"]) + first
        join_requests(self._engines(), 0, order, by_deadline)

    def _add_length_limits(self, requests: Requests, first: int) -> None:
        """Note how long the requests from number ``first`` on may become, where that is longer than they will."""
        state, limits = self._state, length_limits(requests, self._config)
        if limits is None and len(state.length_limit) == 0:
            return
        as_asked = state.requests["max_total_tokens"]
        if len(state.length_limit) == 0:
            state = self._state = with_rows_of(state, "length_limit")
            state.length_limit[:first] = as_asked[:first]
        own = as_asked[first : first + len(requests)]
        state.length_limit[first : first + len(requests)] = own if limits is None else np.maximum(own, limits)

    def _add_traits(self, requests: Requests, first: int) -> None:
        """Note what costs time beyond lengths, if the settings ask for it, of the requests from number ``first`` on."""
        given = (requests.is_guided, requests.encoder_tokens, requests.adapter)
        has_any = any(column is not None for column in given) and self._config.charges_traits
        state = self._state
        if not has_any and len(state.traits) == 0:
            return
        state = with_rows_of(state, "traits")
        skipped = longer(state.skipped, len(state.requests))
        state.traits[first : first + len(requests)] = trait_records(requests)
        self._state = with_traits(state, state.traits, skipped, self._config)

    def _add_deadlines(self, requests: Requests, first: int) -> Int64s:
        """Note when clients of the requests from number ``first`` on give up; return those that do, in this order."""
        state, deadline_us = self._state, requests.deadline_us
        has_any = deadline_us is not None and bool((deadline_us != NEVER).any())
        if has_any or len(state.deadline_us):
            state = with_rows_of(state, "deadline_us")
            self._state = state._replace(deadlines=longer(state.deadlines, len(state.requests)))
        if deadline_us is None or not has_any:
            return NO_REQUESTS
        self._state.engine.settings["has_deadlines"] = 1
        self._state.deadline_us[first : first + len(requests)] = deadline_us
        order: Int64s = np.argsort(deadline_us, kind="stable")
        by_deadline: Int64s = order[deadline_us[order] != NEVER] + first
        return by_deadline

    def submit(
        self,
        *,
        arrival_us: int,
        prompt_tokens: int,
        output_tokens: int,
        priority: int = 0,
        hash_ids: Sequence[int] = (),
        deadline_us: int | None = None,
        is_guided: bool = False,
        max_tokens: int | None = None,
    ) -> int:
        """Add a request that arrives at ``arrival_us``, not before the time advanced to; return its number.

        The number may be that of a request that was forgotten. ``hash_ids``: the content of its leading full blocks as
        dense integers that the caller handed out.
        ``deadline_us``: when its client gives up. ``is_guided``: a grammar holds its answer. ``max_tokens``: how many
        tokens it may generate, where it ends by itself before.
        """
        is_plain = deadline_us is None and not is_guided and max_tokens is None
        number = self._free_number() if is_plain else None
        start = self._store_hashes(np.asarray(hash_ids, np.int64), number)
        request = Requests(
            arrival_us=np.array([arrival_us], np.int64),
            prompt_tokens=np.array([prompt_tokens], np.int64),
            output_tokens=np.array([output_tokens], np.int64),
            priority=np.array([priority], np.int64),
            hash_offsets=np.array([start, start + len(hash_ids)], np.int64),
            hash_ids=NO_HASH_IDS,  # they are in place
            deadline_us=None if deadline_us is None else np.array([deadline_us], np.int64),
            is_guided=np.array([True]) if is_guided else None,
            max_tokens=None if max_tokens is None else np.array([max_tokens], np.int64),
        )
        if number is None:
            number = int(self._state.engine.queues.num_requests[0])
            self._room_for_hashes[number] = len(hash_ids)
            self._add(request)
        else:
            self._put(request, number)
        return number

    def forget(self, request: int) -> None:
        """Let go of a request that has left, whose tokens were taken: its number goes to another later.

        So an engine that runs for days keeps as many rows as it has had requests at a time. With priorities, deadlines,
        traits or ends before max_tokens, or where steps are recorded, every request keeps its row.
        """
        state = self._state
        is_over = FINISHED <= state.requests[request].status <= ABORTED
        if is_over and self._config.scheduling_policy == "fcfs" and self._record in ("none", "tokens"):
            self._forgotten.setdefault(request, int(state.engine[0].totals.num_steps))

    def _free_number(self) -> int | None:
        """Return the number of a forgotten request that no step under way can still name, None without one."""
        state = self._state
        if not self._forgotten or len(state.deadline_us) or len(state.traits) or len(state.length_limit):
            return None
        number, num_steps = next(iter(self._forgotten.items()))
        if int(state.engine[0].totals.num_steps) - num_steps <= 2 * len(state.batches):
            return None
        del self._forgotten[number]
        return number

    def _put(self, requests: Requests, number: int) -> None:
        """Write one request that has not arrived yet over one that was forgotten."""
        state = self._state
        rows = request_records(requests, self._config, self._latency)
        if rows["num_hashes"][0] * self._config.hash_block_size > rows["num_prompt_tokens"][0]:
            state.engine.settings["outputs_are_shared"] = 1
        forget_rows(state, slice(number, number + 1))
        state.requests[number] = rows[0]
        if number < len(self._num_taken):
            self._num_taken[number] = 0
        join_requests(self._engines(), 0, np.array([number], np.int64), NO_REQUESTS)

    def _store_hashes(self, hash_ids: Int64s, number: int | None) -> int:
        """Store the caller's ids as keys of the hash table, where requests' own ids stand too; return where they begin.

        The request with a number given anew has the place of the one before it where that is large enough.
        """
        if number is not None and len(hash_ids) <= self._room_for_hashes.get(number, 0):
            start = int(self._state.requests[number].hash_start)
        else:
            start = self._num_known_hashes
            self._num_known_hashes += len(hash_ids)
            if number is not None:
                self._room_for_hashes[number] = len(hash_ids)
        if len(hash_ids):
            self._write_hashes(hash_ids, start)
        return start

    def _write_hashes(self, hash_ids: Int64s, start: int) -> None:
        """Write ids as keys, new ones for contents that were never named."""
        state, queues = self._state, self._state.engine[0].queues
        highest = int(hash_ids.max())
        if highest >= len(self._key_of_id):
            grown = np.full(2 * highest + 1, NEVER, np.int64)
            grown[: len(self._key_of_id)] = self._key_of_id
            self._key_of_id = grown
        new_ids = np.unique(hash_ids[self._key_of_id[hash_ids] == NEVER])
        self._key_of_id[new_ids] = queues.num_keys + np.arange(len(new_ids))
        queues.num_keys += len(new_ids)
        if queues.num_keys > len(state.hashes) // self._config.num_kv_cache_groups:
            state = state._replace(**longer_hashes(state, 2 * int(queues.num_keys)))
        if self._num_known_hashes > len(state.hash_ids):
            state = state._replace(hash_ids=longer(state.hash_ids, 2 * self._num_known_hashes))
        state.hash_ids[start : start + len(hash_ids)] = self._key_of_id[hash_ids]
        self._state = state

    def abort(self, request: int) -> None:
        """Drop a request at the present clock, as vLLM does when its client goes away; its blocks are freed.

        Raises IndexError for a number that ``submit`` never gave.
        """
        num_requests = int(self._state.engine.queues.num_requests[0])
        if not 0 <= request < num_requests:
            raise IndexError(f"request {request}: expected 0 to {num_requests - 1}")
        abort_request(self._engines(), 0, request)

    def hold(self, concurrency: int, think_time_us: int, *, is_capped: bool) -> None:
        """Make the loop closed; requests that keep their due times go in the order of these, else of their rows."""
        arrival_us = self._state.requests["arrival_us"]
        order = np.argsort(arrival_us, kind="stable") if is_capped else np.arange(len(arrival_us))
        self._state = self._state._replace(held=order.astype(np.int64))
        hold_requests(self._engines(), 0, np.argsort(order), concurrency, think_time_us, is_capped)

    # -- letting time pass ------------------------------------------------------------------------------------

    def advance(self, until_us: int = FOREVER) -> None:
        """Take every step that starts before ``until_us``."""
        while run(self._engines(), 0, until_us, self._coalesce) == NEEDS_ROOM:
            self._state = with_more_room(self._state)

    # -- looking at it ----------------------------------------------------------------------------------------

    def next_time_us(self) -> int | None:
        """Return when something next happens, None when nothing will before another ``submit``."""
        clock, queues = self._state.engine[0].clock, self._state.engine[0].queues
        if clock.num_batches > 0 or (queues.num_running + queues.num_waiting > 0 and not queues.is_blocked):
            return int(clock.now_us)
        times_us = self._deadlines_ahead_us()
        if queues.first_pending != NEVER:
            times_us.append(int(self._state.requests[queues.first_pending].queued_us))
        return min(times_us, default=None)

    def _deadlines_ahead_us(self) -> list[int]:
        """Return when the next client gives up, if one will."""
        state, queues = self._state, self._state.engine[0].queues
        for request in state.deadlines[queues.num_deadlines_taken : queues.num_deadlines]:
            if not FINISHED <= state.requests[request].status <= ABORTED:
                gives_up_us = max(int(state.deadline_us[request]), int(state.requests[request].arrival_us))
                return [max(int(state.engine[0].clock.now_us), gives_up_us)]
        return []

    def view(self) -> View:
        """Return the engine's state at its clock."""
        return view_of(self._state)

    def reported(self, time_us: int) -> tuple[int, int, float]:
        """Return (waiting, running, share of KV blocks in use) as a router may see them at ``time_us``.

        Steps were taken up to then. Of a step that ends later nothing shows but what it was started with.
        """
        state = self._state
        clock, queues, last = state.engine[0].clock, state.engine[0].queues, state.engine[0].last_schedule
        is_in_step = clock.now_us > time_us
        num_waiting, request = int(queues.num_waiting), int(queues.first_pending)
        while request != NEVER and state.requests[request].queued_us <= time_us:
            num_waiting += int(state.requests[request].status == PENDING)  # its client may have gone already
            request = int(state.requests[request].next_waiting)
        num_running = int(last.num_running if is_in_step else queues.num_running)
        num_free = int(last.num_free_blocks if is_in_step else queues.num_free_blocks)
        return num_waiting, num_running, 1.0 - num_free / (len(state.blocks) - 1)

    def num_cached_blocks(self, hash_ids: Sequence[int]) -> int:
        """Return how many leading blocks of these contents are in the prefix cache."""
        known = len(self._key_of_id)
        for place, number in enumerate(hash_ids):
            key = self._key_of_id[number] if number < known else NEVER
            if key == NEVER or self._state.hashes[row_of_content(self._state, key)].oldest == 0:
                return place
        return len(hash_ids)

    def outcomes(self, requests: slice = slice(None)) -> Outcomes:
        """Return what became of every request so far, or of those with these numbers.

        What runs or waits is UNFINISHED.
        """
        return outcomes_of(self._state, self._latency, requests)

    def written(self) -> EngineRecord:
        """Return what the engine has written down so far, to be read before it goes on."""
        return EngineRecord(
            state=self._state, config=self._config, latency=self._latency, record=self._record
        )

    def take_tokens(self) -> tuple[Int64s, Int64s]:
        """Return (request, time_us) of the tokens given since the last call; times may lie ahead of the advance."""
        if len(self._num_taken) < len(self._state.requests):
            self._num_taken = longer(self._num_taken, len(self._state.requests))
        request, time_us = self.written().tokens(self._num_taken)
        self._state.engine.log_fill["num_logged_tokens"] = 0
        np.add.at(self._num_taken, request, 1)
        return request, time_us

    def steps(self) -> list[Step]:
        """Return every step so far whose results are in."""
        return self.written().steps()

    def inter_token_latencies(self) -> InterTokenLatencies:
        """Return the gaps between the tokens so far, alpha2 included."""
        return self.written().inter_token_latencies()


def joining_order(queued_us: Int64s, arrival_us: Int64s) -> Int64s:
    """Return requests in the order in which they join a queue: of those of one time who came first, then by number."""
    if (arrival_us[1:] >= arrival_us[:-1]).all():
        return np.argsort(queued_us, kind="stable")
    return np.lexsort((arrival_us, queued_us))
