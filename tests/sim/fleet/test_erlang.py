"""Erlang and Kimura: published values, exact M/M/c, and simulated M/G/c."""

from __future__ import annotations

import heapq
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from sim.config import InvalidConfig
from sim.fleet.availability import availability, availability_of, provisioned, provisioned_for, share_enough
from sim.fleet.erlang import Wait, erlang_b, erlang_c, p99_wait_s


@pytest.mark.parametrize(
    ("servers", "load", "expected"), [(4, 3, 0.50943), (10, 8, 0.40918), (128, 120, 0.36495)]
)
def test_erlang_c_has_its_known_values(servers: int, load: float, expected: float) -> None:
    assert erlang_c(servers, load) == pytest.approx(expected, abs=5e-6)


@pytest.mark.parametrize("servers", [-1, -3])
def test_fewer_servers_than_none_are_a_mistake(servers: int) -> None:
    for formula in (erlang_b, erlang_c):
        with pytest.raises(InvalidConfig, match=f"erlang: got {servers} servers"):
            formula(servers, 2.0)


def exact_erlang_c(servers: int, load: Fraction) -> Fraction:
    """Return Erlang's C as the definition has it, in fractions."""
    terms = [Fraction(1)]
    for k in range(1, servers + 1):
        terms.append(terms[-1] * load / k)
    last = terms[-1] * servers / (servers - load)
    return last / (sum(terms[:-1]) + last)


@given(st.integers(1, 60), st.fractions(Fraction(1, 100), Fraction(99, 100)))
def test_erlang_c_is_the_definition(servers: int, rho: Fraction) -> None:
    load = rho * servers
    assert erlang_c(servers, float(load)) == pytest.approx(float(exact_erlang_c(servers, load)), rel=1e-9)


def test_a_million_servers_are_stable() -> None:
    """Halfin and Whitt: with a/c = 1 - b/sqrt(c), C tends to 1 / (1 + b·Phi(b)/phi(b))."""
    servers, b = 10**6, 1.0
    limit = 1 / (
        1 + b * (0.5 * math.erfc(-b / math.sqrt(2))) / (math.exp(-b * b / 2) / math.sqrt(2 * math.pi))
    )
    assert erlang_c(servers, servers - b * math.sqrt(servers)) == pytest.approx(limit, rel=2e-3)
    assert erlang_c(servers, 0.5 * servers) == 0.0
    assert erlang_c(servers, 1.5 * servers) == 1.0


def test_the_tail_of_the_wait_has_its_known_value() -> None:
    assert p99_wait_s(4, 3, 1, 1) == pytest.approx(3.93072, abs=5e-6)
    assert p99_wait_s(100, 3, 1, 1) == 0.0
    assert p99_wait_s(4, 5, 1, 1) == math.inf


@given(st.integers(1, 40), st.floats(0.05, 0.97))
def test_the_mean_wait_of_mmc_is_exact(servers: int, rho: float) -> None:
    """Erlang: E[W] = C / (c·mu - lambda); and its distribution function is right at every point, so at this one."""
    wait = Wait.of(servers, rho * servers, 1.0, 1.0)
    expected = erlang_c(servers, rho * servers) / (servers - rho * servers)
    assert wait.mean_s == pytest.approx(expected, rel=1e-9)
    median = np.array([0.3])
    share = erlang_c(servers, rho * servers) * math.exp(-(servers - rho * servers) * 0.3)
    assert wait.longer_than(median)[0] == pytest.approx(share, rel=1e-9)


@pytest.mark.parametrize("load", [0.0, 0.5, 3.0])
def test_without_a_server_everybody_waits(load: float) -> None:
    assert erlang_b(0, load) == erlang_c(0, load) == 1.0


