"""The engine from Python: simulate requests in one call, or feed an engine that can be paused and looked at."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sim.config import UNBOUNDED, EngineConfig, InvalidConfig
from sim.engine import blis
from sim.engine import state as st
from sim.engine.control import abort_request, hold_requests, join_requests
from sim.engine.run import NEEDS_ROOM, run
from sim.itl import InterTokenLatencies, inter_token_latencies, latencies_of_tokens
from sim.latency.blackbox import Blackbox
from sim.latency.compiled import BLACKBOX, EXTENDED
from sim.policies import age_weight_per_us, urgency
from sim.requests import Int64s, Outcomes, Requests, Status
from sim.steps import Step, decode_steps

Record = Literal["none", "spans", "steps", "blocks", "tokens"]
"""What a run writes down: nothing; spans of steps, which give inter-token latencies; every step (one at a time);
every step with its blocks; every token."""

FOREVER = 1 << 62

RESUMABLE_UNBOUNDED_BLOCKS = 1 << 20
"""Blocks of a resumable engine's "unbounded" cache, whose requests are not known beforehand."""

FIRST_LOG_LENGTH = 4096

NO_HASH_IDS = np.zeros(0, np.int64)

LONGEST_JUMP = 4096
"""Steps taken at once at most; a longer run of equal steps takes several jumps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A running engine at a glance. ``clock_us`` is the end of the last step taken."""

    clock_us: int
    num_running: int
    num_waiting: int
    num_free_blocks: int
    kv_cache_usage_frac: float
    num_preemptions: int
    prefix_cache_queries: int
    prefix_cache_hits: int
    num_steps: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_kv_offloads: int
    num_kv_reloads: int
    num_kv_thrashings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """Outcomes of a finished run and what it cost.

    ``num_steps`` counts every step, ``num_jumps`` the jumps taken over runs of them; ``duration_us`` is the time of
    the last event; ``engine_cpu_s`` is CPU time of this thread.
    Drafts count as verified; offloads, reloads and thrashings are blocks (``sim/engine/cpu_tier.py``).
    """

    outcomes: Outcomes
    num_steps: int
    num_jumps: int
    num_preemptions: int
    duration_us: int
    engine_cpu_s: float
    num_draft_tokens: int
    num_accepted_tokens: int
    num_kv_offloads: int
    num_kv_reloads: int
    num_kv_thrashings: int
    record: Record
    _engine: Engine

    def inter_token_latencies(self) -> InterTokenLatencies:
        """Return the gaps between tokens; needs ``record="spans"``."""
        return self._engine.inter_token_latencies()

    def steps(self) -> list[Step]:
        """Return every step; needs ``record="steps"`` or ``"blocks"``."""
        return self._engine.steps()

    def tokens(self) -> tuple[Int64s, Int64s]:
        """Return (request, time_us) of every token in the order of the steps; needs ``record="tokens"``."""
        return self._engine.logged_tokens()


