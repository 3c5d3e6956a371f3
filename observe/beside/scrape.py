"""Gauges over time, in STEM.gauges.csv: a row per series and moment; the server's own, and those of other endpoints."""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path
from urllib.parse import urlsplit

from observe.senders.endpoint import Endpoint
from observe.senders.exchange import Clock, monotonic_ns
from observe.server.http_client import ServerClient, WholeAnswer
from observe.server.prometheus_text import parse_metrics
from traces import TraceError, atomic_file, companion_file, counted, stem_of
from traces.strict.secrets import redact_url

GaugeRow = tuple[int, str, float]
"""Time in µs from the run's start, the series' name and labels, its value."""

_GAUGE = re.compile(rb"^# TYPE (\S+) gauge\s*$", re.MULTILINE)
_NAME = re.compile(rb"^[a-zA-Z_:][a-zA-Z0-9_:]*", re.MULTILINE)
_NO_GAUGES = (b"_info", b"_created")
"""Ends of names whose values never change: labels, and the creation time of a counter."""

USUAL_S = 1.0
"""How often where the user says nothing: a few thousandths of a core, and enough moments for seats to show."""

MOST_BYTES = 4 << 20
"""Of an answer of an endpoint beside the server: a node exporter's has some 100 KB."""

MOST_SERIES = 2_000
"""Of an endpoint beside the server."""

_PATIENCE_S = 5.0
"""How long an endpoint beside the server may take."""

Wanted = Callable[[bytes], list[bytes]]
"""The names to keep of an answer."""


def vllm_gauges(body: bytes) -> list[bytes]:
    """Return the names of vLLM's gauges."""
    return [name for name in _gauges(body) if name.startswith(b"vllm:")]


def names_like(globs: Sequence[str]) -> Wanted:
    """Return what keeps the names that match one of ``globs``; of none: every gauge."""

    def wanted(body: bytes) -> list[bytes]:
        if not globs:
            return _gauges(body)
        names = sorted(set(_NAME.findall(body)))
        return [name for name in names if any(fnmatchcase(name.decode(), glob) for glob in globs)]

    return wanted


def _gauges(body: bytes) -> list[bytes]:
    return sorted({name for name in _GAUGE.findall(body) if not name.endswith(_NO_GAUGES)})


