import numpy as np
import pytest

from calibrate.compare.equivalence import equivalence, equivalences
from calibrate.compare.metric_errors import Bootstrap, compare
from calibrate.gate.checks import ErrorLimit, check, ratio_distance
from tests.calibrate.compare.test_errors import two_sides
from traces.statistics.bootstrap import Estimate


def test_a_twin_inside_the_margin_is_equivalent_and_one_on_its_edge_is_not_shown_to_be() -> None:
    inside = equivalence(compare(two_sides(400, scale=1.01, noise=0.1))["ttft_us"], 0.1)
    edge = equivalence(compare(two_sides(400, scale=1.1, noise=0.1))["ttft_us"], 0.1)
    assert inside.equivalent is True
    assert inside.p_value < 0.001
    assert edge.equivalent is False
    assert edge.p_value > 0.05


def test_twice_as_slow_is_as_far_off_as_twice_as_fast() -> None:
    for scale in (2.0, 0.5):
        found = equivalence(compare(two_sides(100, scale=scale, noise=0.05))["ttft_us"], 1.2)
        assert found.p_value == pytest.approx(0, abs=1e-3)
    assert ratio_distance(Estimate(value=-0.5, low=-0.75, high=1.0)) == Estimate(
        value=-1.0, low=-3.0, high=1.0
    )


def test_a_pair_that_is_equivalent_by_chance_is_called_so_in_one_of_twenty_at_most() -> None:
    margin = 0.05
    called = 0
    for seed in range(40):
        pairs = two_sides(60, scale=1 + margin, noise=0.1, seed=seed)
        found = compare(pairs, bootstrap=Bootstrap(replicates=150), only=["ttft_us"])["ttft_us"]
        called += bool(equivalence(found, margin).equivalent)
    assert called <= 6  # 2 are expected of 40; above 6 has a chance of 0.1 %


def test_margins_are_by_metric_or_for_all_and_too_few_requests_say_nothing() -> None:
    found = equivalences(compare(two_sides(40, noise=0.1)), {"e2e_us": 0.2, "": 0.1})
    assert {name: each.margin for name, each in found.items()}["e2e_us"] == 0.2
    assert {each.margin for name, each in found.items() if name != "e2e_us"} == {0.1}
    few = equivalence(compare(two_sides(5))["ttft_us"], 0.1)
    assert (few.p_value, few.equivalent) == (None, None)


def test_the_gate_and_the_test_agree_where_it_matters() -> None:
    limit = ErrorLimit(metric="ttft_us", statistic="equivalence", warn=None, fail=0.1)
    for scale, outcome in ((1.01, "PASS"), (1.3, "FAIL"), (1 / 1.3, "FAIL"), (1.1, "INCONCLUSIVE")):
        error = compare(two_sides(400, scale=scale, noise=0.1))["ttft_us"].rel_error["mean"]
        assert check(limit, ratio_distance(error), n=400, least=30).outcome == outcome
    assert np.isfinite(ratio_distance(Estimate(value=-0.999)).value)
