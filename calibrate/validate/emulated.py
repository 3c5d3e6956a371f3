"""The demo's server: the simulated engine behind HTTP, in a process of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from calibrate.validate.command_steps import show
from traces import ServerError, VtwinError
from traces.strict.tell import tell

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


@contextmanager
def serving(config: Path) -> Iterator[str]:
    """Start `vtwin serve` in a process of its own, yield its address, and always end it on leaving.

    Its own process, so that the server's work does not delay the client that is measured.
    """
    show("serve", ["--config", str(config), "--port", "0"], more=" &")
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(config, theirs), daemon=True)
    server.start()
    theirs.close()
    try:
        yield _announced(ours)
    finally:
        server.terminate()
        server.join(5)
        if server.is_alive():
            server.kill()


def _serve(config: Path, parent: Connection) -> None:
    """Serve until told to end or until the parent is gone; send the parent the address, or why there is none."""
    os.setsid()  # Ctrl-C in the terminal is for the parent, which then ends this process
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    from replay import load_config, run_server

    try:
        run_server(
            load_config(config, allows_cluster=False),
            announce=lambda there: parent.send(there.url),
            host="127.0.0.1",
            port=0,
        )
    except VtwinError as error:
        parent.send(error)


def _end_with(parent: Connection) -> None:
    """End this process once the parent's end of the pipe is closed, in whatever way the parent ended."""
    with suppress(EOFError, OSError):
        parent.recv()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)
    os._exit(1)


def _announced(server: Connection) -> str:
    """Return the address that the server sends once it listens; ServerError where it ends before."""
    try:
        said = server.recv()
    except EOFError:
        said = "it ended"
    if not isinstance(said, str) or not said.startswith("http"):
        raise ServerError(f"vtwin serve: got {said}, expected it to serve")
    tell(f"serving on {said}")
    return said
