"""A server that answers as a real vLLM does: what it says of itself is recorded, what it computes is emulated.

``/version`` and ``/v1/models`` are the recording. ``/metrics`` is the recording, too, with the emulated engine's own
values where both have a sample of that name and those labels: nothing is there that vLLM does not have.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from aiohttp import web

FOLDER = Path(__file__).parent
MODEL = "tiny"
BLOCKS = {"num_gpu_blocks": 512, "block_size": 128, "max_model_len": 4096}
"""What the recording says of the engine: the emulated one must have the same."""


def with_values(recorded: str, emulated: str) -> str:
    """Return the recorded page with the emulated values of the samples that both pages have."""
    values = dict(line.rsplit(" ", 1) for line in emulated.splitlines() if not line.startswith("#"))
    lines = []
    for line in recorded.splitlines():
        sample, _, value = line.rpartition(" ")
        lines.append(line if line.startswith("#") else f"{sample} {values.get(sample, value)}")
    return "\n".join(lines) + "\n"


@web.middleware
async def as_recorded(request: web.Request, handler: web.Handler) -> web.StreamResponse:  # type: ignore[name-defined]
    """Answer what vLLM says of itself from the recording."""
    answer: web.StreamResponse = await handler(request)
    if request.path == "/metrics":
        assert isinstance(answer, web.Response)
        assert isinstance(answer.body, bytes)
        page = with_values((FOLDER / "metrics.txt").read_text(), answer.body.decode())
        return web.Response(body=page.encode(), headers={"Content-Type": "text/plain; version=0.0.4"})
    recorded = {"/version": "version.json", "/v1/models": "models.json"}.get(request.path)
    if recorded is None:
        return answer
    return web.json_response(text=(FOLDER / recorded).read_text())


def _serve(config: str, parent: Connection) -> None:
    os.setsid()
    from replay import load_config
    from replay.serve import server
    from replay.serve.app import Site, make_app
    from replay.serve.server import run_server

    def recorded_app(site: Site) -> web.Application:
        app = make_app(site)
        app.middlewares.insert(0, as_recorded)
        return app

    server.make_app = recorded_app  # type: ignore[attr-defined]
    run_server(
        load_config(config),
        announce=lambda there: parent.send(there.url),
        host="127.0.0.1",
        port=0,
        model=MODEL,
    )


@contextmanager
def serving(config: Path) -> Iterator[str]:
    """Serve an engine in a process of its own; yield its address, and end it on leaving."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(str(config), theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGTERM)
        process.join(5)
        if process.is_alive():
            process.kill()
