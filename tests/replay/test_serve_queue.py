"""``serve`` with the gateway's queue: its decisions against the simulated cluster's, then through sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import aiohttp
import numpy as np
import pytest

from replay.serve import serving
from replay.serve.queued_fleet import QueuedFleet
from replay.serve.realtime import Client
from replay.twin.config import TwinConfig
from sim.cluster.config import ClusterConfig, PipelineLatency
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.routing.policies import LeastLoaded, RoundRobin, Session, VllmDp, Weighted
from sim.cluster.run.prepare import ClusterWork
from sim.cluster.run.world import Exit
from sim.cluster.simulation import simulate_cluster
from sim.cluster.slo import SLO_PRIORITIES, slo_priority
from sim.requests import Requests
from tests.replay.test_serve_fleet import ENGINE, LATENCY, fleet_of, requests_of_apps
from tests.sim.cluster.test_cluster import POLICIES, RoutingPolicy

CLASSES, TENANTS = tuple(SLO_PRIORITIES), ("a", "b", "")
NUMBER = 150


def played(
    requests: Requests, cluster: ClusterConfig, clients: list[Client]
) -> tuple[list[int], list[int], list[str]]:
    """Return each request's instance (-1: none), last token's time and way out, the clock moved from event to event."""
    fleet = QueuedFleet(cluster, num_keys=int(requests.hash_ids.max(initial=0)) + 1)
    instances, last = [-1] * len(requests), [-1] * len(requests)
    ways = [Exit.COMPLETED.name] * len(requests)

    def until(time_us: int) -> None:
        while (next_us := fleet.next_time_us()) is not None and next_us <= time_us:
            for number, at_us in fleet.tokens(next_us):
                assert at_us <= next_us
                instances[number], last[number] = fleet.instance_of(number), at_us  # type: ignore[call-overload] # it has a token
            for number, way in fleet.exits():
                instance = fleet.instance_of(number)
                ways[number], instances[number] = way.name, -1 if instance is None else instance

    for row in range(len(requests)):
        now_us = int(requests.arrival_us[row]) - 1
        until(now_us)
        first, end = requests.hash_offsets[row : row + 2]
        taken = fleet.submit(
            now_us,
            prompt_tokens=int(requests.prompt_tokens[row]),
            output_tokens=int(requests.output_tokens[row]),
            hash_ids=requests.hash_ids[first:end].tolist(),
            client=clients[row],
        )
        if taken is None:
            ways[row] = Exit.QUEUE_FULL.name
    until(1 << 60)
    return instances, last, ways


def check_same(cluster: ClusterConfig, *, pace: float = 0.5) -> list[str]:
    """Compare a served fleet with the simulated cluster; return the ways out."""
    requests = requests_of_apps(NUMBER)
    requests = replace(requests, arrival_us=(requests.arrival_us * pace).astype(np.int64))
    rng = np.random.default_rng(2)
    tenant, slo_class = rng.integers(0, 3, NUMBER), rng.integers(0, len(CLASSES), NUMBER)
    assert cluster.flow_control is not None
    targets = cluster.flow_control.slo_targets_us
    work = ClusterWork(
        requests=requests,
        tenant=np.where(tenant < 2, tenant, -1),
        tenants=TENANTS[:2],
        slo_priority=np.array([slo_priority(CLASSES[number]) for number in slo_class]),
        slo_target_us=np.array([targets.get(CLASSES[number], -1) for number in slo_class]),
    )
    simulated = simulate_cluster(work, cluster)
    clients = [
        Client(slo_class=CLASSES[slo_class[row]], tenant=TENANTS[tenant[row]]) for row in range(NUMBER)
    ]
    instances, last, ways = played(requests, cluster, clients)
    assert ways == [Exit(way).name for way in simulated.exit]
    assert instances == simulated.instance.tolist()
    done = np.array(ways) == Exit.COMPLETED.name
    assert np.array(last)[done].tolist() == simulated.outcomes.last_token_us[done].tolist()
    return ways


@pytest.mark.parametrize("interval_us", [0, 70_000])
@pytest.mark.parametrize("policy", [*POLICIES, Session()], ids=lambda policy: type(policy).__name__)
def test_a_served_queue_hands_over_as_the_simulated_one(policy: RoutingPolicy, interval_us: int) -> None:
    flow = FlowControl(detector="concurrency", max_concurrency=4)
    check_same(replace(fleet_of(policy, interval_us=interval_us), flow_control=flow))


FLOWS = {
    "fifo": FlowControl(detector="concurrency", max_concurrency=4, order="fifo"),
    "fair": FlowControl(detector="concurrency", max_concurrency=4, fairness="round-robin"),
    "deadlines": FlowControl(
        detector="concurrency",
        max_concurrency=3,
        order="slo-deadline",
        slo_targets_us={"critical": 200_000, "standard": 50_000},
    ),
    "ceilings": FlowControl(detector="concurrency", max_concurrency=6, lowest_ceiling=0.5),
    "small": FlowControl(detector="concurrency", max_concurrency=3, capacity=12, band_capacity=4),
    "shedding": FlowControl(detector="concurrency", max_concurrency=3, capacity=8, sheds=True, evicts=True),
    "impatient": FlowControl(detector="concurrency", max_concurrency=3, ttl_us=150_000),
    "by reports": FlowControl(queue_threshold=1, kv_threshold=0.6),
    "never": FlowControl(detector="never"),
}


@pytest.mark.parametrize("interval_us", [0, 70_000])
@pytest.mark.parametrize("name", FLOWS)
def test_every_way_out_is_the_simulated_one(name: str, interval_us: int) -> None:
    cluster = replace(fleet_of(LeastLoaded(), interval_us=interval_us), flow_control=FLOWS[name])
    ways = check_same(cluster, pace=0.35)
    expected = {
        "small": Exit.QUEUE_FULL,
        "shedding": Exit.EVICTED,
        "impatient": Exit.EXPIRED,
    }.get(name)
    assert expected is None or expected.name in ways


@pytest.mark.parametrize("policy", [LeastLoaded(), RoundRobin(), VllmDp(), Weighted()], ids=lambda p: p.name)
def test_time_to_route_keeps_a_seat(policy: RoutingPolicy) -> None:
    cluster = replace(
        fleet_of(policy),
        flow_control=FlowControl(detector="concurrency", max_concurrency=4),
        latency=PipelineLatency(routing_us=3_000),
    )
    check_same(cluster)


# -- through sockets ------------------------------------------------------------------------------------------

SLOW = replace(LATENCY, beta0=30_000)
BODY = {"prompt": [7] * 40, "max_tokens": 10}


def queue_of(flow: FlowControl) -> TwinConfig:
    cluster = fleet_of(RoundRobin(), instances=1)
    pools = tuple(replace(pool, latency=SLOW) for pool in cluster.pools)
    return TwinConfig(engine=ENGINE, latency=SLOW, cluster=replace(cluster, pools=pools, flow_control=flow))


@pytest.mark.parametrize("stream", [False, True])
async def test_who_leaves_the_queue_gets_a_status_that_says_how(stream: bool) -> None:
    flow = FlowControl(
        detector="concurrency", max_concurrency=1, capacity=1, sheds=True, ttl_us=350_000, order="priority"
    )

    async def sent(slo_class: str) -> tuple[int, str]:
        headers = {"x-gateway-inference-objective": slo_class}
        body = {**BODY, "stream": stream, "max_tokens": 25}
        async with client.post("/v1/completions", json=body, headers=headers) as answer:
            return answer.status, await answer.text()

    async with serving(queue_of(flow)) as server, aiohttp.ClientSession(base_url=server.url) as client:
        started: list[asyncio.Task[tuple[int, str]]] = []
        for slo_class in ("critical", "batch"):  # one runs, one waits
            started.append(asyncio.create_task(sent(slo_class)))
            while server.twin.num_under_way < len(started):
                await asyncio.sleep(0.005)
        assert (await sent("batch"))[0] == 429
        expired = await sent("critical")
        assert (expired[0], "waited" in expired[1]) == (503, True)
        shed, whole = await started[1], await started[0]
        assert (shed[0], "gave its place" in shed[1]) == (429, True)
        assert whole[0] == 200
        assert server.twin.num_under_way == 0
        assert sum(server.twin.metrics[0].finished.values()) == 1


async def test_who_is_taken_off_an_instance_is_told_in_its_stream() -> None:
    flow = FlowControl(detector="concurrency", max_concurrency=1, evicts=True)

    async def sent(slo_class: str, max_tokens: int) -> str:
        headers = {"x-gateway-inference-objective": slo_class}
        body = {**BODY, "stream": True, "max_tokens": max_tokens}
        async with client.post("/v1/completions", json=body, headers=headers) as answer:
            assert answer.status == 200
            if slo_class == "batch":
                await answer.content.readuntil(b"\n\n")
                text, _ = await asyncio.gather(answer.text(), sent("critical", 2))
                return text
            return await answer.text()

    async with serving(queue_of(flow)) as server, aiohttp.ClientSession(base_url=server.url) as client:
        text = await sent("batch", 500)
    assert '"code":503' in text
    assert text.endswith("data: [DONE]\n\n")


async def test_a_client_that_goes_leaves_the_queue() -> None:
    flow = FlowControl(detector="concurrency", max_concurrency=1)
    async with serving(queue_of(flow)) as server, aiohttp.ClientSession(base_url=server.url) as client:
        first = asyncio.create_task(client.post("/v1/completions", json=BODY))
        await asyncio.sleep(0.05)
        with pytest.raises(TimeoutError):
            await client.post("/v1/completions", json=BODY, timeout=aiohttp.ClientTimeout(total=0.05))
        await asyncio.sleep(0.02)
        assert server.twin.num_under_way == 1
        assert (await first).status == 200
        assert sum(server.twin.metrics[0].finished.values()) == 1
