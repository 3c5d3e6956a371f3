"""Profiles, slots, sizes: the values of the description, conservation, and formulas against the slots' simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.config import InvalidConfig
from sim.fleet import GpuProfile, Lengths
from sim.fleet.disaggregated import Transfer, disaggregated_at, sweep_disaggregated
from sim.fleet.energy import curtail, energy
from sim.fleet.sizing import Infeasible, Objective, broken, pool_at, size_pool
from sim.fleet.split import size_split, sweep_thresholds, unbeaten
from tests.sim.fleet.one_pool import simulate_slots

A100 = GpuProfile(0.008, 0.00065, 8192, 512, 16, 65_536, 128, 2.21, 100.0, 400.0)
"""The description's A100; price and power are figures to test with."""
SMALL = GpuProfile(0.01, 0.0008, 1024, 256, 16, 512, 8, 1.0, 50.0, 300.0)


def drawn(number: int, *, seed: int = 1, mean: float = 1500.0, most: float = 8000.0) -> Lengths:
    rng = np.random.default_rng(seed)
    total = np.clip(rng.lognormal(math.log(mean), 0.7, number), 20, most)
    return Lengths(input_tokens=np.ceil(0.8 * total), output_tokens=np.ceil(0.2 * total))


def test_an_a100_holds_and_takes_what_the_description_says() -> None:
    assert [A100.num_slots(each) for each in (2048, 4096, 8192, 16384, 65536)] == [512, 256, 128, 64, 16]
    times = [A100.iteration_s(512, 800), A100.iteration_s(128, 1600), A100.iteration_s(128, 5000)]
    assert times == pytest.approx([0.0405, 0.02425, 0.05878], abs=5e-6)
    assert A100.iteration_s(16, 15_000) == pytest.approx(0.02704, abs=5e-6)
    assert A100.throughput(1280, 320, 8192) == pytest.approx(16.3, abs=0.05)
    assert A100.throughput(12_000, 3000, 65_536) == pytest.approx(0.196, abs=0.0005)


def test_the_limits_meet_at_the_calibration_context_where_the_blocks_are_as_many() -> None:
    h100 = replace(A100, max_slots=256)
    assert A100.kv_limit(8192) == 128 == A100.num_slots(8192)
    assert h100.kv_limit(8192) == 128
    assert h100.max_slots == 256
    assert h100.num_slots(8192) == 128


def test_power_is_a_logistic_curve_that_can_be_turned_around() -> None:
    assert A100.power_w(0) == 100
    assert A100.power_w(16) == pytest.approx(250)
    assert A100.power_w(2**14) == pytest.approx(400, rel=1e-3)
    assert A100.active_at_power(A100.power_w(37)) == pytest.approx(37)
    assert A100.active_at_power(400) == math.inf
    assert A100.active_at_power(99) == 0


def test_littles_law_gives_the_number_of_requests_there() -> None:
    busy = A100.busy(drawn(2000))
    active = busy.active(5.0)
    assert active == pytest.approx(5.0 * busy.mean_iterations * busy.iteration_s(active))
    assert busy.active(1e9) == math.inf


# -- the slots' simulation ------------------------------------------------------------------------------------


def poisson(number: int, rate: float, *, seed: int = 3) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, number))


@pytest.mark.parametrize("gpus", [1, 3])
def test_at_saturation_the_simulation_serves_what_the_formula_says(gpus: int) -> None:
    """All there at once: between the first and the last tenth of the ends, throughput is slots over service time."""
    lengths = drawn(12_000)
    run = simulate_slots(A100, lengths, np.zeros(len(lengths)), context=8192, gpus=gpus)
    ends = np.sort(run.end_s)
    low, high = len(ends) // 5, len(ends) * 3 // 5
    served = (high - low) / (ends[high] - ends[low])
    expected = gpus * pool_at(A100, lengths, 1.0, context=8192, engines=1).throughput
    assert served == pytest.approx(expected, rel=0.02)
    assert run.most_slots == 128


