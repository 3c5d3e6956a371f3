"""Loads run against the reference server; each function runs one and returns the comparison."""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from observe.observation import Display, Observation, observe_with
from observe.senders.endpoint import parse_endpoint
from observe.server.http_client import ServerClient
from observe.settings import Settings, TextSource
from traces import ClosedLoop, Header, ServerError, make_trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from observe.plan.send_plan import SendPlan
    from observe.run.run_counts import Progress
    from traces import Trace

TOKENS = 128
PROMPT_TOKENS = 128
_NUM_TEXTS = 500
_START_S = 30.0
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """A run from its start until the last answer is on record: wall seconds, and by how much memory grew at most."""

    wall_s: float
    grown_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One load, as both sides recorded it.

    ``first_error_us``, ``last_error_us``: the client's stamp of an answer's first text and of its last, less
    the server's moment of writing it. ``server_lag_us``: how late the server wrote its first tokens.
    """

    observation: Observation
    stretch: RunCost
    num_events: int
    first_error_us: NDArray[np.float64]
    last_error_us: NDArray[np.float64]
    server_lag_us: NDArray[np.float64]

    @property
    def trace(self) -> Trace:
        """The trace of the run."""
        return self.observation.trace


class ReferenceClient:
    """Controls a running reference server: sets its response times, reads its log."""

    def __init__(self, url: str) -> None:
        self._endpoint = parse_endpoint(url)

    async def check(
        self,
        workload: Trace,
        *,
        first_us: int = 20_000,
        gap_us: int = 5_000,
        coalesced: bool = False,
        processes: int = 1,
        texts: bool = False,
        **sent: Any,  # noqa: ANN401 - of any type, by the setting
    ) -> Checked:
        """Observe ``workload`` with answers due at the set times (see ``Behaviour``).

        ``texts``: prompts are those of a data set; ``sent``: further settings of what is sent (``Settings``).
        """
        asked = {"first_us": first_us, "gap_us": gap_us, "coalesced": coalesced}
        await self._ask("/_behave", orjson.dumps(asked))
        stretches: list[RunCost] = []
        with tempfile.TemporaryDirectory(prefix="vtwin-selfcheck-") as folder:
            source = (
                TextSource(path=_written_texts(Path(folder)), seed=1, drawn_outputs=True) if texts else None
            )
            settings = Settings(
                endpoint=self._endpoint,
                probe=False,
                processes=processes,
                texts=source,
                **sent,
            )
            observation = await observe_with(
                workload,
                settings,
                output=Path(folder) / "run",
                display=_timing(stretches),
            )
        logs = await self._ask("/_log", b"")
        return _compare(observation, logs, stretch=stretches[0])

    async def _ask(self, path: str, body: bytes) -> dict[str, dict[str, int]]:
        client = ServerClient(self._endpoint)
        try:
            return (await client.post(path, body)).json()
        finally:
            await client.close()


@asynccontextmanager
async def start_reference_server() -> AsyncIterator[ReferenceClient]:
    """Start the reference server in its own process; end it on leaving. Raises ServerError."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "observe.selfcheck.reference_server"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None  # noqa: S101  both are pipes
    try:
        line = await asyncio.wait_for(process.stdout.readline(), _START_S)
        if not line.strip().isdigit():
            raise ServerError(f"selfcheck: got {line!r} from its own server, expected a port")
        yield ReferenceClient(f"http://127.0.0.1:{int(line)}")
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            process.kill()
            await process.wait()


def users(concurrency: int, number: int, *, tokens: int = TOKENS, prompt: int = PROMPT_TOKENS) -> Trace:
    """Return a closed loop of ``concurrency`` users and ``number`` requests."""
    return _workload(
        [0] * min(concurrency, number) + [None] * max(number - concurrency, 0),
        tokens=tokens,
        prompt=prompt,
        loop=ClosedLoop(concurrency=concurrency),
    )


def poisson(rate_per_s: float, number: int, *, tokens: int, prompt: int = PROMPT_TOKENS) -> Trace:
    """Return an open loop of ``number`` requests, the same at every call."""
    gaps = np.random.Generator(np.random.PCG64(20)).exponential(1e6 / rate_per_s, size=number)
    arrivals = [int(due) for due in np.cumsum(gaps)]
    return _workload(arrivals, tokens=tokens, prompt=prompt, loop=None)


def _written_texts(folder: Path) -> Path:
    """Write a data set of texts of some hundred words, the same at every call, and return its file."""
    lengths = np.random.Generator(np.random.PCG64(21)).integers(50, 200, size=_NUM_TEXTS)
    rows = [
        orjson.dumps({"prompt": f"{place} " + "word " * int(words)}) for place, words in enumerate(lengths)
    ]
    file = folder / "texts.jsonl"
    file.write_bytes(b"\n".join(rows))
    return file


def _workload(
    arrivals_us: list[int | None] | list[int], *, tokens: int, prompt: int, loop: ClosedLoop | None
) -> Trace:
    number = len(arrivals_us)
    return make_trace(
        Header(mode="generated", tool="vtwin", closed_loop=loop),
        {
            "request_id": [str(row) for row in range(number)],
            "arrival_time_us": arrivals_us,
            "input_tokens": [prompt] * number,
            "output_tokens": [tokens] * number,
        },
    )


def _timing(stretches: list[RunCost]) -> Display:
    """Return a display that shows nothing and records the run's cost."""

    @contextmanager
    def shown(_: Progress, __: SendPlan) -> Iterator[None]:
        wall, before = time.monotonic(), resident_bytes()
        most = [before]
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_LOOK_EVERY_S):
                most[0] = max(most[0], resident_bytes())

        watcher = threading.Thread(target=watch, name="selfcheck-memory", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
        grown = max(most[0], resident_bytes()) - before
        stretches.append(RunCost(wall_s=time.monotonic() - wall, grown_bytes=grown))

    return shown


def resident_bytes() -> int:
    """Return how much memory this process holds; if the system does not say, the most it ever held."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


def _compare(observation: Observation, logs: dict[str, dict[str, int]], *, stretch: RunCost) -> Checked:
    """Return both records, with stamps brought to one clock by the run's start."""
    trace = observation.trace
    ok = (trace.column("status") == "ok").to_numpy(dtype=bool, na_value=False)
    names = trace.column("x_request_id").to_numpy()[ok]
    origin = observation.start_ns
    first = trace.column("content_first_time_us").to_numpy(dtype=np.float64, na_value=np.nan)[ok]
    last = trace.column("last_token_time_us").to_numpy(dtype=np.float64, na_value=np.nan)[ok]

    def told(key: str) -> NDArray[np.float64]:
        return (np.array([logs[name][key] for name in names], dtype=np.int64) - origin) / 1000

    return Checked(
        observation=observation,
        stretch=stretch,
        num_events=int(trace.column("num_chunks").fillna(0).sum()),
        first_error_us=first - told("first_ns"),
        last_error_us=last - told("last_ns"),
        server_lag_us=told("first_ns") - told("first_due_ns"),
    )
