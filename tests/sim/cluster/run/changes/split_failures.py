"""A twin of prefill and decode instances that fail: the rule of docs/explanation/cluster.md in plain Python.

Every step takes equally long, there is room for everybody, and each transfer has the whole bandwidth. Requests go round
robin to those that are up.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

STEP_ENDS, TRANSFER_ENDS, FAILS, IS_UP, ARRIVES, STEP_STARTS = 0, 1, 2, 4, 7, 14
"""What happens first at one time, as in ``sim.cluster.events``."""

MOST_REQUESTS = 1 << 20
"""So many requests at most; at one time a first attempt comes before a second one."""


@dataclass(eq=False)
class Attempt:
    """A request that was sent; what became of it by the names of the cluster's columns, each once it is known."""

    number: int
    times: int
    left: int
    seen: dict[str, int] = field(default_factory=dict)
    stage: str = (
        "prefill"  # on that instance, then "asking", "moving", "decode"; then "done", "lost" or "dropped"
    )


@dataclass(eq=False)
class Engine:
    """An instance; ``new`` has come since its last step, ``ready`` has all its KV, ``news`` are not heard yet."""

    is_prefill: bool
    is_up: bool = True
    life: int = 0
    busy_until: int = -1
    new: list[Attempt] = field(default_factory=list)
    ready: list[Attempt] = field(default_factory=list)
    news: list[Attempt] = field(default_factory=list)