def test_one_a100_never_serves_more_than_it_can() -> None:
    """At 980 requests/s, which the description's own simulation claims to serve, the queue grows."""
    lengths = Lengths(input_tokens=np.full(6000, 1280.0), output_tokens=np.full(6000, 320.0))
    run = simulate_slots(A100, lengths, poisson(6000, 980.0), context=8192, gpus=1)
    assert len(lengths) / float(run.end_s.max()) <= A100.throughput(1280, 320, 8192) * 1.001


@settings(max_examples=40, deadline=None)
@given(
    number=st.integers(1, 80),
    gpus=st.integers(1, 4),
    rate=st.floats(0.1, 200),
    context=st.sampled_from([128, 512, 1024, 4096]),
    mean=st.floats(30, 3000),
    seed=st.integers(0, 1000),
)
def test_nothing_is_lost_and_no_limit_exceeded(
    number: int, gpus: int, rate: float, context: int, mean: float, seed: int
) -> None:
    lengths = drawn(number, seed=seed, mean=mean, most=9000)
    run = simulate_slots(SMALL, lengths, poisson(number, rate, seed=seed), context=context, gpus=gpus)
    fits = np.ceil(lengths.total_tokens / 16) <= 512
    if SMALL.num_slots(context) == 0:
        fits[:] = False
    assert np.array_equal(np.isfinite(run.end_s), fits)
    assert run.most_slots <= SMALL.num_slots(context)
    assert run.most_blocks <= 512
    assert (run.start_s[fits] >= run.arrival_s[fits]).all()
    assert (run.end_s[fits] > run.first_token_s[fits]).all()
    assert (run.gpu[fits] < gpus).all()
    held = float((run.end_s - run.start_s)[fits].sum())
    assert (
        run.busy_slot_s == pytest.approx(held) if run.num_preemptions == 0 else run.busy_slot_s >= held - 1e-9
    )


def test_the_longest_is_preempted_for_a_shorter_one_and_starts_again_first() -> None:
    lengths = Lengths(
        input_tokens=np.array([6000.0, 2400.0, 400.0]), output_tokens=np.array([400.0, 200.0, 50.0])
    )
    run = simulate_slots(SMALL, lengths, np.array([0.0, 0.1, 0.2]), context=256, gpus=1)
    assert run.num_preemptions == 1
    assert run.start_s[1] == pytest.approx(0.1)
    assert run.start_s[0] == pytest.approx(run.end_s[1])  # with 2,600 tokens there its 6,400 do not fit
    assert run.start_s[2] == pytest.approx(run.end_s[1])  # behind it, though there would have been room
    assert np.isfinite(run.end_s).all()


def test_where_nobody_waits_littles_law_holds() -> None:
    lengths = drawn(4000, mean=600)
    arrival = poisson(4000, 20.0)
    run = simulate_slots(A100, lengths, arrival, context=8192, gpus=8)
    assert (run.start_s == run.arrival_s).mean() > 0.999
    span = float(run.end_s.max() - arrival[0])
    mean_there = float((run.end_s - run.arrival_s).sum()) / span
    expected = 8 * A100.busy(lengths).active(20.0 / 8)
    assert mean_there == pytest.approx(expected, rel=0.1)


# -- sizes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "limit_s"), [(30.0, 0.5), (200.0, 0.5), (200.0, 2.0), (1000.0, 1.0)])
def test_the_size_keeps_the_objective_and_one_less_does_not(rate: float, limit_s: float) -> None:
    lengths, objective = drawn(3000), Objective(ttft_p99_s=limit_s)
    size = size_pool(A100, lengths, rate, objective, context=8192)
    assert broken(size, objective) is None
    less = pool_at(A100, lengths, rate, context=8192, engines=size.engines - 1)
    assert broken(less, objective) == size.binding


