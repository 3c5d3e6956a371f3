"""A clock that jumps while a load is sent: it is told, and no time of the trace moves."""

from __future__ import annotations

import time

import pytest

from observe.run.wall_clock import WallClock
from observe.senders.exchange import monotonic_ns
from tests.observe.servers import observed, serving
from tests.observe.workloads import every, workload

HOUR_NS = 3_600_000_000_000


def after(*, passed_ns: int, wall_ns: int) -> tuple[str, ...]:
    """Return the notes of a run of ``passed_ns`` in which the wall clock went on by ``wall_ns``."""
    walls, clocks = iter((5 * HOUR_NS, 5 * HOUR_NS + wall_ns)), iter((7, 7 + passed_ns))
    return WallClock(wall=lambda: next(walls), clock=lambda: next(clocks)).notes()


@pytest.mark.parametrize(("step_ns", "told"), [(HOUR_NS, "+3,600.000 s"), (-50_000_000, "-0.050 s")])
def test_a_step_is_told_with_its_size(step_ns: int, told: str) -> None:
    (note,) = after(passed_ns=10_000_000_000, wall_ns=10_000_000_000 + step_ns)
    assert f"the machine's clock was set by {told} during the run" in note


@pytest.mark.parametrize("drift", [0.0, 500e-6, -500e-6])
def test_a_clock_that_is_corrected_bit_by_bit_is_no_step(drift: float) -> None:
    assert after(passed_ns=HOUR_NS, wall_ns=round(HOUR_NS * (1 + drift))) == ()


async def test_a_step_during_a_run_moves_no_time_of_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour back at every look at the clock: the kernel's stamps are compared with it, too."""
    looks = iter(range(1, 10**9))
    real = time.time_ns
    monkeypatch.setattr("time.time_ns", lambda: real() - next(looks) * HOUR_NS)
    monkeypatch.setattr(
        "observe.observation.WallClock", lambda: WallClock(wall=time.time_ns, clock=monotonic_ns)
    )
    async with serving() as server:
        trace = (await observed(server, workload(every(20_000, 10)))).trace
    assert trace.header.client is not None
    assert [each for each in trace.header.client.notes if "the machine's clock was set by -" in each]
    for name in ("send_time_us", "first_chunk_time_us", "last_chunk_time_us"):
        times = trace.column(name).to_numpy(dtype=float)
        assert ((times >= 0) & (times < 10e6)).all()
    assert (trace.column("first_chunk_time_us") >= trace.column("send_time_us")).all()
