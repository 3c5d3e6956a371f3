"""``make peers``: vtwin and its peers send one load, one after another (tests/studies/peers/tools.py).

The server is that of ``vtwin selfcheck``: it writes each token at a known time and keeps when it received each request
and wrote its first token. A row has what the tool cost, from its start to its end and, per event, between the first
arrival and the last answer; by how much the TTFT that it reports is above the server's; and how far the arrivals were
from even gaps. Each tool runs with its own defaults for processes. A tool that is not there, or fails, has a row that
says why. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from tests.studies.bench.engine import reference_loop_s
from tests.studies.live.server import end, last_line, say
from tests.studies.peers.process_tree import WatchedTree
from tests.studies.peers.tools import PEERS, Installed, Peer, PeerLoad, make_tokenizer

FIRST_US, GAP_US = 20_000, 5_000
PATIENCE_S = 240
COLUMNS = (
    "tool",
    "answers",
    "CPU s, start and end included",
    "CPU µs/event, under load",
    "TTFT p50, reported above true, ms",
    "TTFT p99, reported above true, ms",
    "rate, % off",
    "CV of the gaps",
    "arrivals from even gaps, p99 ms",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What the server did, one entry per answer of more than one token, by arrival, in ns of CLOCK_MONOTONIC."""

    received_ns: np.ndarray
    first_ns: np.ndarray
    last_ns: np.ndarray

    @property
    def ttft_ms(self) -> np.ndarray:
        """From the whole request to the first token, both on the server."""
        ttft: np.ndarray = (self.first_ns - self.received_ns) / 1e6
        return ttft


@contextmanager
def known_server() -> Iterator[str]:
    """Start the server of known times; yield its address."""
    command = [sys.executable, "-m", "observe.selfcheck.reference_server"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None and server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.stdin.close()
        server.wait(10)


def ask(url: str, body: object = None) -> dict[str, dict[str, int]]:
    """Return the server's answer to a JSON body."""
    address = urlsplit(url)
    connection = HTTPConnection(address.netloc, timeout=30)
    try:
        connection.request("POST", address.path, json.dumps(body))
        answer: dict[str, dict[str, int]] = json.load(connection.getresponse())
        return answer
    finally:
        connection.close()


def truth_of(url: str) -> Truth:
    """Return what the server did since its times were set; answers of one token, as probes ask for, are left out."""
    logs = [log for log in ask(url + "/_log").values() if log["last_ns"] > log["first_ns"]]
    logs.sort(key=lambda log: log["first_due_ns"])
    columns = {key: np.array([log[key] for log in logs], np.int64) for key in logs[0]} if logs else {}
    none = np.zeros(0, np.int64)
    return Truth(
        received_ns=columns.get("first_due_ns", none) - FIRST_US * 1000,
        first_ns=columns.get("first_ns", none),
        last_ns=columns.get("last_ns", none),
    )


def run(peer: Peer, programs: Path, load: PeerLoad) -> tuple[float, WatchedTree]:
    """Run a tool; return its CPU seconds, and how they grew. RuntimeError with its last line where it fails."""
    first, *rest = peer.command(load)
    out, log = load.folder / f"{peer.name}.out", load.folder / f"{peer.name}.log"
    # No name is looked up: the tokenizer is a folder, and where a tool asks for it by name, nobody answers.
    environment = os.environ | {
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with out.open("w") as answer, log.open("w") as told:
        process = subprocess.Popen(
            [programs / first, *rest], stdout=answer, stderr=told, env=environment, start_new_session=True
        )
        tree = WatchedTree(process.pid)
        tree.start()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"not done after {PATIENCE_S} s") from None
        finally:
            end(process)
            tree.over.set()
            tree.join()
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {last_line(log)}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    waited_for = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return max(waited_for, *tree.cpu_s), tree


def row_of(peer: Peer, found: Installed, load: PeerLoad) -> list[str]:
    """Run a tool against the server; return its cells."""
    name = f"{peer.name} {found.version}"
    ask(load.url + "/_behave", {"first_us": FIRST_US, "gap_us": GAP_US})
    try:
        cpu_s, tree = run(peer, found.programs, load)
        median, p99 = peer.ttft_ms(load.folder)
    except (RuntimeError, OSError, LookupError) as error:
        return [name, f"failed: {error}"]
    truth = truth_of(load.url)
    count = len(truth.received_ns)
    if count < 2:
        return [name, f"failed: the server saw {count} requests, expected {load.number}"]
    gap_ns = 1e9 / load.rate_per_s
    off = truth.received_ns - np.arange(count) * gap_ns
    gaps = np.diff(truth.received_ns)
    under_load = tree.between(truth.received_ns[0], truth.last_ns.max())
    return [
        name,
        f"{count} of {load.number}",
        f"{cpu_s:.1f}",
        f"{under_load / (count * load.tokens) * 1e6:.0f}",
        f"{median - np.median(truth.ttft_ms):+.2f}",
        f"{p99 - np.percentile(truth.ttft_ms, 99):+.2f}",
        f"{100 * (gap_ns / gaps.mean() - 1):+.1f}",
        f"{gaps.std() / gaps.mean():.2f}",
        f"{np.percentile(np.abs(off - np.median(off)), 99) / 1e6:.1f}",
    ]


def installed(only: str) -> dict[Peer, Installed | str]:
    """Return where each tool is, or why it is not there; ``only``: those with this in their name."""
    found: dict[Peer, Installed | str] = {}
    for peer in PEERS:
        if only in peer.name:
            try:
                found[peer] = peer.find()
            except RuntimeError as error:
                found[peer] = str(error)
    return found


def main() -> int:
    """Run all of them; return 1 where none could be compared."""
    asked = argparse.ArgumentParser(prog="python -m tests.studies.peers", description=__doc__)
    asked.add_argument("--rate", type=int, default=50, help="requests per second")
    asked.add_argument("--number", type=int, default=400, help="requests, a multiple of the rate")
    asked.add_argument("--tokens", type=int, default=48, help="events per answer")
    asked.add_argument("--only", default="", metavar="TEXT", help="tools with this in their name")
    options = asked.parse_args()
    found = installed(options.only)
    pythons = [place.python for place in found.values() if isinstance(place, Installed)]
    print(
        f"{time.strftime('%Y-%m-%d')}, load average {os.getloadavg()[0]:.1f}, loop {reference_loop_s():.3f} s: "
        f"{options.number} requests at {options.rate}/s, {options.tokens} events each\n"
    )
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    with tempfile.TemporaryDirectory() as folder, known_server() as url:
        load = PeerLoad(
            url=url,
            rate_per_s=options.rate,
            number=options.number,
            tokens=options.tokens,
            tokenizer=make_tokenizer(pythons[-1]),
            folder=Path(folder),
        )
        for peer, place in found.items():
            say(peer.name)
            cells = [peer.name, place] if isinstance(place, str) else row_of(peer, place, load)
            print(f"| {' | '.join(cells)} |{' |' * (len(COLUMNS) - len(cells))}", flush=True)
    print(f"\nload average at the end {os.getloadavg()[0]:.1f}, loop {reference_loop_s():.3f} s")
    return 0 if len(pythons) > 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
