"""A cluster, of one server or many, inside an event loop: requests in, each token announced when its time has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass

import numpy as np

from replay.serve.block_numbers import BlockNumbers
from replay.serve.prometheus import Metrics
from replay.serve.protocol import Answer, Refusal
from replay.serve.senders import NOBODY, RequestSender, Senders, open_cluster
from replay.serve.tokens import Tokens
from sim import UNBOUNDED, EngineConfig, InvalidConfig, View
from sim.cluster import INSTANCE_STATES, ClusterConfig

REMEMBERED_PER_BLOCK = 4
"""Contents remembered per block of the KV cache, so that a forgotten content was evicted long before."""

USUALLY_AT_LEAST = 4096
"""The least number of contents remembered, however small the cache is."""

REMEMBERED_AT_LEAST = 1_000_000
"""The least room for contents in the tables, however small the cache is."""

REMEMBERED_UNBOUNDED = 1 << 22
"""The same for an unbounded KV cache: beyond it, a content seen long ago may count as new."""

TOO_MANY = 429

REFUSALS = {
    "REJECTED": (TOO_MANY, "the gateway does not admit the request"),
    "QUEUE_FULL": (TOO_MANY, "the gateway's queue is full"),
    "SHED": (TOO_MANY, "the gateway's queue is full, and the request gave its place to a more important one"),
    "EXPIRED": (503, "the request waited in the gateway's queue until its time ran out"),
    "EVICTED": (503, "the request was taken off its instance for a more important one"),
    "LOST": (
        503,
        "the instance that had the request has failed, or was stopped before the answer was complete",
    ),
    "DROPPED": (503, "there is no instance that could take the request"),
    "REFUSED": (400, "the instance does not take the request: it is empty, or longer than max_model_len"),
}
"""Status and message for the client of a request that has left without all its tokens, by its exit."""

KINDS = {TOO_MANY: "TooManyRequests", 400: "BadRequestError"}
"""vLLM's names of errors by their status; every other is ServiceUnavailable."""

Clock = Callable[[], int]


