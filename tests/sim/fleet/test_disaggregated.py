"""The cheapest prefill and decode pools by formula, against every number there is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from replay.fleet.inputs.profiles import shipped_profiles
from sim.fleet import GpuProfile, Lengths
from sim.fleet.disaggregated import (
    Disaggregated,
    Transfer,
    disaggregated_at,
    keeps_by_formula,
    sweep_disaggregated,
)
from sim.fleet.sizing import Infeasible, Objective

PROFILES = (shipped_profiles()["A100"], shipped_profiles()["H100"])


@pytest.mark.parametrize("seed", range(10))
def test_no_number_of_engines_is_cheaper_than_the_cheapest_that_is_found(seed: int) -> None:
    """A grid of 24 by 24 numbers missed it by up to 6.4 %."""
    rng = np.random.default_rng(seed)
    lengths = Lengths(
        input_tokens=np.ceil(rng.lognormal(6.5, 0.8, 200)).clip(1, 7000),
        output_tokens=np.ceil(rng.lognormal(4.5, 0.7, 200)).clip(1, 1000),
    )
    rate, profiles = float(rng.uniform(50, 300)), tuple(PROFILES[i] for i in rng.integers(0, 2, 2))
    tpot_s = rng.choice([0.02, 0.03, 0.06]) if seed % 2 else None
    objective = Objective(ttft_p99_s=float(rng.uniform(1.5, 4)), tpot_p99_s=tpot_s)
    best = sweep_disaggregated((profiles[0], profiles[1]), lengths, rate, objective, context=8192)[0]

    def at(prefill: int, decode: int) -> bool:
        return keeps_by_formula(
            disaggregated_at(
                (profiles[0], profiles[1]), lengths, rate, engines=(prefill, decode), context=8192
            ),
            objective,
        )

    assert at(best.prefill, best.decode)
    costs = [each.cost_per_hour for each in profiles]
    most = [int(best.cost_per_hour / cost) + 1 for cost in costs]
    # a fleet of (p, d) keeps it where (p, many) and (many, d) do: that is not assumed for pairs below the best
    kept = [p for p in range(1, most[0] + 1) if at(p, 10 * best.decode)]
    held = [d for d in range(1, most[1] + 1) if at(10 * best.prefill, d)]
    cheaper = [(p, d) for p in kept for d in held if p * costs[0] + d * costs[1] < best.cost_per_hour - 1e-9]
    assert not [pair for pair in cheaper if at(*pair)]
    near = [(p, d) for p in range(1, best.prefill + 1) for d in range(1, best.decode + 1)]
    rng.shuffle(near)
    assert not [pair for pair in near[:60] if pair != (best.prefill, best.decode) and at(*pair)]


# -- worked out beside the module -------------------------------------------------------------------------------

ENGINE = GpuProfile(
    w_s=0.01,
    h_s=0.002,
    calibration_context=1000,
    chunk_tokens=100,
    num_blocks=1000,
    max_slots=4,
    cost_per_hour=2,
)
FREE = Transfer(alpha_prefill=1.0, alpha_decode=1.0, beta_ttft=1.0)


def one_kind(input_tokens: float, output_tokens: float) -> Lengths:
    return Lengths(input_tokens=np.array([input_tokens]), output_tokens=np.array([output_tokens]))


def at(
    rate: float,
    lengths: Lengths,
    *,
    prefill: GpuProfile = ENGINE,
    decode: GpuProfile = ENGINE,
    engines: tuple[int, int] = (1, 1),
) -> Disaggregated:
    return disaggregated_at((prefill, decode), lengths, rate, engines=engines, context=400, transfer=FREE)


@pytest.mark.parametrize(
    ("token_s", "pair_s", "seconds"),
    [
        (0.0, 0.0, 3 * (0.01 + 0.002 * 0.25)),  # no compute is known: its tokens are read in each iteration
        (1e-5, 0.0, 3 * 0.01 + 0.0025),
        (1e-3, 0.0, 3 * 0.01 + 0.25),
        (0.0, 1e-4, 3 * 0.01 + 250 * 251 / 2 * 1e-4),
        (1e-3, 1e-4, 3 * 0.01 + 0.25 + 250 * 251 / 2 * 1e-4),
    ],
)
def test_a_prompt_takes_its_iterations_and_its_compute(token_s: float, pair_s: float, seconds: float) -> None:
    """250 tokens, three iterations."""
    prefill = replace(ENGINE, prefill_token_s=token_s, prefill_pair_s=pair_s)
    seen = at(0.25, one_kind(250, 9), prefill=prefill)
    assert seen.prefill_utilization == pytest.approx(0.25 * seconds)
    assert seen.ttft_p99_s >= seconds
    both = at(0.25, one_kind(250, 9), prefill=prefill, engines=(2, 1))
    assert both.prefill_utilization == pytest.approx(0.25 * seconds / 2)


def test_the_slower_of_both_pools_says_what_they_can_do() -> None:
    """A prompt takes 31.5 ms; 8 tokens more, with 258 there in each of ten slots, 8 · (10 + 10 · 0.516) ms."""
    decode_s = 8 * (0.01 + 10 * 0.002 * 0.258)
    prefill_s = 3 * (0.01 + 0.002 * 0.25)
    for engines in ((1, 1), (2, 1), (9, 1), (9, 2), (20, 3)):
        seen = at(1.0, one_kind(250, 9), engines=engines)
        assert seen.rate_per_s == pytest.approx(min(engines[0] / prefill_s, 10 * engines[1] / decode_s))
        assert seen.decode_utilization == pytest.approx(decode_s / (10 * engines[1]))
        assert seen.cost_per_hour == 2 * sum(engines)


@pytest.mark.parametrize("rate", [10.0, 60.0, 90.0, 200.0, 1000.0])
def test_as_many_decode_as_there_are_on_average_and_no_more_than_slots(rate: float) -> None:
    """n = rate · 8 · (w + n · e), ten at most, also where their own work alone takes all the time."""
    each = 0.002 * 0.258
    there, other = 0.0, rate
    for _ in range(2000):
        there = min(other * 8 * (0.01 + there * each), 10.0)
    assert at(rate, one_kind(250, 9)).tpot_s == pytest.approx(0.01 + there * each)
    assert at(2 * rate, one_kind(250, 9), engines=(1, 2)).tpot_s == pytest.approx(0.01 + there * each)


def test_where_decodes_own_work_takes_just_all_the_time_all_slots_are_taken() -> None:
    """8 tokens of 258 / 2,064 s each, one request per second: 20 slots of 400 tokens."""
    decode = replace(ENGINE, h_s=1.0, calibration_context=2064)
    assert at(1.0, one_kind(250, 9), decode=decode).tpot_s == pytest.approx(0.01 + 20 / 8)


def test_an_answer_of_one_token_still_goes_to_decode() -> None:
    """It holds a slot for one iteration, with its 251 tokens there."""
    seen = at(1.0, one_kind(250, 1))
    assert seen.decode_utilization == pytest.approx((0.01 + 10 * 0.002 * 0.251) / 10)


def test_one_slot_decodes_and_none_does_not() -> None:
    single = replace(ENGINE, max_slots=1, calibration_context=400)
    assert at(1.0, one_kind(250, 9), decode=single).decode_utilization == pytest.approx(
        8 * (0.01 + 0.002 * 258 / 400)
    )
    with pytest.raises(Infeasible, match="holds no such request"):
        at(1.0, one_kind(250, 9), decode=replace(ENGINE, num_blocks=24))


FLEET = Disaggregated(
    prefill=1,
    decode=1,
    rate_per_s=1.0,
    ttft_mean_s=1.0,
    ttft_p99_s=2.0,
    decode_wait_p99_s=2.0,
    tpot_s=0.25,
    prefill_utilization=0.75,
    decode_utilization=0.75,
    cost_per_hour=1.0,
)


@pytest.mark.parametrize(
    ("change", "is_kept"),
    [
        ({}, True),
        ({"ttft_p99_s": 2.001}, False),
        ({"decode_wait_p99_s": 2.001}, False),
        ({"tpot_s": 0.2501}, False),
        ({"prefill_utilization": 0.75 + 5e-10}, True),
        ({"decode_utilization": 0.75 + 5e-10}, True),
        ({"prefill_utilization": 0.7501}, False),
        ({"decode_utilization": 0.7501}, False),
    ],
)
def test_limits_that_are_just_met_are_kept(change: dict[str, float], is_kept: bool) -> None:
    edge = Objective(ttft_p99_s=2.0, tpot_p99_s=0.25, utilization_cap=0.75)
    assert keeps_by_formula(replace(FLEET, **change), edge) is is_kept  # type: ignore[arg-type]
    any_pace = replace(edge, tpot_p99_s=None)
    assert keeps_by_formula(replace(FLEET, tpot_s=9.0), any_pace)
    assert not keeps_by_formula(replace(FLEET, tpot_s=9.0, decode_utilization=1.0), any_pace)


@pytest.mark.parametrize("costs", [(1.0, 2.0), (2.0, 1.0)])
def test_a_sweep_shows_up_to_four_times_as_many_of_each_the_cheapest_first(
    costs: tuple[float, float],
) -> None:
    """24 numbers from n to 4n + 4, cut to whole ones; of those that cost as much the fewest engines, then the TTFT."""
    profiles = (replace(ENGINE, cost_per_hour=costs[0]), replace(ENGINE, cost_per_hour=costs[1]))
    lengths, objective = one_kind(250, 9), Objective(ttft_p99_s=0.2, tpot_p99_s=0.012)
    found = sweep_disaggregated(profiles, lengths, 150.0, objective, context=400)
    fewest = [
        next(
            n
            for n in range(1, 99)
            if keeps_by_formula(
                disaggregated_at(profiles, lengths, 150.0, engines=of(n), context=400), objective
            )
        )
        for of in (lambda n: (n, 50), lambda n: (50, n))
    ]
    assert min(fewest) > 1
    counts = [{int(n + step * (3 * n + 4) / 23 + 1e-9) for step in range(24)} for n in fewest]
    assert {(each.prefill, each.decode) for each in found} == {(p, d) for p in counts[0] for d in counts[1]}
    assert len(found) == len(counts[0]) * len(counts[1])
    order = [(each.cost_per_hour, each.prefill + each.decode, each.ttft_p99_s) for each in found]
    assert order == sorted(order)
    assert all(each.cost_per_hour == costs[0] * each.prefill + costs[1] * each.decode for each in found)
    for one in found:
        beaten = any(
            other.cost_per_hour <= one.cost_per_hour
            and other.ttft_p99_s <= one.ttft_p99_s
            and other.tpot_s <= one.tpot_s
            and (
                other.cost_per_hour < one.cost_per_hour
                or other.ttft_p99_s < one.ttft_p99_s
                or other.tpot_s < one.tpot_s
            )
            for other in found
        )
        assert one.is_best is not beaten


@pytest.mark.parametrize(
    "objective", [Objective(ttft_p99_s=0.05), Objective(ttft_p99_s=1.0, tpot_p99_s=0.01)]
)
def test_where_either_pool_cannot_keep_its_part_there_is_no_fleet(objective: Objective) -> None:
    """A prompt alone takes 31.5 ms, 1.8 times as long with its transfer; an iteration more than 10 ms."""
    assert sweep_disaggregated((ENGINE, ENGINE), one_kind(250, 9), 1.0, objective, context=400) == []


def test_both_front_ends_hand_on_a_first_token_the_decode_engines_after_the_others() -> None:
    seen, slow = (
        at(10.0, one_kind(250, 9), prefill=each, decode=each)
        for each in (ENGINE, replace(ENGINE, handed_on_s=0.01))
    )
    active = (seen.tpot_s - 0.01) / (0.002 * 0.258)
    assert active > 0.5
    assert slow.ttft_p99_s - seen.ttft_p99_s == pytest.approx(0.01 * (2 + active), abs=4e-6)