class Engine:
    """One vLLM engine. Feed it with ``submit``, let time pass with ``advance``, look with ``view``.

    Every step that starts before the time given is taken; what a step decides depends only on the requests that
    joined by its start, so one call to the end and a thousand small ones give the same bits.
    """

    def __init__(
        self, config: EngineConfig, latency: Blackbox, *, record: Record = "none", coalesce: bool = True
    ) -> None:
        num_blocks = config.num_gpu_blocks or RESUMABLE_UNBOUNDED_BLOCKS
        width = config.max_model_len // config.block_size + 2
        empty = np.zeros(0, np.int64)
        requests = Requests(
            arrival_us=empty,
            prompt_tokens=empty,
            output_tokens=empty,
            priority=empty,
            hash_offsets=np.zeros(1, np.int64),
            hash_ids=empty,
        )
        self._open(
            config, latency, requests, num_blocks=num_blocks, width=width, record=record, coalesce=coalesce
        )

    @classmethod
    def _of(
        cls, config: EngineConfig, latency: Blackbox, requests: Requests, *, record: Record, coalesce: bool
    ) -> Engine:
        """Return an engine that holds all its requests from the start, its tables sized by them."""
        engine = cls.__new__(cls)
        longest = int((requests.prompt_tokens + requests.output_tokens).max(initial=1))
        longest += config.num_speculative_tokens + config.num_lookahead_tokens
        width = min(longest, config.max_model_len) // config.block_size + 2
        num_blocks = config.num_gpu_blocks
        if num_blocks == UNBOUNDED:
            num_blocks = 1 + width * min(config.max_num_seqs, max(1, len(requests))) + len(requests.hash_ids)
        engine._open(
            config, latency, requests, num_blocks=num_blocks, width=width, record=record, coalesce=coalesce
        )
        return engine

    def _open(
        self,
        config: EngineConfig,
        latency: Blackbox,
        requests: Requests,
        *,
        num_blocks: int,
        width: int,
        record: Record,
        coalesce: bool,
    ) -> None:
        """Lay out the arrays."""
        self._config, self._latency, self._record = config, latency, record
        self._num_taken = np.zeros(0, np.int64)
        self._num_known_hashes = len(requests.hash_ids)
        self._key_of_id = np.zeros(0, np.int64)
        is_plain = not (config.num_speculative_tokens or config.has_cpu_tier)
        self._coalesce = coalesce and is_plain and record not in ("steps", "blocks")
        self._gaps_from_tokens = record == "spans" and config.num_speculative_tokens > 0
        counters = st.new_counters(config)
        counters["recycle_private_first"] = config.num_gpu_blocks == UNBOUNDED
        counters["latency_kind"] = BLACKBOX if latency.is_blackbox else EXTENDED
        counters["age_weight_per_us"] = age_weight_per_us(config)
        counters["num_free_blocks"] = num_blocks - 1
        counters["log_steps"] = record in ("steps", "blocks")
        counters["log_blocks"] = record == "blocks"
        counters["log_tokens"] = record == "tokens" or self._gaps_from_tokens
        counters["log_spans"] = record == "spans" and not self._gaps_from_tokens
        if config.has_cpu_tier:
            st.set_cpu_tier(counters, config)
        if config.compatibility == "blis":
            blis.apply_settings(counters)
        num_hashes = int(requests.hash_ids.max(initial=-1)) + 1
        counters["num_keys"] = num_hashes
        seats = config.max_num_seqs
        entries = st.records(2 * seats, st.ENTRY).reshape(2, seats)
        self._state = st.State(
            counters=counters,
            latency=latency.engine_coefficients(),
            terms=latency.engine_terms(),
            requests=st.records(0, st.REQUEST),
            pending=np.zeros(0, np.int64),
            held=np.zeros(0, np.int64),
            running=np.zeros(seats + 1, np.uint32),
            heap=np.zeros(0, np.int64),
            blocks=st.new_blocks(num_blocks),
            block_table=np.zeros((seats, width), np.uint32),
            free_slots=np.arange(seats, dtype=np.int64)[::-1].copy(),
            hash_ids=requests.hash_ids.astype(np.int32),
            hashes=st.records(num_hashes + 1, st.HASH),
            cpu_slots=st.new_cpu_slots(config.num_cpu_blocks if config.has_cpu_tier else 0),
            cpu_slot_of_key=np.zeros(num_hashes + 1 if config.has_cpu_tier else 0, np.uint32),
            hit_blocks=np.zeros(width, np.uint32),
            num_drafts=np.zeros(0, np.int32),
            acceptance_rates=np.array(config.acceptance_rates, np.float64),
            preempted=np.zeros(seats + 1, np.int64),
            hits=st.records(seats, st.ENTRY),
            finished=np.zeros(seats, np.int64),
            batches=st.records(2, st.BATCH),
            entries=entries,
            first_in_round=np.zeros(config.block_size, np.uint32),
            last_in_round=np.zeros(config.block_size, np.uint32),
            next_in_round=np.zeros(seats + 1, np.uint32),
            ends_us=np.zeros(LONGEST_JUMP + 1, np.int64),
            duties=np.zeros(LONGEST_JUMP, np.float64),
            log=np.zeros(FIRST_LOG_LENGTH if record in ("steps", "blocks") else 0, np.int64),
            spans=st.records(FIRST_LOG_LENGTH if record == "spans" else 0, st.SPAN),
            pauses=st.records(FIRST_LOG_LENGTH if record == "spans" else 0, st.PAUSE),
            tokens=st.records(FIRST_LOG_LENGTH if counters.log_tokens[0] else 0, st.TOKEN),
        )
        self._add(requests)

    # -- feeding it -------------------------------------------------------------------------------------------

    def _add(self, requests: Requests) -> None:
        """Append requests that have not arrived yet; ``hash_ids`` are already in place."""
        state, first = self._state, int(self._state.counters.num_requests[0])
        rows = self._rows_of(requests)
        needed = first + len(rows)
        if needed > len(state.requests):
            capacity = needed if first == 0 else max(needed, 2 * len(state.requests))
            state = self._state = state._replace(
                requests=_longer(state.requests, capacity),
                pending=_longer(state.pending, capacity),
                heap=_longer(state.heap, capacity + 1),
                num_drafts=_longer(state.num_drafts, capacity if self._config.num_speculative_tokens else 0),
            )
        state.requests[first:needed] = rows
        state.counters["num_requests"] = needed
        order = np.argsort(rows["queued_us"], kind="stable") + first
        join_requests(state, order)

    def _rows_of(self, requests: Requests) -> st.Records:
        """Return the engine's records of requests, those that the front end refuses marked."""
        config = self._config
        rows = st.records(len(requests), st.REQUEST)
        for name in (
            "slot",
            "private_start",
            "next_waiting",
            "previous_waiting",
            "first_emission",
            "last_emission",
        ):
            rows[name] = st.NEVER
        for name in ("scheduled_us", "first_token_us", "last_token_us", "num_cached_tokens"):
            rows[name] = st.NEVER
        prompt, asked = requests.prompt_tokens, requests.output_tokens
        refused = (prompt < 1) | (asked < 1)
        if config.frontend == "openai":
            refused |= (prompt >= config.max_model_len) | (asked > config.max_model_len)
            max_tokens = np.minimum(asked, config.max_model_len - prompt)
        else:
            max_tokens = asked
        if config.compatibility == "blis":
            refused |= blis.refused_on_arrival(config, prompt_tokens=prompt, output_tokens=asked)
        rows["status"] = np.where(refused, st.REJECTED, st.PENDING)
        rows["num_tokens"] = rows["num_prompt_tokens"] = prompt
        rows["max_total_tokens"] = np.maximum(
            prompt + 1, np.minimum(prompt + max_tokens, blis.longest_sequence(config))
        )
        rows["urgency"] = urgency(config, priority=requests.priority, prompt_tokens=prompt)
        rows["urgency"] += age_weight_per_us(config) * requests.arrival_us
        rows["arrival_us"] = requests.arrival_us
        rows["queued_us"] = requests.arrival_us + self._latency.queue_delay_us(prompt)
        rows["hash_start"] = requests.hash_offsets[:-1]
        rows["num_hashes"] = np.diff(requests.hash_offsets)
        if np.any(rows["num_hashes"] * config.block_size > prompt):
            self._state.counters["outputs_are_shared"] = 1
        return rows

    def submit(
        self,
        *,
        arrival_us: int,
        prompt_tokens: int,
        output_tokens: int,
        priority: int = 0,
        hash_ids: Sequence[int] = (),
    ) -> int:
        """Add a request that arrives at ``arrival_us``, not before the time advanced to; return its number.

        ``hash_ids``: the content of its leading full blocks as dense integers that the caller handed out.
        """
        known = self._num_known_hashes
        self._append_hashes(np.asarray(hash_ids, np.int64))
        number = int(self._state.counters.num_requests[0])
        self._add(
            Requests(
                arrival_us=np.array([arrival_us], np.int64),
                prompt_tokens=np.array([prompt_tokens], np.int64),
                output_tokens=np.array([output_tokens], np.int64),
                priority=np.array([priority], np.int64),
                hash_offsets=np.array([known, self._num_known_hashes], np.int64),
                hash_ids=NO_HASH_IDS,  # they are in place
            )
        )
        return number

    def _append_hashes(self, hash_ids: Int64s) -> None:
        """Append the caller's ids to ``hash_ids`` as keys of the hash table, where requests' own ids stand too."""
        if len(hash_ids) == 0:
            return
        state, counters = self._state, self._state.counters[0]
        highest = int(hash_ids.max())
        if highest >= len(self._key_of_id):
            grown = np.full(2 * highest + 1, st.NEVER, np.int64)
            grown[: len(self._key_of_id)] = self._key_of_id
            self._key_of_id = grown
        new_ids = np.unique(hash_ids[self._key_of_id[hash_ids] == st.NEVER])
        self._key_of_id[new_ids] = counters.num_keys + np.arange(len(new_ids))
        counters.num_keys += len(new_ids)
        if counters.num_keys > len(state.hashes):
            state = state._replace(**self._longer_hashes(2 * int(counters.num_keys)))
        first, self._num_known_hashes = self._num_known_hashes, self._num_known_hashes + len(hash_ids)
        if self._num_known_hashes > len(state.hash_ids):
            state = state._replace(hash_ids=_longer(state.hash_ids, 2 * self._num_known_hashes))
        state.hash_ids[first : self._num_known_hashes] = self._key_of_id[hash_ids]
        self._state = state

    def _longer_hashes(self, length: int) -> dict[str, Any]:
        """Return the hash table, and where the CPU tier has its contents, with room for ``length`` keys."""
        state = self._state
        slots = _longer(state.cpu_slot_of_key, length if self._config.has_cpu_tier else 0)
        return {"hashes": _longer(state.hashes, length), "cpu_slot_of_key": slots}

    def abort(self, request: int) -> None:
        """Drop a request at the present clock, as vLLM does when its client goes away; its blocks are freed.

        Raises IndexError for a number that ``submit`` never gave.
        """
        num_requests = int(self._state.counters.num_requests[0])
        if not 0 <= request < num_requests:
            raise IndexError(f"request {request}: expected 0 to {num_requests - 1}")
        abort_request(self._state, request)

    def _hold(self, concurrency: int, think_time_us: int, *, keeps_due_times: bool) -> None:
        """Make the loop closed; requests that keep their due times go in the order of these, else of their rows."""
        arrival_us = self._state.requests["arrival_us"]
        order = np.argsort(arrival_us, kind="stable") if keeps_due_times else np.arange(len(arrival_us))
        self._state = self._state._replace(held=order.astype(np.int64))
        hold_requests(self._state, np.argsort(order), concurrency, think_time_us, keeps_due_times)

    # -- letting time pass ------------------------------------------------------------------------------------

    def advance(self, until_us: int = FOREVER) -> None:
        """Take every step that starts before ``until_us``."""
        while run(self._state, until_us, self._coalesce) == NEEDS_ROOM:
            self._make_room()

    def _make_room(self) -> None:
        """Double every log that is more than half full, and the hash table."""
        state, counters = self._state, self._state.counters[0]
        seats = self._config.max_num_seqs
        changes: dict[str, Any] = {}
        for name, used in (
            ("log", counters.num_log_words),
            ("spans", counters.num_spans),
            ("pauses", counters.num_pauses),
            ("tokens", counters.num_logged_tokens),
        ):
            array = getattr(state, name)
            if len(array):
                step = len(state.blocks) * 4 + seats * (state.block_table.shape[1] + 8) * 2 + 64
                width = 2 * seats * (1 + self._config.num_speculative_tokens)
                most = step if name == "log" else width + LONGEST_JUMP
                if 2 * used + most > len(array):
                    changes[name] = _longer(array, 2 * len(array) + most)
        most_ids = seats * (state.block_table.shape[1] + 1)
        if counters.num_keys + most_ids > len(state.hashes):
            changes |= self._longer_hashes(2 * len(state.hashes) + most_ids)
        self._state = state._replace(**changes)

    # -- looking at it ----------------------------------------------------------------------------------------

    def next_time_us(self) -> int | None:
        """Return when something next happens, None when nothing will before another ``submit``."""
        e = self._state.counters[0]
        if e.num_batches > 0 or (e.num_running + e.num_waiting > 0 and not e.is_blocked):
            return int(e.clock_us)
        if e.num_pending_taken < e.num_pending:
            request = self._state.pending[e.num_pending_taken]
            return int(self._state.requests[request].queued_us)
        return None

    def view(self) -> View:
        """Return the engine's state at its clock."""
        e = self._state.counters[0]
        usable = len(self._state.blocks) - 1
        return View(
            clock_us=int(e.clock_us),
            num_running=int(e.num_running),
            num_waiting=int(e.num_waiting),
            num_free_blocks=int(e.num_free_blocks),
            kv_cache_usage_frac=1 - int(e.num_free_blocks) / usable,
            num_preemptions=int(e.num_preemptions),
            prefix_cache_queries=int(e.num_cache_queries),
            prefix_cache_hits=int(e.num_cache_hits),
            num_steps=int(e.num_steps),
            **_counts(e),
        )

    def outcomes(self, requests: slice = slice(None)) -> Outcomes:
        """Return what became of every request so far, or of those with these numbers.

        What runs or waits is UNFINISHED.
        """
        e = self._state.counters[0]
        rows = self._state.requests[: e.num_requests][requests]
        status = np.full(len(rows), Status.UNFINISHED, np.int8)
        for code, meaning in (
            (st.FINISHED, Status.OK),
            (st.REJECTED, Status.REJECTED),
            (st.ABORTED, Status.ABORTED),
        ):
            status[rows["status"] == code] = meaning
        num_outputs = rows["num_tokens"] - rows["num_prompt_tokens"]
        got_tokens = num_outputs > 0
        first_delay = self._latency.output_delay_us(np.minimum(num_outputs, 1))
        last_delay = self._latency.output_delay_us(num_outputs)
        arrival_us, queued_us = rows["arrival_us"].copy(), rows["queued_us"].copy()
        if e.is_closed_loop:
            is_held = np.zeros(e.num_requests, bool)
            is_held[self._state.held[e.next_held :]] = True
            arrival_us[is_held[requests]] = queued_us[is_held[requests]] = st.NEVER
        return Outcomes(
            status=status,
            arrival_us=arrival_us,
            queued_us=queued_us,
            scheduled_us=rows["scheduled_us"].copy(),
            first_token_us=np.where(got_tokens, rows["first_token_us"] + first_delay, st.NEVER),
            last_token_us=np.where(got_tokens, rows["last_token_us"] + last_delay, st.NEVER),
            num_output_tokens=num_outputs,
            num_preemptions=rows["num_preemptions"].copy(),
            num_cached_tokens=rows["num_cached_tokens"].copy(),
        )

    def take_tokens(self) -> tuple[Int64s, Int64s]:
        """Return (request, time_us) of the tokens given since the last call; times may lie ahead of the advance."""
        request, time_us = self.logged_tokens()
        self._state.counters["num_logged_tokens"] = 0
        np.add.at(self._num_taken, request, 1)
        return request, time_us

    def logged_tokens(self) -> tuple[Int64s, Int64s]:
        """Return (request, time_us) of the tokens that have not been taken, in the order of the steps."""
        tokens = self._state.tokens[: self._state.counters.num_logged_tokens[0]]
        if self._config.compatibility == "blis":  # what a preemption undid is no token
            rows = self._state.requests[tokens["request"]]
            has_any = rows["num_tokens"] > rows["num_prompt_tokens"]
            tokens = tokens[has_any & (tokens["time_us"] >= rows["first_token_us"])]
        request, time_us = tokens["request"].copy(), tokens["time_us"].copy()
        if len(self._num_taken) < len(self._state.requests):
            self._num_taken = _longer(self._num_taken, len(self._state.requests))
        return request, time_us + self._latency.output_delay_us(self._number_of(request))

    def _number_of(self, request: Int64s) -> Int64s:
        """Return which of its request's tokens each one is, from 1."""
        order = np.argsort(request, kind="stable")
        ordered = request[order]
        rank = np.arange(len(request)) - np.searchsorted(ordered, ordered, side="left")
        number = np.empty(len(request), np.int64)
        number[order] = rank + 1 + self._num_taken[ordered]
        return number

    def steps(self) -> list[Step]:
        """Return every step so far whose results are in."""
        log = self._state.log[: self._state.counters.num_log_words[0]]
        is_async = self._config.async_scheduling
        return list(decode_steps(log, is_async=is_async, with_blocks=self._record == "blocks"))

    def inter_token_latencies(self) -> InterTokenLatencies:
        """Return the gaps between the tokens so far, alpha2 included."""
        state, e = self._state, self._state.counters[0]
        rows, outcomes = state.requests[: e.num_requests], self.outcomes()
        num_gaps = np.maximum(outcomes.num_output_tokens - 1, 0)
        decoding_us = (outcomes.last_token_us - outcomes.first_token_us).astype(np.float64)
        mean_us = np.divide(decoding_us, num_gaps, out=np.full(len(rows), np.nan), where=num_gaps > 0)
        mean_us = np.round(mean_us, 3)
        delay_us = int(self._latency.output_delay_us(np.array([1]))[0])
        if self._gaps_from_tokens:
            tokens = state.tokens[: e.num_logged_tokens]
            request, time_us = tokens["request"], tokens["time_us"]
            return latencies_of_tokens(request, time_us, mean_us=mean_us, delay_us=delay_us)
        got_tokens = outcomes.num_output_tokens > 0
        return inter_token_latencies(
            spans=state.spans[: e.num_spans],
            pauses=state.pauses[: e.num_pauses],
            first_emission=np.where(got_tokens, rows["first_emission"], st.NEVER),
            last_emission=rows["last_emission"],
            mean_us=mean_us,
            delay_us=delay_us,
        )