def test_the_tail_of_the_prefill_is_in_the_objective_and_not_its_mean() -> None:
    """One prompt in fifty takes ten times as long: the mean would fit, the 99th percentile does not."""
    inputs = np.where(np.arange(1000) % 50 == 0, 8000.0, 500.0)
    lengths = Lengths(input_tokens=inputs, output_tokens=np.full(1000, 50.0))
    alone = A100.prefill_iterations(lengths) * A100.w_s
    limit = float(alone.mean()) * 3
    assert limit < float(np.percentile(alone, 99))
    with pytest.raises(Infeasible, match="the longest prompts take so long on an idle GPU"):
        size_pool(A100, lengths, 10.0, Objective(ttft_p99_s=limit), context=8192)


def test_a_tpot_objective_asks_for_more_engines() -> None:
    lengths = drawn(3000)
    loose = size_pool(A100, lengths, 300.0, Objective(ttft_p99_s=2.0), context=8192)
    tight = size_pool(A100, lengths, 300.0, Objective(ttft_p99_s=2.0, tpot_p99_s=0.012), context=8192)
    assert loose.tpot_s > 0.012 >= tight.tpot_s
    assert tight.engines > loose.engines
    assert tight.binding == "tpot"
    with pytest.raises(Infeasible, match="tpot_p99"):
        size_pool(A100, lengths, 300.0, Objective(ttft_p99_s=2.0, tpot_p99_s=0.008), context=8192)


def test_repair_adds_engines_on_top() -> None:
    lengths = drawn(3000)
    size = size_pool(A100, lengths, 300.0, Objective(ttft_p99_s=2.0, availability=0.9), context=8192)
    assert size.provisioned == math.ceil(size.engines / 0.9)


def test_the_formula_is_near_the_simulation_of_slots() -> None:
    """In the long run of the recommended pool; the formula takes GPUs to be full, so it errs to the safe side."""
    lengths = drawn(3000)
    size = size_pool(A100, lengths, 60.0, Objective(ttft_p99_s=1.0), context=8192)
    order = np.random.default_rng(5).integers(0, 3000, 20_000)
    run = simulate_slots(
        A100,
        Lengths(input_tokens=lengths.input_tokens[order], output_tokens=lengths.output_tokens[order]),
        poisson(20_000, 60.0),
        context=8192,
        gpus=size.engines,
    )
    seen = float(np.percentile(run.ttft_s[4000:], 99))
    assert seen <= 1.0
    assert size.ttft_p99_s == pytest.approx(seen, rel=0.3)


def test_two_pools_are_sized_each_for_its_own_and_what_nothing_beats_is_found() -> None:
    lengths, objective = drawn(2000), Objective(ttft_p99_s=1.0)
    split = size_split((A100, A100), lengths, 200.0, objective, threshold=2048, context=8192)
    short, long, share = lengths.up_to(2048)
    assert short is not None
    assert long is not None
    assert split.short == size_pool(A100, short, 200.0 * share, objective, context=2048)
    assert split.long == size_pool(A100, long, 200.0 * (1 - share), objective, context=8192)
    assert split.cost_per_hour == pytest.approx(split.engines * 2.21)
    (plain,) = sweep_thresholds((A100, A100), lengths, 200.0, objective, thresholds=[2048], context=8192)
    assert plain.factor == 1.0
    splits = sweep_thresholds(
        (A100, A100),
        lengths,
        200.0,
        objective,
        thresholds=range(256, 8192, 512),
        context=8192,
        factors=(1.0, 1.5),
    )
    cost = np.array([each.cost_per_hour for each in splits])
    ttft = np.array([each.ttft_p99_s for each in splits])
    best = unbeaten(cost, ttft)
    for c, t, is_best in zip(cost, ttft, best, strict=True):
        is_beaten = any((cost <= c) & (ttft <= t) & ((cost < c) | (ttft < t)))
        assert bool(is_best) is not is_beaten
    assert unbeaten(np.array([1.0, 2.0]), np.array([1.005, 1.0]), same=0.01).tolist() == [True, False]


