"""``serve`` as a fleet of prefill and decode pools, and as one whose instances come, go and fail: through sockets."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import aiohttp
import pytest

from replay.serve.server import Listening, serving
from replay.serve.twin import Twin
from replay.twin.twin_config import TwinConfig
from sim.cluster.cluster_config import ClusterConfig, Pool, SnapshotIntervals
from sim.cluster.infrastructure.infrastructure_config import Autoscaler, Failure, Failures, Startup
from sim.cluster.routing.routing_policies import LeastLoaded, Weighted
from sim.cluster.transfer.disaggregation_config import Disaggregation
from tests.replay.serve.test_serve_fleet import ENGINE, LATENCY

POOL = Pool(engine=ENGINE, latency=LATENCY)
BODY = {"prompt": [7] * 40, "max_tokens": 4}


@asynccontextmanager
async def served(cluster: ClusterConfig) -> AsyncIterator[tuple[Listening, aiohttp.ClientSession]]:
    config = TwinConfig(engine=ENGINE, latency=LATENCY, asked_cluster=cluster)
    async with serving(config) as listening, aiohttp.ClientSession(base_url=listening.url) as client:
        yield listening, client


async def metrics_of(client: aiohttp.ClientSession) -> dict[str, float]:
    """Return the values that /metrics has, by series without the model's name."""
    page = await (await client.get("/metrics")).text()
    lines = [line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#")]
    return {
        name.replace(',model_name="vtwin"', "").replace('model_name="vtwin",', ""): float(value)
        for name, value in lines
    }


async def test_prompts_are_computed_on_prefill_instances_and_answered_by_the_others() -> None:
    pools = (replace(POOL, name="d", role="decode", instances=2), replace(POOL, name="p", role="prefill"))
    cluster = ClusterConfig(pools=pools, disaggregation=Disaggregation(kv_bytes_per_token=131_072))
    async with served(cluster) as (listening, client):
        answers = await asyncio.gather(*(client.post("/v1/completions", json=BODY) for _ in range(6)))
        assert [answer.status for answer in answers] == [200] * 6
        assert {(await answer.json())["usage"]["completion_tokens"] for answer in answers} == {4}
        streamed = await client.post("/v1/completions", json={**BODY, "stream": True})
        assert 1 <= (await streamed.text()).count('"text"') <= 4  # tokens that are late come together
        found = await metrics_of(client)
        assert listening.twin.num_under_way == 0
    of = 'vllm:{}_tokens_total{{engine="{}"}}'.format
    assert [found[of("generation", engine)] for engine in range(3)] == [16.0, 12.0, 7.0]
    assert [found[of("prompt", engine)] for engine in range(3)] == [160.0, 120.0, 280.0]
    assert found['vtwin:instances{state="ready"}'] == 3


async def test_a_server_that_looks_late_counts_what_prefill_instances_did_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Twin, "_arm", lambda _: None)  # it looks when it is told to
    pools = (replace(POOL, name="d", role="decode"), replace(POOL, name="p", role="prefill"))
    cluster = ClusterConfig(pools=pools, disaggregation=Disaggregation(kv_bytes_per_token=131_072))
    async with served(cluster) as (listening, client):
        twin = listening.twin
        asking = asyncio.create_task(client.post("/v1/completions", json=BODY))
        while not twin.num_under_way:
            await asyncio.sleep(0.001)
        monkeypatch.setattr(twin, "_clock_us", lambda: 10**9)
        twin._tick()
        assert (await asking).status == 200
    assert [each.generation_tokens for each in twin.metrics] == [4, 1]
    assert [each.finished["length"] for each in twin.metrics] == [1, 1]


async def test_an_autoscaler_adds_instances_under_load_and_metrics_show_them() -> None:
    scaler = Autoscaler(
        policy="target", target=2.0, max_instances=3, interval_us=50_000, down_window_us=300_000
    )
    pool = replace(POOL, autoscaler=scaler, startup=Startup(loading_us=50_000))
    async with served(ClusterConfig(pools=(pool,), routing=LeastLoaded())) as (_, client):
        before = await metrics_of(client)
        assert before['vtwin:instances{state="off"}'] == 2
        assert 'vllm:num_requests_running{engine="1"}' not in before
        load = [
            asyncio.create_task(
                client.post("/v1/completions", json={**BODY, "max_tokens": 100, "ignore_eos": True})
            )
            for _ in range(6)
        ]
        async with asyncio.timeout(10):
            while (during := await metrics_of(client))['vtwin:instances{state="ready"}'] < 3:
                await asyncio.sleep(0.01)
            assert during['vllm:num_requests_running{engine="1"}'] == 0
            late = await client.post("/v1/completions", json=BODY)
            assert late.status == 200
            found = await metrics_of(client)
            assert sum(found[f'vllm:generation_tokens_total{{engine="{each}"}}'] for each in (1, 2)) == 4
            assert [(await each).status for each in load] == [200] * 6
            while (after := await metrics_of(client))['vtwin:instances{state="ready"}'] > 1:
                await asyncio.sleep(0.01)
    assert 'vllm:num_requests_running{engine="0"}' in after
    assert num_series(after) == 1


