"""Simulating requests in one call."""

from __future__ import annotations

import time
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.config import EngineConfig, InvalidConfig, Record
from sim.countable import CHANGED_BY_COUNTING, may_be_counted
from sim.engine.beginning.longer_arrays import with_more_room
from sim.engine.control import join_requests
from sim.engine.counting.counted_run import CANNOT_COUNT, HANDED_OVER
from sim.engine.dtypes import NEVER
from sim.engine.state import State, columns
from sim.jit.entries import loading_cpu_s
from sim.latency import Blackbox
from sim.latency.batch import StepBatch
from sim.latency.latency_model import LatencyModel
from sim.paged_memory import CACHE_LINE
from sim.records.histograms import Histogram
from sim.records.itl import InterTokenLatencies
from sim.records.looks import Looks, LooksTaken
from sim.records.run_results import (
    EngineRecord,
    Totals,
    batch_sizes_of,
    cut_off,
    step_times_of,
    step_tokens_of,
    totals_of,
)
from sim.records.steps import Step
from sim.requests import Int64s, Outcomes, Requests, Status
from sim.resumable import FOREVER, Engine, joining_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(Totals):
    """Outcomes of a finished run and what it cost.

    ``duration_us`` is the time of the last event, or of the horizon that came before it; ``engine_cpu_s`` is CPU time
    of this thread, without that of loading machine code. ``num_running``, ``num_waiting``: at a horizon, of those that
    are UNFINISHED (a request that has arrived and does not run waits); without one 0. ``num_in_gateway``: of a cluster,
    those that wait before any engine.
    """

    outcomes: Outcomes
    duration_us: int
    num_running: int
    num_waiting: int
    engine_cpu_s: float
    written: EngineRecord
    num_in_gateway: int = 0
    looks: Looks | None = None

    @property
    def record(self) -> Record:
        """What the run wrote down."""
        return self.written.record

    def inter_token_latencies(self) -> InterTokenLatencies:
        """Return the gaps between tokens; needs ``record="spans"``."""
        return self.written.inter_token_latencies()

    def steps(self) -> list[Step]:
        """Return every step; needs ``record="steps"`` or ``"blocks"``."""
        return self.written.steps()

    def batch_sizes(self) -> Histogram:
        """Return how many steps had how many requests, empty steps not counted; needs any record but "none"."""
        return batch_sizes_of(self.written.state)

    def step_tokens(self) -> Histogram:
        """Return how many steps computed how many tokens, empty steps not counted; needs any record but "none".

        Exact below 512 tokens; larger steps up to 0.4 % too small. Their mean is known exactly (``Totals``).
        """
        return step_tokens_of(self.written.state)

    def step_times(self) -> Histogram:
        """Return how many steps took how many µs, empty steps not counted; needs any record but "none".

        Exact below 512 µs; longer ones within 0.2 %. Their mean is known exactly (``Totals``).
        """
        return step_times_of(self.written.state)

    def step_batches(self) -> tuple[StepBatch, Int64s]:
        """Return (sums of every scheduled step, its duration in µs); needs ``record="steps"`` or ``"blocks"``."""
        return self.written.step_batches()

    def tokens(self) -> tuple[Int64s, Int64s]:
        """Return (request, time_us) of every token in the order of the steps; needs ``record="tokens"``."""
        return self.written.tokens()


def _check(requests: Requests) -> None:
    """Raise InvalidConfig when columns differ in length or name hashes that are not there."""
    n = len(requests)
    for name in ("prompt_tokens", "output_tokens", "priority", "deadline_us", "max_tokens"):
        if getattr(requests, name) is not None and len(getattr(requests, name)) != n:
            raise InvalidConfig(f"requests.{name}: got {len(getattr(requests, name))} values, expected {n}")
    _check_hash_places(requests)
    if requests.hash_ids.min(initial=0) < 0:
        raise InvalidConfig(f"requests.hash_ids: got {requests.hash_ids.min()}, expected dense integers >= 0")


def _check_hash_places(requests: Requests) -> None:
    """Raise InvalidConfig when a request's hashes lie outside ``hash_ids``."""
    n, num_ids = len(requests), len(requests.hash_ids)
    num_offsets = n + 1 if requests.hash_counts is None else n
    if len(requests.hash_offsets) != num_offsets:
        raise InvalidConfig(
            f"requests.hash_offsets: got {len(requests.hash_offsets)} values, expected {num_offsets}"
        )
    if requests.hash_counts is not None and len(requests.hash_counts) != n:
        raise InvalidConfig(f"requests.hash_counts: got {len(requests.hash_counts)} values, expected {n}")
    starts, counts = requests.hash_starts, requests.num_hashes
    if starts.min(initial=0) < 0 or counts.min(initial=0) < 0 or (starts + counts).max(initial=0) > num_ids:
        raise InvalidConfig(
            f"requests.hash_offsets: got places that are not within the {num_ids} hash_ids, expected so"
        )


