"""The result of the self-check: figures with targets and those of other load generators, as table and JSON."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from lazy_dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from observe.selfcheck.measure import Checked, ReferenceClient, poisson, users
from observe.selfcheck.reference_server import CHAT_TOKENS
from traces import Trace, tool_version

SCHEMA_VERSION = 1
_FULL_REQUESTS, _QUICK_REQUESTS = 6000, 600
_RATE = 200.0
_PART_RATE = 50.0
"""Of chats with a drawn part each, whose bodies are long."""
_IMAGE_SIDE = 28
"""Pixels of a token's square, as Qwen2-VL has them: 64 tokens are 224 pixels square."""
_AUDIO_SECONDS = 0.04
"""Of a token, as Qwen2-Audio has them: 64 tokens are 2.56 s of sound."""
_PART_TOKENS = 64
_RATES = (250, 500, 1000, 2000, 4000, 8000)
_STREAMS = (64, 128, 256, 512, 1024, 2048)
_STREAM_GAP_US = 20_000
_LATE_US = 10_000
"""A server that writes its first tokens later than this, at p99, limited the pace itself."""


COST_NAMES = ("CPU per event, one packet each, 256 streams", "events per CPU second, answers in one packet")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFigure:
    """One measured number. ``bar``: its target, ``sense`` on which side; None: only reported.

    ``peers``: what other load generators were measured at on such a machine (docs/performance.md).
    """

    name: str
    value: float
    unit: str
    bar: float | None = None
    sense: Literal["at most", "at least"] = "at most"
    peers: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None without one."""
        if self.bar is None:
            return None
        return self.value <= self.bar if self.sense == "at most" else self.value >= self.bar


class Document(TypedDict):
    """The JSON document of ``vtwin selfcheck``."""

    schema_version: int
    tool_version: str
    machine: dict[str, str | float | int]
    clock: str
    figures: list[dict[str, object]]
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything measured, and where the stamps came from."""

    figures: tuple[MeasuredFigure, ...]
    clock: str
    notes: tuple[str, ...]

    @property
    def all_met(self) -> bool:
        """Whether no bar was missed."""
        return all(figure.met is not False for figure in self.figures)

    def document(self) -> Document:
        """Return the report for machines."""
        return Document(
            schema_version=SCHEMA_VERSION,
            tool_version=tool_version(),
            machine=machine(),
            clock=self.clock,
            figures=[{**asdict(figure), "met": figure.met} for figure in self.figures],
            notes=list(self.notes),
        )

    def table(self) -> str:
        """Return the report for a terminal."""
        here = machine()
        lines = [
            f"machine   {here['cpu']}, {here['num_cpus']} cores, load {here['load']:.1f}, Python {here['python']}",
            f"speed     {here['loop_s']:.3f} CPU s for a loop of a million additions",
            f"stamps    {self.clock}",
            "",
            f"{'':<50}{'here':>12}{'target':>14}   {'':<8}peers",
        ]
        for figure in self.figures:
            sign = "≤" if figure.sense == "at most" else "≥"
            bar = "" if figure.bar is None else f"{sign} {figure.bar:,g}"
            verdict = {True: "met", False: "missed", None: ""}[figure.met]
            name = f"{figure.name}, {figure.unit}"
            lines.append(
                f"{name:<50}{_shown(figure.value):>12}{bar:>14}   {verdict:<8}{figure.peers}".rstrip()
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


async def examine(
    server: ReferenceClient, *, quick: bool, tell: Callable[[str], None], processes: int = 1
) -> Report:
    """Measure the client on this machine; ``quick``: with shorter runs. ``tell`` is called about each.

    ``processes`` above 1: also measure this many together.
    """
    tell("256 streams, one packet per token")
    packets = await server.check(users(256, 256 if quick else 768))
    tell("64 users, answers in one packet")
    whole = await server.check(users(64, 300 if quick else 1000), coalesced=True)
    tell("64 streams, stamps against the server's")
    stamps = await server.check(users(64, 128 if quick else 384))
    number = _QUICK_REQUESTS if quick else _FULL_REQUESTS
    tell(f"{number:,} requests at {_RATE:g}/s, {number / _RATE:.0f} s")
    paced = await server.check(poisson(_RATE, number, tokens=8))
    kinds = await _kinds(server, number=number // 4, tell=tell)
    workers = await _workers(server, number=number // 4, tell=tell)
    memory = await _memory(server, quick=quick, tell=tell)
    together = await _together(server, processes, quick=quick, tell=tell) if processes > 1 else ()
    rate, rate_note = await _climb(server, _RATES, load=_rate_load, tell=tell, unit="requests/s")
    streams, stream_note = await _climb(server, _STREAMS, load=_stream_load, tell=tell, unit="streams")
    client = stamps.trace.header.client
    return Report(
        figures=(
            *_costs(packets, whole, names=COST_NAMES, peers="40 (vllm bench) to 370 (guidellm)"),
            *_stamp_errors(stamps),
            *_pacing(paced, number=number, load=f"{_RATE:g} requests/s"),
            *kinds,
            *workers,
            memory,
            *together,
            MeasuredFigure(name="highest rate sustained", value=rate, unit="requests/s"),
            MeasuredFigure(name="most streams sustained, 50 tokens/s each", value=streams, unit="streams"),
        ),
        clock=(client.clock or "") if client is not None else "",
        notes=tuple(note for note in (rate_note, stream_note, _busy()) if note),
    )


def machine() -> dict[str, str | float | int]:
    """Return the machine on which the figures were measured."""
    return {
        "cpu": _cpu_name(),
        "num_cpus": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        "load": os.getloadavg()[0],
        "loop_s": _loop_s(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _loop_s() -> float:
    """Return the CPU seconds of a fixed loop, by which figures of two machines, or of two hours, compare."""
    before, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number
    return time.process_time() - before


def _busy() -> str | None:
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load <= cpus:
        return None
    return (
        f"the machine was busy (load {load:.1f} on {cpus} cores): times are too high, CPU figures are valid"
    )


def _cpu_name() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _costs(
    packets: Checked, whole: Checked, *, names: tuple[str, str], peers: str = ""
) -> tuple[MeasuredFigure, ...]:
    """Return what events cost in packets of their own, and how many there are a second where answers come whole."""
    cpu_us = packets.observation.cpu_s / packets.num_events * 1e6
    of_cpu, of_wall = whole.num_events / whole.observation.cpu_s, whole.num_events / whole.stretch.wall_s
    return (
        MeasuredFigure(name=names[0], value=cpu_us, unit="µs", bar=25, peers=peers),
        MeasuredFigure(name=names[1], value=of_cpu, unit="1/s", bar=150_000, sense="at least"),
        MeasuredFigure(name="  the same per second of wall time", value=of_wall, unit="1/s"),
    )


async def _memory(server: ReferenceClient, *, quick: bool, tell: Callable[[str], None]) -> MeasuredFigure:
    """Return by how much a run's peak grows with its length: what is kept of each answer until the end."""
    short, long = (300, 1500) if quick else (1000, 5000)
    tell(f"memory over {short:,} and over {long:,} requests")
    runs = [await server.check(users(64, n, prompt=1), coalesced=True) for n in (short, short, long)]
    grown = runs[2].stretch.grown_bytes - runs[1].stretch.grown_bytes  # the first run fills the pools
    return MeasuredFigure(
        name="memory growth per request",
        value=max(grown, 0) / (long - short),
        unit="bytes",
        bar=1024,
    )


async def _together(
    server: ReferenceClient, processes: int, *, quick: bool, tell: Callable[[str], None]
) -> tuple[MeasuredFigure, ...]:
    """Return the cost and the throughput of several processes."""
    tell(f"{processes} processes: 256 streams, then answers in one packet")
    packets = await server.check(users(256, 256 if quick else 768), processes=processes)
    whole = await server.check(users(64, 300 if quick else 1000), coalesced=True, processes=processes)
    names = (f"{processes} processes: CPU per event, 256 streams", "  events per CPU second, one packet")
    return _costs(packets, whole, names=names)


async def _kinds(
    server: ReferenceClient, *, number: int, tell: Callable[[str], None]
) -> tuple[MeasuredFigure, ...]:
    """Return pacing and stamps of requests that take more to send: texts of a data set, chats with a part each."""
    tell(f"{number:,} texts at {_RATE:g}/s")
    texts = await server.check(poisson(_RATE, number, tokens=8), texts=True)
    found = _of_kind(texts, number=number, kind="texts", rate=_RATE)
    number //= 4
    tell(f"{number:,} chats with audio at {_PART_RATE:g}/s")
    chats = poisson(_PART_RATE, number, tokens=8, prompt=CHAT_TOKENS)
    spoken = chats.with_columns(audio_tokens=[_PART_TOKENS] * number)
    audio = await server.check(spoken, api="chat", audio_seconds=_AUDIO_SECONDS)
    found += _of_kind(audio, number=number, kind="audio", rate=_PART_RATE)
    if find_spec("PIL") is None:
        tell("no images: they need the extra, pip install 'vtwin[images]'")
        return found
    tell(f"{number:,} chats with an image at {_PART_RATE:g}/s")
    shown = with_images(chats, _PART_TOKENS)
    images = await server.check(shown, api="chat", image_side=_IMAGE_SIDE)
    return (*found, *_of_kind(images, number=number, kind="images", rate=_PART_RATE))


async def _workers(
    server: ReferenceClient, *, number: int, tell: Callable[[str], None]
) -> tuple[MeasuredFigure, ...]:
    """Return pacing and stamps of a load that workers of a cluster send, as ``observe --dask`` has it."""
    if find_spec("distributed") is None:
        tell("no workers: they need the extra, pip install 'vtwin[dask]'")
        return ()
    from observe.selfcheck.local_workers import NUMBER, local_workers

    tell(f"{number:,} requests at {_RATE:g}/s from {NUMBER} workers of Dask")
    async with local_workers() as cluster:
        checked = await server.check(poisson(_RATE, number, tokens=8), machines=cluster)
    return _of_kind(checked, number=number, kind=f"{NUMBER} workers", rate=_RATE)


def with_images(workload: Trace, tokens: int) -> Trace:
    """Return the workload with an image of so many tokens in each request, no two alike."""
    images = [f"0:{tokens}:{row}" for row in range(len(workload))]
    return workload.with_columns(image_tokens=[tokens] * len(workload), images=images)


def _of_kind(checked: Checked, *, number: int, kind: str, rate: float) -> tuple[MeasuredFigure, ...]:
    pacing = _pacing(checked, number=number, load=f"{kind}, {rate:g} requests/s")
    rows = [*(replace(each, peers="") for each in pacing), *_stamp_errors(checked)[:2]]
    return (rows[0], *(replace(each, name=f"  {kind}: {each.name.strip()}", peers="") for each in rows[1:]))


def _stamp_errors(checked: Checked) -> tuple[MeasuredFigure, ...]:
    first, last = np.abs(checked.first_error_us) / 1e3, np.abs(checked.last_error_us) / 1e3
    peers = "TTFT 2 to 60 times too high"
    return (
        MeasuredFigure(
            name="first-token timestamp error, p50", value=_at(first, 0.5), unit="ms", bar=0.3, peers=peers
        ),
        MeasuredFigure(name="first-token timestamp error, p99", value=_at(first, 0.99), unit="ms", bar=3),
        MeasuredFigure(name="last-token timestamp error, p50", value=_at(last, 0.5), unit="ms"),
        MeasuredFigure(name="last-token timestamp error, p99", value=_at(last, 0.99), unit="ms"),
    )


def _pacing(checked: Checked, *, number: int, load: str) -> tuple[MeasuredFigure, ...]:
    client = checked.trace.header.client
    assert client is not None  # noqa: S101  an observed trace has one
    sent = abs((client.num_sent or 0) / number - 1)
    asked, achieved = client.gap_cv_asked or 0.0, client.gap_cv_achieved or 0.0
    lag_ms = client.own_lag_us.get("p99", float("nan")) / 1e3
    return (
        MeasuredFigure(
            name=f"{load}: number sent off by",
            value=sent * 100,
            unit="%",
            bar=1,
            peers="83 to 197/s sent",
        ),
        MeasuredFigure(
            name="  gap CV off by",
            value=abs(achieved / asked - 1) * 100 if asked else float("nan"),
            unit="%",
            bar=3,
            peers="CV 1.0 to 5.8",
        ),
        MeasuredFigure(name="  dispatch lag, p99", value=lag_ms, unit="ms", bar=10),
    )


async def _climb(
    server: ReferenceClient,
    rungs: Sequence[int],
    *,
    load: Callable[[ReferenceClient, int], Awaitable[Checked]],
    tell: Callable[[str], None],
    unit: str,
) -> tuple[float, str | None]:
    """Return the highest rung kept up with, and what ended the climb if it was not the client."""
    best = 0
    for rung in rungs:
        tell(f"{rung:,} {unit}")
        checked = await load(server, rung)
        if _at(checked.server_lag_us, 0.99) > _LATE_US:
            return (
                best,
                f"at {rung:,} {unit} the reference server was late: the client may be capable of more",
            )
        if checked.observation.client_limited or checked.observation.num_ok < len(checked.trace):
            return best, None
        best = rung
    return best, f"{best:,} {unit} is the highest that was tried"


async def _rate_load(server: ReferenceClient, rate: int) -> Checked:
    return await server.check(poisson(rate, rate, tokens=16), coalesced=True)


async def _stream_load(server: ReferenceClient, streams: int) -> Checked:
    return await server.check(users(streams, streams, tokens=100), gap_us=_STREAM_GAP_US)


def _at(values: NDArray[np.float64], q: float) -> float:
    known = values[~np.isnan(values)]
    return float(np.quantile(known, q)) if len(known) else float("nan")


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.3g}"
