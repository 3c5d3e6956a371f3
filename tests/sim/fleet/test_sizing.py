"""The smallest pool: against every number there is, at limits that are just met, and how few numbers it looks at."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from sim.config import InvalidConfig
from sim.fleet import Lengths, sizing
from sim.fleet.erlang import Wait
from sim.fleet.sizing import (
    Infeasible,
    Objective,
    PoolSize,
    broken,
    percentile_with,
    pool_at,
    size_pool,
    unqueued_s,
)
from tests.sim.fleet.test_by_hand import LENGTHS, PROFILE
from tests.sim.fleet.test_energy import DECODE_S, EACH_S

SERVICE_S = 22 * (0.01 + 10 * EACH_S)
"""Of the requests of ``test_by_hand`` on an engine of ten slots."""
ANY = Objective(ttft_p99_s=1e3, utilization_cap=0.5)


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the number of engines of each pool that is worked out."""
    numbers: list[int] = []

    def noted(*given: object, **more: object) -> PoolSize:
        numbers.append(more["engines"])  # type: ignore[arg-type] # a number of engines
        return pool_at(*given, **more)  # type: ignore[arg-type] # as they came

    monkeypatch.setattr(sizing, "pool_at", noted)
    return numbers


def size(rate: float, objective: Objective) -> PoolSize:
    return size_pool(PROFILE, LENGTHS, rate, objective, context=400)