COUNTED = (
    "num_draft_tokens",
    "num_accepted_tokens",
    "num_kv_offloads",
    "num_kv_reloads",
    "num_kv_thrashings",
)


def _counts(counters: st.Records) -> dict[str, int]:
    """Return the totals that speculative decoding and the CPU tier keep."""
    return {name: int(getattr(counters, name)) for name in COUNTED}


def _longer(array: st.Records, length: int) -> st.Records:
    """Return a copy of ``array`` with zeros behind it."""
    longer = (
        st.records(length, array.dtype) if isinstance(array, np.recarray) else np.zeros(length, array.dtype)
    )
    longer[: len(array)] = array
    return longer


def _check(requests: Requests) -> None:
    """Raise InvalidConfig when columns differ in length or name hashes that are not there."""
    n = len(requests)
    for name in ("prompt_tokens", "output_tokens", "priority"):
        if len(getattr(requests, name)) != n:
            raise InvalidConfig(f"requests.{name}: got {len(getattr(requests, name))} values, expected {n}")
    if len(requests.hash_offsets) != n + 1:
        raise InvalidConfig(
            f"requests.hash_offsets: got {len(requests.hash_offsets)} values, expected {n + 1}"
        )
    offsets = requests.hash_offsets
    if offsets[0] < 0 or offsets[-1] > len(requests.hash_ids) or np.any(np.diff(offsets) < 0):
        raise InvalidConfig(
            f"requests.hash_offsets: got values that do not ascend from 0 to {len(requests.hash_ids)}, expected so"
        )
    if requests.hash_ids.min(initial=0) < 0:
        raise InvalidConfig(f"requests.hash_ids: got {requests.hash_ids.min()}, expected dense integers >= 0")