def _is_count(value: object, least: int) -> bool:
    """Return whether a value is an integer of at least ``least`` that 64 bits hold."""
    return (
        isinstance(value, int | np.integer) and not isinstance(value, bool) and least <= int(value) <= FOREVER
    )


def _check_pacing(closed_loop: tuple[int, int] | None, max_concurrency: int | None) -> None:
    """Raise InvalidConfig on a closed loop or a cap that is not valid."""
    if max_concurrency is not None and (not _is_count(max_concurrency, 1) or closed_loop is not None):
        raise InvalidConfig(
            f"max_concurrency: got {max_concurrency}, expected an integer >= 1 and no closed_loop beside it"
        )
    is_pair = isinstance(closed_loop, tuple) and len(closed_loop) == 2
    if closed_loop is not None and not (
        is_pair and _is_count(closed_loop[0], 1) and _is_count(closed_loop[1], 0)
    ):
        raise InvalidConfig(
            f"closed_loop: got {closed_loop}, expected (concurrency >= 1, think_time_us >= 0)"
        )


def _hold(engine: Engine, closed_loop: tuple[int, int] | None, max_concurrency: int | None) -> None:
    """Set up the closed loop or the cap, if there is one: completions then release requests."""
    if closed_loop is not None:
        engine.hold(*closed_loop, is_capped=False)
    if max_concurrency is not None:
        engine.hold(max_concurrency, 0, is_capped=True)


def simulate(  # noqa: PLR0913 - what a run is asked for, each by itself
    requests: Requests,
    config: EngineConfig,
    latency: LatencyModel,
    *,
    coalesce: bool = True,
    record: Record = "none",
    closed_loop: tuple[int, int] | None = None,
    max_concurrency: int | None = None,
    until_us: int | None = None,
    points: int | None = None,
) -> Simulation:
    """Run requests to the end and return their outcomes; deterministic, inputs unchanged.

    ``coalesce``: take runs of equal decode steps at once; the bits are the same without.
    ``closed_loop``: (concurrency, think_time_us): only the first requests arrive by themselves, each further one
    arrives a think time after a completion is seen.
    ``max_concurrency``: a client's cap; ``arrival_us`` is when requests are due, and a request that finds that many in
    flight waits for a slot, first due, first sent. Slots are handed on in the order in which the last tokens are given.
    ``until_us``: a horizon. No step begins at it or later; a request whose last token has not been seen by then is
    UNFINISHED, and its outputs are those of steps that began before.
    ``points``: look at the engine at evenly spaced times, from ``points`` to twice as many, for ``looks``. Nothing else
    changes but ``num_jumps``; with several KV cache groups it takes several times as long. It needs any ``record`` but
    "none".
    """
    if until_us is not None and not _is_count(until_us, 1):
        raise InvalidConfig(f"until_us: got {until_us}, expected an integer >= 1")
    _check(requests)
    _check_pacing(closed_loop, max_concurrency)
    started = time.thread_time() - loading_cpu_s()
    engine = Engine(requests, config, latency, record=record, coalesce=coalesce)
    _hold(engine, closed_loop, max_concurrency)
    end_us, looks = FOREVER if until_us is None else until_us, None
    if points is None:
        engine.run_all(requests, end_us)
    else:
        last_us = 0 if closed_loop is not None else int(requests.arrival_us.max(initial=0))
        looks = LooksTaken(points=points, last_arrival_us=last_us)
        engine.watch_all(requests, looks, end_us)
    cpu_s = time.thread_time() - loading_cpu_s() - started
    return _simulation(engine, looks, until_us=until_us, cpu_s=cpu_s)


def _simulation(
    engine: Engine, looks: LooksTaken | None, *, until_us: int | None, cpu_s: float
) -> Simulation:
    """Return what came of an engine that has run to its end, or to a horizon."""
    outcomes, written = engine.outcomes(), engine.written()
    refused_us = outcomes.queued_us[outcomes.status == Status.REJECTED].max(initial=0)
    duration_us = int(max(engine.view().clock_us, outcomes.last_token_us.max(initial=0), refused_us))
    num_running = num_waiting = 0
    if until_us is None or engine.next_time_us() is None:
        outcomes.status[outcomes.status == Status.UNFINISHED] = Status.STUCK
    if until_us is not None:
        duration_us = min(duration_us, until_us)
        num_running, num_waiting = cut_off(written.state, outcomes, until_us=until_us)
        if (outcomes.status == Status.UNFINISHED).any():
            duration_us = until_us
    return Simulation(
        outcomes=outcomes,
        duration_us=duration_us,
        num_running=num_running,
        num_waiting=num_waiting,
        engine_cpu_s=cpu_s,
        written=written,
        looks=None if looks is None else looks.finished(written.state, end_us=duration_us),
        **totals_of(written.state),
    )