class Twin:
    """Runs attempts one event at a time."""

    def __init__(self, num_prefill: int, num_decode: int, step_us: int, pause_us: int, most: int) -> None:
        self.engines = [Engine(number < num_prefill) for number in range(num_prefill + num_decode)]
        self.step_us, self.pause_us, self.most = step_us, pause_us, most
        self.turns = {True: 0, False: 0}
        self.attempts: list[Attempt] = []
        self.num_cut_off = 0
        self._events: list[tuple[int, int, int, int, Callable[[int], None]]] = []
        self._order = count()

    def at(self, time_us: int, rank: int, do: Callable[[int], None], order: int | None = None) -> None:
        """Plan something."""
        number = next(self._order)
        heapq.heappush(self._events, (time_us, rank, number if order is None else order, number, do))

    def run(self) -> None:
        """Let everything happen."""
        while self._events:
            time_us, _, _, _, do = heapq.heappop(self._events)
            do(time_us)

    def send(self, number: int, at_us: int, output: int, moves_us: int, times: int = 1) -> None:
        """Let a request arrive."""
        attempt = Attempt(number, times, output, {"output": output, "moves": moves_us})
        self.at(
            at_us,
            ARRIVES,
            lambda time_us: self._route(attempt, time_us),
            order=number + times * MOST_REQUESTS,
        )

    def fail(self, engine: int, at_us: int, down_us: int) -> None:
        """Let an instance fail."""
        self.at(at_us, FAILS, lambda time_us: self._fail(engine, time_us, down_us))

    def _next(self, *, is_prefill: bool) -> int:
        up = [i for i, each in enumerate(self.engines) if each.is_up and each.is_prefill == is_prefill]
        if not up:
            return -1
        self.turns[is_prefill] += 1
        return up[(self.turns[is_prefill] - 1) % len(up)]

    def _route(self, attempt: Attempt, time_us: int) -> None:
        self.attempts.append(attempt)
        attempt.seen["instance"] = decode = self._next(is_prefill=False)
        attempt.seen["prefill_instance"] = -1
        if decode < 0:
            attempt.stage = "dropped"
            return
        attempt.seen["prefill_instance"] = prefill = self._next(is_prefill=True)
        attempt.stage = "decode" if prefill < 0 else "prefill"
        self._join(decode if prefill < 0 else prefill, attempt, time_us)

    def _join(self, engine: int, attempt: Attempt, time_us: int) -> None:
        self.engines[engine].new.append(attempt)
        self._wake(engine, time_us)

    def _wake(self, engine: int, time_us: int) -> None:
        each, life = self.engines[engine], self.engines[engine].life
        at_us = max(time_us, each.busy_until)
        self.at(at_us, STEP_STARTS, lambda now_us: self._step(engine, life, now_us), order=engine)

    def _step(self, engine: int, life: int, time_us: int) -> None:
        """Start a step with all who are there: a token each, but for those whose KV has yet to come."""
        each = self.engines[engine]
        if each.life != life or each.busy_until > time_us or not (each.new or each.ready or each.news):
            return
        for attempt in [other for other in each.new if other.stage == "asking"]:
            attempt.stage, attempt.seen["transfer_start_us"] = "moving", time_us
            ends_us = time_us + attempt.seen["moves"]
            self.at(ends_us, TRANSFER_ENDS, lambda now_us, who=attempt: self._arrived(who, now_us))  # type: ignore[misc]
        members = each.ready + [other for other in each.new if other.stage != "moving"]
        heard, each.new, each.news, each.ready = each.news, [], [], members
        each.busy_until = time_us + (self.step_us if members else 0)
        if members or heard:
            self.at(
                each.busy_until,
                STEP_ENDS,
                lambda now_us: self._end_step(engine, life, members, heard, now_us),
            )

    def _end_step(
        self, engine: int, life: int, members: list[Attempt], heard: list[Attempt], time_us: int
    ) -> None:
        each = self.engines[engine]
        if each.life != life:
            return
        for attempt in members:
            if attempt in each.ready:
                self._give(attempt, time_us)
        there = "prefill" if each.is_prefill else "decode"
        each.ready = [other for other in each.ready if other.stage == there]
        each.ready += [other for other in heard if other.stage == "decode"]
        self._wake(engine, time_us)

    def _give(self, attempt: Attempt, time_us: int) -> None:
        """Give an attempt a token; one that came from a prefill instance sends it on."""
        if attempt.stage == "prefill":
            attempt.stage, attempt.seen["prefilled_us"] = "asking", time_us
            self._join(attempt.seen["instance"], attempt, time_us)
            return
        attempt.seen.setdefault("first_token_us", time_us)
        attempt.left -= 1
        if attempt.left == 0:
            attempt.stage, attempt.seen["last_token_us"] = "done", time_us

    def _arrived(self, attempt: Attempt, time_us: int) -> None:
        if attempt.stage == "moving":
            attempt.stage, attempt.seen["transfer_end_us"] = "decode", time_us
            self.engines[attempt.seen["instance"]].news.append(attempt)
            self._wake(attempt.seen["instance"], time_us)

    def _fail(self, engine: int, time_us: int, down_us: int) -> None:
        """Lose whoever decodes here, or whose KV is here alone; they are sent again."""
        each = self.engines[engine]
        if not each.is_up:
            return
        name = "prefill_instance" if each.is_prefill else "instance"
        stages = ("prefill", "asking", "moving") + (() if each.is_prefill else ("decode",))
        for attempt in list(self.attempts):
            if attempt.seen[name] == engine and attempt.stage in stages:
                self.num_cut_off += attempt.stage == "moving"
                self._lose(attempt, time_us)
        each.is_up, each.life = False, each.life + 1
        each.new, each.ready, each.news = [], [], []
        ready_us, each.busy_until = max(time_us + down_us, each.busy_until), -1
        self.at(ready_us, IS_UP, lambda _: setattr(each, "is_up", True))

    def _lose(self, attempt: Attempt, time_us: int) -> None:
        attempt.stage, attempt.seen["left_us"] = "lost", time_us
        for each in self.engines:
            each.new = [other for other in each.new if other is not attempt]
            each.ready = [other for other in each.ready if other is not attempt]
        if attempt.times < self.most:
            seen, again_us = attempt.seen, time_us + self.pause_us
            self.send(attempt.number, again_us, seen["output"], seen["moves"], attempt.times + 1)
