"""A fleet whose gateway holds requests while it is full: one event after another, as the simulated cluster has them.

A request that is handed over late must get its instance as it was at that time. So nothing is taken beyond the event
in hand: steps singly, in the order of ``sim.cluster.events``.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from replay.serve.live_queue import LiveQueue
from replay.serve.live_router import LiveRouter
from replay.serve.realtime import NOBODY, Client, RealtimeEngine
from sim import Engine, Outcomes, Requests, View
from sim.cluster.config import ClusterConfig
from sim.cluster.events import EventRank
from sim.cluster.run.prepare import ClusterWork, loop_of
from sim.cluster.run.world import Exit


@dataclass(slots=True, kw_only=True, eq=False)
class _Waiting:
    """A request between the gateway's door and an engine: what the engine will be asked for."""

    asked: dict[str, Any]
    is_in_transit: bool = False


class QueuedFleet:
    """As ``RealtimeFleet``, with ``cluster.flow_control``. Who left by another way than with all tokens: ``exits``.

    A request that comes arrives in the microsecond after ``now_us``, before the steps that start in it.
    """

    def __init__(self, cluster: ClusterConfig, *, num_keys: int) -> None:
        assert cluster.flow_control is not None  # noqa: S101 - the caller has looked
        self._engines = [
            RealtimeEngine(Engine(pool.engine, pool.latency, record="tokens"))
            for pool in cluster.pools
            for _ in range(pool.instances)
        ]
        self._flow, self._routing_us = cluster.flow_control, cluster.latency.routing_us
        self._router = LiveRouter(cluster, num_keys=num_keys)
        self._queue = LiveQueue(cluster, cluster.flow_control, self._router)
        self._interval_us = cluster.snapshot_interval_us.queue
        self._seen_us = -1 if self._interval_us else 0
        self._planned: list[tuple[int, int, int]] = []  # (time, rank, request): a heap
        self._dispatch_us: int | None = None
        self._looks_at_steps = looks_at_steps(cluster)
        self._waiting: dict[int, _Waiting] = {}
        self._place_of: dict[int, tuple[int, int]] = {}
        self._numbers: list[dict[int, int]] = [{} for _ in self._engines]
        self._left: dict[int, int] = {}  # tokens that are not heard of yet, of requests on an instance
        self._unmade: dict[int, int] = {}  # tokens that are not computed yet
        self._due: list[tuple[int, int]] = []  # (request, time) that nobody has asked for yet
        self._exits: list[tuple[int, Exit]] = []
        self._num_submitted = 0

    # -- as one engine ----------------------------------------------------------------------------------------

    def submit(
        self,
        now_us: int,
        *,
        prompt_tokens: int,
        output_tokens: int,
        priority: int = 0,
        hash_ids: Sequence[int] = (),
        is_guided: bool = False,
        client: Client = NOBODY,
    ) -> tuple[int, int] | None:
        """Take a request that arrives now; return its number and arrival; None if it was not taken."""
        self._let_pass(now_us)
        time_us, number = now_us + 1, self._num_submitted
        self._num_submitted += 1
        self._begin(time_us)
        if self._interval_us == 0:
            self._router.see(self._engines, time_us)
        if not self._router.admits(
            number, time_us, prompt_tokens=prompt_tokens, hash_ids=hash_ids, client=client
        ):
            return None
        is_queued, shed = self._queue.offer(number, time_us)
        if shed is not None:
            self._leave_queue(shed, Exit.SHED)
        if not is_queued:
            self._router.leave(number)
            return None
        self._waiting[number] = _Waiting(
            asked={
                "prompt_tokens": prompt_tokens,
                "output_tokens": output_tokens,
                "priority": priority,
                "hash_ids": hash_ids,
                "is_guided": is_guided,
            }
        )
        if self._flow.ttl_us > 0:
            heapq.heappush(self._planned, (time_us + self._flow.ttl_us, int(EventRank.EXPIRY), number))
        self._plan_dispatch(time_us)
        return number, time_us

    def abort(self, now_us: int, request: int) -> None:
        """Drop a request, wherever it is."""
        self._let_pass(now_us)
        self._exits = [each for each in self._exits if each[0] != request]
        if request in self._waiting:
            self._queue.num_in_transit -= self._waiting[request].is_in_transit
            self._queue.withdraw(request)
            del self._waiting[request]
            self._router.leave(request)
        elif request in self._place_of:
            if request in self._left:
                instance, own = self._place_of[request]
                self._engines[instance].abort(now_us, own)
                self._depart(request)
            self._due = [token for token in self._due if token[0] != request]
            self.forget(request)
        self._plan_dispatch(now_us + 1)

    def tokens(self, now_us: int) -> list[tuple[int, int]]:
        """Return (request, time_us) of the tokens whose time has come, in order of time."""
        self._let_pass(now_us)
        out = [token for token in self._due if token[1] <= now_us]
        self._due = self._due[len(out) :]
        return out

    def exits(self) -> list[tuple[int, Exit]]:
        """Return who has left the gateway's queue, or an instance, without an answer, once each."""
        out, self._exits = self._exits, []
        return out

    def views(self, now_us: int) -> list[View]:
        """Return each engine's state now."""
        self._let_pass(now_us)
        return [view for engine in self._engines for view in engine.views(now_us)]

    def next_time_us(self) -> int | None:
        """Return when ``tokens`` should be called next, None when nothing is under way."""
        if self._exits:
            return 0
        times = [self._due[0][1]] if self._due else []
        next_us = self._next_event_us()
        if next_us is not None:
            times.append(next_us)
        return min(times, default=None)

    def outcome(self, request: int) -> Outcomes:
        """Return what became of a request so far, one row."""
        instance, own = self._place_of[request]
        return self._engines[instance].outcome(own)

    def instance_of(self, request: int) -> int | None:
        """Return the number of the engine that serves a request; None while it waits in the gateway."""
        place = self._place_of.get(request)
        return None if place is None else place[0]

    def is_cached(self, hash_id: int) -> bool:
        """Return whether an engine's prefix cache has this content."""
        return any(engine.is_cached(hash_id) for engine in self._engines)

    def forget(self, request: int) -> None:
        """Let go of a request that nobody asks about any more."""
        place = self._place_of.pop(request, None)
        if place is not None:
            del self._numbers[place[0]][place[1]]
            self._engines[place[0]].forget(place[1])

    # -- what happens, in its order ---------------------------------------------------------------------------

    def _let_pass(self, now_us: int) -> None:
        """Let everything happen that happens by ``now_us``."""
        while (time_us := self._next_event_us()) is not None and time_us <= now_us:
            self._begin(time_us)
            while self._planned and self._planned[0][0] <= time_us:
                _, rank, request = heapq.heappop(self._planned)
                self._happen(rank, request, time_us)
            for instance, engine in enumerate(self._engines):
                if engine.next_step_us() == time_us:
                    self._take_step(instance, engine, time_us)

    def _next_event_us(self) -> int | None:
        times = [self._planned[0][0]] if self._planned else []
        for engine in self._engines:
            times += [each for each in (engine.next_step_us(), engine.next_due_us()) if each is not None]
        if self._interval_us and (times or self._left or self._waiting):
            times.append(max(0, (self._seen_us // self._interval_us + 1) * self._interval_us))
        return min(times, default=None)

    def _begin(self, time_us: int) -> None:
        """Hear what steps have brought by this time, then look, if a look is due."""
        heard = [
            (token_us, instance, own)
            for instance, engine in enumerate(self._engines)
            for own, token_us in engine.due(time_us)
        ]
        for token_us, instance, own in sorted(heard, key=lambda each: each[:2]):
            self._hear(self._numbers[instance][own], instance, token_us, time_us)
        if self._interval_us and time_us // self._interval_us * self._interval_us > self._seen_us:
            self._seen_us = time_us // self._interval_us * self._interval_us
            self._router.see(self._engines, self._seen_us)
            self._plan_dispatch(time_us)

    def _hear(self, number: int, instance: int, token_us: int, time_us: int) -> None:
        self._due.append((number, token_us))
        self._router.first_token(number, instance)
        self._left[number] -= 1
        if self._left[number] == 0:
            self._depart(number)
            self._plan_dispatch(time_us)

    def _depart(self, number: int) -> None:
        """Let nobody count a request on its instance any more."""
        del self._left[number]
        self._unmade.pop(number, None)
        self._queue.note_departed(number)
        self._router.finish(number, self._place_of[number][0])

    def _happen(self, rank: int, number: int, time_us: int) -> None:
        if rank == EventRank.DISPATCH:
            self._dispatch_next(time_us)
        elif rank == EventRank.ROUTING:
            if number in self._waiting:
                self._route(number, time_us)
        elif number in self._waiting and self._queue.withdraw(number):
            self._leave_queue(number, Exit.EXPIRED)

    def _plan_dispatch(self, time_us: int) -> None:
        if len(self._queue) and (self._dispatch_us is None or self._dispatch_us > time_us):
            self._dispatch_us = time_us
            heapq.heappush(self._planned, (time_us, int(EventRank.DISPATCH), 0))

    def _dispatch_next(self, time_us: int) -> None:
        """Hand over the request that goes next, if the fleet has room for it."""
        self._dispatch_us = None
        if not len(self._queue):
            return
        if self._interval_us == 0:
            self._router.see(self._engines, time_us)
        if self._flow.evicts and (victim := self._queue.take_victim()) is not None:
            self._evict(victim, time_us)
        number = self._queue.take_next()
        if number is None:
            return
        self._waiting[number].is_in_transit = True
        self._queue.num_in_transit += 1
        if self._routing_us > 0:
            self._plan_dispatch(time_us)
        heapq.heappush(self._planned, (time_us + self._routing_us, int(EventRank.ROUTING), number))

    def _evict(self, number: int, time_us: int) -> None:
        if self._unmade[number] == 0:  # its last token is on the way: it comes to its end
            return
        instance, own = self._place_of[number]
        self._engines[instance].abort(time_us - 1, own)
        self._depart(number)
        self._exits.append((number, Exit.EVICTED))

    def _route(self, number: int, time_us: int) -> None:
        """Give a request to the instance that the router chooses."""
        asked = self._waiting.pop(number).asked
        if self._interval_us == 0:
            self._router.see(self._engines, time_us)
        instance = self._router.choose(
            number,
            time_us,
            prompt_tokens=asked["prompt_tokens"],
            hash_ids=asked["hash_ids"],
            engines=self._engines,
        )
        self._queue.num_in_transit -= 1
        own, _ = self._engines[instance].submit(time_us - 1, **asked)
        self._place_of[number] = (instance, own)
        self._numbers[instance][own] = number
        self._left[number] = self._unmade[number] = asked["output_tokens"]
        self._queue.note_dispatched(number)
        if self._routing_us == 0:
            self._plan_dispatch(time_us)

    def _take_step(self, instance: int, engine: RealtimeEngine, time_us: int) -> None:
        """Let an engine take its step; where what it reports counts, the queue is asked again when the step ends."""
        for own in engine.step(time_us):
            self._unmade[self._numbers[instance][own]] -= 1
        next_us = engine.next_step_us()
        if self._looks_at_steps and next_us is not None:
            self._plan_dispatch(next_us)

    def _leave_queue(self, number: int, way: Exit) -> None:
        """Let a request be gone that waited."""
        del self._waiting[number]
        self._router.leave(number)
        self._exits.append((number, way))


def looks_at_steps(cluster: ClusterConfig) -> bool:
    """Return whether what engines report decides anything, so that the end of a step may bring news."""
    none = np.zeros(0, np.int64)
    nobody = Requests(
        arrival_us=none,
        prompt_tokens=none,
        output_tokens=none,
        priority=none,
        hash_offsets=np.zeros(1, np.int64),
        hash_ids=none,
    )
    loop = loop_of(cluster, ClusterWork(requests=nobody), records_decisions=False)[0]
    return bool(loop.sees_queues or loop.sees_kv)