class Simulator:
    """The same requests simulated with one latency model after another, as a fit does; one thread at a time.

    The outcomes are ``simulate``'s, bit for bit. The engine's arrays are laid out once and copied back before each
    run: of 50 requests that saves three quarters of the time. Raises InvalidConfig as ``simulate`` does.
    """

    def __init__(
        self,
        requests: Requests,
        config: EngineConfig,
        *,
        closed_loop: tuple[int, int] | None = None,
        max_concurrency: int | None = None,
    ) -> None:
        _check(requests)
        _check_pacing(closed_loop, max_concurrency)
        self._requests, self._pacing = requests, (closed_loop, max_concurrency)
        self._engine = Engine(requests, config, Blackbox())
        self._by_deadline = self._engine._state.deadlines[: self._num_deadlines()].copy()
        _take_back_joins(self._engine._state)
        self._memory, self._state, self._num_changed = _in_one_piece(with_more_room(self._engine._state))
        self._fresh = self._memory.copy()
        self._latest = self._state
        self._counts = may_be_counted(self._state, requests, is_paced=self._pacing != (None, None))
        self._num_used = 0

    def _num_deadlines(self) -> int:
        return int(self._engine._state.engine[0].queues.num_deadlines)

    def outcomes(self, latency: LatencyModel) -> Outcomes:
        """Return every request's outcome with this latency model, all steps taken."""
        self._begin(latency)
        self._num_used = self._num_changed
        reason = self._engine._count() if self._counts else HANDED_OVER
        if reason == CANNOT_COUNT:
            self._counts = False  # nor would most others
            self._begin(latency)
        if reason in (CANNOT_COUNT, HANDED_OVER):
            self._num_used = len(self._memory)
            self._engine.advance(FOREVER)
        outcomes = self._engine.outcomes()
        outcomes.status[outcomes.status == Status.UNFINISHED] = Status.STUCK
        return outcomes

    def _begin(self, latency: LatencyModel) -> None:
        """Bring what the run before changed of the engine's arrays back, and let its requests join."""
        engine, requests = self._engine, self._requests
        np.copyto(self._memory[: self._num_used], self._fresh[: self._num_used])
        columns(self._state.engine)["settings"]["latency_kind"] = latency.engine_kind
        queued_us = requests.arrival_us + latency.queue_delay_us(requests.prompt_tokens)
        columns(self._state.requests)["queued_us"][: len(requests)] = queued_us
        engine._latency, engine._state = latency, self._state_with(latency)
        join_requests(engine._engines(), 0, joining_order(queued_us, requests.arrival_us), self._by_deadline)
        _hold(engine, *self._pacing)

    def _state_with(self, latency: LatencyModel) -> State:
        """Return the state with a latency model; its numbers replace those of the one before, in the same place.

        So the engine's table of array addresses stays as it is, which saves a sixth of the time of 60 requests.
        """
        coefficients, terms = latency.engine_coefficients(), latency.engine_terms()
        if self._latest is self._state or terms.shape != self._latest.terms.shape:
            self._latest = self._state._replace(latency=coefficients.copy(), terms=terms.copy())
        else:
            self._latest.latency[:], self._latest.terms[:] = coefficients, terms
        return self._latest


def _take_back_joins(state: State) -> None:
    """Clear the queue, as if none of the requests had been told to join yet."""
    queues = state.engine["queues"]
    queues["first_pending"] = queues["last_pending"] = NEVER
    queues["num_added"] = queues["num_deadlines"] = queues["num_fingers"] = 0
    state.deadlines[:] = 0
    state.requests["next_waiting"] = state.requests["previous_waiting"] = NEVER


def _in_one_piece(state: State) -> tuple[NDArray[np.uint8], State, int]:
    """Return one block of memory and the state whose arrays all lie in it, each from a cache line's start.

    Those that a run changes which counts blocks come first; they end where the last number says.
    """
    sizes = {name: -(-array.nbytes // CACHE_LINE) * CACHE_LINE for name, array in state._asdict().items()}
    memory = np.zeros(sum(sizes.values()) + CACHE_LINE, np.uint8)
    memory = memory[-memory.ctypes.data % CACHE_LINE :]
    arrays, start = {}, 0
    for name in sorted(sizes, key=lambda name: name not in CHANGED_BY_COUNTING):
        array = getattr(state, name)
        place = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape).view(type(array))
        place[...] = array
        arrays[name] = place
        start += sizes[name]
    return memory, State(**arrays), sum(sizes[name] for name in CHANGED_BY_COUNTING)