def simulate(
    requests: Requests,
    config: EngineConfig,
    latency: Blackbox,
    *,
    coalesce: bool = True,
    record: Record = "none",
    closed_loop: tuple[int, int] | None = None,
    max_concurrency: int | None = None,
) -> Simulation:
    """Run requests to the end and return what became of them; deterministic, inputs unchanged.

    ``coalesce``: take runs of equal decode steps at once; the bits are the same without.
    ``closed_loop``: (concurrency, think_time_us): only the first requests arrive by themselves, each further one
    arrives a think time after a completion is seen.
    ``max_concurrency``: a client's cap; ``arrival_us`` is when requests are due, and who finds that many in flight
    waits for a slot, first due, first sent. Slots are handed on in the order in which the last tokens are given.
    """
    _check(requests)
    if max_concurrency is not None and (max_concurrency < 1 or closed_loop is not None):
        raise InvalidConfig(
            f"max_concurrency: got {max_concurrency}, expected an integer >= 1 and no closed_loop beside it"
        )
    if closed_loop is not None and (closed_loop[0] < 1 or closed_loop[1] < 0):
        raise InvalidConfig(
            f"closed_loop: got {closed_loop}, expected (concurrency >= 1, think_time_us >= 0)"
        )
    started = time.thread_time()
    engine = Engine._of(config, latency, requests, record=record, coalesce=coalesce)
    if closed_loop is not None:
        engine._hold(*closed_loop, keeps_due_times=False)
    if max_concurrency is not None:
        engine._hold(max_concurrency, 0, keeps_due_times=True)
    engine.advance()
    e = engine._state.counters[0]
    cpu_s = time.thread_time() - started
    outcomes = engine.outcomes()
    outcomes.status[outcomes.status == Status.UNFINISHED] = Status.STUCK
    return Simulation(
        outcomes=outcomes,
        num_steps=int(e.num_steps),
        num_jumps=int(e.num_jumps),
        num_preemptions=int(e.num_preemptions),
        duration_us=int(max(e.clock_us, outcomes.last_token_us.max(initial=0))),
        engine_cpu_s=cpu_s,
        **_counts(e),
        record=record,
        _engine=engine,
    )
