"""`make machines`: observe and sweep on a Dask cluster of two network namespaces; root on Linux. A line per finding."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pandas as pd

from tests.studies.machines.namespaces import (
    ADDRESSES,
    AHEAD_S,
    HERE,
    SCHEDULER,
    are_allowed,
    dask_cluster,
    kill,
    running,
    two_machines,
    wait_for,
)
from traces import ProcessInfo, Trace, read_trace

FIRST_US = 20_000
RATE, NUM_REQUESTS = 20, 200
LOAD = [
    "--rate",
    str(RATE),
    "--num-requests",
    str(NUM_REQUESTS),
    "--prompt-tokens",
    "64",
    "--output-tokens",
    "20",
]
LOST_WITHIN_S = 3.0
COEFFICIENTS = {"alpha0": 500, "alpha1": 2, "alpha2": 0, "beta0": 6000, "beta1": 10, "beta2": 20}
NUM_RUNS = 160
SWEEP_S = 3.0
"""How long the two workers simulate together."""
SPENT = ("engine_cpu_s",)
"""Columns that differ from run to run."""


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def check(holds: bool, what: str) -> None:
    """Say what was found. Raises AssertionError where it is not as it should be."""
    say(f"{'ok' if holds else 'NOT'}: {what}")
    if not holds:
        raise AssertionError(what)


class KnownServer:
    """The server as seen from here: when each request came, by this machine's clock."""

    def __init__(self, url: str) -> None:
        self.url = url

    def behave(self) -> None:
        """Forget what came."""
        asked = {"first_us": FIRST_US, "gap_us": 2000, "coalesced": False}
        self._ask("/_behave", json.dumps(asked).encode())

    def arrivals_ns(self) -> dict[str, int]:
        """Return when each request came, by x-request-id."""
        logs = json.loads(self._ask("/_log", b"{}"))
        return {name: log["first_due_ns"] - FIRST_US * 1000 for name, log in logs.items()}

    def _ask(self, path: str, body: bytes) -> bytes:
        with urlopen(Request(self.url + path, data=body), timeout=10) as answer:  # noqa: S310  our own server
            said: bytes = answer.read()
        return said


@contextmanager
def server(folder: Path) -> Iterator[KnownServer]:
    """Run the server at the bridge's address."""
    command = [sys.executable, "-m", "tests.studies.machines.stamping_server", HERE]
    with running(command, log=folder / "server.log"):
        wait_for(folder / "server.log", "port ", times=1)
        yield KnownServer(f"http://{HERE}:{(folder / 'server.log').read_text().split()[-1]}")


