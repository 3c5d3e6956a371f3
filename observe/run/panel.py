"""The run on the screen: a panel on a terminal, a line every few seconds elsewhere.

Both read the run's counters from a thread of their own: a slow terminal cannot hold the event loop up.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from lazy_dataclasses import dataclass
from typing import TextIO

from observe.plan.send_plan import SendPlan
from observe.run.run_counts import LogHistogram, Progress
from observe.senders.exchange import Clock, monotonic_ns
from observe.senders.request_kinds import KINDS

_LINE_EVERY_S = 5.0
_FIRST_LINE_S = 2.0
_PANEL_PER_S = 4
_SWITCH_S = 0.0005
"""How long the panel's thread may keep the interpreter from the loop, against Python's usual 5 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A run at one moment. Times in s, latencies in ms as (p50, p99), None of nothing yet.

    ``generates``: its answers are tokens.
    """

    elapsed_s: float
    left_s: float | None
    num_planned: int
    num_due: int | None
    num_sent: int
    num_done: int
    num_failed: int
    in_flight: int
    peak_in_flight: int
    num_streaming: int
    output_tokens: int
    ttft_ms: tuple[float, float] | None
    itl_ms: tuple[float, float] | None
    generates: bool
    lag_ms: float | None


class Watcher:
    """Takes snapshots of one run."""

    def __init__(self, progress: Progress, plan: SendPlan, *, clock: Clock = monotonic_ns) -> None:
        self._progress = progress
        self._clock = clock
        self._generates = KINDS[plan.shape.api].generates
        self._open = plan.closed_loop is None and not plan.has_sessions
        self._due_us = sorted(due for due in plan.due_us if due is not None)

    def snapshot(self) -> Snapshot:
        """Return the run as it is now."""
        progress = self._progress
        now_ns = self._clock() if progress.end_ns is None else progress.end_ns
        elapsed_us = 0 if progress.start_ns is None else max(now_ns - progress.start_ns, 0) // 1000
        num_done = progress.num_done
        return Snapshot(
            elapsed_s=elapsed_us / 1e6,
            left_s=self._left_s(elapsed_us, num_done),
            num_planned=progress.num_planned,
            num_due=bisect_right(self._due_us, elapsed_us) if self._open else None,
            num_sent=progress.num_launched,
            num_done=num_done,
            num_failed=num_done - progress.status["ok"] - progress.status["cancelled"],
            in_flight=progress.in_flight,
            peak_in_flight=progress.peak_in_flight,
            num_streaming=min(progress.num_streaming, progress.in_flight),  # counted at different moments
            output_tokens=progress.output_tokens + progress.tokens_under_way,
            ttft_ms=_milliseconds(progress.ttft if progress.ttft.total else progress.first_event),
            itl_ms=_milliseconds(progress.itl),
            generates=self._generates,
            lag_ms=max(progress.dispatch_lag_us[-200:], default=0) / 1e3 if num_done else None,
        )

    def _left_s(self, elapsed_us: int, num_done: int) -> float | None:
        """Return how long until everything is sent; in a closed loop, at the pace so far."""
        if self._open:
            return max(self._due_us[-1] - elapsed_us, 0) / 1e6
        if num_done == 0:
            return None
        return (self._progress.num_planned - num_done) * elapsed_us / 1e6 / num_done


def _milliseconds(histogram: LogHistogram) -> tuple[float, float] | None:
    low, high = histogram.quantile(0.5), histogram.quantile(0.99)
    return None if low is None or high is None else (low / 1e3, high / 1e3)


def lines_of(snapshot: Snapshot) -> list[str]:
    """Return the panel's lines."""
    seconds = max(snapshot.elapsed_s, 1e-9)
    left = "" if snapshot.left_s is None else f", {snapshot.left_s:.0f} s of sending left"
    if snapshot.num_sent == snapshot.num_planned:
        left = f", all sent: waiting for {snapshot.in_flight} answers"
    rate = f"{snapshot.num_sent / seconds:.2f}/s"
    due = "" if snapshot.num_due is None else f" (scheduled {snapshot.num_due / seconds:.2f}/s)"
    failed = f", {snapshot.num_failed} failed" if snapshot.num_failed else ""
    lag = "" if snapshot.lag_ms is None else f" · lag ≤ {snapshot.lag_ms:.1f} ms"
    streaming = f", {snapshot.num_streaming} streaming" if snapshot.num_streaming else ""
    in_flight = f"in flight {snapshot.in_flight} (peak {snapshot.peak_in_flight})"
    lines = [
        f"{snapshot.elapsed_s:.0f} s{left}",
        f"sent {snapshot.num_sent} of {snapshot.num_planned}, {rate}{due}{lag}",
        f"done {snapshot.num_done}{failed} · {in_flight}{streaming}",
    ]
    if not snapshot.generates:
        return lines
    lines[-1] += f" · {snapshot.output_tokens / seconds:.0f} tokens/s"
    return [*lines, f"TTFT {_pair(snapshot.ttft_ms)} · ITL {_pair(snapshot.itl_ms)}"]


def _pair(quantiles: tuple[float, float] | None) -> str:
    return "-" if quantiles is None else f"p50 {quantiles[0]:.1f} p99 {quantiles[1]:.1f} ms"


def show(stream: TextIO | None = None) -> Callable[[Progress, SendPlan], AbstractContextManager[None]]:
    """Return what shows a run on ``stream`` (default: stderr) in the way that suits it."""
    out = sys.stderr if stream is None else stream
    return _show_panel if out.isatty() else _line_shower(out)


@contextmanager
def _show_panel(progress: Progress, plan: SendPlan) -> Iterator[None]:
    from rich.console import Console
    from rich.live import Live
    from rich.panel import Panel
    from rich.text import Text

    watcher = Watcher(progress, plan)

    def panel() -> Panel:
        return Panel(Text("\n".join(lines_of(watcher.snapshot()))), title="observe", expand=False)

    live = Live(
        console=Console(stderr=True), get_renderable=panel, refresh_per_second=_PANEL_PER_S, transient=True
    )
    with _quick_switching(), live:
        yield


def _line_shower(out: TextIO) -> Callable[[Progress, SendPlan], AbstractContextManager[None]]:
    @contextmanager
    def showing(progress: Progress, plan: SendPlan) -> Iterator[None]:
        watcher = Watcher(progress, plan)
        ended = threading.Event()

        def speak() -> None:
            pause = _FIRST_LINE_S
            while not ended.wait(pause):
                out.write("observe: " + " | ".join(lines_of(watcher.snapshot())) + "\n")
                out.flush()
                pause = _LINE_EVERY_S

        thread = threading.Thread(target=speak, name="observe-lines", daemon=True)
        with _quick_switching():
            thread.start()
            try:
                yield
            finally:
                ended.set()
                thread.join(timeout=1.0)

    return showing


@contextmanager
def _quick_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
