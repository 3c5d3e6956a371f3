"""Sound runs are seldom told to differ; a drift, a cold first run and a disturbed one are told for what they are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import linregress

from observe.repeats.beyond_chance import LEAST_RUNS, differences
from tests.observe.repeats.known_servers import figures_of_runs, sets_of


@pytest.mark.parametrize("num", [4, 5, 10])
def test_of_600_sets_of_sound_runs_at_most_one_in_twenty_is_told_to_differ(num: int) -> None:
    sets = sets_of(figures_of_runs(600 * num, seed=num), num)
    alarms = np.mean([bool(differences({"run": each})) for each in sets])
    assert alarms < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 600)


@pytest.mark.parametrize("share", [True, False])
def test_several_loads_in_blocks_raise_no_more_alarms(share: bool) -> None:
    """Whether the loads of a block ``share`` the server's pace of that hour or not."""
    loads = {
        f"{load}": sets_of(figures_of_runs(2000, load=load, seed=9 if share else int(100 * load)), 5)
        for load in (0.3, 0.6, 0.9)
    }
    sets = [dict(zip(loads, each, strict=True)) for each in zip(*loads.values(), strict=True)]
    assert np.mean([bool(differences(each)) for each in sets]) < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize(
    ("kind", "pace"),
    [
        ("drift", 1 + 0.1 * np.arange(6) / 5),
        ("first", np.array([1.1, 1, 1, 1, 1, 1])),
        ("apart", np.array([1, 1, 1, 1.1, 1, 1])),
    ],
)
def test_ten_percent_are_told_for_what_they_are(kind: str, pace: np.ndarray) -> None:
    sets = sets_of(figures_of_runs(6 * 100, load=0.5, pace=np.tile(pace, 100), seed=3), 6)
    found = [differences({"run": each}) for each in sets]
    told = [[each for each in some if each.figure == "tpot_us.mean"] for some in found]
    assert np.mean([bool(some) and some[0].kind == kind for some in told]) > 0.75
    sizes = [some[0].change for some in told if some and some[0].kind == kind]
    assert np.mean(sizes) == pytest.approx(0.1, abs=0.015)
    if kind == "apart":
        assert np.mean([some[0].run == 4 for some in told if some]) > 0.95


def test_a_drift_of_all_loads_is_seen_sooner_than_that_of_one() -> None:
    pace = np.tile(1 + 0.03 * np.arange(5) / 4, 100)
    loads = [sets_of(figures_of_runs(500, load=0.3, pace=pace, seed=seed), 5) for seed in range(4)]
    alone = np.mean([bool(differences({"a": each})) for each in loads[0]])
    together = np.mean(
        [bool(differences(dict(zip("abcd", each, strict=True)))) for each in zip(*loads, strict=True)]
    )
    assert together > 1.5 * alone


def test_what_is_sure_and_small_is_not_told_and_three_runs_tell_nothing() -> None:
    exact = {"ttft_us.mean": [100.0, 100.1, 100.2, 100.3, 100.4], "tpot_us.mean": [1.0] * 5}
    assert differences({"run": exact}) == []
    grown = {"ttft_us.mean": [100.0, 110.0, 120.0, 130.0, 140.0]}
    [found] = differences({"run": grown})
    assert (found.kind, found.figure) == ("drift", "ttft_us.mean")
    few = {name: values[: LEAST_RUNS - 1] for name, values in grown.items()}
    assert differences({"run": few}) == []


def test_without_a_first_token_e2e_is_judged() -> None:
    [found] = differences({"run": {"e2e_us.mean": [130.0, 100.0, 100.1, 100.2, 99.9]}})
    assert (found.kind, found.figure, found.run) == ("first", "e2e_us.mean", 1)


def test_probabilities_are_those_of_regressions() -> None:
    """A drift is a line over the runs; a run apart is one whose own term in a regression is not 0."""
    drifting = [100.0, 109.0, 122.0, 129.0, 141.0]
    [found] = differences({"run": {"e2e_us.mean": drifting}})
    line = linregress(np.arange(5), np.log(drifting))
    assert (found.kind, found.p) == ("drift", pytest.approx(line.pvalue))
    assert found.change == pytest.approx(np.expm1(4 * line.slope))
    cold = [150.0, 101.0, 99.0, 100.0, 102.0]
    [found] = differences({"run": {"e2e_us.mean": cold}})
    terms = linregress([1.0, 0, 0, 0, 0], np.log(cold))
    assert (found.kind, found.p) == ("first", pytest.approx(terms.pvalue))
    assert found.change == pytest.approx(np.expm1(terms.slope))
