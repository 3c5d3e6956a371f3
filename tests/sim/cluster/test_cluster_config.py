"""A cluster's settings: defaults, names, and one line for what cannot be."""

from __future__ import annotations

import pytest

from sim import Blackbox, EngineConfig, InvalidConfig
from sim.cluster.cluster_config import ClusterConfig, PipelineLatency, Pool, SnapshotIntervals
from sim.cluster.routing.routing_policies import (
    ROUTING_POLICIES,
    CacheAware,
    RoundRobin,
    Weighted,
    routing_policy,
)
from sim.cluster.slo_classes import slo_priority
from sim.cluster.transfer.disaggregation_config import Disaggregation

POOL = Pool(engine=EngineConfig(), latency=Blackbox(beta0=1))


def pool(**changes: object) -> Pool:
    settings = {"engine": EngineConfig(), "latency": Blackbox(beta0=1), **changes}
    return Pool(**settings)  # type: ignore[arg-type] # some tests pass what cannot be


def test_instances_are_named_by_number_and_by_pool() -> None:
    assert ClusterConfig(pools=(pool(instances=2),)).instance_names == ("0", "1")
    two = ClusterConfig(
        pools=(pool(name="p", role="prefill"), pool(name="d", role="decode", instances=2)),
        disaggregation=Disaggregation(decider="never"),
    )
    assert two.instance_names == ("p/0", "d/0", "d/1")
    assert two.num_instances == 3


def test_a_cluster_is_routed_in_turn_and_sees_everything_unless_it_says_otherwise() -> None:
    config = ClusterConfig(pools=(POOL,))
    assert config.routing == RoundRobin()
    assert config.flow_control is None
    assert config.snapshot_interval_us == SnapshotIntervals(queue=0, kv=0, cache=0)
    assert SnapshotIntervals.every(5) == SnapshotIntervals(queue=5, kv=5, cache=5)


@pytest.mark.parametrize("name", list(ROUTING_POLICIES))
def test_every_policy_is_found_by_its_name_and_needs_no_setting(name: str) -> None:
    policy = routing_policy({"policy": name})
    assert policy.name == name


def test_routing_settings_are_those_of_the_contract() -> None:
    assert routing_policy(
        {"policy": "weighted", "scorers": {"prefix-affinity": 3, "queue-depth": 2, "kv-utilization": 2}}
    ) == Weighted(scorers={"prefix-affinity": 3, "queue-depth": 2, "kv-utilization": 2})
    settings = {"cache_threshold": 0.5, "balance_abs_threshold": 32, "balance_rel_threshold": 1.0001}
    assert routing_policy({"policy": "cache-aware", **settings}) == CacheAware(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "routing.policy: got None, expected one of round-robin, random, "),
        ({"policy": "robin"}, "routing.policy: got 'robin', expected one of round-robin, "),
        ({"policy": "random", "seed": 1}, "routing.seed: unknown with policy random, expected no setting"),
        (
            {"policy": "least-loaded", "tie": "first"},
            "routing.tie: unknown with policy least-loaded, expected one of ties",
        ),
        ({"policy": "least-loaded", "ties": "last"}, "ties: got 'last', expected one of first, random"),
        ({"policy": "weighted", "scorers": {}}, "scorers: got {}, expected scorers with their weights"),
        (
            {"policy": "weighted", "scorers": {"kv": 1}},
            "scorers: got 'kv', expected one of prefix-affinity, ",
        ),
        (
            {"policy": "weighted", "scorers": {"load-aware": -1}},
            "scorers.load-aware: got -1, expected a number >= 0",
        ),
        ({"policy": "weighted", "scorers": {"load-aware": 0}}, "expected one weight above 0"),
        ({"policy": "vllm-dp", "vllm_version": "new"}, "vllm_version: got 'new', expected a version such as"),
        (
            {"policy": "vllm-dp", "clients": 2, "client": 2},
            "client: got 2, expected a number below clients, 2",
        ),
        (
            {"policy": "cache-aware", "cache_threshold": 1.5},
            "cache_threshold: got 1.5, expected a number in [0, 1]",
        ),
        (
            {"policy": "cache-aware", "owner": "last"},
            "owner: got 'last', expected one of creator, least-loaded",
        ),
        ({"policy": "kv-cost", "temperature": "hot"}, "temperature: got 'hot', expected a number >= 0"),
        ({"policy": "kv-cost", "temperature": float("nan")}, "temperature: got nan, expected a number >= 0"),
    ],
)
def test_routing_that_cannot_be_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        routing_policy(settings)
    assert message in str(error.value)


def test_a_cluster_that_cannot_be_is_named() -> None:
    for pools, message in [
        ((), "pools: got none, expected at least one"),
        ((pool(name="a"), pool(name="a")), "pools: got 'a' twice, expected different names"),
        ((pool(role="prefill"),), "pools: got role prefill without decode, expected both or neither"),
        (
            (pool(name="a"), pool(name="b", engine=EngineConfig(block_size=32))),
            "pools: got different block_size, expected one: prefixes are compared by block",
        ),
    ]:
        with pytest.raises(InvalidConfig) as error:
            ClusterConfig(pools=pools)
        assert str(error.value) == message
    with pytest.raises(InvalidConfig, match="instances: got 0, expected an integer >= 1"):
        pool(instances=0)
    with pytest.raises(InvalidConfig, match="routing_us: got -5, expected an integer >= 0"):
        PipelineLatency(routing_us=-5)
    with pytest.raises(InvalidConfig, match=r"slo_priorities.batch: got 101, expected an integer in"):
        ClusterConfig(pools=(POOL,), slo_priorities={"batch": 101})


def test_slo_classes_have_the_peer_s_priorities_and_can_be_overridden() -> None:
    classes = ("critical", "standard", "batch", "sheddable", "background", "unheard-of", None)
    assert [slo_priority(name) for name in classes] == [4, 3, -1, -2, -3, 3, 3]
    assert slo_priority("batch", {"batch": 7}) == 7
    assert slo_priority(None, {"standard": 1}) == 1
