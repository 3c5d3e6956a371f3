"""Opening and closing the receiver: its socket, signals, the line on the terminal, the summary."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Final

from aiohttp import web

from observe.event_loop import run_on_fastest_loop
from observe.receive.receiver_app import SpanReceiver, make_app
from observe.receive.time_windows import Windows
from traces import TraceError, counted
from traces.console.listening import bound_socket
from traces.strict.tell import say, tell

SILENT: Final = logging.getLogger("vtwin.receive")
"""aiohttp's log of senders that do not speak HTTP/1.1 (gRPC's) is discarded: they get a 400."""
SILENT.setLevel(logging.CRITICAL + 1)
TICK_S: Final = 1.0
SHUTDOWN_PATIENCE_S: Final = 5.0
"""How long posts in progress may take when the receiver ends."""


def run_receiver(windows: Windows, *, host: str, port: int, max_body_bytes: int) -> None:
    """Receive spans until Ctrl-C or a plain kill, then sort all files and print what was received.

    Raises ConfigError for an address in use, TraceError, in the end, if a file could not be put in order.
    """
    run_on_fastest_loop(lambda: _until_told(windows, host=host, port=port, max_body_bytes=max_body_bytes))
    _tell_files(windows.put_in_order(all_of_them=True))
    for line in summary(windows):
        say(line)
    for stem, fault in windows.unfinished.items():
        raise TraceError(
            f"{fault}; what came is kept as it is in {counted(len(windows.unfinished), 'file')}, the first {stem}"
        )


def summary(windows: Windows) -> list[str]:
    """Return lines about what was received."""
    lines = [f"{counted(windows.tally.num_requests, 'request')} in {counted(windows.num_files, 'file')}"]
    if windows.tally.num_other:
        lines.append(f"{windows.tally.num_other:,} spans of other work were passed over")
    if windows.tally.num_repeated:
        lines.append(f"{windows.tally.num_repeated:,} spans came a second time")
    lines += [f"{number:,} spans {reason}: not taken" for reason, number in sorted(windows.rejected.items())]
    return lines


async def _until_told(windows: Windows, *, host: str, port: int, max_body_bytes: int) -> None:
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    async with receiving(windows, host=host, port=port, max_body_bytes=max_body_bytes) as url:
        say(f"receiving spans at {url}/v1/traces")
        sys.stdout.flush()
        watching = asyncio.create_task(_watch(windows))
        await told.wait()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@asynccontextmanager
async def receiving(windows: Windows, *, host: str, port: int, max_body_bytes: int) -> AsyncIterator[str]:
    """Receive spans while the context lasts; yield the address. The caller must sort the files."""
    site = SpanReceiver(windows=windows, max_body_bytes=max_body_bytes)
    runner = web.AppRunner(
        make_app(site),
        access_log=None,
        logger=SILENT,
        auto_decompress=False,  # a bomb is unpacked here, within a limit
        shutdown_timeout=SHUTDOWN_PATIENCE_S,
    )
    listener = bound_socket(host, port)
    try:
        await runner.setup()
        await web.SockSite(runner, listener).start()  # which closes the socket in the end
        name = f"[{host}]" if ":" in host else host
        yield f"http://{name}:{listener.getsockname()[1]}"
    finally:
        await runner.cleanup()
        site.lost.tell_all()


async def _watch(windows: Windows) -> None:
    """Sort files whose window is over, and keep the line on a terminal up to date."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(_line(windows)) if console.is_terminal else nullcontext() as status:
        while True:
            await asyncio.sleep(TICK_S)
            if status is not None:
                status.update(_line(windows))
            known = set(windows.unfinished)
            _tell_files(await asyncio.to_thread(windows.put_in_order))
            for stem in windows.unfinished.keys() - known:
                tell(f"receive: {windows.unfinished[stem]}; what came is kept as it is in {stem}")


def _line(windows: Windows) -> str:
    rejected = windows.rejected.total()
    return f"{windows.tally.num_requests:,} requests, {windows.tally.num_other:,} other spans" + (
        f", {rejected:,} not taken" if rejected else ""
    )


def _tell_files(done: Iterable[tuple[Path, int]]) -> None:
    for stem, number in done:
        tell(f"{counted(number, 'request')} -> {stem}")
