"""Waiting for a moment of the clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from observe.run.pacer import LoopAlarm, Pacer, TimerfdAlarm
from observe.senders.exchange import monotonic_ns

MS = 1_000_000


@pytest.mark.parametrize("precise", [True, False])
async def test_everyone_is_woken_in_the_order_of_their_moments_and_never_early(precise: bool) -> None:
    clock = monotonic_ns if precise else time.monotonic_ns.__call__
    pacer = Pacer(clock=clock)
    assert isinstance(pacer._alarm, TimerfdAlarm if precise else LoopAlarm)
    woken: list[int] = []
    lead_ns, begun_ns, start = 10 * MS, 1, 0

    async def wait(delay_ms: int) -> None:
        nonlocal begun_ns
        begun_ns = monotonic_ns()
        await pacer.until(start + delay_ms * MS)
        assert monotonic_ns() >= start + delay_ms * MS
        woken.append(delay_ms)

    while begun_ns > start - 6 * MS:  # the machine let a moment pass before all of them waited
        lead_ns, start = 2 * lead_ns, monotonic_ns() + lead_ns
        woken.clear()
        await asyncio.gather(*(wait(delay) for delay in (30, 10, 20, 10, -5, 0)))
    await pacer.until(start)  # past: at once
    pacer.close()
    assert woken == [-5, 0, 10, 10, 20, 30]


async def test_one_who_gives_up_waiting_holds_nobody_up() -> None:
    pacer = Pacer()
    now = monotonic_ns()
    first, second = (asyncio.create_task(pacer.until(now + delay * MS)) for delay in (5, 15))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait_for(second, 1)
    pacer.close()


async def test_closing_releases_those_who_wait() -> None:
    pacer = Pacer()
    waiting = asyncio.create_task(pacer.until(monotonic_ns() + 10_000 * MS))
    await asyncio.sleep(0)
    pacer.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
