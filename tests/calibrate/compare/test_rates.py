import numpy as np
import pytest

from calibrate.compare.metric_errors import Bootstrap
from calibrate.compare.pair import Pairs, pair_sides
from calibrate.compare.rates import COUNTED, Counters, rates_of
from tests.calibrate.sides import side
from tests.coverage_bounds import assert_covers
from tests.examples import few_or_all


def pairs_of(n: int, *, slower: float = 1.0, **columns: object) -> Pairs:
    """Return a server that is busy all the time beside one that takes ``slower`` times as long."""
    ids, arrivals = [str(i) for i in range(n)], np.zeros(n)
    ends = 1000.0 * np.arange(1, n + 1)
    other = {name: values[1] for name, values in columns.items() if isinstance(values, tuple)}
    own = {name: values[0] for name, values in columns.items() if isinstance(values, tuple)}
    return pair_sides(
        side(ids, ttft=ends - 100, arrival_us=arrivals, **own),
        side(ids, ttft=slower * ends - 100, arrival_us=arrivals, **other),
    )


def test_a_busy_twin_that_is_a_fifth_slower_has_a_sixth_less_capacity() -> None:
    found = rates_of(pairs_of(60, slower=1.2))["output_token_throughput"]
    assert found.observed == pytest.approx(60 * 11 / 60e-3)
    for bound in (found.rel_error.low, found.rel_error.value, found.rel_error.high):
        assert bound == pytest.approx(1 / 1.2 - 1, rel=1e-6)


def test_the_interval_of_a_throughput_holds_the_truth_about_as_often_as_stated() -> None:
    covered, number = 0, few_or_all(50, 120)
    for seed in range(number):
        generator = np.random.default_rng(seed)
        ids = [str(i) for i in range(120)]
        ends = [np.cumsum(generator.exponential(1000.0, size=120)) for _ in range(2)]
        one, two = (side(ids, ttft=end - 100, arrival_us=np.zeros(120)) for end in ends)
        error = rates_of(pair_sides(one, two), bootstrap=Bootstrap(replicates=200))[
            "request_throughput"
        ].rel_error
        covered += bool(error.low <= 0 <= error.high)
    assert_covers(covered, number)


def test_a_good_request_keeps_every_promise() -> None:
    pairs = pairs_of(20, slower=2.0)
    found = rates_of(pairs, slo_us={"e2e": 10_000.0})
    assert (found["good_frac"].observed, found["good_frac"].simulated) == (0.5, 0.25)
    assert found["goodput"].observed == pytest.approx(10 / 20e-3)
    assert "goodput" not in rates_of(pairs)


def test_cache_hits_and_preemptions_are_counted_where_both_sides_know_them() -> None:
    cached = (np.tile([0.0, 25.0], 10), np.tile([25.0, 25.0], 10))
    found = rates_of(pairs_of(20, cached_tokens=cached, num_preemptions=(np.zeros(20), np.ones(20))))
    assert (found["prefix_hit_frac"].observed, found["prefix_hit_frac"].simulated) == (0.25, 0.5)
    assert found["prefix_hit_frac"].error.value == 0.25
    assert found["num_preemptions"].observed == 0
    assert found["num_preemptions"].simulated == pytest.approx(20)
    assert found["num_preemptions"].rel_error.value is None
    assert "prefix_hit_frac" not in rates_of(pairs_of(20))


def test_the_servers_counters_stand_in_where_no_request_tells() -> None:
    counters = [
        Counters(hit_frac=(0.2, 0.3), preemptions=(3, 4), num_requests=10),
        Counters(hit_frac=(0.4, 0.3), preemptions=(1, 0), num_requests=30),
    ]
    found = rates_of(pairs_of(20), counters=counters)
    assert found["prefix_hit_frac"].observed == pytest.approx(0.35)
    assert (found["num_preemptions"].observed, found["num_preemptions"].simulated) == (4, 4)
    assert {found[name].basis for name in ("prefix_hit_frac", "num_preemptions")} == {COUNTED}
    silent = [Counters(hit_frac=(None, 0.3), num_requests=10)]
    assert "prefix_hit_frac" not in rates_of(pairs_of(20), counters=silent)
