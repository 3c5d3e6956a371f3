"""Sending a plan: each request at its own time, never re-anchored, the late ones' lateness recorded."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from observe.exchange import Clock, Exchange, Sender, monotonic_ns
from observe.pacer import Pacer
from observe.plan import SendPlan
from observe.progress import Progress
from observe.settings import Limits

_TICK_S = 0.02
"""How often the loop's own lateness is sampled; every fifth time the timeouts are looked at."""

_LAUNCHES_PER_TURN = 16
"""Requests let go at once when many are due, before the loop may send and read."""


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
    """One run of a plan; every exchange goes to ``on_end`` when it ends."""

    def __init__(
        self,
        plan: SendPlan,
        sender: Sender,
        *,
        progress: Progress,
        on_end: Callable[[Exchange], None],
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
        self._clock = clock
        self._slots = asyncio.Semaphore(limits.max_concurrency) if limits.max_concurrency else None
        self._slot_free_ns = 0
        self._under_way: dict[asyncio.Task[None], Exchange] = {}
        self._dispatchers: list[asyncio.Task[None]] = []
        self._crash: BaseException | None = None
        self._interrupted = False
        self._stopped: str | None = None
        self._start_ns = 0
        self._garbage = 0

    async def execute(self, start_ns: int) -> RunFacts:
        """Send everything, due times counted from ``start_ns``, and wait for the last answer."""
        self._start_ns = start_ns
        self._progress.start_ns = self._start_ns
        pacer = Pacer(clock=self._clock)
        watch = asyncio.create_task(self._watch())
        cpu_before = time.process_time()
        try:
            await self._dispatch_all(pacer)
            while self._under_way:
                await asyncio.wait(list(self._under_way))
        finally:
            watch.cancel()
            pacer.close()
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
        """Send nothing more; let what is under way finish, within the limit's time."""
        self._interrupted = True
        self._send_no_more()

    def stop(self, reason: str) -> None:
        """Do the same because of what the run has shown."""
        self._stopped = reason
        self._send_no_more()

    def _send_no_more(self) -> None:
        for dispatcher in self._dispatchers:
            dispatcher.cancel()
        asyncio.get_running_loop().call_later(self._limits.drain_s, self.abort)

    def abort(self) -> None:
        """Send nothing more and drop every connection that an answer is still due on."""
        for dispatcher in self._dispatchers:
            dispatcher.cancel()
        for task, exchange in self._under_way.items():
            exchange.fail("aborted", "aborted by the client before the answer was whole")
            task.cancel()

    async def _dispatch_all(self, pacer: Pacer) -> None:
        loop = self._plan.closed_loop
        if loop is None:
            coroutines = [self._send_when_due(pacer)]
        else:
            rows = iter(self._plan.order)
            coroutines = [self._be_user(rows, pacer) for _ in range(min(loop.concurrency, len(self._plan)))]
        self._dispatchers = [asyncio.create_task(coroutine) for coroutine in coroutines]
        for ended in await asyncio.gather(*self._dispatchers, return_exceptions=True):
            if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
                raise ended

    async def _send_when_due(self, pacer: Pacer) -> None:
        """Open loop: the plan's times decide, whatever the answers do."""
        for count, row in enumerate(self._plan.order, start=1):
            body = self._plan.take_body(row)
            due_ns = self._start_ns + (self._plan.due_us[row] or 0) * 1000
            await pacer.until(due_ns)
            if self._slots is not None:
                await self._take_slot(self._slots)
            self._launch(row, body, due_ns=due_ns)
            if count % _LAUNCHES_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _be_user(self, rows: Iterator[int], pacer: Pacer) -> None:
        """Be one user of a closed loop, who takes the next row when the last answer is there."""
        free_ns = self._start_ns
        for row in rows:
            body = self._plan.take_body(row)
            planned_us = self._plan.due_us[row]
            think_us = self._plan.think_us[row] if planned_us is None else planned_us
            base_ns = free_ns if planned_us is None else self._start_ns
            due_ns = base_ns + think_us * 1000
            await pacer.until(due_ns)
            task, exchange = self._launch(row, body, due_ns=due_ns)
            await asyncio.wait([task])
            free_ns = exchange.end_ns or self._clock()

    async def _take_slot(self, slots: asyncio.Semaphore) -> None:
        """Wait until the cap lets one more go; the time that takes is the cap's, not the client's."""
        if slots.locked():
            await slots.acquire()
            self._slot_free_ns = self._clock()
        else:
            await slots.acquire()

    def _launch(self, row: int, body: bytes, *, due_ns: int) -> tuple[asyncio.Task[None], Exchange]:
        exchange = Exchange(
            index=row,
            due_ns=due_ns,
            ready_ns=max(due_ns, self._slot_free_ns),
            x_request_id=f"{self._id_prefix}-{row}",
            body=body,
            headers=self._plan.headers[row],
        )
        self._progress.note_launch(held_back=exchange.ready_ns > due_ns)
        task = asyncio.create_task(self._carry(exchange))
        self._under_way[task] = exchange
        task.add_done_callback(self._end)
        return task, exchange

    async def _carry(self, exchange: Exchange) -> None:
        try:
            await self._sender.send(exchange)
        except asyncio.CancelledError:  # only this run cancels it, and says why beforehand
            exchange.fail("aborted", "aborted by the client before the answer was whole")
        exchange.end_ns = self._clock()
        exchange.body = b""

    def _end(self, task: asyncio.Task[None]) -> None:
        exchange = self._under_way.pop(task)
        if self._slots is not None:
            self._slots.release()
        self._progress.note_end(exchange)
        self._garbage += exchange.failure is not None
        if task.cancelled():  # before it had begun
            exchange.fail("aborted", "aborted by the client before it was sent")
        elif (fault := task.exception()) is not None:
            self._crash = fault
            self.abort()
        self._on_end(exchange)

    async def _watch(self) -> None:
        """Sample how late the loop wakes up, and give up on what is past its limits."""
        tick_ns = int(_TICK_S * 1e9)
        count = 0
        while True:
            before = self._clock()
            await asyncio.sleep(_TICK_S)
            self._progress.loop_lag.add(max(self._clock() - before - tick_ns, 0) / 1000)
            count += 1
            if count % 5 == 0:
                self._give_up()
            if self._garbage >= _FAILURES_PER_COLLECTION:
                self._garbage = 0
                gc.collect()

    def _give_up(self) -> None:
        now = self._clock()
        for task, exchange in self._under_way.items():
            reason = self._overdue(exchange, now)
            if reason is not None:
                exchange.fail("timeout", reason)
                task.cancel()

    def _overdue(self, exchange: Exchange, now: int) -> str | None:
        """Return why the client gives up on ``exchange`` at ``now``, or None."""
        limits = self._limits
        waited_s = (now - (exchange.dispatched_ns or exchange.ready_ns)) / 1e9
        if limits.timeout_s is not None and waited_s > limits.timeout_s:
            return f"no whole answer within {limits.timeout_s:g} s (--timeout)"
        silent_s = (now - exchange.last_activity_ns()) / 1e9
        if limits.stall_timeout_s is not None and silent_s > limits.stall_timeout_s:
            return f"no byte for {limits.stall_timeout_s:g} s (--stall-timeout)"
        deadline_us = self._plan.deadline_us[exchange.index]
        paced_by_plan = self._plan.due_us[exchange.index] is not None
        if deadline_us is not None and paced_by_plan and now > self._start_ns + deadline_us * 1000:
            return f"no whole answer by the deadline, {deadline_us} us into the run"
        return None
