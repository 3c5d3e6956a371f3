"""Sending a plan: each request at its own time, which is never shifted; lateness is recorded."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from itertools import islice, pairwise
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

from observe.plan.chains import Chain
from observe.plan.conversations import Conversation, Replies
from observe.plan.send_plan import SendPlan
from observe.run.in_flight_counts import InFlightCounter
from observe.run.pacer import Pacer
from observe.run.run_counts import Progress
from observe.run.sent_request import SentRequest
from observe.run.timeouts import overdue_reason
from observe.senders.exchange import Clock, Exchange, Held, LastPoll, Sender, answer_limit, monotonic_ns
from observe.senders.retry import is_retryable, pause_s
from observe.settings import Limits

if TYPE_CHECKING:
    from observe.run.places import CappedPlaces

_TICK_S = 0.02
"""How often the loop's own lateness is sampled; every fifth time the timeouts are checked."""

_LAUNCHES_PER_TURN = 16
"""Requests released at once when many are due, before the loop may send and read."""

_BEGIN_AHEAD_NS = 100_000_000
_MAKE_AHEAD_NS = 20_000_000
"""How long before its time a session is begun, and a prompt made: one of 100,000 tokens takes some 4 ms."""

_FAILURES_PER_COLLECTION = 500
"""An exception leaves a cycle of some 15 KB, and the collector is off; whole answers leave none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """How long the run was, and the CPU it took; ``interrupted``: it was told to stop.

    ``stopped``: why it stopped itself, or None.
    """

    duration_ns: int
    cpu_s: float
    interrupted: bool
    stopped: str | None


class LoadRun:
    """One run of a plan; every exchange goes to ``on_end`` when it ends.

    The reader of the answers hands those that a session waits for to ``replies``.
    """

    def __init__(
        self,
        plan: SendPlan,
        sender: Sender,
        *,
        progress: Progress,
        on_end: Callable[[SentRequest], None],
        limits: Limits,
        id_prefix: str = "vtwin",
        clock: Clock = monotonic_ns,
    ) -> None:
        self._plan = plan
        self._sender = sender
        self._progress = progress
        self._on_end = on_end
        self._limits = limits
        self._id_prefix = id_prefix
        self._held = Held()
        self._last_poll = LastPoll()
        self._clock = clock
        self.replies = Replies()
        self._pacer = Pacer(clock=clock)
        self._places = _places(limits, clock, plan)
        self._no_more = asyncio.Event()
        self._in_flight: dict[asyncio.Task[None], SentRequest] = {}
        self._in_flight_counter = InFlightCounter(progress)
        self._dispatchers: list[asyncio.Task[object]] = []
        self._crash: BaseException | None = None
        self._interrupted = False
        self._stopped: str | None = None
        self._start_ns = 0
        self._num_uncollected_failures = 0

    async def execute(self, start_ns: int) -> RunFacts:
        """Send everything, due times counted from ``start_ns``, and wait for the last answer."""
        self._start_ns = start_ns
        self._progress.start_ns = self._start_ns
        watch = asyncio.create_task(self._watch())
        cpu_before = time.process_time()
        try:
            await self._dispatch_all()
            while self._in_flight:
                await asyncio.wait(list(self._in_flight))
        finally:
            watch.cancel()
            self._in_flight_counter.count(())
            self._pacer.close()
            self.abort()
        if self._crash is not None:
            raise self._crash
        self._progress.end_ns = self._clock()
        return RunFacts(
            duration_ns=self._progress.end_ns - self._start_ns,
            cpu_s=time.process_time() - cpu_before,
            interrupted=self._interrupted,
            stopped=self._stopped,
        )

    def drain(self) -> None:
        """Send nothing more; wait for the requests in flight, within the limit's time."""
        self._interrupted = True
        self._send_no_more()

    def stop(self, reason: str) -> None:
        """Do the same because of a result of the run."""
        self._stopped = reason
        self._send_no_more()

    def _send_no_more(self) -> None:
        self._no_more.set()
        for dispatcher in self._dispatchers:
            dispatcher.cancel()
        asyncio.get_running_loop().call_later(self._limits.drain_s, self.abort)

    def abort(self) -> None:
        """Send nothing more and drop every connection that an answer is still due on."""
        self._no_more.set()
        for dispatcher in self._dispatchers:
            dispatcher.cancel()
        for task, request in self._in_flight.items():
            request.exchange.fail("aborted", "aborted by the client before the answer was complete")
            task.cancel()

    async def _dispatch_all(self) -> None:
        loop, chains = self._plan.closed_loop, iter(self._plan.chains)
        if loop is None and self._plan.waits_for:
            self._dispatch(self._begin_sessions(chains))
        elif loop is None:
            self._dispatch(self._send_when_due(chains))
        elif loop.in_waves:
            self._dispatch(self._send_in_waves(chains, loop.concurrency))
        else:
            for _ in range(min(loop.concurrency, len(self._plan.chains))):
                be_user = self._be_user_of_trees if self._plan.waits_for else self._be_user
                self._dispatch(be_user(chains))
        while pending := [dispatcher for dispatcher in self._dispatchers if not dispatcher.done()]:
            await asyncio.wait(pending)
        for dispatcher in self._dispatchers:
            with suppress(asyncio.CancelledError):
                dispatcher.result()

    def _dispatch(self, coroutine: Coroutine[None, None, object]) -> None:
        self._dispatchers.append(asyncio.create_task(coroutine))

    async def _send_when_due(self, chains: Iterator[Chain]) -> None:
        """Open loop: the plan's times decide, independent of the answers, except for a session's later rounds."""
        held_until_ns = (
            0  # by the cap: requests are sent in order, so one that is held back holds back those behind it
        )
        for count, chain in enumerate(chains, start=1):
            row = chain[0]
            body = self._plan.take_body(row)
            due_ns = self._planned_ns(row)
            await self._pacer.until(due_ns)
            held_until_ns = max(await self._take_place(row, due_ns), held_until_ns)
            task, request = self._launch(row, body, due_ns=due_ns, ready_ns=held_until_ns)
            if len(chain) > 1:
                self._dispatch(self._converse(chain, task, request))
            if count % _LAUNCHES_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _be_user(self, chains: Iterator[Chain]) -> None:
        """Act as one user of a closed loop, who begins the next session when the last is over."""
        free_ns = self._start_ns
        for chain in chains:
            row = chain[0]
            body = self._plan.take_body(row)
            is_paced = self._plan.due_us[row] is not None
            due_ns = self._planned_ns(row) if is_paced else free_ns + self._plan.think_us[row] * 1000
            await self._pacer.until(due_ns)
            ready_ns = await self._take_place(row, due_ns)
            task, request = self._launch(row, body, due_ns=due_ns, ready_ns=ready_ns, is_paced=is_paced)
            free_ns = await self._converse(chain, task, request)

    async def _converse(self, chain: Chain, task: asyncio.Task[None], request: SentRequest) -> int:
        """Continue a session whose first request is in flight; return when its last answer was there.

        A failed round ends it if the next would build on its answer.
        """
        conversation = Conversation(self._plan)
        for before, row in pairwise(chain):
            await asyncio.wait([task])
            reply = await self.replies.of(before)
            if reply is None and row in self._plan.extends_row:
                self._progress.num_not_continued += len(chain) - chain.index(row)
                break
            body, num_tokens = conversation.next_body(row, reply)
            answered_ns = request.end_ns or self._clock()
            due_ns = max(self._planned_ns(row), answered_ns + self._plan.think_us[row] * 1000)
            await self._pacer.until(due_ns)
            ready_ns = await self._take_place(row, due_ns)
            task, request = self._launch(row, body, due_ns=due_ns, ready_ns=ready_ns, is_paced=False)
            request.input_tokens = num_tokens
        await asyncio.wait([task])
        return request.end_ns or self._clock()

    async def _begin_sessions(self, chains: Iterator[Chain]) -> None:
        """Open loop of sessions that branch: each is begun ahead of its first request."""
        from observe.run.branching_session import SessionUnderWay

        for chain in chains:
            first_ns = min(self._planned_ns(row) for row in self._plan.begins_of(chain))
            await self._pacer.until(first_ns - _BEGIN_AHEAD_NS)
            self._dispatch(SessionUnderWay(chain, self._plan, self._send_at).run(self._start_ns))

    async def _be_user_of_trees(self, chains: Iterator[Chain]) -> None:
        """Act as one user of a closed loop: go through one session after another."""
        from observe.run.branching_session import SessionUnderWay

        begin_ns = self._start_ns
        for chain in chains:
            row = self._plan.begins_of(chain)[0]
            is_paced = self._plan.due_us[row] is not None
            if not is_paced:
                begin_ns += self._plan.think_us[row] * 1000
            begin_ns = await SessionUnderWay(chain, self._plan, self._send_at).run(
                begin_ns, is_paced=is_paced
            )

    async def _send_at(self, row: int, *, due_ns: int, is_paced: bool) -> int:
        """Send a row at its time; return when its answer was there. Its prompt is made just before, and not kept."""
        if self._places is None:
            await self._pacer.until(due_ns - _MAKE_AHEAD_NS)
            body, ready_ns = self._plan.take_body(row), due_ns
            await self._pacer.until(due_ns)
        else:  # it may wait long: no prompt is made before that
            await self._pacer.until(due_ns)
            ready_ns = await self._take_place(row, due_ns)
            body = self._plan.take_body(row)
        task, request = self._launch(row, body, due_ns=due_ns, ready_ns=ready_ns, is_paced=is_paced)
        await asyncio.wait([task])
        return request.end_ns or self._clock()

    async def _send_in_waves(self, chains: Iterator[Chain], size: int) -> None:
        """Send ``size`` requests at once, and the next as many when the last of them is answered."""
        due_ns = self._start_ns
        while wave := list(islice(chains, size)):
            bodies = [self._plan.take_body(row) for (row, *_) in wave]
            await self._pacer.until(due_ns)
            launched = [
                self._launch(row, body, due_ns=due_ns, ready_ns=due_ns)
                for (row, *_), body in zip(wave, bodies, strict=True)
            ]
            await asyncio.wait([task for task, _ in launched])
            ended_ns = max(request.end_ns or self._clock() for _, request in launched)
            due_ns = ended_ns + self._plan.think_us[wave[0][0]] * 1000

    def _planned_ns(self, row: int) -> int:
        """Return the row's own time; of one that has none, the run's start."""
        return self._start_ns + (self._plan.due_us[row] or 0) * 1000

    async def _take_place(self, row: int, due_ns: int) -> int:
        """Wait until the caps leave room for one more; return when they did."""
        return due_ns if self._places is None else await self._places.take(row, due_ns)

    def _launch(
        self, row: int, body: bytes, *, due_ns: int, ready_ns: int, is_paced: bool = True
    ) -> tuple[asyncio.Task[None], SentRequest]:
        exchange = Exchange(
            x_request_id=f"{self._id_prefix}-{row}",
            ready_ns=ready_ns,
            body=body,
            headers=self._plan.headers[row],
            limit=answer_limit(self._plan.shape.longest_answer(self._plan.max_tokens[row])),
            held=self._held,
            last_poll=self._last_poll,
        )
        request = SentRequest(
            row=row,
            exchange=exchange,
            due_ns=due_ns,
            number=self._progress.num_launched,
            is_paced=is_paced,
        )
        self._progress.note_launch(held_back=ready_ns > due_ns)
        task = asyncio.create_task(self._send_with_retries(request))
        self._in_flight[task] = request
        task.add_done_callback(self._end)
        return task, request

    async def _send_with_retries(self, request: SentRequest) -> None:
        """Send until there is an answer, or a failure that stands."""
        try:
            await self._send(request)
            while self._may_retry(request):
                request.is_waiting_to_retry = True
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._no_more.wait(), self._pause_s(request))
                if self._no_more.is_set():
                    break
                request.begin_retry(self._clock())
                await self._send(request)
        except asyncio.CancelledError:  # only this run cancels it, and sets the reason first
            request.exchange.fail("aborted", "aborted by the client before the answer was complete")
        request.end_ns = self._clock()
        request.exchange.body = b""

    async def _send(self, request: SentRequest) -> None:
        if self._places is not None:
            self._places.watch(request)
        cut = self._plan.cuts.get(request.row)
        if cut is None:
            await self._sender.send(request.exchange)
        else:
            from observe.run.cuts import send_until_cut

            as_completion = self._plan.shape.as_completion
            await send_until_cut(
                self._sender, request.exchange, cut, clock=self._clock, as_completion=as_completion
            )

    def _pause_s(self, request: SentRequest) -> float:
        """Return the wait before the next attempt; count each Retry-After that is cut."""
        most_s = self._limits.max_retry_wait_s
        self._progress.num_waits_cut += (request.exchange.retry_after_s or 0) > most_s
        return pause_s(request.exchange, request.num_attempts, most_s=most_s)

    def _may_retry(self, request: SentRequest) -> bool:
        tries_left = request.num_attempts <= self._limits.max_retries
        return tries_left and not self._no_more.is_set() and is_retryable(request.exchange)

    def _end(self, task: asyncio.Task[None]) -> None:
        request = self._in_flight.pop(task)
        if self._places is not None:
            self._places.leave(request.row)
        self._progress.note_end(request)
        self._num_uncollected_failures += request.exchange.failure is not None
        if task.cancelled():  # before it had begun
            request.exchange.fail("aborted", "aborted by the client before it was sent")
        elif (fault := task.exception()) is not None:
            self._crash = fault
            self.abort()
        self._on_end(request)

    async def _watch(self) -> None:
        """Sample how late the loop wakes up, and give up on what is past its limits."""
        tick_ns = int(_TICK_S * 1e9)
        count = 0
        while True:
            before = self._clock()
            await asyncio.sleep(_TICK_S)
            self._progress.loop_lag.add(max(self._clock() - before - tick_ns, 0) / 1000)
            self._last_poll.ns = before  # the loop has looked at its sockets since, and read what was there
            count += 1
            if count % 5 == 0:
                self._give_up()
                self._in_flight_counter.count(request.exchange for request in self._in_flight.values())
            if self._num_uncollected_failures >= _FAILURES_PER_COLLECTION:
                self._num_uncollected_failures = 0
                gc.collect()

    def _give_up(self) -> None:
        now = self._clock()
        for task, request in self._in_flight.items():
            is_timed = self._plan.due_us[request.row] is not None
            deadline_us = self._plan.deadline_us[request.row] if is_timed else None
            deadline_ns = None if deadline_us is None else self._start_ns + deadline_us * 1000
            reason = overdue_reason(request, now, limits=self._limits, deadline_ns=deadline_ns)
            if reason is not None:
                request.exchange.fail("timeout", reason)
                task.cancel()


def _places(limits: Limits, clock: Clock, plan: SendPlan) -> CappedPlaces | None:
    """Return the places of a client with a cap; None without one."""
    if not limits.has_cap:
        return None
    from observe.run.places import CappedPlaces

    return CappedPlaces(limits, clock=clock, as_completion=plan.shape.as_completion)