def num_series(found: dict[str, float]) -> int:
    """Return how many engines /metrics has series of."""
    return sum(name.startswith("vllm:num_requests_running{") for name in found)


@pytest.mark.parametrize("stream", [False, True])
async def test_whoever_is_on_an_instance_that_fails_gets_503_and_it_takes_requests_again(
    stream: bool,
) -> None:
    failures = Failures(schedule=(Failure(at_us=1_500_000, instance=0, down_us=1_000_000),))
    slow = replace(POOL, latency=replace(LATENCY, beta0=50_000))
    async with served(ClusterConfig(pools=(slow,), failures=failures)) as (listening, client):
        body = {**BODY, "max_tokens": 200, "stream": stream, "ignore_eos": True}
        lost = await client.post("/v1/completions", json=body)
        text = await lost.text()
        assert lost.status == (200 if stream else 503)  # a stream that has begun ends with the error
        assert "has failed, or was stopped" in text
        assert '"code":503' in text.replace(" ", "")
        gone = await client.post("/v1/completions", json=BODY)
        assert gone.status == 503
        assert "there is no instance" in await gone.text()
        found = await metrics_of(client)
        assert found['vtwin:instances{state="down"}'] == 1
        assert num_series(found) == 0
        assert await (await client.get("/load")).json() == {"server_load": 0}
        async with asyncio.timeout(10):
            while (again := await client.post("/v1/completions", json=BODY)).status != 200:
                await asyncio.sleep(0.02)
        assert (await again.json())["usage"]["completion_tokens"] == 4
        assert listening.twin.num_under_way == 0


async def test_one_whose_prefill_instance_fails_gets_503_and_the_decode_instance_goes_on_alone() -> None:
    slow = replace(LATENCY, beta0=3_000_000)
    pools = (
        replace(POOL, name="d", role="decode"),
        replace(POOL, name="p", role="prefill", latency=slow),
    )
    failures = Failures(schedule=(Failure(at_us=1_500_000, instance=1, down_us=60_000_000),))
    moves = Disaggregation(kv_bytes_per_token=131_072)
    cluster = ClusterConfig(pools=pools, disaggregation=moves, failures=failures)
    async with served(cluster) as (listening, client):
        lost = await client.post("/v1/completions", json=BODY)
        assert lost.status == 503
        assert "has failed, or was stopped" in await lost.text()
        alone = await client.post("/v1/completions", json=BODY)
        assert alone.status == 200
        assert (await alone.json())["usage"]["completion_tokens"] == 4
        found = await metrics_of(client)
        assert found['vtwin:instances{state="down"}'] == 1
        assert listening.twin.num_under_way == 0


async def test_signals_may_be_seen_at_intervals_of_their_own() -> None:
    intervals = SnapshotIntervals(queue=20_000, kv=50_000, cache=30_000)
    scorers = {"precise-prefix-cache": 1, "queue-depth": 1, "kv-utilization": 1}
    cluster = ClusterConfig(
        pools=(replace(POOL, instances=2),),
        routing=Weighted(scorers=scorers),
        snapshot_interval_us=intervals,
    )
    async with served(cluster) as (listening, client):
        for _ in range(3):
            assert (await client.post("/v1/completions", json=BODY)).status == 200
            await asyncio.sleep(0.06)
        counts = [sum(each.finished.values()) for each in listening.twin.metrics]
    assert sorted(counts) == [0, 3], "who has the prompt cached gets it again"


TWIN = """
engine: {max_num_seqs: 6, num_gpu_blocks: 120, max_model_len: 1024}
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 20, beta2: 30}}
cluster: {instances: 2, routing: {policy: "mine.py:choose"}}
"""
MINE = """
def choose(fleet, request, time_us):
    return 1 if request.prompt_tokens < 100 else 7
"""


def test_a_routing_function_of_one_s_own_decides_and_its_error_ends_the_server(tmp_path: Path) -> None:
    (tmp_path / "twin.yaml").write_text(TWIN)
    (tmp_path / "mine.py").write_text(MINE)
    vtwin = str(Path(sys.executable).with_name("vtwin"))
    command = [vtwin, "serve", "--config", "twin.yaml", "--port", "0", "--allow-code"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]

        def sent(prompt: list[int]) -> int:
            with closing(HTTPConnection(url.removeprefix("http://"), timeout=20)) as client:
                client.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "max_tokens": 2}))
                return client.getresponse().status

        assert sent([7] * 40) == 200
        assert sent([7] * 200) == 503
        _, told = server.communicate(timeout=20)
    assert server.returncode == 2
    assert "cluster.routing.policy: got instance 7 for request" in told
    assert "Traceback" not in told
