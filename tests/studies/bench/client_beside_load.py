"""``python -m tests.studies.bench.client_beside_load``: the load generator beside busy processes; root on Linux.

The server is that of ``vtwin selfcheck`` and goes before everything else (SCHED_RR), so that what is late is the
client. Runs are of root and of a user without rights, alone and beside ``--hogs`` processes that never rest. All are of
one session, unless ``--own-session``: where the kernel shares its cores between sessions first (sched(7), autogroup),
that is what a client in a terminal of its own has. A row is the median of
the rounds, the worst in brackets.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from observe.event_loop import run_on_fastest_loop
from observe.selfcheck.local_workers import local_workers
from observe.selfcheck.measure import Checked, ReferenceClient, poisson, users
from tests.studies.bench.engine import reference_loop_s
from traces import pooled_itl_us

GAP_US = 5_000
SECONDS = 8
RIGHTS = {"root": (), "user": ("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice")}
"""An ordinary user is one who may not go first."""


@contextmanager
def known_server() -> Iterator[str]:
    """Start the server of known times, ahead of all ordinary processes; yield its address."""
    command = [sys.executable, "-m", "observe.selfcheck.reference_server"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None and server.stdout is not None
    os.sched_setscheduler(server.pid, os.SCHED_RR, os.sched_param(50))
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.stdin.close()
        server.wait(10)


@contextmanager
def busy(number: int) -> Iterator[None]:
    """Keep so many processes busy for a while."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def client_run(url: str, *, rights: tuple[str, ...], kind: str, own_session: bool) -> dict[str, float]:
    """Run the client with these rights in a process of its own; return its figures."""
    command = [
        sys.executable,
        "-m",
        "tests.studies.bench.client_beside_load",
        "--client",
        url,
        "--kind",
        kind,
    ]
    asked = subprocess.run(
        [*rights, *command], stdout=subprocess.PIPE, check=True, text=True, start_new_session=own_session
    )
    figures: dict[str, float] = json.loads(asked.stdout)
    return figures


async def measured(url: str, *, kind: str) -> dict[str, float]:
    """Return the figures of one kind of run."""
    server = ReferenceClient(url)
    if kind == "events":
        checked = await server.check(users(256, 256))
        return {"event, µs": checked.observation.cpu_s / checked.num_events * 1e6}
    if kind == "workers":
        async with local_workers() as cluster:
            return stamps(await server.check(poisson(200, 150, tokens=8), gap_us=GAP_US, machines=cluster))
    rate, _, processes = kind.partition("x")
    load = poisson(int(rate), int(rate) * SECONDS, tokens=8)
    return stamps(await server.check(load, gap_us=GAP_US, processes=int(processes or 1)))


def stamps(checked: Checked) -> dict[str, float]:
    """Return how far stamps and sends were off, and how late the server itself was."""
    client = checked.trace.header.client
    assert client is not None
    first, last = np.abs(checked.first_error_us) / 1e3, np.abs(checked.last_error_us) / 1e3
    gaps = pooled_itl_us(checked.trace)
    asked, achieved = client.gap_cv_asked or 1.0, client.gap_cv_achieved or float("nan")
    return {
        "first p50, ms": at(first, 0.5),
        "first p99, ms": at(first, 0.99),
        "last p99, ms": at(last, 0.99),
        "ITL mean off, %": (float(gaps.mean()) / GAP_US - 1) * 100 if len(gaps) else float("nan"),
        "ITL p99 off, %": (at(gaps, 0.99) / GAP_US - 1) * 100,
        "lag p50, ms": client.own_lag_us.get("p50", float("nan")) / 1e3,
        "lag p99, ms": client.own_lag_us.get("p99", float("nan")) / 1e3,
        "CV off, %": (achieved / asked - 1) * 100,
        "CPU, %": (client.cpu_frac or 0) * 100,
        "server p99, ms": at(checked.server_lag_us / 1e3, 0.99),
    }


def at(values: NDArray[np.float64], q: float) -> float:
    """Return a quantile of what is known."""
    return float(np.nanquantile(values, q)) if len(values) else float("nan")


def main() -> None:
    """Measure, or be the client of one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", metavar="URL", help="be the client of one run")
    parser.add_argument(
        "--kind",
        default="200,500,events,workers",
        help="requests/s, with xN from N processes; events; workers",
    )
    parser.add_argument("--hogs", default="0,8")
    parser.add_argument("--rights", default="user,root")
    parser.add_argument(
        "--own-session", action="store_true", help="the client's, as in a terminal of its own"
    )
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.client:
        print(json.dumps(run_on_fastest_loop(lambda: measured(asked.client, kind=asked.kind))))
        return
    found: dict[tuple[str, int, str], list[dict[str, float]]] = {}
    with known_server() as url:
        for _ in range(asked.rounds):
            for number in map(int, asked.hogs.split(",")):
                with busy(number):
                    for kind in asked.kind.split(","):
                        for rights in asked.rights.split(","):
                            row = client_run(
                                url, rights=RIGHTS[rights], kind=kind, own_session=asked.own_session
                            )
                            found.setdefault((kind, number, rights), []).append(row)
    print(f"loop {reference_loop_s():.3f} s, load {os.getloadavg()[0]:.1f}, {asked.rounds} rounds")
    for (kind, number, rights), rows in found.items():
        cells = (
            f"{name} {statistics.median(row[name] for row in rows):.3g}"
            f" ({max((row[name] for row in rows), key=abs):.3g})"
            for name in rows[0]
        )
        print(f"{kind:8} {number} hogs {rights:5}", "; ".join(cells))


if __name__ == "__main__":
    main()
