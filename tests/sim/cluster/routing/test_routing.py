"""Every routing policy decides as its rule in plain Python does, whatever happened before, ties included."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.routing.routing_policies import (
    SCORERS,
    AlwaysBusiest,
    CacheAware,
    KubeProxy,
    KvCost,
    LeastLoaded,
    PowerOfTwo,
    RandomChoice,
    RoundRobin,
    RoutingPolicy,
    Session,
    VllmDp,
    Weighted,
)
from tests.examples import examples
from tests.sim.cluster.worlds import Comparison, Happenings

SIZES = (1, 2, 3, 5, 70, 130)
"""Numbers of instances; 70 need two words of bits, 130 three."""


@st.composite
def happenings(draw: st.DrawFn, *, chained: bool = True, is_blis: bool = False) -> Happenings:
    return Happenings(
        seed=draw(st.integers(0, 2**20)),
        num_instances=draw(st.sampled_from(SIZES)),
        num_requests=draw(st.integers(1, 60)),
        block_size=draw(st.sampled_from((1, 4))),
        alphabet=draw(st.integers(1, 3)),
        chained=chained,
        most_in_flight=draw(st.sampled_from((0, 3, 30))),
        is_blis=is_blis,
    )


@pytest.mark.parametrize(
    "policy",
    [
        RoundRobin(),
        RandomChoice(),
        PowerOfTwo(),
        Session(),
        KubeProxy(keep_alive_us=3000),
        KubeProxy(mode="ipvs", keep_alive_us=3000),
        LeastLoaded(),
        LeastLoaded(ties="random"),
        AlwaysBusiest(),
    ],
    ids=lambda policy: policy.name,
)
@given(drawn=happenings() | happenings(is_blis=True))
@examples(20)
def test_simple_policies_decide_as_their_rules(policy: RoutingPolicy, drawn: Happenings) -> None:
    Comparison(policy, drawn).run()


@pytest.mark.parametrize("version", ["0.12.0", "0.24.0", "0.25.0", "0.26.0", "0.27.0", "0.32.0"])
@given(drawn=happenings(), clients=st.integers(1, 4), client=st.integers(0, 3))
@examples(20)
def test_vllm_s_balancer_decides_as_its_version_does(
    version: str, drawn: Happenings, clients: int, client: int
) -> None:
    Comparison(VllmDp(vllm_version=version, clients=clients, client=client % clients), drawn).run()


@given(
    drawn=happenings(chained=False) | happenings(),
    owner=st.sampled_from(["creator", "least-loaded"]),
    threshold=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    absolute=st.sampled_from([0, 1, 64]),
    relative=st.sampled_from([0.0, 1.5, 2.0]),
    max_tree_size=st.sampled_from([0, 8, 40, 1 << 26]),
    goes_astray=st.booleans(),
)
@examples(100)
def test_cache_aware_decides_as_its_rule_with_splits_and_evictions(
    drawn: Happenings,
    owner: str,
    threshold: float,
    absolute: int,
    relative: float,
    max_tree_size: int,
    goes_astray: bool,
) -> None:
    policy = CacheAware(
        owner=owner,  # type: ignore[arg-type] # drawn from its values
        cache_threshold=threshold,
        balance_abs_threshold=absolute,
        balance_rel_threshold=relative,
        max_tree_size=max_tree_size,
        eviction_interval_us=7000,
    )
    rng = random.Random(drawn.seed)
    comparison = Comparison(policy, drawn)
    comparison.run(follows=lambda to: rng.randrange(drawn.num_instances) if goes_astray else to)
    held = comparison.router.tree.num_ids
    comparison.rule.evict()  # type: ignore[attr-defined] # the rule of cache-aware has it
    nodes = comparison.rule.nodes(comparison.rule.root)  # type: ignore[attr-defined]
    kept = [sum(len(node.run) for node in nodes if i in node.touched) for i in range(drawn.num_instances)]
    assert all(size <= max(max_tree_size // drawn.block_size, 0) for size in kept)
    assert all(size >= left for size, left in zip(held, kept, strict=True))


@given(
    drawn=happenings() | happenings(is_blis=True),
    scorers=st.dictionaries(st.sampled_from(SCORERS), st.sampled_from([0.5, 1, 2, 3]), min_size=1),
    capacity=st.sampled_from([1, 5, 10_000]),
    goes_astray=st.booleans(),
)
@examples(100)
def test_weighted_scorers_decide_as_their_rules(
    drawn: Happenings, scorers: dict[str, float], capacity: int, goes_astray: bool
) -> None:
    rng = random.Random(drawn.seed)
    comparison = Comparison(Weighted(scorers=scorers, prefix_capacity_blocks=capacity), drawn)
    comparison.run(follows=lambda to: rng.randrange(drawn.num_instances) if goes_astray else to)


@pytest.mark.parametrize("scorer", SCORERS)
@given(drawn=happenings() | happenings(is_blis=True))
@examples(20)
def test_each_scorer_alone_decides_as_its_rule(scorer: str, drawn: Happenings) -> None:
    Comparison(Weighted(scorers={scorer: 1}, prefix_capacity_blocks=20), drawn).run()


@given(
    drawn=happenings(),
    scale=st.sampled_from([0.0, 1.0, 2.0]),
    credit=st.sampled_from([0.0, 1.0]),
    decay=st.sampled_from([0.0, 0.5]),
    weight=st.sampled_from([0.0, 1.0]),
    temperature=st.sampled_from([0.0, 0.0, 0.7]),
    goes_astray=st.booleans(),
)
@examples(100)
def test_kv_cost_decides_as_its_rule(
    drawn: Happenings,
    scale: float,
    credit: float,
    decay: float,
    weight: float,
    temperature: float,
    goes_astray: bool,
) -> None:
    policy = KvCost(
        prefill_load_scale=scale,
        overlap_score_credit=credit,
        overlap_score_credit_decay=decay,
        decode_active_request_weight=weight,
        temperature=temperature,
    )
    rng = random.Random(drawn.seed)
    comparison = Comparison(policy, drawn)
    comparison.run(follows=lambda to: rng.randrange(drawn.num_instances) if goes_astray else to)
    for number in sorted(comparison.where):
        comparison.end(number)
    work = comparison.router.work
    assert not work["num_prefill_tokens"].any()
    assert not work["num_active_blocks"].any()
    assert comparison.router.settings["num_active_pairs"][0] == 0
    assert not comparison.router.active.any()
