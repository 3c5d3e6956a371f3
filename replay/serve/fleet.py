"""Several simulated engines and the router in front of them, kept in step with a clock that somebody else reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from replay.serve.live_router import LiveRouter
from replay.serve.realtime import NOBODY, Client, RealtimeEngine
from sim import Engine, Outcomes, View
from sim.cluster.config import ClusterConfig

if TYPE_CHECKING:
    from sim.cluster.run.world import Exit


class RealtimeFleet:
    """As one ``RealtimeEngine``, of a cluster: requests have numbers of their own, whichever engine serves them.

    ``num_keys``: hash ids are below it. All times are µs of the caller's clock, which must not go back.
    """

    def __init__(self, cluster: ClusterConfig, *, num_keys: int) -> None:
        self._engines = [
            RealtimeEngine(Engine(pool.engine, pool.latency, record="tokens"))
            for pool in cluster.pools
            for _ in range(pool.instances)
        ]
        self._router = LiveRouter(cluster, num_keys=num_keys)
        self._interval_us = cluster.snapshot_interval_us.queue
        self._seen_us = 0
        self._place_of: dict[int, tuple[int, int]] = {}
        self._numbers: list[dict[int, int]] = [{} for _ in self._engines]
        self._left: dict[int, int] = {}  # tokens that are not due yet, of requests under way
        self._due: list[tuple[int, int]] = []  # (request, time) that nobody has asked for yet
        self._num_submitted = 0

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
        """Route a request that arrives now; return its number and the arrival that its engine was given.

        None where it is not admitted.
        """
        self._bring(now_us)
        if self._interval_us == 0:
            self._router.see(self._engines, now_us)
        number = self._num_submitted
        self._num_submitted += 1
        if not self._router.admits(
            number, now_us, prompt_tokens=prompt_tokens, hash_ids=hash_ids, client=client
        ):
            return None
        instance = self._router.choose(
            number, now_us, prompt_tokens=prompt_tokens, hash_ids=hash_ids, engines=self._engines
        )
        own, arrival_us = self._engines[instance].submit(
            now_us,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            priority=priority,
            hash_ids=hash_ids,
            is_guided=is_guided,
        )
        self._place_of[number] = (instance, own)
        self._numbers[instance][own] = number
        self._left[number] = output_tokens
        return number, arrival_us

    def abort(self, now_us: int, request: int) -> None:
        """Drop a request."""
        instance, own = self._place_of[request]
        self._engines[instance].abort(now_us, own)
        if self._left.pop(request, None) is not None:
            self._router.finish(request, instance)
        self._due = [token for token in self._due if token[0] != request]
        self.forget(request)

    def tokens(self, now_us: int) -> list[tuple[int, int]]:
        """Return (request, time_us) of the tokens whose time has come, in order of time."""
        self._bring(now_us)
        due, self._due = self._due, []
        return due

    def views(self, now_us: int) -> list[View]:
        """Return each engine's state now."""
        return [view for engine in self._engines for view in engine.views(now_us)]

    def next_time_us(self) -> int | None:
        """Return when ``tokens`` should be called next, None when nothing is under way."""
        if self._due:
            return self._due[0][1]
        times = (engine.next_time_us() for engine in self._engines)
        return min((time_us for time_us in times if time_us is not None), default=None)

    def outcome(self, request: int) -> Outcomes:
        """Return what became of a request so far, one row."""
        instance, own = self._place_of[request]
        return self._engines[instance].outcome(own)

    def exits(self) -> list[tuple[int, Exit]]:
        """Return nobody: who was admitted is answered."""
        return []

    def instance_of(self, request: int) -> int:
        """Return the number of the engine that serves a request."""
        return self._place_of[request][0]

    def is_cached(self, hash_id: int) -> bool:
        """Return whether an engine's prefix cache has this content."""
        return any(engine.is_cached(hash_id) for engine in self._engines)

    def forget(self, request: int) -> None:
        """Let go of a request that nobody asks about any more."""
        instance, own = self._place_of.pop(request)
        del self._numbers[instance][own]
        self._engines[instance].forget(own)

    def _bring(self, now_us: int) -> None:
        """Let time pass: a snapshot that is due on the way is of its own time, and the router hears of each token."""
        interval = self._interval_us
        if interval > 0 and now_us // interval * interval > self._seen_us:
            self._seen_us = now_us // interval * interval
            for engine in self._engines:
                engine.advance(self._seen_us)
            self._router.see(self._engines, self._seen_us)
        found = [
            (time_us, self._numbers[instance][own])
            for instance, engine in enumerate(self._engines)
            for own, time_us in engine.tokens(now_us)
        ]
        for time_us, number in sorted(found):
            self._due.append((number, time_us))
            instance, _ = self._place_of[number]
            self._router.first_token(number, instance)
            self._left[number] -= 1
            if self._left[number] == 0:
                del self._left[number]
                self._router.finish(number, instance)