@pytest.mark.parametrize(
    ("times", "engines"), [(0.01, 1), (0.99, 1), (1.0, 1), (1.01, 2), (3.0, 3), (3.01, 4), (7.0, 7)]
)
def test_where_utilization_alone_binds_its_number_is_looked_at_and_one_less(
    times: float, engines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many times what one engine serves at half its slots. A number that is whole but for the last bit is whole."""
    numbers = looked_at(monkeypatch)
    found = size(times * 0.5 * 10 / SERVICE_S, ANY)
    assert (found.engines, found.provisioned, found.binding) == (engines, engines, "utilization")
    assert numbers == [*dict.fromkeys([1, engines, max(engines - 1, 1)])]


@pytest.mark.parametrize("rate", [3.0, 46.0, 130.0])
@pytest.mark.parametrize("tpot_s", [0.0103, 0.0105, 0.0108, 0.0113, 0.012, None])
@pytest.mark.parametrize("ttft_s", [0.0418, 0.05])
def test_no_smaller_number_keeps_the_objective(rate: float, tpot_s: float | None, ttft_s: float) -> None:
    """Found one by one. What the number before it breaks is what binds."""
    objective = Objective(ttft_p99_s=ttft_s, tpot_p99_s=tpot_s)
    pools = (pool_at(PROFILE, LENGTHS, rate, context=400, engines=number) for number in itertools.count(1))
    before = "utilization"
    for pool in pools:
        what = broken(pool, objective)
        if what is None:
            break
        before = what
    found = size(rate, objective)
    assert (found.engines, found.binding) == (pool.engines, before)


def test_a_rate_that_one_engine_cannot_serve_at_all_breaks_the_ttft() -> None:
    """1.78 engines' worth: one has a queue without end, two are at 0.89 of their slots."""
    found = size(46.0, Objective(ttft_p99_s=1e3, utilization_cap=0.95))
    assert (found.engines, found.binding) == (2, "ttft")


@pytest.mark.parametrize("most", [15, 16, 17, 23, 24, 25, 30])
def test_no_more_engines_than_there_are_are_looked_at_and_so_many_are(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searched from three engines: 6, 12 and 24 are the numbers that are doubled."""
    needed = size(46.0, Objective(ttft_p99_s=1.0, tpot_p99_s=0.0105)).engines
    assert 12 < needed < 24
    monkeypatch.setattr(sizing, "MOST_ENGINES", most)
    if needed <= most:
        assert size(46.0, Objective(ttft_p99_s=1.0, tpot_p99_s=0.0105)).engines == needed
    else:
        with pytest.raises(Infeasible, match=f"expected less: {most} engines do not do"):
            size(46.0, Objective(ttft_p99_s=1.0, tpot_p99_s=0.0105))


def test_numbers_are_doubled_and_then_halved_between(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = looked_at(monkeypatch)
    needed = size(46.0, Objective(ttft_p99_s=1.0, tpot_p99_s=0.0105)).engines
    assert numbers[:6] == [1, 3, 6, 12, 24, 18]
    assert set(numbers) >= {needed, needed - 1}
    assert len(numbers) <= 5 + 4, "four halvings of twelve"


def test_a_rate_is_more_than_nothing() -> None:
    assert size(0.25, ANY).engines == 1
    for rate in (0.0, -1.0):
        with pytest.raises(InvalidConfig, match=r"rate: got .*expected requests per second > 0"):
            size(rate, ANY)


def test_engines_in_repair_are_provisioned() -> None:
    assert size(7 * 0.5 * 10 / SERVICE_S, replace(ANY, availability=0.7)).provisioned == 10


def test_one_slot_is_a_pool_and_none_is_not() -> None:
    """2,048 tokens of cache hold one request of 2,000."""
    single = replace(PROFILE, num_blocks=128, max_slots=100)
    assert pool_at(single, LENGTHS, 1.0, context=2000, engines=1).slots == 1
    with pytest.raises(Infeasible, match="holds no such request"):
        pool_at(single, LENGTHS, 1.0, context=2049, engines=1)


POOL = PoolSize(
    engines=1,
    provisioned=1,
    slots=1,
    utilization=0.75,
    active=1.0,
    ttft_p99_s=2.0,
    wait_p99_s=1.0,
    tpot_s=0.25,
    service_s=1.0,
    throughput=1.0,
    binding="",
)
EDGE = Objective(ttft_p99_s=2.0, tpot_p99_s=0.25, utilization_cap=0.75)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({}, None),
        ({"ttft_p99_s": 2.0001, "tpot_s": 1.0, "utilization": 1.0}, "ttft"),
        ({"tpot_s": 0.2501, "utilization": 1.0}, "tpot"),
        ({"utilization": 0.75 + 5e-10}, None),
        ({"utilization": 0.7501}, "utilization"),
    ],
)
def test_a_limit_that_is_just_met_is_kept(change: dict[str, float], what: str | None) -> None:
    assert broken(replace(POOL, **change), EDGE) == what  # type: ignore[arg-type]
    assert broken(replace(POOL, tpot_s=9.0), replace(EDGE, tpot_p99_s=None)) is None


def prompts(num_long: int) -> Lengths:
    """Return 200 requests, so many of them of 300 tokens and three iterations, the others of 100 and one."""
    return Lengths(
        input_tokens=np.array([100.0] * (200 - num_long) + [300.0] * num_long),
        output_tokens=np.full(200, 10.0),
    )


def test_what_no_number_of_engines_can_keep_is_what_an_idle_one_just_takes() -> None:
    """Of 200 prompts the 198th decides: its iterations and its compute, and no decode beside it."""
    short, long = 0.01 + 0.001505, 3 * 0.01 + 0.007515
    for num_long, limit in ((2, short), (3, long)):
        alone = float(np.sort(unqueued_s(PROFILE, prompts(num_long), active=0.0))[197])
        assert alone == pytest.approx(limit)
        with pytest.raises(Infeasible, match="the longest prompts take so long on an idle GPU"):
            size_pool(PROFILE, prompts(num_long), 1.0, Objective(ttft_p99_s=alone), context=400)
    assert size_pool(PROFILE, prompts(1), 1.0, Objective(ttft_p99_s=long), context=400).engines == 1
    near = Objective(ttft_p99_s=long * 1.001)
    kept = size_pool(PROFILE, LENGTHS, 1.0, near, context=400)
    assert kept.active * DECODE_S < 0.001 * long
    with pytest.raises(Infeasible, match="an iteration takes so long on an idle GPU"):
        size(1.0, Objective(ttft_p99_s=1.0, tpot_p99_s=0.01))


@pytest.mark.parametrize("own_s", [0.0, 0.125, 3.0])
@pytest.mark.parametrize("probability", [0.011, 0.3, 1.0])
def test_a_wait_and_a_time_that_all_have_are_longer_than_their_percentile_in_one_of_a_hundred(
    own_s: float, probability: float
) -> None:
    wait = Wait(probability=probability, decay_per_s=4.0)
    found = percentile_with(wait, np.full(7, own_s), share=0.99)
    assert found == pytest.approx(own_s + math.log(probability / 0.01) / 4, abs=2e-6)


def test_without_a_wait_the_percentile_is_of_the_times_alone() -> None:
    nobody = Wait(probability=0.0, decay_per_s=4.0)
    times = np.array([0.5] * 197 + [2.0] * 3)
    assert percentile_with(nobody, times, share=0.99) == pytest.approx(2.0, abs=2e-6)
    assert percentile_with(nobody, times, share=0.98) == pytest.approx(0.5, abs=2e-6)
    assert percentile_with(Wait(probability=1.0, decay_per_s=0.0), times, share=0.99) == math.inf


def test_nine_tenths_of_a_wait_of_times_of_two_lengths() -> None:
    """x - 1 and x - 3 waited, half of them each: e^-(x - 1) + e^-(x - 3) is 0.2."""
    found = percentile_with(Wait(probability=1.0, decay_per_s=1.0), np.array([1.0, 3.0]), share=0.9)
    assert found == pytest.approx(math.log((math.e + math.e**3) / 0.2), abs=2e-6)