def test_compression_moves_the_slightly_too_long_and_nobody_else() -> None:
    lengths = Lengths(
        input_tokens=np.array([1000.0, 2000.0, 4000.0, 100.0]),
        output_tokens=np.array([100.0, 300.0, 100.0, 2100.0]),
    )
    pressed = lengths.compressed(2048, factor=1.5)
    assert pressed.input_tokens.tolist() == [1000, 1748, 4000, 100]
    assert pressed.output_tokens.tolist() == lengths.output_tokens.tolist()


# -- disaggregated --------------------------------------------------------------------------------------------


def test_both_pools_of_a_disaggregated_fleet_keep_up_and_the_cheapest_comes_first() -> None:
    lengths, objective = drawn(2000), Objective(ttft_p99_s=2.0, tpot_p99_s=0.05)
    found = sweep_disaggregated((A100, A100), lengths, 100.0, objective, context=8192)
    assert found
    assert found[0].cost_per_hour == min(each.cost_per_hour for each in found)
    assert all(each.rate_per_s >= 100 for each in found)
    assert all(each.ttft_p99_s <= 2.0 and each.tpot_s <= 0.05 for each in found)
    fewer = disaggregated_at((A100, A100), lengths, 100.0, engines=(1, found[0].decode), context=8192)
    assert fewer.ttft_p99_s == math.inf
    assert fewer.rate_per_s < 100


def test_a_transfer_that_costs_nothing_is_faster() -> None:
    lengths = drawn(500)
    usual = disaggregated_at((A100, A100), lengths, 20.0, engines=(20, 20), context=8192)
    free = Transfer(alpha_prefill=1.0, alpha_decode=1.0, beta_ttft=1.0)
    best = disaggregated_at((A100, A100), lengths, 20.0, engines=(20, 20), context=8192, transfer=free)
    assert best.ttft_p99_s < usual.ttft_p99_s / 1.79
    assert best.rate_per_s > usual.rate_per_s


# -- energy ---------------------------------------------------------------------------------------------------


def test_tokens_per_joule_rise_with_the_load() -> None:
    lengths = drawn(2000)
    low, high = (energy(A100, lengths, rate, context=8192, engines=10) for rate in (10.0, 60.0))
    assert high.power_w > low.power_w
    assert high.tokens_per_joule > 2 * low.tokens_per_joule


def test_the_more_power_is_shed_the_shorter_the_slo_holds() -> None:
    lengths = drawn(2000)
    cuts = curtail(
        A100,
        lengths,
        60.0,
        Objective(ttft_p99_s=3.0),
        context=8192,
        engines=8,
        shares=(0.0, 0.1, 0.3, 0.5, 0.99),
    )
    assert cuts[0].lasts_s == math.inf
    assert cuts[-1].lasts_s == 0
    assert [each.lasts_s for each in cuts] == sorted((each.lasts_s for each in cuts), reverse=True)
    assert [each.slots for each in cuts] == sorted((each.slots for each in cuts), reverse=True)
    assert any(0 < each.lasts_s < math.inf for each in cuts)


def test_shedding_takes_the_tail_of_prefill_as_sizing_does() -> None:
    """One prompt of 2,000 is ten times as long as the others: it is beyond the 99th percentile."""
    lengths = Lengths(
        input_tokens=np.array([600.0] * 1999 + [6000.0]), output_tokens=np.array([200.0] * 2000)
    )
    size = pool_at(A100, lengths, 60.0, context=8192, engines=8)
    (nothing,) = curtail(
        A100, lengths, 60.0, Objective(ttft_p99_s=1.0), context=8192, engines=8, shares=(0.0,)
    )
    assert nothing.ttft_p99_s == pytest.approx(size.ttft_p99_s, abs=1e-5)
    longest = float(A100.prefill_iterations(lengths).max()) * A100.w_s
    assert nothing.ttft_p99_s < longest


@pytest.mark.parametrize("change", [{"w_s": 0.0}, {"h_s": -1.0}, {"num_blocks": 0}, {"idle_w": math.nan}])
def test_a_profile_that_cannot_be_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(InvalidConfig, match=r"profile\.\w+: got"):
        replace(A100, **change)  # type: ignore[arg-type]