@contextmanager
def observing(known: KnownServer, folder: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``vtwin observe`` on the cluster; its lines are in ``folder / name.log``."""
    known.behave()
    command = [sys.executable, "-m", "vtwin", "observe", "--url", known.url, "--dask", SCHEDULER, *LOAD]
    command += ["--output", str(folder / name), "--max-error-rate", "1"]
    with running(command, log=folder / f"{name}.log") as process:
        yield process


def senders(trace: Trace) -> tuple[ProcessInfo, ...]:
    """Return what the header says of each machine."""
    assert trace.header.client is not None
    return trace.header.client.processes


def start_ns(trace: Trace) -> int:
    """Return the run's start by this machine's CLOCK_MONOTONIC."""
    assert trace.header.start_unix_us is not None
    return trace.header.start_unix_us * 1000 - (time.time_ns() - time.monotonic_ns())


def check_clocks(trace: Trace) -> None:
    """Check that each clock's offset is the true one, which the namespaces were made with, within its error."""
    for each in senders(trace):
        name = next(name for name, address in ADDRESSES.items() if address in str(each.machine))
        offset_us, error_us = each.clock_offset_us or 0.0, each.clock_error_us or 0.0
        off_us = offset_us - AHEAD_S[name] * 1e6
        check(
            abs(off_us) <= error_us,
            f"{name}: clock {offset_us / 1e6:+.6f} s, off the truth by {off_us:.0f} us, stated error "
            f"{error_us:.0f} us, drift {each.clock_drift_us or 0:.0f} us",
        )


def lags_us(trace: Trace, known: KnownServer) -> np.ndarray:
    """Return by how much each whole request came later than its send time says, both by this machine's clock."""
    came, begun = known.arrivals_ns(), start_ns(trace)
    ok = trace.requests[(trace.column("status") == "ok").to_numpy(bool, na_value=False)]
    return np.array(
        [
            (came[name] - begun) / 1000 - sent
            for name, sent in zip(ok["x_request_id"], ok["send_time_us"], strict=True)
        ]
    )


def whole_run(known: KnownServer, folder: Path) -> None:
    """Check a run in which nothing happens."""
    with observing(known, folder, "whole") as process:
        check(process.wait(120) == 0, "both machines send, exit code 0")
    trace = read_trace(folder / "whole")
    check(
        list(trace.column("status")) == ["ok"] * NUM_REQUESTS, f"{NUM_REQUESTS} of {NUM_REQUESTS} requests ok"
    )
    check_clocks(trace)
    lags = lags_us(trace, known)
    low, mid, high = np.quantile(lags, [0.01, 0.5, 0.99])
    worst = max(each.clock_error_us or 0 for each in senders(trace))
    check(
        lags.min() >= -worst and mid < 5000,
        f"requests came {low:.0f} / {mid:.0f} / {high:.0f} us (p1 / p50 / p99) after their send times",
    )
    check([each.num_sent for each in senders(trace)] == [NUM_REQUESTS // 2] * 2, "each sent its half")


def killed_run(known: KnownServer, folder: Path, worker: subprocess.Popen[bytes]) -> None:
    """Check a run whose second machine is killed midway."""
    with observing(known, folder, "killed") as process:
        while len(known.arrivals_ns()) < NUM_REQUESTS * 0.4:
            time.sleep(0.05)
        kill(worker)
        began = time.monotonic()
        wait_for(folder / "killed.log", "the others go on", times=1)
        told_s = time.monotonic() - began
        check(told_s < LOST_WITHIN_S, f"the loss is told {told_s:.2f} s after the kill")
        check(process.wait(120) == 1, "the run goes on to its end, exit code 1")
    trace = read_trace(folder / "killed")
    statuses = list(trace.column("status"))
    counts = {word: statuses.count(word) for word in ("ok", "aborted")}
    outcomes = [each.outcome for each in senders(trace)]
    lost = next(place for place, word in enumerate(outcomes) if word != "finished")
    check(len(trace) == NUM_REQUESTS == sum(counts.values()), f"every request is on record: {counts}")
    check(set(statuses[1 - lost :: 2]) == {"ok"}, "the other machine's requests are all ok")
    check(
        0 < statuses[lost::2].count("ok") < NUM_REQUESTS // 2,
        f"{outcomes[lost]}: what it had told of is kept",
    )
    came = len(known.arrivals_ns()) - counts["ok"]
    check(came < 20, f"{came} requests had come to the server and are marked: under way or not yet told of")


def interrupted_run(known: KnownServer, folder: Path) -> None:
    """Check that Ctrl-C ends the senders and keeps what came."""
    with observing(known, folder, "interrupted") as process:
        while len(known.arrivals_ns()) < NUM_REQUESTS * 0.3:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        check(process.wait(60) == 130, "Ctrl-C ends the run, exit code 130")
    trace = read_trace(folder / "interrupted")
    came = len(known.arrivals_ns())
    check(len(trace) == came, f"{came} requests came, {len(trace)} are on record")


def killed_sweep(folder: Path) -> None:
    """Check a sweep one of whose workers is killed midway: the table is that of one process, nothing is lost."""
    write_grid(folder)
    with dask_cluster(folder) as workers:
        command = [sys.executable, "-m", "vtwin", "sweep", "grid.yaml", "--output", "dask.parquet"]
        command += ["--backend", "dask", "--address", SCHEDULER]
        begun = {name: folder / f"{name}-cache" for name in ADDRESSES}
        with running(["env", "-C", str(folder), *command], log=folder / "sweep.log") as process:
            while process.poll() is None and not all(any(cache.rglob("*")) for cache in begun.values()):
                time.sleep(0.05)
            time.sleep(SWEEP_S)
            check(process.poll() is None, "both workers simulate, each with a cache of its own")
            kill(workers["vtwin-b"])
            check(process.wait(900) == 0, "one worker is killed, the sweep goes on to its end, exit code 0")
    alone = ["vtwin", "sweep", "grid.yaml", "--output", "alone.parquet", "--jobs", "1"]
    with running(
        ["env", "-C", str(folder), sys.executable, "-m", *alone], log=folder / "alone.log"
    ) as process:
        check(process.wait(900) == 0, "the same sweep in one process")
    tables = [pd.read_parquet(folder / f"{name}.parquet") for name in ("dask", "alone")]
    figures = [table.drop(columns=list(SPENT), errors="ignore") for table in tables]
    failed = int(tables[0]["error"].notna().sum()) if "error" in tables[0] else 0
    check(
        len(tables[0]) == NUM_RUNS and failed == 0 and figures[0].equals(figures[1]),
        f"{len(tables[0])} of {NUM_RUNS} rows, {failed} with an error, equal to those of one process",
    )


def write_grid(folder: Path) -> None:
    """Write a grid of ``NUM_RUNS`` runs."""
    engine = {"max_num_seqs": 64, "num_gpu_blocks": 4000, "max_model_len": 16384}
    latency = {"model": "blackbox", "coefficients": COEFFICIENTS}
    workload = {"rate": [4, 8], "prompt_tokens": 800, "output_tokens": 120, "num_requests": 3000}
    grid = {
        "config": "twin.yaml",
        "set": {"engine.max_num_seqs": [16, 32, 64, 128]},
        "workloads": {"chat": workload},
        "seeds": NUM_RUNS // 8,
    }
    for name, content in {"twin": {"engine": engine, "latency": latency}, "grid": grid}.items():
        (folder / f"{name}.yaml").write_text(json.dumps(content))


def main() -> int:
    """Run all; return the exit code."""
    if not are_allowed():
        say("skipped: needs root and namespaces of network and time (ip, unshare)")
        return 0
    with tempfile.TemporaryDirectory(prefix="vtwin-machines-") as place, two_machines():
        folder = Path(place)
        with server(folder) as known, dask_cluster(folder) as workers:
            whole_run(known, folder)
            interrupted_run(known, folder)
            killed_run(known, folder, workers["vtwin-b"])
        killed_sweep(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
