"""``serve`` as a fleet: its decisions against the simulated cluster's, then through sockets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

import vtwin
from observe.server.prometheus_text import parse_metrics
from replay.serve.server import serving, serving_instances
from replay.twin.twin_config import TwinConfig
from sim import Blackbox, EngineConfig
from sim.cluster.cluster_config import ClusterConfig, PipelineLatency, Pool, SnapshotIntervals
from sim.cluster.gateway.admission import (
    TokenBucket,
)
from sim.cluster.infrastructure.infrastructure_config import Retries
from sim.cluster.routing.routing_policies import RoutingPolicy, Session
from tests.sim.cluster.test_cluster import POLICIES
from traces.errors import ConfigError

LATENCY = Blackbox(alpha0=500, beta0=6000, beta1=20, beta2=30)
ENGINE = EngineConfig(max_num_seqs=6, max_num_batched_tokens=256, num_gpu_blocks=120, max_model_len=1024)


def fleet_of(policy: RoutingPolicy, *, interval_us: int = 0, instances: int = 3) -> ClusterConfig:
    return ClusterConfig(
        pools=(Pool(engine=ENGINE, latency=LATENCY, instances=instances),),
        routing=policy,
        snapshot_interval_us=SnapshotIntervals.every(interval_us),
    )


# -- through sockets ------------------------------------------------------------------------------------------


async def test_a_fleet_answers_behind_one_url_and_its_metrics_tell_the_engines_apart() -> None:
    cluster = fleet_of(POLICIES[0], instances=3)
    config = TwinConfig(engine=ENGINE, latency=LATENCY, asked_cluster=cluster)
    async with serving(config) as listening, aiohttp.ClientSession(base_url=listening.url) as client:
        body = {"prompt": [7] * 40, "max_tokens": 4}
        answers = await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(7)))
        assert [answer.status for answer in answers] == [200] * 7
        page = await (await client.get("/metrics")).text()
        load = await (await client.get("/load")).json()
    assert load == {"server_load": 0}
    assert page.count("# TYPE vllm:generation_tokens_total counter") == 1
    tokens = {
        labels: value
        for line in page.splitlines()
        if line.startswith("vllm:generation_tokens_total{")
        for labels, value in [line.rsplit(" ", 1)]
    }
    assert sorted(tokens.values()) == ["12.0", "8.0", "8.0"]
    assert parse_metrics(page)


async def test_sessions_stay_on_one_engine() -> None:
    config = TwinConfig(engine=ENGINE, latency=LATENCY, asked_cluster=fleet_of(Session(), instances=4))
    async with serving(config) as listening, aiohttp.ClientSession(base_url=listening.url) as client:
        for _ in range(3):
            for who in ("ann", "bob"):
                body = {"prompt": [7] * 40, "max_tokens": 1}
                await client.post("/v1/completions", json=body, headers={"X-Session-Id": who})
        counts = Counter(sum(each.finished.values()) for each in listening.twin.metrics)
    assert counts[3] == 2 or counts[6] == 1


async def test_who_is_not_admitted_gets_429_and_keeps_nobody_s_place() -> None:
    bucket = TokenBucket(capacity=100, refill_per_s=0)
    cluster = replace(fleet_of(POLICIES[0], instances=2), admission=bucket)
    config = TwinConfig(engine=ENGINE, latency=LATENCY, asked_cluster=cluster)
    async with serving(config) as listening, aiohttp.ClientSession(base_url=listening.url) as client:
        answers = [
            await client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 2})
            for prompt in ([7] * 40, [[7] * 40, [7] * 40], [7] * 4)
        ]
        assert [answer.status for answer in answers] == [200, 429, 200]
        assert (await answers[1].json())["error"]["code"] == 429
        assert await (await client.get("/load")).json() == {"server_load": 0}


async def test_each_instance_can_have_a_port_of_its_own() -> None:
    config = TwinConfig(engine=ENGINE, latency=LATENCY, asked_cluster=fleet_of(POLICIES[0], instances=3))
    async with serving_instances(config) as servers:
        assert [server.name for server in servers] == ["0", "1", "2"]
        assert len({server.url for server in servers}) == 3
        async with aiohttp.ClientSession() as client:
            body = {"prompt": [7] * 40, "max_tokens": 4}
            await client.post(f"{servers[1].url}/v1/completions", json=body)
            rendered = await client.post(f"{servers[2].url}/v1/completions/render", json={"prompt": "a b"})
            ids = (await rendered.json())[0]["token_ids"]
            tokenized = await client.post(f"{servers[2].url}/tokenize", json={"prompt": "a b"})
            assert ids == (await tokenized.json())["tokens"]
        assert [server.twin.metrics[0].generation_tokens for server in servers] == [0, 4, 0]


async def test_the_gateway_s_latency_is_in_the_answer() -> None:
    loop = asyncio.get_running_loop()
    cluster = ClusterConfig(
        pools=(Pool(engine=ENGINE, latency=LATENCY),), latency=PipelineLatency(admission_us=150_000)
    )
    config = TwinConfig(engine=ENGINE, latency=LATENCY, asked_cluster=cluster)
    async with serving(config) as listening, aiohttp.ClientSession(base_url=listening.url) as client:
        started = loop.time()
        await client.post("/v1/completions", json={"prompt": [7] * 4, "max_tokens": 1})
    assert loop.time() - started >= 0.150


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"retries": Retries()}, r"cluster\.retries: got them for clients that are real"),
        ({"lockstep": True}, r"cluster\.lockstep: got true for clients that are real"),
    ],
)
async def test_what_real_clients_cannot_have_is_refused(settings: dict[str, object], complaint: str) -> None:
    cluster = replace(fleet_of(POLICIES[0]), **settings)  # type: ignore[arg-type] # checked by the class
    with pytest.raises(ConfigError, match=complaint):
        async with serving(TwinConfig(engine=ENGINE, latency=LATENCY, asked_cluster=cluster)):
            pass


async def test_pinned_kv_is_refused_since_clients_do_not_say_what_goes_on_from_what() -> None:
    config = TwinConfig(engine=replace(ENGINE, session_kv_ttl_us=5), latency=LATENCY)
    with pytest.raises(
        ConfigError, match=r"^engine\.session_kv_ttl_us: got a time to serve with, expected 0"
    ):
        async with serving(config):
            pass


def test_a_port_per_instance_needs_instances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin = tmp_path / "twin.yaml"
    twin.write_text(
        json.dumps(
            {
                "latency": {
                    "model": "blackbox",
                    "coefficients": dict.fromkeys(
                        ("alpha0", "alpha1", "alpha2", "beta0", "beta1", "beta2"), 1
                    ),
                }
            }
        )
    )
    assert vtwin.main(["serve", "--config", str(twin), "--port-per-instance"]) == 2
    assert "expected cluster in TWIN.yaml or --instances" in capsys.readouterr().err
