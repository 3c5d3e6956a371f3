"""One load from the workers of a cluster: what each sends, a worker that is lost, one that is not as it must be."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import distributed
import pytest

from observe import Observation, Settings, observe_with, parse_endpoint
from observe.machines import clusters, machine_sender
from observe.machines.clocks import ClockOffset
from observe.machines.machine_sender import MachineSender
from observe.machines.sender_relay import SenderRelay
from observe.processes.messages import CounterReport
from observe.processes.partition import Share
from observe.settings import MachineCluster
from tests.observe.servers import Behaviour, FakeServer, serving
from tests.observe.workloads import every, statuses, workload
from traces import ConfigError, Trace, read_trace, tool_version
from traces.console.cluster_library import ClusterName

DASK = MachineCluster(library="dask", address="tcp://127.0.0.1:8786")


class NearRelay:
    """A relay in this very process, which a test can lose or change."""

    def __init__(self, cluster: NearCluster) -> None:
        self._cluster, self._relay = cluster, SenderRelay()

    async def ask(self, method: str, *values: object) -> Any:  # noqa: ANN401
        """Call the relay, unless the worker is gone."""
        if method in self._cluster.answers:
            return self._cluster.answers[method]
        if method in self._cluster.faults:
            raise self._cluster.faults[method]
        if self._cluster.is_hanging:
            await asyncio.sleep(3600)
        return await getattr(self._relay, method)(*values)


class NearCluster:
    """A cluster whose workers are this process; ``lost``: those that it has no more."""

    def __init__(self) -> None:
        self.workers: Sequence[str] = ("first", "second")
        self.quiet = asyncio.Lock()
        self.answers: dict[str, object] = {}
        self.faults: dict[str, Exception] = {}
        self.lost: set[str] = set()
        self.is_hanging = False

    async def place(self, worker: str) -> NearRelay:
        """Return a relay; the second worker alone can be lost."""
        return NearRelay(self if worker == "second" else NearCluster())

    async def has(self, worker: str) -> bool:
        """Return whether it is not lost."""
        return worker not in self.lost

    async def close(self) -> None:
        """Do nothing."""


@pytest.fixture
async def near(monkeypatch: pytest.MonkeyPatch) -> NearCluster:
    """Return the cluster that a run joins in place of a real one."""
    cluster = NearCluster()

    @asynccontextmanager
    async def joined(_: MachineCluster) -> AsyncIterator[NearCluster]:
        yield cluster

    monkeypatch.setattr(clusters, "joined", joined)
    return cluster


async def observed(
    requests: Trace, server: FakeServer, output: Path, *, told: list[str] | None = None, **how: object
) -> Observation:
    settings = Settings(endpoint=parse_endpoint(server.url), salt=7, **(how or {"machines": DASK}))  # type: ignore[arg-type]  # fields of Settings
    return await observe_with(
        requests, settings, output=output, tell=(told or []).append if told is not None else None
    )


async def test_the_workers_send_what_processes_here_would_into_one_trace(
    tmp_path: Path, near: NearCluster
) -> None:
    requests, told = workload(every(10_000, 12)), [""]
    async with serving(Behaviour(ttft_s=0.01)) as server:
        here = await observed(requests, server, tmp_path / "here", processes=2)
        bodies = {request.headers["x-request-id"]: request.body for request in server.requests}
        server.requests.clear()
        there = await observed(requests, server, tmp_path / "there", told=told)
        assert {request.headers["x-request-id"]: request.body for request in server.requests} == bodies
    trace = read_trace(tmp_path / "there")
    assert statuses(trace) == ["ok"] * 12
    assert list(there.trace.requests.columns) == list(here.trace.requests.columns)
    assert trace.events is not None
    assert len(trace.events) == 12 * 6
    assert there.fault is None
    client = trace.header.client
    assert client is not None
    assert client.num_processes == 2
    assert [str(each.machine).split(", ")[1] for each in client.processes] == list(near.workers)
    for each in client.processes:
        assert each.num_sent == 6
        assert abs(each.clock_offset_us or 0) <= (each.clock_error_us or 0)  # one clock
        assert each.clock_drift_us is not None
    assert sum("its clock is ours" in line for line in told) == 2


@pytest.mark.parametrize("way", ["the cluster misses it", "it is silent", "its calls fail"])
async def test_a_lost_worker_is_told_and_its_requests_are_marked_and_the_others_go_on(
    way: str, tmp_path: Path, near: NearCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_sender, "_LOOK_S", 0.05)
    if way == "it is silent":
        monkeypatch.setattr(machine_sender, "SILENCE_S", 0.8)

    def lose(_: object) -> None:
        if len(server.requests) == 20:
            near.is_hanging = True
            near.lost |= {"second"} if way == "the cluster misses it" else set()
            near.faults |= {"hear": OSError("gone")} if way == "its calls fail" else {}

    told = [""]
    async with serving() as server:
        server.on_request = lose
        seen = await observed(workload(every(50_000, 60)), server, tmp_path / "run", told=told)
    first, second = statuses(seen.trace)[::2], statuses(seen.trace)[1::2]
    assert first == ["ok"] * 30
    kept = second.count("ok")
    assert 0 < kept < 25
    assert second == ["ok"] * kept + ["aborted"] * (30 - kept)
    assert any(line.endswith("was lost: the others go on") for line in told)
    assert seen.fault is not None
    assert "second) of 2 was lost" in seen.fault
    assert seen.num_failed == 30 - kept


@pytest.mark.parametrize(
    ("answers", "faults", "said"),
    [
        ({"introduce": ("0.0.1", "m")}, {}, f"second: got vtwin 0.0.1, expected {tool_version()} as here"),
        (
            {},
            {"introduce": ModuleNotFoundError("No module named 'observe'")},
            f"second: got ModuleNotFoundError: No module named 'observe', expected a worker with vtwin "
            f"{tool_version()}",
        ),
    ],
)
async def test_a_worker_of_another_version_or_without_vtwin_is_one_line(
    answers: dict[str, object], faults: dict[str, Exception], said: str, tmp_path: Path, near: NearCluster
) -> None:
    near.answers, near.faults = answers, faults
    async with serving() as server:
        with pytest.raises(ConfigError) as error:
            await observed(workload(every(1000, 4)), server, tmp_path / "run")
        assert server.requests == []
    assert str(error.value) == said


async def test_times_of_another_clock_are_brought_to_ours() -> None:
    sender = MachineSender(Share(chains=((0,),), users=None), cluster=NearCluster(), worker="second")
    sender._clock = ClockOffset(offset_ns=10**12, error_ns=5)
    tails = {"dispatched_ns": array("q", [10**12 + 7]).tobytes(), "own_lag_us": array("q", [3]).tobytes()}
    report = CounterReport(totals={}, by_name={}, histograms={}, tails=tails, outcomes=())
    ours = sender._by_our_clock(report).tails
    assert array("q", ours["dispatched_ns"]).tolist() == [7]
    assert ours["own_lag_us"] == tails["own_lag_us"]


@pytest.mark.parametrize("library", ["dask", "ray"])
async def test_a_cluster_that_does_not_answer_is_one_line(
    library: ClusterName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{held.getsockname()[1]}"
    monkeypatch.setattr(clusters, "cluster_library", lambda *_, **__: None)
    how = Settings(
        endpoint=parse_endpoint("http://127.0.0.1:9"),
        machines=MachineCluster(library=library, address=address),
    )
    with pytest.raises(ConfigError, match=f"--{library}: got '{address}', expected a scheduler that answers"):
        await observe_with(workload([0]), how, output=tmp_path / "run")


async def test_a_library_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    how = Settings(
        endpoint=parse_endpoint("http://127.0.0.1:9"), machines=MachineCluster(library="ray", address="auto")
    )
    with pytest.raises(
        ConfigError, match=r"--ray: got no ray, expected it installed: pip install 'vtwin\[ray\]'"
    ):
        await observe_with(workload([0]), how, output=tmp_path / "run")


@asynccontextmanager
async def real_cluster(library: ClusterName) -> AsyncIterator[MachineCluster]:
    """Run two workers of Dask; of Ray, whose clusters are too large to start here, take one that is there."""
    if library == "ray":
        pytest.importorskip(
            "ray", reason="Ray is not in the lock; docs/how-to/load-from-machines.md says how it was tried"
        )
        if (address := os.environ.get("RAY_ADDRESS")) is None:
            pytest.skip("needs a running Ray cluster: RAY_ADDRESS=HOST:PORT")
        yield MachineCluster(library="ray", address=address)
        return
    async with distributed.LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, asynchronous=True
    ) as cluster:
        yield MachineCluster(library="dask", address=cluster.scheduler_address)


@pytest.mark.parametrize("library", ["dask", "ray"])
async def test_a_real_cluster_sends_a_load(library: ClusterName, tmp_path: Path) -> None:
    async with real_cluster(library) as machines, serving() as server:
        seen = await observed(workload(every(10_000, 20)), server, tmp_path / "run", machines=machines)
    assert statuses(seen.trace) == ["ok"] * 20
    client = seen.trace.header.client
    assert client is not None
    assert sum(each.num_sent or 0 for each in client.processes) == 20
    for each in client.processes:
        assert abs(each.clock_offset_us or 0) <= (each.clock_error_us or 0)
