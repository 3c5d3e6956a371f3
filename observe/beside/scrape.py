"""The server's gauges over time, in STEM.gauges.csv: a row per gauge and moment; of a vLLM unless told not to."""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import Sequence
from pathlib import Path

from observe.senders.exchange import Clock, monotonic_ns
from observe.server.http_client import ServerClient, WholeAnswer
from observe.server.prometheus_text import parse_metrics
from traces import TraceError, atomic_file, companion_file, stem_of

_GAUGE = re.compile(rb"^# TYPE (vllm:\S+) gauge\s*$", re.MULTILINE)
_NO_GAUGES = (b"_info", b"_created")
"""Ends of names whose values never change: labels, and the creation time of a counter."""

USUAL_S = 1.0
"""How often where the user says nothing: a few thousandths of a core, and enough moments for seats to show."""


class Scraper:
    """Asks ``/metrics`` every ``period_s`` and keeps vLLM's gauges, times in µs from the run's start.

    ``is_asked_for``: by the user, who need not be told where the file is, and is told if there is none.
    """

    def __init__(
        self,
        client: ServerClient,
        *,
        period_s: float,
        clock: Clock = monotonic_ns,
        is_asked_for: bool = True,
    ) -> None:
        self._client = client
        self._period_s = period_s
        self._clock = clock
        self._is_asked_for = is_asked_for
        self._num_read = 0
        self._rows: list[tuple[int, str, float]] = []
        self._wanted: re.Pattern[bytes] | None = None
        self.num_missed = 0

    async def work(self, start_ns: int) -> None:
        """Scrape until cancelled; a scrape that fails is counted and passed over."""
        due_ns = start_ns
        while True:
            await asyncio.sleep(max(due_ns - self._clock(), 0) / 1e9)
            answer = await self._client.try_get("/metrics")
            if answer is None:
                self.num_missed += 1
            else:
                self._keep(answer, max(self._clock() - start_ns, 0) // 1000)
            due_ns = max(due_ns + round(self._period_s * 1e9), self._clock())

    def _keep(self, answer: WholeAnswer, time_us: int) -> None:
        """Keep the gauges' lines; only those are parsed, which takes little of the loop's time."""
        self._num_read += 1
        if self._wanted is None:
            names = sorted({name for name in _GAUGE.findall(answer.body) if not name.endswith(_NO_GAUGES)})
            self._wanted = re.compile(
                rb"^(?:" + b"|".join(map(re.escape, names)) + rb")[{ ].*$" if names else rb"(?!)",
                re.MULTILINE,
            )
        lines = b"\n".join(self._wanted.findall(answer.body)).decode("utf-8", "replace")
        self._rows += [
            (time_us, self._client.hide(sample.key), sample.value) for sample in parse_metrics(lines)
        ]

    def write(self, stem: str | Path) -> str | None:
        """Write the scraped gauges to ``STEM.gauges.csv``; return a remark if there are none, or too few.

        Raises TraceError where it cannot be written.
        """
        if not self._rows:
            return "--scrape: no gauges at /metrics" if self._is_asked_for else None
        target = companion_file(stem_of(stem), ".gauges.csv")
        _write_rows(target, self._rows)
        missed = f"{self.num_missed} scrapes failed" if self.num_missed else ""
        if self._is_asked_for:
            return f"--scrape: {missed}" if missed else None
        times = "once" if self._num_read == 1 else f"{self._num_read:,} times, every {self._period_s:g} s"
        said = f"the server's gauges were read {times}, for {target.name}"
        return f"{said}{f'; {missed}' if missed else ''}. --no-scrape leaves that out"


def _write_rows(target: Path, rows: Sequence[tuple[int, str, float]]) -> None:
    with (
        atomic_file(target, option="--scrape", error=TraceError) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("time_us", "gauge", "value"))
        table.writerows(rows)
