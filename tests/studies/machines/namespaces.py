"""Two machines' worth: network namespaces on a bridge of their own, the second's CLOCK_MONOTONIC ahead by 1,000 s."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.test_imports import ROOT

BRIDGE = "vtwin-br"
HERE = "10.213.7.1"
ADDRESSES = {"vtwin-a": "10.213.7.2", "vtwin-b": "10.213.7.3"}
AHEAD_S = {"vtwin-a": 0, "vtwin-b": 1000}
PORT = 18_786
SCHEDULER = f"tcp://{HERE}:{PORT}"


def ip(*words: str) -> None:
    """Run ``ip``. Raises CalledProcessError."""
    subprocess.run(["ip", *words], check=True, capture_output=True)  # noqa: S607  as root's path has it


def are_allowed() -> bool:
    """Return whether this user may make namespaces of both kinds."""
    made = subprocess.run(
        ["unshare", "--net", "--time", "--monotonic", "1000", "--fork", "true"],  # noqa: S607
        capture_output=True,
        check=False,
    )
    return made.returncode == 0 and os.geteuid() == 0


@contextmanager
def two_machines() -> Iterator[None]:
    """Make the namespaces, and remove them on leaving."""
    ip("link", "add", BRIDGE, "type", "bridge")
    try:
        ip("addr", "add", f"{HERE}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for name, address in ADDRESSES.items():
            ip("netns", "add", name)
            ip("link", "add", f"{name}0", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{name}0", "master", BRIDGE, "up")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for words in (*(("netns", "del", name) for name in ADDRESSES), ("link", "del", BRIDGE)):
            with suppress(subprocess.CalledProcessError):
                ip(*words)


def inside(name: str, command: Sequence[str]) -> list[str]:
    """Return the command that runs another in a namespace and, where it has one, by the namespace's own clock."""
    shifted = ["unshare", "--time", "--monotonic", str(AHEAD_S[name]), "--fork", "--kill-child"]
    return ["ip", "netns", "exec", name, *(shifted if AHEAD_S[name] else []), *command]


@contextmanager
def running(command: Sequence[str], *, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command with the sources' vtwin, and end it and all that it began on leaving."""
    with log.open("wb") as written:
        process = subprocess.Popen(
            command,
            stdout=written,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a command with all that it began in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


@contextmanager
def dask_cluster(folder: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run a scheduler here and a worker in each namespace, each with a cache of its own; yield the workers."""
    python = [sys.executable, "-m"]
    scheduler = [
        *python,
        "distributed.cli.dask_scheduler",
        "--host",
        HERE,
        "--port",
        str(PORT),
        "--no-dashboard",
    ]
    with running(scheduler, log=folder / "scheduler.log"):
        wait_for(folder / "scheduler.log", "Scheduler at", times=1)
        opened, workers = [], {}
        try:
            for name, address in ADDRESSES.items():
                worker = [
                    *python,
                    "distributed.cli.dask_worker",
                    SCHEDULER,
                    "--host",
                    address,
                    "--name",
                    name,
                ]
                worker += ["--nthreads", "1", "--no-nanny", "--no-dashboard"]
                cache = folder / f"{name}-cache"
                started = running(
                    inside(name, worker), log=folder / f"{name}.log", VTWIN_CACHE_DIR=str(cache)
                )
                opened.append(started)
                workers[name] = started.__enter__()
            for name in ADDRESSES:
                wait_for(folder / f"{name}.log", "Registered to", times=1)
            yield workers
        finally:
            for started in opened:
                started.__exit__(None, None, None)


def wait_for(log: Path, words: str, *, times: int, within_s: float = 60) -> None:
    """Return once a log has the words so many times. Raises TimeoutError."""
    until = time.monotonic() + within_s
    while log.read_text(errors="replace").count(words) < times:
        if time.monotonic() > until:
            raise TimeoutError(
                f"{log}: no {words!r} within {within_s} s: {log.read_text(errors='replace')[-500:]}"
            )
        time.sleep(0.05)
