"""The bounds beyond the highest fitted load, from servers whose mean E2E is a formula, and the drawn slowdowns."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibrate.fit import beyond
from calibrate.fit.objective.fit_trace import LATENCIES, FitTrace, fit_trace
from calibrate.fit.objective.priors import MEMORY, SLOWDOWN, THRESHOLD, Prior
from calibrate.fit.uncertainty import Coefficient
from replay.twin.fitted.fitted_range import FittedRange
from sim import Blackbox, Extended
from tests.calibrate.known_servers import GUESS, observed, workload
from traces.statistics.bootstrap import LEVEL


def of_kappa(**changed: Any) -> Coefficient:  # noqa: ANN401
    usual = {"name": "kappa", "value": 0.5, "low": 0.3, "high": 0.7, "fitted": True, "identifiable": True}
    return Coefficient(**{**usual, "reason": None, **changed})


def fit_of(model: Blackbox, *coefficients: Coefficient, fitted: FittedRange | None = None) -> Any:  # noqa: ANN401
    """Return what of a fit the bounds are made of."""
    config = replace(GUESS, latency=model, fitted=fitted)
    return SimpleNamespace(config=config, coefficients=coefficients)


@pytest.fixture(scope="module")
def traces() -> list[FitTrace]:
    return [fit_trace(observed(workload(20, rate=6, seed=6)), GUESS, name=name) for name in "abc"]


@pytest.fixture
def grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mean E2E is 10 + kappa at the fitted load, and at ``FACTOR`` times of it 30 + 5·kappa less 8·u0."""
    slow = fit_trace(observed(workload(20, rate=6, seed=6)), GUESS, name="a").requests.arrival_us
    fast = np.rint(slow / beyond.FACTOR)

    def mean_e2e(trace: FitTrace, _fit: object, model: Extended) -> float:
        kappa, u0 = float(model.kappa), float(model.u0)
        if trace.requests.arrival_us.tolist() == slow.tolist():
            return 10 + kappa
        assert trace.requests.arrival_us.tolist() == fast.tolist()
        return 30 + 5 * kappa - 8 * u0

    monkeypatch.setattr(beyond, "_mean_e2e", mean_e2e)


def span(rate: float | None) -> FittedRange:
    return FittedRange(rate_per_s=None if rate is None else (1.0, rate))


@pytest.mark.usefixtures("grows")
def test_bounds_of_a_slowdown_that_traces_show_are_those_of_its_ends(traces: list[FitTrace]) -> None:
    fit = fit_of(Extended(kappa=0.5, u0=0.0), of_kappa())
    found = beyond.beyond_load(fit, traces, ranges=[span(3), span(None), span(4)], priors={})
    assert found is not None
    assert (found.trace, found.rate_per_s, found.factor) == ("c", 4, beyond.FACTOR)
    assert (found.basis, found.source) == ("traces", None)
    own, low, high = ((30 + 5 * kappa) / (10 + kappa) for kappa in (0.5, 0.3, 0.7))
    assert (found.low, found.high) == pytest.approx((low / own - 1, high / own - 1))
    higher = beyond.beyond_load(
        fit_of(Extended(kappa=0.2, u0=0.0), of_kappa()), traces[:1], ranges=[span(3)], priors={}
    )
    assert higher is not None
    assert higher.low == 0
    assert higher.high > 0


@pytest.mark.usefixtures("grows")
@pytest.mark.parametrize(("priors", "basis"), [({"kappa": SLOWDOWN}, "GPU"), ({}, "none")])
def test_bounds_of_an_expected_slowdown_hold_so_many_of_its_draws(
    priors: dict[str, Prior], basis: str, traces: list[FitTrace]
) -> None:
    found = beyond.beyond_load(fit_of(Blackbox()), traces[:1], ranges=[span(3)], priors=priors)
    assert found is not None
    expected = {"kappa": SLOWDOWN, "u0": THRESHOLD, "tau_s": MEMORY}
    drawn = [
        (30 + 5 * each.kappa - 8 * each.u0) / (10 + each.kappa) / 3 - 1
        for each in beyond.slowdowns(Extended(), expected)
    ]
    inside = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    assert (found.basis, found.source) == (basis, SLOWDOWN.source)
    assert (found.low, found.high) == pytest.approx((min(inside[0], 0), max(inside[1], 0)))
    assert found.low < 0


@pytest.mark.usefixtures("grows")
@pytest.mark.parametrize(
    ("fitted", "is_told"),
    [(None, True), (span(None), False), (span(2.9), False), (span(3), True), (span(3.1), True)],
)
def test_a_load_that_the_twin_misses_has_none(
    fitted: FittedRange | None, is_told: bool, traces: list[FitTrace]
) -> None:
    fit = fit_of(Extended(kappa=0.5), of_kappa(), fitted=fitted)
    assert (beyond.beyond_load(fit, traces[:1], ranges=[span(3)], priors={}) is not None) == is_told
    assert beyond.beyond_load(fit, traces[:1], ranges=[span(None)], priors={}) is None


@pytest.mark.parametrize(
    ("changed", "is_seen"),
    [
        ({}, True),
        ({"low": 0.0}, False),
        ({"low": None}, False),
        ({"low": 1e-9}, True),
        ({"fitted": False}, False),
        ({"is_prior_led": True}, False),
        ({"name": "u0"}, False),
    ],
)
def test_a_slowdown_is_seen_where_traces_alone_hold_it_above_0(
    changed: dict[str, Any], is_seen: bool
) -> None:
    each = of_kappa(**changed)
    other = of_kappa(name="floor")
    assert (beyond._seen_slowdown(fit_of(Extended(), other, each)) is each) == is_seen


def share_below(value: float, prior: Prior, *, high: float) -> float:
    """Return the share of a normal between 0 and ``high`` that is below a value."""

    def normal(at: float) -> float:
        return (1 + math.erf((at - prior.centre) / prior.width / math.sqrt(2))) / 2

    return (normal(value) - normal(0)) / (normal(high) - normal(0))


def test_drawn_slowdowns_divide_what_is_expected_evenly() -> None:
    """The thresholds beside them at multiples of the golden ratio, so that no two kinds of slowdown are left out."""
    expected = {"kappa": replace(SLOWDOWN, width=0.5), "u0": replace(THRESHOLD, width=0.4), "tau_s": MEMORY}
    drawn = beyond.slowdowns(Extended(beta1=7), expected)
    kappas = [share_below(each.kappa, expected["kappa"], high=math.inf) for each in drawn]
    thresholds = [share_below(each.u0, expected["u0"], high=1) for each in drawn]
    assert kappas == pytest.approx([(number + 0.5) / beyond.DRAWS for number in range(beyond.DRAWS)])
    golden = (math.sqrt(5) - 1) / 2
    assert thresholds == pytest.approx([number * golden % 1 for number in range(1, beyond.DRAWS + 1)])
    assert {(each.beta1, each.tau_s) for each in drawn} == {(7, MEMORY.centre)}


def test_mean_e2e_is_that_of_the_requests_without_scatter(traces: list[FitTrace]) -> None:
    fit, model = fit_of(GUESS.latency), Extended(beta0=5000, sigma=0.5)  # type: ignore[arg-type] # a Blackbox
    found = beyond._mean_e2e(traces[0], fit, model)
    assert found == beyond._mean_e2e(traces[0], fit, replace(model, sigma=0.0))
    run = beyond.simulated(traces[0], engine=GUESS.engine, model=replace(model, sigma=0.0))
    assert found == np.nanmean(run.latency_us[LATENCIES.index("e2e_us")])