@dataclass(slots=True, kw_only=True, eq=False)
class Generation:
    """One answer in progress. ``num_ready`` tokens are due, ``num_sent`` of them have been sent.

    Times are µs of the server's clock, None before they are known; ``unsent_us`` is when the oldest token that is ready
    and unsent was due. ``instance`` is None before it has one; ``refusal``: set if it left without all its tokens.
    ``hash_ids``: the numbers of its blocks' contents.
    """

    number: int
    answer: Answer
    num_prompt_tokens: int
    arrival_us: int
    changed: asyncio.Event
    hash_ids: list[int]
    instance: int | None = None
    refusal: Refusal | None = None
    num_ready: int = 0
    num_sent: int = 0
    first_us: int | None = None
    last_us: int | None = None
    unsent_us: int | None = None

    @property
    def is_finished(self) -> bool:
        """Whether every token is due."""
        return self.num_ready == len(self.answer.texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The engine's times of a finished request, µs, and its prefix-cache hit in tokens."""

    queue_us: int
    prefill_us: int
    decode_us: int
    num_cached_tokens: int


def engines_of(cluster: ClusterConfig) -> tuple[EngineConfig, ...]:
    """Return the settings of each server."""
    return tuple(pool.engine for pool in cluster.pools for _ in range(pool.num_slots))


def num_remembered(engines: Sequence[EngineConfig]) -> int:
    """Return for how many contents numbers are kept: several times what the engines' caches hold together."""
    if any(each.num_gpu_blocks == UNBOUNDED for each in engines):
        return REMEMBERED_UNBOUNDED
    return max(REMEMBERED_AT_LEAST, sum(map(_num_contents, engines)) * REMEMBERED_PER_BLOCK)


def num_usual(engines: Sequence[EngineConfig]) -> int:
    """Return how many contents are usually kept: beyond them, those neither cached nor under way are forgotten."""
    if any(each.num_gpu_blocks == UNBOUNDED for each in engines):
        return REMEMBERED_UNBOUNDED
    return max(USUALLY_AT_LEAST, sum(map(_num_contents, engines)) * REMEMBERED_PER_BLOCK)


def _num_contents(engine: EngineConfig) -> int:
    """Return how many contents an engine's blocks hold: with a ``prefix_match_unit`` several each."""
    return engine.num_gpu_blocks * max(1, engine.block_size // engine.hash_block_size)


class Twin:
    """Feeds the servers, wakes at the times they name, announces tokens on ``Generation.changed``.

    ``metrics``: of each server. Everything happens in the event loop: taking a step costs tens of microseconds.
    ``failure``: why nothing can be served any more, such as an exception of a user's routing function; ``failed`` is
    set then. Raises InvalidConfig on a cluster that can only be simulated with a whole trace.
    """

    def __init__(self, cluster: ClusterConfig, *, clock_us: Clock) -> None:
        engines = engines_of(cluster)
        num_known = num_remembered(engines)
        self.metrics = [Metrics() for _ in engines]
        self._caches = any(engine.enable_prefix_caching for engine in engines)
        self._clock_us = clock_us
        self._cluster = open_cluster(cluster, num_keys=num_known)
        self._senders = Senders(cluster, self._cluster)
        self._blocks = BlockNumbers(
            engines[0].hash_block_size if self._caches else engines[0].block_size,
            lookahead=engines[0].num_hash_lookahead_tokens,
            capacity=num_known,
            usual=num_usual(engines),
            is_cached=self._cluster.is_cached,
        )
        self._live: dict[int, Generation] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.failure: InvalidConfig | None = None
        self.failed = asyncio.Event()

    def start(
        self,
        prompt: Tokens,
        answer: Answer,
        *,
        changed: asyncio.Event,
        priority: int = 0,
        salt: str = "",
        guided: bool = False,
        client: RequestSender = NOBODY,
    ) -> Generation:
        """Take a request that arrives now. ``guided``: a grammar takes time.

        Raises Refusal if nothing can be served any more.
        """
        now_us = self._catch_up()
        if self.failure is not None:
            raise _refusal_of(self.failure)
        hash_ids: list[int] = []
        if self._caches:
            hash_ids = self._blocks.of(np.concatenate([prompt, answer.tokens]), salt=salt)
        number, arrival_us = self._cluster.submit(
            now_us,
            prompt_tokens=len(prompt),
            output_tokens=len(answer.texts),
            priority=priority,
            hash_ids=hash_ids,
            is_guided=guided,
            sender=self._senders.origin_of(client),
        )
        generation = Generation(
            number=number,
            answer=answer,
            num_prompt_tokens=len(prompt),
            arrival_us=arrival_us,
            changed=changed,
            instance=self._cluster.instance_of(number),
            hash_ids=hash_ids,
        )
        self._live[number] = generation
        self._blocks.hold(hash_ids)
        self._arm()
        return generation

    def drop(self, generation: Generation) -> None:
        """Forget a request; abort it where its client has gone before its end."""
        now_us = self._catch_up() if generation.number in self._live else 0
        if self.failure is not None:
            return
        if self._ended(generation.number) is not None:
            generation.instance = self._cluster.instance_of(generation.number)
            self._cluster.abort(now_us, generation.number)
            if generation.instance is not None:
                self.metrics[generation.instance].finished["abort"] += 1
            self._arm()
        else:
            self._cluster.forget(generation.number)

    def mark_sent(self, generation: Generation) -> None:
        """Note that everything ready has been handed to the socket."""
        if generation.unsent_us is not None and generation.instance is not None:
            lag_us = self._clock_us() - generation.unsent_us
            self.metrics[generation.instance].send_lag.observe(lag_us / 1e6)
        generation.unsent_us, generation.num_sent = None, generation.num_ready

    def views(self) -> Sequence[View | None]:
        """Return each engine's present state, None for an instance that is off."""
        views = self._cluster.views(self._catch_up())
        return [
            view if state in ("ready", "draining") else None
            for view, state in zip(views, self._cluster.states, strict=True)
        ]

    def num_instances(self) -> dict[str, int]:
        """Return how many instances are in each state."""
        states = self._cluster.states
        return {name: states.count(name) for name in INSTANCE_STATES}

    @property
    def num_under_way(self) -> int:
        """How many answers are in progress."""
        return len(self._live)

    def timing(self, generation: Generation) -> Timing:
        """Return what the engine says of a request all of whose tokens are due."""
        outcomes = self._cluster.outcome(generation.number)
        scheduled, first = int(outcomes.scheduled_us[0]), int(outcomes.first_token_us[0])
        return Timing(
            queue_us=scheduled - int(outcomes.taken_in_us[0]),
            prefill_us=first - scheduled,
            decode_us=int(outcomes.last_token_us[0]) - first,
            num_cached_tokens=int(outcomes.num_cached_tokens[0]),
        )

    def close(self) -> None:
        """Stop waking up."""
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._timer = None
        self._catch_up()
        self._arm()

    def _catch_up(self) -> int:
        """Announce what has happened until now to the answers under way; return the time, µs."""
        now_us = self._clock_us()
        if self.failure is None:
            try:
                self._tell(now_us)
            except InvalidConfig as error:  # of a user's own routing function
                self._fail(error)
        return now_us

    def _tell(self, now_us: int) -> None:
        """Announce tokens that are due, and the requests that get no answer."""
        tokens = self._cluster.tokens(now_us)
        # Prompts first: with its last token, which a late look finds at once, a request is no longer known here.
        for number, instance in self._cluster.computed_prompts(now_us):
            self._count_prompt(number, self.metrics[instance])
        for number, time_us in tokens:
            generation = self._live.get(number)
            if generation is not None:
                self._token(generation, time_us)
        for number, way in self._cluster.exits():
            generation = self._ended(number)
            if generation is not None:
                status, message = REFUSALS[way.name]
                kind = KINDS.get(status, "ServiceUnavailable")
                generation.refusal = Refusal(message, status=status, kind=kind)
                generation.changed.set()

    def _fail(self, error: InvalidConfig) -> None:
        """Stop serving; every request in flight is answered with the reason."""
        self.failure = error
        for generation in self._live.values():
            generation.refusal = _refusal_of(error)
            generation.changed.set()
        self.failed.set()

    def _count_prompt(self, number: int, metrics: Metrics) -> None:
        """Count what an engine has done that has computed a prompt for another: one token, and the end."""
        generation = self._live.get(number)
        if generation is not None:
            metrics.prompt_tokens += generation.num_prompt_tokens
            metrics.generation_tokens += 1
            metrics.finished["length"] += 1

    def _token(self, generation: Generation, time_us: int) -> None:
        """Announce one token that is due."""
        instance = self._cluster.instance_of(generation.number)
        assert instance is not None  # noqa: S101 - a request that has a token has an engine
        generation.instance, metrics = instance, self.metrics[instance]
        metrics.generation_tokens += 1
        if generation.first_us is None:
            generation.first_us = time_us
            metrics.prompt_tokens += generation.num_prompt_tokens
            metrics.ttft.observe((time_us - generation.arrival_us) / 1e6)
        elif generation.last_us is not None:
            metrics.itl.observe((time_us - generation.last_us) / 1e6)
        if generation.unsent_us is None:
            generation.unsent_us = time_us
        generation.last_us = time_us
        generation.num_ready += 1
        if generation.is_finished:
            self._ended(generation.number)
            self._count_finished(generation, metrics, time_us)
        generation.changed.set()

    def _ended(self, number: int) -> Generation | None:
        """Remove a request from those in flight; return it, None if it is not among them."""
        generation = self._live.pop(number, None)
        if generation is not None:
            self._blocks.release(generation.hash_ids)
        return generation

    def _count_finished(self, generation: Generation, metrics: Metrics, time_us: int) -> None:
        timing = self.timing(generation)
        metrics.finished[generation.answer.finish_reason] += 1
        metrics.e2e.observe((time_us - generation.arrival_us) / 1e6)
        metrics.queue.observe(timing.queue_us / 1e6)
        metrics.prefill.observe(timing.prefill_us / 1e6)
        metrics.decode.observe(timing.decode_us / 1e6)
        metrics.inference.observe((timing.prefill_us + timing.decode_us) / 1e6)
        if generation.num_ready > 1:
            metrics.tpot.observe(timing.decode_us / 1e6 / (generation.num_ready - 1))

    def _arm(self) -> None:
        """Wake when something is next due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_us = None if self.failure is not None else self._cluster.next_time_us()
        if next_us is not None:
            delay_s = max(0, next_us - self._clock_us()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)


def _refusal_of(error: InvalidConfig) -> Refusal:
    return Refusal(f"the server ends: {error}", status=503, kind="ServiceUnavailable")
