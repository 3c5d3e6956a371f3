"""Admission: what each policy takes, to the last token and the last µs."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import InvalidConfig
from sim.cluster.fleet import Fleet, RequestTable, new_fleet, request_table, set_candidates
from sim.cluster.gateway.admission import (
    AdmissionPolicy,
    AlwaysAdmit,
    RejectAll,
    TenantBudget,
    TierShed,
    TokenBucket,
    UtilizationShed,
    admission_policy,
    leave,
    new_admission,
)
from tests.examples import examples
from tests.sim.cluster.compiled_calls import admit
from tests.sim.cluster.worlds import requests_with

PRIORITIES = (4, 3, -1, -2, -3)


def table(
    tokens: list[int], *, priorities: list[int] | None = None, tenants: list[int] | None = None
) -> RequestTable:
    return request_table(
        requests_with([[] for _ in tokens], tokens),
        slo_priority=None if priorities is None else np.array(priorities, np.int64),
        tenant=None if tenants is None else np.array(tenants, np.int64),
    )


def fleet_of(loads: list[tuple[int, int, float]]) -> Fleet:
    """Return a fleet with (in flight, waiting, KV usage) of each instance."""
    fleet = new_fleet(len(loads))
    for row, (in_flight, waiting, kv_usage) in zip(fleet.instances, loads, strict=True):
        row.num_in_flight, row.num_waiting, row.kv_usage = in_flight, waiting, kv_usage
    return fleet


LOADS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 9), st.sampled_from([0.0, 0.4, 0.8, 1.0])),
    min_size=1,
    max_size=4,
)

ARRIVALS = st.lists(
    st.tuples(st.integers(0, 3) | st.integers(0, 2_000_000) | st.integers(0, 2**50), st.integers(0, 3000)),
    min_size=1,
    max_size=60,
)
"""(µs since the one before, tokens)."""

RATES = st.sampled_from(["0", "0.001", "0.5", "1", "333.333", "100000", "9000000000"])


@given(arrivals=ARRIVALS, capacity=st.sampled_from([0, 1, 500, 4000, 9_000_000_000]), rate=RATES)
@examples(200)
def test_a_token_bucket_is_exact_and_never_gives_more_than_its_rate_and_burst(
    arrivals: list[tuple[int, int]], capacity: int, rate: str
) -> None:
    policy = TokenBucket(capacity=capacity, refill_per_s=float(rate))
    requests, fleet = table([tokens for _, tokens in arrivals]), new_fleet(1)
    bucket = new_admission(policy, num_seats=1)
    level, now_us = Fraction(capacity), 0
    taken: list[tuple[int, int]] = []
    for request, (gap_us, tokens) in enumerate(arrivals):
        now_us += gap_us
        level = min(Fraction(capacity), level + Fraction(rate) * gap_us / 1_000_000)
        is_taken = admit(bucket, fleet, requests, request, now_us)
        assert is_taken == (tokens <= level)  # it takes all it can, and no more
        level -= tokens if is_taken else 0
        taken += [(now_us, tokens)] if is_taken else []
    for first, (start_us, _) in enumerate(taken):
        for last, (end_us, _) in enumerate(taken[first:], first):
            total = sum(tokens for _, tokens in taken[first : last + 1])
            assert total <= capacity + Fraction(rate) * (end_us - start_us) / 1_000_000


@given(loads=LOADS, max_load=st.integers(0, 5), min_priority=st.sampled_from([-1, 3, 4]), blis=st.booleans())
@examples(100)
def test_tier_shedding_keeps_low_tiers_out_while_an_instance_is_loaded(
    loads: list[tuple[int, int, float]], max_load: int, min_priority: int, blis: bool
) -> None:
    requests, fleet = table([1] * len(PRIORITIES), priorities=list(PRIORITIES)), fleet_of(loads)
    shed = new_admission(
        TierShed(max_load=max_load, min_priority=min_priority),
        num_seats=1,
        compatibility="blis" if blis else "vllm",
    )
    most = max(in_flight + (waiting if blis else 0) for in_flight, waiting, _ in loads)
    for request, priority in enumerate(PRIORITIES):
        assert admit(shed, fleet, requests, request, 0) == (most <= max_load or priority >= min_priority)


@given(loads=LOADS)
@examples(100)
def test_utilization_rejects_only_the_sheddable_and_only_when_saturated(
    loads: list[tuple[int, int, float]],
) -> None:
    requests, fleet = table([1] * len(PRIORITIES), priorities=list(PRIORITIES)), fleet_of(loads)
    shed = new_admission(UtilizationShed(), num_seats=1)
    saturation = sum(max(waiting / 5, kv_usage / 0.8) for _, waiting, kv_usage in loads) / len(loads)
    for request, priority in enumerate(PRIORITIES):
        assert admit(shed, fleet, requests, request, 0) == (priority >= 0 or saturation < 1)


def test_a_fleet_without_instances_is_saturated() -> None:
    fleet = new_fleet(2)
    set_candidates(fleet, [])
    requests = table([1, 1], priorities=[-1, 3])
    shed = new_admission(UtilizationShed(), num_seats=1)
    assert [admit(shed, fleet, requests, request, 0) for request in (0, 1)] == [False, True]


@given(seed=st.integers(0, 10_000), rejects_all=st.booleans())
@examples(100)
def test_a_tenant_s_sheddable_requests_stay_within_its_budget(seed: int, rejects_all: bool) -> None:
    rng = random.Random(seed)
    number = 60
    tenants = [rng.randrange(-1, 3) for _ in range(number)]
    priorities = [rng.choice(PRIORITIES) for _ in range(number)]
    requests, fleet = table([1] * number, priorities=priorities, tenants=tenants), new_fleet(1)
    policy = TenantBudget(budgets={"a": 0.3, "b": 0.29}, rejects_all=rejects_all)
    budget = new_admission(policy, num_seats=10, tenants=["a", "b", "c"])
    limits, inside = {0: 3, 1: 2}, []
    for request in range(number):
        used = sum(tenants[other] == tenants[request] for other in inside)
        is_over = used >= limits.get(tenants[request], number)
        is_safe = priorities[request] >= 0 and not rejects_all
        is_taken = admit(budget, fleet, requests, request, request)
        assert is_taken == (is_safe or not is_over)
        inside += [request] if is_taken else []
        while inside and rng.random() < 0.45:
            leave(budget, requests, inside.pop(rng.randrange(len(inside))))
    for request in inside:
        leave(budget, requests, request)
    assert not budget.num_in_flight.any()


@pytest.mark.parametrize(("policy", "is_taken"), [(AlwaysAdmit(), True), (RejectAll(), False)])
def test_always_and_reject_all_look_at_nothing(policy: AdmissionPolicy, is_taken: bool) -> None:
    admission = new_admission(policy, num_seats=1)
    assert admit(admission, new_fleet(1), table([5]), 0, 0) == is_taken


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": "bucket"}, "admission.policy: got 'bucket', expected one of always, reject-all, "),
        ({"policy": "always", "rate": 1}, "admission.rate: unknown with policy always, expected no setting"),
        (
            {"policy": "token-bucket", "capacity": -1, "refill_per_s": 1},
            "capacity: got -1, expected an integer",
        ),
        (
            {"policy": "token-bucket", "capacity": 1, "refill_per_s": 0.0001},
            "refill_per_s: got 0.0001, expected a multiple of 0.001",
        ),
        ({"policy": "token-bucket", "capacity": 10**10, "refill_per_s": 1}, "expected at most 9000000000"),
        ({"policy": "utilization", "kv_threshold": 0}, "kv_threshold: got 0, expected a number > 0"),
        ({"policy": "tenant-budget", "budgets": {"a": 2}}, "budgets.a: got 2, expected a number in [0, 1]"),
        ({"policy": "tenant-budget", "budgets": 2}, "budgets: got 2, expected names with a fraction each"),
        ({"policy": "tier-shed", "max_load": 1.5}, "max_load: got 1.5, expected an integer >= 0"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        admission_policy(settings)
    assert message in str(error.value)
