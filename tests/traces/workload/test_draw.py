"""What is drawn follows the distribution it is named after, and depends on its index alone."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.examples import examples
from traces.workload.draw import (
    draw_lengths,
    draw_tokens,
    gammas,
    normals,
    uniforms,
    unit_gaps,
    weibull_shape,
)
from traces.workload.lengths import (
    Constant,
    Distribution,
    Empirical,
    Exponential,
    Gaussian,
    Lognormal,
    ParetoLognormal,
    Separate,
    TotalSplit,
    Uniform,
    Zipf,
)
from traces.workload.model import Arrival

N = 20_000
SEEDS = (1, 2, 3)
P_LEAST = 1e-3  # fixed seeds: a right sampler gives such a p once in a thousand, and would always

DISTRIBUTIONS: list[Distribution] = [
    Gaussian(mean=512, std_dev=256, min=2, max=7000),
    Exponential(mean=300),
    Lognormal(mu=4.5, sigma=0.5),
    ParetoLognormal(alpha=1.5, xm=100, mu=5, sigma=1, mix_weight=0.3),
    Constant(value=7),
    Empirical(tokens=(10, 20, 1000), weights=(1, 0, 3)),
    Uniform(min=3, max=9),
    Zipf(min=10, max=500, theta=0.9),
]
ARRIVALS = [
    Arrival(),
    Arrival(process="constant", cv=0),
    Arrival(process="gamma", cv=0.3),
    Arrival(process="gamma", cv=1),
    Arrival(process="gamma", cv=4),
    Arrival(process="weibull", cv=0.3),
    Arrival(process="weibull", cv=4),
]


def law(arrival: Arrival) -> "stats.rv_continuous":
    """The gap's distribution with mean 1, from scipy's own definitions."""
    if arrival.process == "gamma":
        return stats.gamma(arrival.cv**-2, scale=arrival.cv**2)
    if arrival.process == "weibull":
        k = weibull_shape(arrival.cv)
        return stats.weibull_min(k, scale=1 / math.gamma(1 + 1 / k))
    return stats.expon()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("arrival", [a for a in ARRIVALS if a.process != "constant"], ids=str)
def test_gaps_follow_their_law(arrival: Arrival, seed: int) -> None:
    gaps = unit_gaps(arrival, seed=seed, stream="gaps", n=N)
    assert stats.kstest(gaps, law(arrival).cdf).pvalue > P_LEAST


@pytest.mark.parametrize("arrival", ARRIVALS, ids=str)
def test_gaps_have_mean_one_and_the_cv_asked(arrival: Arrival) -> None:
    gaps = unit_gaps(arrival, seed=0, stream="gaps", n=400_000)
    assert gaps.mean() == pytest.approx(1, abs=0.02 * max(arrival.cv, 1))
    assert gaps.std() / gaps.mean() == pytest.approx(arrival.cv, rel=0.04, abs=1e-12)


@pytest.mark.parametrize("arrival", ARRIVALS, ids=str)
def test_gaps_are_independent(arrival: Arrival) -> None:
    gaps = unit_gaps(arrival, seed=5, stream="gaps", n=N)
    if arrival.process != "constant":
        assert abs(stats.spearmanr(gaps[:-1], gaps[1:]).statistic) < 4 / math.sqrt(N)


def test_counts_of_poisson_arrivals_have_index_of_dispersion_one() -> None:
    times = np.cumsum(unit_gaps(Arrival(), seed=7, stream="gaps", n=100_000))
    counts = np.bincount(times.astype(int) // 20)[:-1]
    low, high = stats.chi2(counts.size - 1).ppf([1e-4, 1 - 1e-4]) / (counts.size - 1)
    assert low < counts.var(ddof=1) / counts.mean() < high


def test_counts_of_gamma_arrivals_disperse_as_the_square_of_their_cv() -> None:
    times = np.cumsum(unit_gaps(Arrival(process="gamma", cv=3), seed=7, stream="gaps", n=400_000))
    counts = np.bincount(times.astype(int) // 500)[:-1]
    assert counts.var() / counts.mean() == pytest.approx(9, rel=0.15)  # renewal theory: cv² in long windows


@pytest.mark.parametrize("cv", [0.01, 0.1, 0.5, 1, 2, 5, 10])
def test_a_weibull_of_the_shape_found_has_the_cv_asked(cv: float) -> None:
    mean, variance = stats.weibull_min(weibull_shape(cv)).stats(moments="mv")
    assert math.sqrt(variance) / mean == pytest.approx(cv, rel=1e-9)


@pytest.mark.parametrize("shape", [0.01, 0.1, 0.9, 1, 1.5, 30, 1e4])
def test_gammas_follow_scipys_gamma(shape: float) -> None:
    drawn = gammas(3, "g", n=N, shape=shape)
    assert stats.kstest(drawn, stats.gamma(shape).cdf).pvalue > P_LEAST


def test_normals_are_normal() -> None:
    assert stats.kstest(normals(uniforms(1, "z", n=N, each=2)), stats.norm.cdf).pvalue > P_LEAST


def test_uniforms_are_uniform_and_never_reach_the_ends() -> None:
    drawn = uniforms(1, "u", n=N)[:, 0]
    assert stats.kstest(drawn, stats.uniform.cdf).pvalue > P_LEAST
    assert 0 < drawn.min() <= drawn.max() < 1


def test_streams_and_seeds_are_independent() -> None:
    rows = [
        uniforms(seed, stream, n=N)[:, 0]
        for seed, stream in ((1, "a"), (1, "b"), (2, "a"), (12, ""), (1, "2"))
    ]
    correlations = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(correlations).max() < 4 / math.sqrt(N)


def test_the_generator_is_pinned() -> None:
    """Golden: what a seed means may not drift between versions, for traces are named by their seeds."""
    assert uniforms(42, "client a/gaps", n=2, each=2).tolist() == GOLDEN_UNIFORMS


GOLDEN_UNIFORMS = [[0.0584425400234157, 0.4558929955634278], [0.4645274017148679, 0.358715870533209]]


# lengths


@pytest.mark.parametrize("bounds", [(2, 7000), (300, 600), (512, 512), (1, 513)])
def test_clipped_normals_have_the_censored_normals_moments(bounds: tuple[int, int]) -> None:
    low, high = bounds
    mean, sd = 512, 256
    drawn = draw_tokens(Gaussian(mean=mean, std_dev=sd, min=low, max=high), seed=4, stream="p", n=200_000)
    a, b = (low - mean) / sd, (high - mean) / sd
    below, above, inside = stats.norm.cdf(a), stats.norm.sf(b), stats.norm.cdf(b) - stats.norm.cdf(a)
    first, second = (0.0, 0.0)
    if high > low:
        cut = stats.truncnorm(a, b, loc=mean, scale=sd)
        first, second = cut.mean(), cut.var() + cut.mean() ** 2
    expected = low * below + high * above + first * inside
    variance = low**2 * below + high**2 * above + second * inside - expected**2
    assert drawn.min() >= low
    assert drawn.max() <= high
    assert drawn.mean() == pytest.approx(expected, abs=5 * math.sqrt(variance / drawn.size) + 1e-9)
    assert drawn.var() == pytest.approx(variance + (high > low) / 12, rel=0.02, abs=1e-9)  # 1/12: rounding


def test_the_share_of_draws_at_a_bound_is_the_tail_beyond_it() -> None:
    drawn = draw_tokens(Gaussian(mean=512, std_dev=256, min=2, max=7000), seed=4, stream="p", n=200_000)
    tail = stats.norm.cdf((2.5 - 512) / 256)  # what rounds to 2 or lies below
    assert (drawn == 2).mean() == pytest.approx(tail, abs=5 * math.sqrt(tail / drawn.size))


def test_a_stdev_of_zero_is_a_constant() -> None:
    assert set(draw_tokens(Gaussian(mean=100, std_dev=0), seed=1, stream="p", n=50)) == {100}


@pytest.mark.parametrize(
    ("distribution", "cdf"),
    [
        (Exponential(mean=3e6), stats.expon(scale=3e6).cdf),
        (Lognormal(mu=15, sigma=0.5), stats.lognorm(0.5, scale=math.exp(15)).cdf),
        (Gaussian(mean=1e7, std_dev=1e6), stats.norm(1e7, 1e6).cdf),
        (Uniform(min=1, max=10**8), stats.uniform(0, 1e8).cdf),
    ],
    ids=["exponential", "lognormal", "gaussian", "uniform"],
)
def test_lengths_follow_their_law_where_rounding_does_not_show(
    distribution: Distribution, cdf: Callable[..., object]
) -> None:
    assert stats.kstest(draw_tokens(distribution, seed=9, stream="p", n=N), cdf).pvalue > P_LEAST


def test_a_pareto_lognormal_is_that_mixture() -> None:
    it = ParetoLognormal(alpha=1.5, xm=1e5, mu=14, sigma=1, mix_weight=0.3)
    drawn = draw_tokens(it, seed=9, stream="p", n=N)
    pareto, body = stats.pareto(1.5, scale=1e5), stats.lognorm(1, scale=math.exp(14))
    assert stats.kstest(drawn, lambda x: 0.3 * pareto.cdf(x) + 0.7 * body.cdf(x)).pvalue > P_LEAST


@pytest.mark.parametrize(
    ("distribution", "probabilities"),
    [
        (Empirical(tokens=(10, 20, 1000), weights=(1, 0, 3)), {10: 0.25, 1000: 0.75}),
        (Uniform(min=3, max=6), dict.fromkeys((3, 4, 5, 6), 0.25)),
        (Zipf(min=10, max=12, theta=1.0), {10: 6 / 11, 11: 3 / 11, 12: 2 / 11}),
    ],
    ids=str,
)
def test_discrete_lengths_come_as_often_as_their_weights_say(
    distribution: Distribution, probabilities: dict[int, float]
) -> None:
    drawn = draw_tokens(distribution, seed=9, stream="p", n=N)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == list(probabilities)
    assert stats.chisquare(counts, N * np.array(list(probabilities.values()))).pvalue > P_LEAST


def test_a_tail_without_bound_stays_an_integer() -> None:
    wild = Lognormal(mu=5000, sigma=1)
    assert draw_tokens(wild, seed=1, stream="p", n=3).tolist() == [2**31 - 1] * 3
    wild = ParetoLognormal(alpha=1e-3, xm=1, mu=1, sigma=0, mix_weight=1)
    assert draw_tokens(wild, seed=1, stream="p", n=100).min() >= 1


def test_a_total_is_split_by_its_ratio() -> None:
    lengths = TotalSplit(total=Uniform(min=1, max=4000), prefill_to_decode_ratio=4.0)
    prompt, output = draw_lengths(lengths, seed=3, stream="c", n=1000)
    total = draw_tokens(lengths.total, seed=3, stream="c/total", n=1000)
    assert (output == -(-total // 5)).all()
    assert (prompt == np.maximum(total - output, 1)).all()


def test_prompts_and_outputs_do_not_follow_one_another() -> None:
    same = Gaussian(mean=500, std_dev=100)
    prompt, output = draw_lengths(Separate(prompt=same, output=same), seed=3, stream="c", n=N)
    assert abs(np.corrcoef(prompt, output)[0, 1]) < 4 / math.sqrt(N)


# indices

sizes = st.integers(min_value=0, max_value=300)


@examples(30)
@given(seed=st.integers(0, 2**40), n=sizes, more=sizes, arrival=st.sampled_from(ARRIVALS))
def test_the_first_gaps_do_not_change_when_more_are_drawn(
    seed: int, n: int, more: int, arrival: Arrival
) -> None:
    short = unit_gaps(arrival, seed=seed, stream="s", n=n)
    long = unit_gaps(arrival, seed=seed, stream="s", n=n + more)
    assert np.array_equal(np.cumsum(short), np.cumsum(long)[:n])


@examples(30)
@given(seed=st.integers(0, 2**40), n=sizes, more=sizes, distribution=st.sampled_from(DISTRIBUTIONS))
def test_the_first_lengths_do_not_change_when_more_are_drawn(
    seed: int, n: int, more: int, distribution: Distribution
) -> None:
    short = draw_tokens(distribution, seed=seed, stream="s", n=n)
    long = draw_tokens(distribution, seed=seed, stream="s", n=n + more)
    assert short.dtype == np.int64
    assert np.array_equal(short, long[:n])