def simulated_gg_mean(arrival_cv2: float, cv2: float, *, servers: int, rho: float, seed: int) -> float:
    """Return the mean wait in a simulated G/G/c, gaps and service times gamma."""
    number = 60_000
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.gamma(1 / arrival_cv2, arrival_cv2 / (servers * rho), number))
    services, free, waits = rng.gamma(1 / cv2, cv2, number), [0.0] * servers, np.empty(number)
    for i, (arrival, service) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        start = max(arrival, heapq.heappop(free))
        waits[i] = start - arrival
        heapq.heappush(free, start + service)
    return float(waits[number // 10 :].mean())


@pytest.mark.parametrize(("servers", "rho"), [(1, 0.85), (8, 0.9)])
@pytest.mark.parametrize(("arrival_cv2", "cv2"), [(4.0, 1.0), (2.0, 0.5), (0.3, 1.0)])
def test_gaps_of_any_spread_scale_the_wait_as_allen_and_cunneen_say(
    servers: int, rho: float, arrival_cv2: float, cv2: float
) -> None:
    told = Wait.of(servers, rho * servers, 1.0, cv2, arrival_cv2=arrival_cv2)
    poisson = Wait.of(servers, rho * servers, 1.0, cv2)
    assert told.mean_s / poisson.mean_s == pytest.approx((arrival_cv2 + cv2) / (1 + cv2))
    seen = np.mean(
        [simulated_gg_mean(arrival_cv2, cv2, servers=servers, rho=rho, seed=seed) for seed in (1, 2, 3)]
    )
    assert told.mean_s == pytest.approx(seen, rel=0.3)


def test_without_any_spread_nobody_waits() -> None:
    assert Wait.of(4, 3.9, 1.0, 0.0, arrival_cv2=0.0).percentile_s(0.99) == pytest.approx(0.0, abs=1e-3)


def simulated_p99(servers: int, rate: float, cv2: float, *, number: int, seed: int) -> float:
    """Return the 99th percentile of the wait in a simulated M/G/c, service times gamma (constant for cv2 = 0)."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate, number))
    services = rng.gamma(1 / cv2, cv2, number) if cv2 > 0 else np.ones(number)
    free = [0.0] * servers
    waits = np.empty(number)
    for i, (arrival, service) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        start = max(arrival, heapq.heappop(free))
        waits[i] = start - arrival
        heapq.heappush(free, start + service)
    return float(np.percentile(waits[number // 10 :], 99))


@pytest.mark.parametrize("servers", [1, 16])
@pytest.mark.parametrize(("rho", "cv2"), [(0.7, 1.0), (0.85, 1.0), (0.8, 0.5), (0.85, 0.3), (0.8, 2.0)])
def test_kimuras_tail_is_near_a_simulated_one(servers: int, rho: float, cv2: float) -> None:
    """Exact for exponential service; for other spreads an approximation, here within a quarter."""
    told = p99_wait_s(servers, rho * servers, 1.0, cv2)
    seen = np.mean(
        [simulated_p99(servers, rho * servers, cv2, number=40_000, seed=seed) for seed in (1, 2, 3)]
    )
    assert told == pytest.approx(seen, rel=0.1 if cv2 == 1 else 0.25)


def test_availability_has_its_known_values() -> None:
    assert availability(0.0065, 4) == pytest.approx(0.998918, abs=5e-7)
    assert availability(0.0065, 48) == pytest.approx(0.987167, abs=5e-7)
    assert availability_of([(0.005, 4), (0.0015, 48)]) < availability(0.0065, 4)
    assert [provisioned(60, 0.95), provisioned(60, 1.0), provisioned(60, 60 / 61)] == [64, 60, 61]


@pytest.mark.parametrize("needed", [1, 7, 60, 2600])
@pytest.mark.parametrize("share_up", [0.5, 0.9, 0.987167, 0.999, 1.0])
def test_the_spare_for_99_percent_is_the_smallest_by_the_binomial_distribution(
    needed: int, share_up: float
) -> None:
    have = provisioned_for(needed, share_up)
    assert share_enough(have, needed, share_up) == pytest.approx(
        binom.cdf(have - needed, have, 1 - share_up), abs=1e-9
    )
    assert share_enough(have, needed, share_up) >= 0.99
    assert have == needed or share_enough(have - 1, needed, share_up) < 0.99


def test_61_for_60_are_short_for_a_fifth_of_the_time() -> None:
    assert 1 - share_enough(61, 60, 0.987167) == pytest.approx(0.1845, abs=1e-4)
    assert provisioned_for(60, 0.987167) == 63


@pytest.mark.parametrize(("servers", "load"), [(-1, 1.0), (1, -1.0), (1, math.nan), (1, math.inf)])
def test_what_is_no_load_is_refused(servers: int, load: float) -> None:
    with pytest.raises(InvalidConfig, match="erlang: got"):
        erlang_b(servers, load)


@pytest.mark.parametrize("share", [0.0, 1.1, math.nan])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(InvalidConfig, match="availability: got"):
        provisioned(3, share)


@pytest.mark.parametrize(("servers", "load"), [(1, 1.0), (1, 0.5), (2, 1.0), (2, 3.0), (5, 5.0), (30, 12.0)])
def test_erlang_b_is_the_definition(servers: int, load: float) -> None:
    terms = [Fraction(load) ** k / math.factorial(k) for k in range(servers + 1)]
    assert erlang_b(servers, load) == pytest.approx(float(terms[-1] / sum(terms)), rel=1e-12)
    assert erlang_b(servers, 0.0) == 0.0


@pytest.mark.parametrize(
    ("servers", "load"), [(1000, 400.0), (1000, 700.0), (100_000, 88_650.0), (100_000, 88_700.0)]
)
def test_where_there_are_many_servers_erlang_b_is_the_poisson_distributions(
    servers: int, load: float
) -> None:
    """As rare as 1 in 10³⁰⁵. Nearly all of the distribution lies below so many servers, so its sum is 1."""
    poisson = math.exp(servers * math.log(load) - load - math.lgamma(servers + 1))
    assert erlang_b(servers, load) == pytest.approx(poisson, rel=1e-6)


@pytest.mark.parametrize(("servers", "load"), [(100_000, 88_600.0), (1_000_000, 963_000.0), (2000, 600.0)])
def test_what_is_rarer_than_any_number_is_nothing(servers: int, load: float) -> None:
    """Chernoff: servers · ln(servers / load) - servers + load is 704, 702 and 1,008, beyond 700."""
    assert erlang_b(servers, load) == 0.0


@pytest.mark.parametrize(
    ("arrival_rate", "service_rate", "cv2", "arrival_cv2"),
    [
        (-0.1, 1.0, 1.0, 1.0),
        (1.0, 0.0, 1.0, 1.0),
        (1.0, -1.0, 1.0, 1.0),
        (1.0, 1.0, -0.1, 1.0),
        (1.0, 1.0, 1.0, -0.1),
        (math.nan, 1.0, 1.0, 1.0),
    ],
)
def test_what_is_no_rate_or_spread_is_refused(
    arrival_rate: float, service_rate: float, cv2: float, arrival_cv2: float
) -> None:
    with pytest.raises(InvalidConfig, match="wait: got rates of"):
        Wait.of(3, arrival_rate, service_rate, cv2, arrival_cv2=arrival_cv2)


def test_small_rates_and_spreads_are_as_good_as_large_ones() -> None:
    """One server, 0.25 of 0.5 per second: everybody else waits 1 of 2, e-fold in (0.5 + 0.25) / 2 / 0.25 s."""
    slow = Wait.of(1, 0.25, 0.5, 0.25, arrival_cv2=0.5)
    assert slow.probability == pytest.approx(0.5)
    assert slow.decay_per_s == pytest.approx(2 * 0.25 / 0.75)
    idle = Wait.of(1, 0.0, 0.5, 0.0, arrival_cv2=0.0)
    assert idle.probability == 0.0
    assert idle.decay_per_s == pytest.approx(2 * 0.5 / 1e-6)
    assert idle.percentile_s(0.99) == 0.0
    assert Wait.of(1, 0.5, 0.5, 1.0) == Wait(probability=1.0, decay_per_s=0.0)


def test_the_distribution_of_a_wait_by_hand() -> None:
    """Half of the arrivals wait, and of those as many go each second as e^-2 leaves."""
    wait = Wait(probability=0.5, decay_per_s=2.0)
    seconds = np.array([-1e-9, 0.0, 0.25, 0.5, 1.0])
    expected = [1.0, 0.5, 0.5 * math.exp(-0.5), 0.5 * math.exp(-1), 0.5 * math.exp(-2)]
    assert wait.longer_than(seconds) == pytest.approx(expected, rel=1e-12)
    assert wait.percentile_s(0.99) == pytest.approx(math.log(50) / 2)
    assert wait.percentile_s(0.75) == pytest.approx(math.log(2) / 2)
    assert wait.percentile_s(0.5) == wait.percentile_s(0.4) == 0.0
    assert wait.mean_s == 0.25
    assert p99_wait_s(1, 0.5, 1.0, 1.0) == pytest.approx(math.log(50) / 0.5)
    for_ever = Wait(probability=1.0, decay_per_s=0.0)
    assert for_ever.mean_s == for_ever.percentile_s(0.5) == math.inf
