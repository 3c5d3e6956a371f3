"""Probes: one light request at a fixed rate beside the load, in STEM.probes.csv. No part of the load or its figures.

A prompt of one token, an answer of one, as vllm bench's ``--probe-request-rate``. Due times are fixed: a late answer
delays no later probe, so that a server that stalls shows as a row of long ones.
"""

from __future__ import annotations

import asyncio
import csv
from collections import Counter
from collections.abc import Iterator
from itertools import count
from lazy_dataclasses import dataclass
from pathlib import Path

import numpy as np

from observe.plan.prompts import OWN, Prompts, Segment
from observe.plan.request_body import BodyShape
from observe.record.recorder import read_exchange
from observe.record.trace_row import failure_of
from observe.senders.choose_sender import open_sender
from observe.senders.exchange import Clock, Exchange, answer_limit, monotonic_ns
from observe.settings import Settings
from traces import ProbeInfo, TraceError, atomic_file, companion_file, stem_of

MOST_IN_FLIGHT = 256
"""Probes without an answer; while there are as many, further ones are recorded as not sent."""

_LAST_WAIT_S = 1.0
"""How long the probes in flight may take when the load is over."""

_KEYS = 1 << 60
"""From here on keys of probes' prompts: none is a request's."""

COLUMNS = ("due_us", "sent_us", "first_us", "last_us", "status", "error_message")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One probe; times in µs from the run's start, None until it happens. ``status``: as a request's."""

    due_us: int
    sent_us: int | None
    first_us: int | None
    last_us: int | None
    status: str
    message: str | None

    @property
    def latency_us(self) -> int | None:
        """From its sending to its whole answer; None without one."""
        if self.status != "ok" or self.sent_us is None or self.last_us is None:
            return None
        return self.last_us - self.sent_us


class Prober:
    """Sends ``settings.probe_rate`` probes a second over connections of its own. Made within a running loop."""

    def __init__(
        self, settings: Settings, *, prompts: Prompts, shape: BodyShape, clock: Clock = monotonic_ns
    ) -> None:
        assert settings.probe_rate is not None  # noqa: S101  the caller has looked
        self._settings = settings
        self._gap_ns = 1e9 / settings.probe_rate
        self._rate = settings.probe_rate
        self._sender = open_sender(settings.endpoint, settings.kind.path)
        self._clock = clock
        self._prompts, self._shape = prompts, shape
        self._in_flight: set[asyncio.Task[None]] = set()
        self._start_ns = 0
        self.probes: list[Probe] = []

    async def work(self, start_ns: int) -> None:
        """Send until cancelled, each probe at its time, whatever became of those before."""
        self._start_ns = start_ns
        for number in count():
            due_ns = start_ns + round(number * self._gap_ns)
            await asyncio.sleep(max(due_ns - self._clock(), 0) / 1e9)
            if len(self._in_flight) >= MOST_IN_FLIGHT:
                said = f"not sent: {MOST_IN_FLIGHT} probes had no answer yet"
                self._keep(due_ns, Exchange(x_request_id=""), None, status="error", message=said)
                continue
            sending = asyncio.create_task(self._send(number, due_ns))
            self._in_flight.add(sending)
            sending.add_done_callback(self._in_flight.discard)

    async def close(self) -> None:
        """Wait a moment for the probes in flight, drop the rest, close the connections."""
        if self._in_flight:
            _, late = await asyncio.wait(self._in_flight, timeout=_LAST_WAIT_S)
            for sending in late:
                sending.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._sender.close()

    async def _send(self, number: int, due_ns: int) -> None:
        exchange = Exchange(
            x_request_id=f"vtwin-probe-{number}",
            ready_ns=due_ns,
            body=self._body(number),
            limit=answer_limit(1),
        )
        limits = [s for s in (self._settings.limits.timeout_s, self._settings.limits.stall_timeout_s) if s]
        try:
            async with asyncio.timeout(min(limits, default=None)):
                await self._sender.send(exchange)
        except TimeoutError:
            exchange.fail("timeout", f"no complete answer within {min(limits):g} s")
        except asyncio.CancelledError:
            exchange.fail("aborted", "the load was over before the answer was complete")
        streaming = self._shape.streaming
        reading = await read_exchange(
            exchange,
            streaming=streaming,
            asked=1,
            as_completion=self._shape.as_completion,
            num_choices=self._shape.num_choices,
            hide=self._settings.endpoint.redact,
        )
        failure = failure_of(exchange, reading)
        self._keep(
            due_ns,
            exchange,
            reading.content_first,
            status="ok" if failure is None else failure.status,
            message=None if failure is None else failure.message,
        )

    def _body(self, number: int) -> bytes:
        prompt = self._prompts.render([Segment(OWN, _KEYS + number, 1)])
        return self._shape.body(prompt, max_tokens=1, model=None, priority=None)

    def _keep(
        self, due_ns: int, exchange: Exchange, first_ns: int | None, *, status: str, message: str | None
    ) -> None:
        def since_start(stamp: int | None) -> int | None:
            return None if stamp is None else max(stamp - self._start_ns, 0) // 1000

        self.probes.append(
            Probe(
                due_us=(due_ns - self._start_ns) // 1000,
                sent_us=since_start(exchange.dispatched_ns),
                first_us=since_start(first_ns),
                last_us=since_start(exchange.stamps[-1] if exchange.stamps else None),
                status=status,
                message=message,
            )
        )

    def write(self, stem: str | Path) -> None:
        """Write ``STEM.probes.csv``, a row per probe by due time. Raises TraceError where it cannot be written."""
        target = companion_file(stem_of(stem), ".probes.csv")
        with (
            atomic_file(target, option="--probe-rate", error=TraceError) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as file,
        ):
            table = csv.writer(file, lineterminator="\n")
            table.writerow(COLUMNS)
            table.writerows(self._rows())

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for each in sorted(self.probes, key=lambda probe: probe.due_us):
            yield (each.due_us, each.sent_us, each.first_us, each.last_us, each.status, each.message)

    def info(self) -> ProbeInfo:
        """Return what the header says of them."""
        return probe_info(self.probes, rate_per_s=self._rate)


def probe_info(probes: list[Probe], *, rate_per_s: float) -> ProbeInfo:
    """Return counts and latencies of probes: mean and quantiles of those that were answered whole."""
    known = np.array([each.latency_us for each in probes if each.latency_us is not None], dtype=np.float64)
    latencies = {"mean": float(known.mean()), "max": float(known.max())} if len(known) else {}
    if len(known):
        latencies |= {f"p{q}": float(np.percentile(known, q)) for q in (50, 90, 99)}
    counts = Counter(each.status for each in probes)
    return ProbeInfo(
        rate_per_s=rate_per_s,
        num_probes=len(probes),
        num_failed=len(probes) - counts["ok"],
        latency_us={name: round(value, 1) for name, value in latencies.items()},
    )
