"""``serve`` with the gateway's queue: its decisions against the simulated cluster's, then through sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import aiohttp
import pytest

from replay.serve.server import serving
from replay.twin.twin_config import TwinConfig
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.routing.routing_policies import RoundRobin
from tests.replay.serve.test_serve_fleet import ENGINE, LATENCY, fleet_of

# -- through sockets ------------------------------------------------------------------------------------------

SLOW = replace(LATENCY, beta0=30_000)
BODY = {"prompt": [7] * 40, "max_tokens": 10}


def queue_of(flow: FlowControl) -> TwinConfig:
    cluster = fleet_of(RoundRobin(), instances=1)
    pools = tuple(replace(pool, latency=SLOW) for pool in cluster.pools)
    return TwinConfig(
        engine=ENGINE, latency=SLOW, asked_cluster=replace(cluster, pools=pools, flow_control=flow)
    )


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
        started = []
        for max_tokens in (40, 10):  # one runs, one waits
            body = {**BODY, "max_tokens": max_tokens}
            started.append(asyncio.create_task(client.post("/v1/completions", json=body)))
            while server.twin.num_under_way < len(started):
                await asyncio.sleep(0.005)
        started[1].cancel()
        while server.twin.num_under_way == len(started):
            await asyncio.sleep(0.005)
        assert server.twin.num_under_way == 1
        assert not started[0].done()
        assert (await started[0]).status == 200
        assert sum(server.twin.metrics[0].finished.values()) == 1