class Scraper:
    """Asks ``path`` every ``period_s`` and keeps the ``wanted`` series, times in µs from the run's start.

    ``label``: added to each series, to tell endpoints apart. ``most_bytes``: an answer of as many ends it: no answer of
    such a size may delay the load. ``most_series``: the first so many are kept.
    """

    def __init__(
        self,
        client: ServerClient,
        *,
        period_s: float,
        path: str = "/metrics",
        wanted: Wanted = vllm_gauges,
        label: str | None = None,
        most_bytes: int | None = None,
        most_series: int | None = None,
        clock: Clock = monotonic_ns,
    ) -> None:
        self._client = client
        self.period_s = period_s
        self._path = path
        self._wanted = wanted
        self._label = label
        self._most_bytes = most_bytes
        self._most_series = most_series
        self._clock = clock
        self._names: list[bytes] | None = None
        self._lines: re.Pattern[bytes] = re.compile(rb"(?!)")
        self._series: set[str] = set()
        self.rows: list[GaugeRow] = []
        self.num_read = 0
        self.num_missed = 0
        self.is_too_long = False
        self.num_left_out = 0

    async def work(self, start_ns: int) -> None:
        """Scrape until cancelled; a scrape that fails is counted and passed over."""
        due_ns = start_ns
        while not self.is_too_long:
            await asyncio.sleep(max(due_ns - self._clock(), 0) / 1e9)
            answer = await self._client.try_get(self._path)
            if answer is None:
                self.num_missed += 1
            elif self._most_bytes is not None and len(answer.body) >= self._most_bytes:
                self.is_too_long = True
            else:
                self._keep(answer, max(self._clock() - start_ns, 0) // 1000)
            due_ns = max(due_ns + round(self.period_s * 1e9), self._clock())

    async def close(self) -> None:
        """Close the connection to an endpoint beside the server."""
        await self._client.close()

    def _keep(self, answer: WholeAnswer, time_us: int) -> None:
        """Keep the wanted series' lines; only those are parsed, which takes little of the loop's time."""
        self.num_read += 1
        names = self._wanted(answer.body)
        if names != self._names:
            self._names = names
            self._lines = re.compile(
                rb"^(?:" + b"|".join(map(re.escape, names)) + rb")[{ ].*$" if names else rb"(?!)",
                re.MULTILINE,
            )
        lines = b"\n".join(self._lines.findall(answer.body)).decode("utf-8", "replace")
        for sample in parse_metrics(lines):
            key = self._labelled(self._client.hide(sample.key))
            if self._is_room_for(key):
                self.rows.append((time_us, key, sample.value))

    def _labelled(self, key: str) -> str:
        if self._label is None:
            return key
        label = f'endpoint="{self._label}"}}'
        return f"{key[:-1]},{label}" if key.endswith("}") else f"{key}{{{label}"

    def _is_room_for(self, key: str) -> bool:
        if key not in self._series:
            if self._most_series is not None and len(self._series) >= self._most_series:
                self.num_left_out += 1
                return False
            self._series.add(key)
        return True


def scraper_of(url: str, *, globs: Sequence[str], period_s: float, is_alone: bool) -> Scraper:
    """Return the scraper of an endpoint beside the server, which gets none of the server's keys.

    ``is_alone``: no other endpoint can have series of the same name. Raises ConfigError for a URL that is none.
    """
    parts = urlsplit(url)
    endpoint = Endpoint(base=f"{parts.scheme}://{parts.netloc}")
    path = (parts.path if parts.path.strip("/") else "/metrics") + (f"?{parts.query}" if parts.query else "")
    host = redact_url(f"{parts.scheme}://{parts.netloc}").partition("//")[2]
    return Scraper(
        ServerClient(endpoint, total_s=min(_PATIENCE_S, max(period_s, 1.0)), most_bytes=MOST_BYTES),
        period_s=period_s,
        path=path,
        wanted=names_like(globs),
        label=None if is_alone else host.rpartition("@")[2].replace("\\", "").replace('"', ""),
        most_bytes=MOST_BYTES,
        most_series=MOST_SERIES,
    )


def remark_on_server(scraper: Scraper, file: str, *, is_asked_for: bool) -> str | None:
    """Return what is said of the server's gauges; who asked for them is told where there are none, or too few."""
    if not scraper.rows:
        return "--scrape: no gauges at /metrics" if is_asked_for else None
    missed = f"{scraper.num_missed} scrapes failed" if scraper.num_missed else ""
    if is_asked_for:
        return f"--scrape: {missed}" if missed else None
    times = "once" if scraper.num_read == 1 else f"{scraper.num_read:,} times, every {scraper.period_s:g} s"
    said = f"the server's gauges were read {times}, for {file}"
    return f"{said}{f'; {missed}' if missed else ''}. --no-scrape leaves that out"


def remark_on_endpoint(scraper: Scraper, url: str) -> str | None:
    """Return what went wrong with an endpoint beside the server, None where nothing did."""
    said = []
    if scraper.is_too_long:
        said.append(f"an answer of {MOST_BYTES >> 20} MiB or more, and was not asked again")
    if scraper.num_missed:
        said.append(f"no answer to {counted(scraper.num_missed, 'scrape')}")
    if not scraper.rows and scraper.num_read:
        said.append("none of the series that are kept")
    if scraper.num_left_out:
        said.append(f"more than {MOST_SERIES:,} series: the first are kept")
    return f"--scrape {redact_url(url)}: it had {'; '.join(said)}" if said else None


def write_rows(stem: str | Path, rows: Sequence[GaugeRow]) -> None:
    """Write ``STEM.gauges.csv`` in the order of time. Raises TraceError where it cannot be written."""
    target = companion_file(stem_of(stem), ".gauges.csv")
    with (
        atomic_file(target, option="--scrape", error=TraceError) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("time_us", "gauge", "value"))
        in_order: list[GaugeRow] = sorted(rows, key=itemgetter(0))
        table.writerows(in_order)
