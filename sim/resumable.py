"""An engine that can be paused and inspected."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.config import EngineConfig, Record
from sim.countable import may_be_counted
from sim.engine import dtypes as dt
from sim.engine.beginning.first_of_requests import asked_for, with_asked_for
from sim.engine.beginning.longer_arrays import longer, with_more_room
from sim.engine.control import hold_requests, join_requests
from sim.engine.counting.counted_run import CANNOT_COUNT, HANDED_OVER
from sim.engine.dtypes import ABORTED, FINISHED, NEVER, PENDING
from sim.engine.initial_state import first_state, length_limits, request_records, size_for
from sim.engine.run import NEEDS_ROOM, run
from sim.engine.run_variants import Run, counted_run_of, run_of
from sim.engine.state import State, columns, with_fresh_rows, with_rows_of
from sim.engine.watching.called_run import address_of_counted_run, address_of_run
from sim.engine.watching.watched_run import run_watched
from sim.jit.references import Table, point_to, table_of
from sim.latency.latency_model import LatencyModel
from sim.records.looks import LooksTaken
from sim.records.run_results import EngineRecord, View, outcomes_of, view_of
from sim.requests import Int64s, Outcomes, Requests
from sim.setting_faults import check_cadence

FOREVER = 1 << 62

NO_REQUESTS = np.zeros(0, np.int64)


def _words(*names: str) -> Int64s:
    """Return which words of an engine's record hold these fields: to read them so takes a tenth of the time."""
    places, fields = [], np.dtype(dt.ENGINE).fields
    for name in names:
        record, field = name.split(".")
        inner, start = fields[record][:2]  # type: ignore[index] # it has fields
        places.append((start + inner.fields[field][1]) // 8)  # type: ignore[index] # so have its records
    return np.array(places)


_LOOK = _words(
    "queues.num_waiting",
    "queues.first_pending",
    "queues.num_running",
    "queues.num_free_blocks",
    "last_schedule.num_running",
    "last_schedule.num_free_blocks",
    "clock.now_us",
)
"""What ``reported`` reads."""


class Engine:
    """One vLLM engine and all its requests. ``advance`` lets time pass, ``view`` shows the state.

    Every step that starts before the time given is taken; what a step decides depends only on the requests that
    joined by its start, so one call to the end and a thousand small ones give the same bits.
    """

    def __init__(
        self,
        requests: Requests,
        config: EngineConfig,
        latency: LatencyModel,
        *,
        record: Record = "none",
        coalesce: bool = True,
    ) -> None:
        check_cadence(config)
        self._config, self._latency, self._record = config, latency, record
        self._coalesce = coalesce and not config.steps_singly and record not in ("steps", "blocks")
        self._state_in_row: State | None = None
        self._row: Table = None
        self._run: Run = run
        self._pacing: tuple[int, int, bool] | None = None
        self._begin(requests)

    def _engines(self) -> Table:
        """Return the table of this one engine, as compiled functions take it, with the arrays that it has now."""
        if self._state_in_row is None:
            self._row = table_of([self._state])
        elif self._state_in_row is not self._state:
            point_to(self._row, 0, self._state, before=self._state_in_row)
        if self._state_in_row is not self._state:
            self._state_in_row, self._run = self._state, run_of(self._state)
        return self._row

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy is made of: not the row, which would lead the copy to this engine's arrays."""
        return {**self.__dict__, "_state_in_row": None, "_row": None, "_run": run}

    # -- its requests -----------------------------------------------------------------------------------------

    def _begin(self, requests: Requests) -> None:
        """Lay out the engine's arrays and enter all its requests, anew if it was used before."""
        size = size_for(self._config, requests)
        self._state = first_state(
            self._config, self._latency, requests.hash_ids, size=size, record=self._record
        )
        self._write(requests)
        if self._pacing is not None:
            concurrency, think_time_us, is_capped = self._pacing
            self.hold(concurrency, think_time_us, is_capped=is_capped)

    def _write(self, requests: Requests) -> None:
        """Enter the requests in the tables; each joins when its time comes."""
        num, config = len(requests), self._config
        rows = request_records(requests, config, self._latency)
        state = with_fresh_rows(self._state, num, config)
        state = state._replace(requests=rows, heap=longer(state.heap, num + 1))
        engine = columns(state.engine)
        end = rows["num_hashes"] * config.hash_block_size + config.num_hash_lookahead_tokens
        if np.any(end > rows["num_prompt_tokens"]):
            engine["settings"]["outputs_are_shared"] = 1
        engine["queues"]["num_requests"] = num
        self._state = self._with_what_is_asked_for(state, requests)
        order = joining_order(rows["queued_us"], rows["arrival_us"])
        join_requests(self._engines(), 0, order, self._by_deadline(requests))

    def _with_what_is_asked_for(self, state: State, requests: Requests) -> State:
        """Return the state with what only some requests have: ends before their limits, traits that cost, deadlines."""
        config = self._config
        limits = length_limits(requests, config)
        if limits is not None:
            state = with_rows_of(state, "length_limit")
            state.length_limit[:] = np.maximum(state.requests["max_total_tokens"], limits)
        state = with_asked_for(state, asked_for(requests, [config]), requests, config)
        if requests.deadline_us is not None and bool((requests.deadline_us != NEVER).any()):
            state = with_rows_of(state, "deadline_us")
            state = state._replace(deadlines=longer(state.deadlines, len(requests)))
            state.engine.settings["has_deadlines"] = 1
            state.deadline_us[:] = requests.deadline_us
        return state

    def _by_deadline(self, requests: Requests) -> Int64s:
        """Return the requests whose clients give up, in the order in which they do."""
        deadline_us = requests.deadline_us
        if deadline_us is None:
            return NO_REQUESTS
        order: Int64s = np.argsort(np.maximum(deadline_us, requests.arrival_us), kind="stable")
        by_deadline: Int64s = order[deadline_us[order] != NEVER]
        return by_deadline

    def hold(self, concurrency: int, think_time_us: int, *, is_capped: bool) -> None:
        """Make the loop closed; requests that keep their due times go in the order of these, else of their rows."""
        self._pacing = (concurrency, think_time_us, is_capped)
        arrival_us = self._state.requests["arrival_us"]
        order = np.argsort(arrival_us, kind="stable") if is_capped else np.arange(len(arrival_us))
        self._state = self._state._replace(held=order.astype(np.int64))
        hold_requests(self._engines(), 0, np.argsort(order), concurrency, think_time_us, is_capped)

    # -- advancing time ---------------------------------------------------------------------------------------

    def advance(self, until_us: int = FOREVER) -> None:
        """Take every step that starts before ``until_us``."""
        table = self._engines()
        while self._run(table, 0, until_us, self._coalesce) == NEEDS_ROOM:
            self._state = with_more_room(self._state)
            table = self._engines()

    def run_all(self, requests: Requests, until_us: int = FOREVER) -> None:
        """Take every step that starts before ``until_us``, without handing out KV blocks as long as that is possible.

        That is far faster, and the bits are the same. The engine has not begun; ``requests`` is all that it has.
        """
        has_groups = len(self._state.kv_cache_groups) > 0
        reason = HANDED_OVER
        if self._may_count(requests) and not (has_groups and until_us != FOREVER):
            reason = self._count(until_us)
        if reason == CANNOT_COUNT:
            self._begin(requests)
        if reason in (CANNOT_COUNT, HANDED_OVER):
            self.advance(until_us)

    def watch_all(self, requests: Requests, looks: LooksTaken, until_us: int = FOREVER) -> None:
        """Do as ``run_all``, and look at the engine on the way; one with several KV cache groups hands out its blocks.

        Any ``record`` but "none" counts the busy time.
        """
        counts = self._may_count(requests) and len(self._state.kv_cache_groups) == 0
        if not counts or self._watched(looks, until_us, counts=True) == HANDED_OVER:
            self._watched(looks, until_us, counts=False)

    def _watched(self, looks: LooksTaken, until_us: int, *, counts: bool) -> int:
        """Take every step that starts before ``until_us``, counting blocks or handing them out; return why it ends."""
        address = address_of_counted_run() if counts else address_of_run(self._state)
        flag = counts or self._coalesce
        while (
            reason := run_watched(self._engines(), 0, until_us, flag, address, looks.grid, looks.rows)
        ) == NEEDS_ROOM:
            self._state = with_more_room(self._state)
        return int(reason)

    def _may_count(self, requests: Requests) -> bool:
        """Return whether an engine that has not begun may count blocks as long as none lacks."""
        is_paced = bool(columns(self._state.engine)[0]["settings"]["is_closed_loop"])
        return self._coalesce and may_be_counted(self._state, requests, is_paced=is_paced)

    def _count(self, until_us: int = FOREVER) -> int:
        """Take every step that starts before ``until_us``, counting blocks; return why it ends.

        HANDED_OVER: ``advance`` has to go on; CANNOT_COUNT: from the beginning.
        """
        run_counted = counted_run_of(self._state)
        while (reason := run_counted(self._engines(), 0, until_us, True)) == NEEDS_ROOM:
            self._state = with_more_room(self._state)
        return reason

    # -- reading its state ------------------------------------------------------------------------------------

    def next_time_us(self) -> int | None:
        """Return when something next happens, None when nothing will."""
        clock, queues = self._state.engine[0].clock, self._state.engine[0].queues
        num_unfinished = (
            queues.num_running + queues.num_waiting + self._state.engine[0].kv_transfers.num_holding
        )
        if clock.num_batches > 0 or (num_unfinished > 0 and not queues.is_blocked):
            return int(clock.now_us)
        times_us = self._deadlines_ahead_us()
        if num_unfinished > 0 and any(self._state.kv_links["first_job"]):  # its end may be news
            times_us.append(int(clock.now_us))
        if queues.num_waiting > 0 and self._state.engine[0].settings.waits_for_grammars:
            times_us += [int(queues.next_grammar_us)] * int(queues.next_grammar_us != NEVER)
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

        Steps were taken up to then. Of a step that ends later only its start is visible.
        """
        num_waiting, first, num_running, num_free, *last, now_us = np.frombuffer(
            self._state.engine, np.int64
        )[_LOOK]
        if now_us > time_us:
            num_running, num_free = last
        num_waiting += self._num_due(first, time_us)
        return int(num_waiting), int(num_running), float(1.0 - num_free / (len(self._state.blocks) - 1))

    def _num_due(self, request: np.int64, time_us: int) -> int:
        """Return how many requests that no step has taken in are due by a time; ``request``: the first of them all."""
        num, rows = 0, columns(self._state.requests)
        queued_us, status, follower = (rows[name] for name in ("queued_us", "status", "next_waiting"))
        while request != NEVER and queued_us[request] <= time_us:
            num += int(status[request] == PENDING)  # its client may have gone already
            request = follower[request]
        return num

    def outcomes(self) -> Outcomes:
        """Return every request's outcome so far; one that runs or waits is UNFINISHED."""
        return outcomes_of(self._state, self._latency)

    def written(self) -> EngineRecord:
        """Return the engine's records so far, to be read before it continues."""
        return EngineRecord(
            state=self._state, config=self._config, latency=self._latency, record=self._record
        )


def joining_order(queued_us: Int64s, arrival_us: Int64s) -> Int64s:
    """Return requests in the order in which they join a queue: of those of one time by arrival, then by number."""
    if (arrival_us[1:] >= arrival_us[:-1]).all():
        if (queued_us[1:] >= queued_us[:-1]).all():
            return np.arange(len(queued_us))
        return np.argsort(queued_us, kind="stable")
    return np.lexsort((arrival_us, queued_us))
