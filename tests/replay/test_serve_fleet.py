"""``serve`` as a fleet: its decisions against the simulated cluster's, then through sockets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import aiohttp
import numpy as np
import pytest

import vtwin
from observe.server.prometheus_text import parse_metrics
from replay.serve import serving, serving_instances
from replay.serve.fleet import RealtimeFleet
from replay.serve.realtime import NOBODY, Client
from replay.twin.config import TwinConfig
from sim import Blackbox, EngineConfig
from sim.cluster.config import ClusterConfig, PipelineLatency, Pool, SnapshotIntervals
from sim.cluster.gateway.admission import (
    AdmissionPolicy,
    RejectAll,
    TenantBudget,
    TierShed,
    TokenBucket,
    UtilizationShed,
)
from sim.cluster.infrastructure.config import Retries
from sim.cluster.routing.policies import LeastLoaded, Session
from sim.cluster.run.prepare import ClusterWork
from sim.cluster.simulation import simulate_cluster
from sim.cluster.slo import slo_priority
from sim.requests import Requests
from tests.sim.cluster.test_cluster import POLICIES, RoutingPolicy
from traces.errors import ConfigError

LATENCY = Blackbox(alpha0=500, beta0=6000, beta1=20, beta2=30)
ENGINE = EngineConfig(max_num_seqs=6, max_num_batched_tokens=256, num_gpu_blocks=120, max_model_len=1024)


def requests_of_apps(number: int, *, seed: int = 5) -> Requests:
    """Return requests of five applications, each with a beginning of its own that all its prompts share."""
    rng = np.random.default_rng(seed)
    app, own = rng.integers(0, 5, number), rng.integers(0, 12, number)
    shared = 4 + app  # blocks
    prompt = (shared + own) * ENGINE.block_size + rng.integers(1, 16, number)
    ids = [
        [*(100 * app[row] + np.arange(shared[row])), *(1000 + 20 * row + np.arange(own[row]))]
        for row in range(number)
    ]
    return Requests(
        arrival_us=np.cumsum(rng.integers(3_000, 15_000, number)),
        prompt_tokens=prompt,
        output_tokens=rng.integers(1, 40, number),
        priority=np.zeros(number, np.int64),
        hash_offsets=np.concatenate([[0], np.cumsum([len(each) for each in ids])]).astype(np.int64),
        hash_ids=np.concatenate(ids).astype(np.int64),
    )


def fleet_of(policy: RoutingPolicy, *, interval_us: int = 0, instances: int = 3) -> ClusterConfig:
    return ClusterConfig(
        pools=(Pool(engine=ENGINE, latency=LATENCY, instances=instances),),
        routing=policy,
        snapshot_interval_us=SnapshotIntervals.every(interval_us),
    )


def played(
    requests: Requests, cluster: ClusterConfig, clients: Sequence[Client] = ()
) -> tuple[list[int], list[int]]:
    """Return each request's instance and last token's time, its clock moved from event to event as a server's is.

    -1: it was not admitted.
    """
    fleet = RealtimeFleet(cluster, num_keys=int(requests.hash_ids.max(initial=0)) + 1)
    last = [-1] * len(requests)

    def until(time_us: int) -> None:
        while (next_us := fleet.next_time_us()) is not None and next_us <= time_us:
            for number, at_us in fleet.tokens(next_us):
                assert at_us <= next_us
                last[number] = at_us

    instances = []
    for row in range(len(requests)):
        now_us = int(requests.arrival_us[row]) - 1  # the engine is given the microsecond after
        until(now_us)
        taken = fleet.submit(
            now_us,
            prompt_tokens=int(requests.prompt_tokens[row]),
            output_tokens=int(requests.output_tokens[row]),
            hash_ids=requests.hash_ids[slice(*requests.hash_offsets[row : row + 2])].tolist(),
            client=clients[row] if clients else NOBODY,
        )
        instances.append(-1 if taken is None else fleet.instance_of(taken[0]))
    until(1 << 60)
    return instances, last


@pytest.mark.parametrize("interval_us", [0, 70_000])
@pytest.mark.parametrize("policy", [*POLICIES, Session()], ids=lambda policy: type(policy).__name__)
def test_a_served_fleet_decides_as_the_simulated_cluster(policy: RoutingPolicy, interval_us: int) -> None:
    requests = requests_of_apps(150)
    cluster = fleet_of(policy, interval_us=interval_us)
    simulated = simulate_cluster(ClusterWork(requests=requests), cluster)
    instances, last = played(requests, cluster)
    assert instances == simulated.instance.tolist()
    assert last == simulated.outcomes.last_token_us.tolist()
    if interval_us == 0 and type(policy).__name__ != "AlwaysBusiest":
        assert len(set(instances)) == 3


CLASSES, TENANTS = ("critical", "batch", "sheddable", ""), ("a", "b", "")


@pytest.mark.parametrize("interval_us", [0, 70_000])
@pytest.mark.parametrize(
    "admission",
    [
        RejectAll(),
        TokenBucket(capacity=2000, refill_per_s=15_000),
        TierShed(max_load=3, min_priority=3),
        UtilizationShed(queue_threshold=1, kv_threshold=0.5),
        TenantBudget(budgets={"a": 0.1, "b": 0.3}, rejects_all=True),
    ],
    ids=lambda admission: admission.name,
)
def test_a_served_fleet_admits_whom_the_simulated_cluster_admits(
    admission: AdmissionPolicy, interval_us: int
) -> None:
    requests = requests_of_apps(150)
    rng = np.random.default_rng(2)
    tenant, slo_class = rng.integers(0, 3, 150), rng.integers(0, 4, 150)
    work = ClusterWork(
        requests=requests,
        tenant=np.where(tenant < 2, tenant, -1),
        tenants=TENANTS[:2],
        slo_priority=np.array([slo_priority(CLASSES[number] or None) for number in slo_class]),
    )
    cluster = replace(fleet_of(LeastLoaded(), interval_us=interval_us), admission=admission)
    simulated = simulate_cluster(work, cluster)
    clients = [Client(slo_class=CLASSES[slo_class[row]], tenant=TENANTS[tenant[row]]) for row in range(150)]
    instances, last = played(requests, cluster, clients)
    assert instances == simulated.instance.tolist()
    assert last == simulated.outcomes.last_token_us.tolist()
    assert (-1 in instances) and (isinstance(admission, RejectAll) or len(set(instances)) == 4)


def test_blocks_of_finished_requests_are_let_go() -> None:
    fleet = RealtimeFleet(fleet_of(POLICIES[0]), num_keys=10_000)
    blocks = np.arange(40).tolist()
    for row in range(1000):
        taken = fleet.submit(row * 10**6, prompt_tokens=700, output_tokens=2, hash_ids=blocks)
        assert taken is not None
        number = taken[0]
        done = fleet.tokens(row * 10**6 + 999_999)
        assert [request for request, _ in done] == [number, number]
        fleet.forget(number)
    assert len(fleet._router._table.hash_ids) < 1000 * len(blocks)


# -- through sockets ------------------------------------------------------------------------------------------


async def test_a_fleet_answers_behind_one_url_and_its_metrics_tell_the_engines_apart() -> None:
    cluster = fleet_of(POLICIES[0], instances=3)
    config = TwinConfig(engine=ENGINE, latency=LATENCY, cluster=cluster)
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
    config = TwinConfig(engine=ENGINE, latency=LATENCY, cluster=fleet_of(Session(), instances=4))
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
    config = TwinConfig(engine=ENGINE, latency=LATENCY, cluster=cluster)
    async with serving(config) as listening, aiohttp.ClientSession(base_url=listening.url) as client:
        answers = [
            await client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 2})
            for prompt in ([7] * 40, [[7] * 40, [7] * 40], [7] * 4)
        ]
        assert [answer.status for answer in answers] == [200, 429, 200]
        assert (await answers[1].json())["error"]["code"] == 429
        assert await (await client.get("/load")).json() == {"server_load": 0}


async def test_each_instance_can_have_a_port_of_its_own() -> None:
    config = TwinConfig(engine=ENGINE, latency=LATENCY, cluster=fleet_of(POLICIES[0], instances=3))
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
    config = TwinConfig(engine=ENGINE, latency=LATENCY, cluster=cluster)
    async with serving(config) as listening, aiohttp.ClientSession(base_url=listening.url) as client:
        started = loop.time()
        await client.post("/v1/completions", json={"prompt": [7] * 4, "max_tokens": 1})
    assert loop.time() - started >= 0.150


async def test_what_only_a_whole_trace_can_be_simulated_with_is_refused() -> None:
    cluster = ClusterConfig(pools=(Pool(engine=ENGINE, latency=LATENCY),), retries=Retries())
    with pytest.raises(ConfigError, match=r"cluster\.retries: got it with serve"):
        async with serving(TwinConfig(engine=ENGINE, latency=LATENCY, cluster=cluster)):
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
