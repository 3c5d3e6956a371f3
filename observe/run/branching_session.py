"""A session whose requests form a tree: each is sent its pause after the last of the answers that it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from observe.plan.chains import Chain
    from observe.plan.send_plan import SendPlan


class SendRow(Protocol):
    """Sends a row of the plan."""

    def __call__(self, row: int, *, due_ns: int, is_paced: bool) -> Coroutine[None, None, int]:
        """Send ``row`` at ``due_ns``; return when its answer was there, or had failed."""


class SessionUnderWay:
    """One session in progress. A failed answer counts as one: requests that wait for it are sent, as in the simulator.

    Only requests whose answers are all in have a task: a session may have thousands.
    """

    def __init__(self, rows: Chain, plan: SendPlan, send: SendRow) -> None:
        self._plan = plan
        self._send = send
        self._begins = plan.begins_of(rows)
        self._num_awaited: dict[int, int] = {}
        self._waiting_for: dict[int, list[int]] = {}
        for row in rows:
            awaited = plan.waits_for.get(row, ())
            self._num_awaited[row] = len(awaited)
            for before in awaited:
                self._waiting_for.setdefault(before, []).append(row)
        self._answered_ns: dict[int, int] = {}
        self._last_ns = 0

    async def run(self, begin_ns: int, *, is_paced: bool = True) -> int:
        """Send all of it; return when the last answer was there. Times in ns of the run's clock.

        ``begin_ns``: what a row's own time counts from. ``is_paced``: such times are the plan's, not an answer's.
        """
        self._last_ns = begin_ns
        async with asyncio.TaskGroup() as sending:
            for row in self._begins:
                due_ns = begin_ns + (self._plan.due_us[row] or 0) * 1000
                sending.create_task(self._go_on(row, due_ns, sending, is_paced=is_paced))
        return self._last_ns

    async def _go_on(self, row: int, due_ns: int, sending: asyncio.TaskGroup, *, is_paced: bool) -> None:
        """Send ``row``, and release the rows that waited for its answer alone."""
        answered_ns = await self._send(row, due_ns=due_ns, is_paced=is_paced)
        self._last_ns = max(self._last_ns, answered_ns)
        for after in self._waiting_for.pop(row, ()):
            self._answered_ns[after] = max(self._answered_ns.get(after, 0), answered_ns)
            self._num_awaited[after] -= 1
            if self._num_awaited[after] == 0:
                next_ns = self._answered_ns.pop(after) + self._plan.think_us[after] * 1000
                sending.create_task(self._go_on(after, next_ns, sending, is_paced=False))
