"""Beyond the highest fitted load: what a slowdown that nothing shows could do, and what the report says of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import truncnorm

from calibrate import number_format
from calibrate.calibration_run import calibrate, compare_with_twin
from calibrate.findings import Calibration, Options
from calibrate.fit.beyond import FACTOR, _truncated, beyond_load, slowdowns
from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.objective.priors import MEMORY, SLOWDOWN, THRESHOLD, Prior
from calibrate.fit.result import Fit
from calibrate.fit.uncertainty import Coefficient
from calibrate.report.document import document_of
from calibrate.report.markdown import markdown_of
from calibrate.report.warnings import warnings_of
from calibrate.verdict_text import verdict_text
from calibrate.written.save import write_config
from replay import load_config, simulate_trace
from replay.twin.fitted.fitted_range import FittedRange
from sim import Blackbox, Extended
from tests.calibrate.known_servers import GUESS, SERVER, TRUTH, observed, source, workload
from traces import Trace, request_metrics

KNOWN = {"kappa": SLOWDOWN, "u0": THRESHOLD, "tau_s": replace(MEMORY, centre=1.0)}
"""A memory that is short beside the traces here."""
AT_SIX = FittedRange(rate_per_s=(6.0, 6.0))
"""No more than a rate to name: what is made of the bounds comes from the trace."""


@pytest.fixture(scope="module")
def found() -> Calibration:
    traces = [source(f"load{rate}", observed(workload(60, rate=rate, seed=rate))) for rate in (2, 6)]
    beyond = source("busier", observed(workload(90, rate=11, seed=3)))
    return calibrate(traces, GUESS, Options(latency_model="blackbox"), holdout=[beyond])


def test_without_a_known_gpu_the_bounds_are_called_an_example(found: Calibration) -> None:
    assert found.beyond is not None
    assert found.beyond.trace == "load6"
    assert found.beyond.basis == "none"
    assert "this is an example and no bound" in found.beyond.text()
    assert "(--gpu)" in found.beyond.text()


def growth(trace: Trace, latency: Extended) -> float:
    """Return by how much mean E2E grows when a trace's requests come faster."""
    faster = trace.with_columns(
        arrival_time_us=np.rint(trace.column("arrival_time_us").to_numpy(np.float64) / FACTOR).astype(
            np.int64
        )
    )
    slow, fast = (
        request_metrics(simulate_trace(each, replace(GUESS, latency=latency))[0])["e2e_us"].mean()
        for each in (trace, faster)
    )
    return float(fast / slow)


def test_the_bounds_hold_the_growth_of_the_expected_slowdown_and_not_of_the_worst_one(
    found: Calibration,
) -> None:
    fit, six = _fit_of_truth(found)
    trace = workload(150, rate=14, seed=6)
    bounds = beyond_load(fit, [fit_trace(observed(trace), GUESS, name="a")], ranges=[AT_SIX], priors=KNOWN)
    assert bounds is not None
    assert bounds.basis == "GPU"
    assert SLOWDOWN.source in bounds.text()
    none, usual, worst = (
        growth(trace, Extended(**six, kappa=kappa, u0=u0, tau_s=1.0))
        for kappa, u0 in (
            (0.0, 0.0),
            (SLOWDOWN.centre, THRESHOLD.centre),
            (SLOWDOWN.centre + 3 * SLOWDOWN.width, 0.0),
        )
    )
    assert bounds.low <= 0.0
    assert usual / none - 1 < bounds.high < worst / none - 1


def test_drawn_slowdowns_are_as_they_are_expected(found: Calibration) -> None:
    _, six = _fit_of_truth(found)
    drawn = slowdowns(Extended(**six, kappa=0.5, u0=0.1, tau_s=5.0), KNOWN)
    assert np.median([each.kappa for each in drawn]) == pytest.approx(SLOWDOWN.centre, abs=0.05)
    assert np.std([each.u0 for each in drawn]) == pytest.approx(THRESHOLD.width, rel=0.2)
    assert {each.tau_s for each in drawn} == {1.0}
    assert all(each.kappa >= 0 and 0 <= each.u0 <= 1 and each.beta1 == six["beta1"] for each in drawn)


def _fit_of_truth(found: Calibration) -> tuple[Fit, dict[str, float]]:
    """Return the fit as if it had found blackbox's true coefficients, and these."""
    assert found.fit is not None
    latency = Blackbox(**TRUTH)
    six = {name: float(getattr(latency, name)) for name in ("alpha0", "alpha1", "beta0", "beta1", "beta2")}
    return replace(found.fit, config=replace(found.fit.config, latency=latency)), six


def test_the_bounds_are_those_of_the_interval_where_the_traces_show_a_slowdown(found: Calibration) -> None:
    assert found.fit is not None
    six = {
        name: float(getattr(found.fit.config.latency, name)) for name in ("alpha0", "beta0", "beta1", "beta2")
    }
    model = Extended(**six, kappa=0.5, u0=0.05)
    seen = Coefficient(
        name="kappa", value=0.5, low=0.3, high=0.7, fitted=True, identifiable=True, reason=None
    )
    fit = replace(found.fit, config=replace(found.fit.config, latency=model), coefficients=(seen,))
    ready = [fit_trace(observed(workload(60, rate=6, seed=6)), GUESS, name="a")]
    bounds = beyond_load(fit, ready, ranges=[AT_SIX], priors={})
    assert bounds is not None
    assert bounds.basis == "traces"
    assert bounds.low < 0 < bounds.high
    unseen = replace(fit, coefficients=(replace(seen, is_prior_led=True),))
    other = beyond_load(unseen, ready, ranges=[AT_SIX], priors={})
    assert other is not None
    assert other.basis == "none"


def test_report_and_written_twin_say_what_was_fitted_and_what_goes_beyond(
    found: Calibration, tmp_path: Path
) -> None:
    said = "\n".join(warnings_of(found))
    assert "busier: extrapolated beyond the fit: load by a factor" in said
    assert found.beyond is not None
    assert "beyond the highest fitted load" not in said  # it is little here, and stands with the fit
    much = replace(found, beyond=replace(found.beyond, high=0.2))
    assert any("no fitted trace shows a slowdown" in line for line in warnings_of(much))
    assert f"Note: {found.beyond.text()}." in markdown_of(found, command="")
    document = json.loads(json.dumps(document_of(found, command="")))
    assert document["beyond_load"]["factor"] == FACTOR
    assert document["config"]["latency"]["fitted_range"]["rate_per_s"][1] == pytest.approx(6, rel=0.3)
    write_config(found, tmp_path / "twin.yaml")
    twin = load_config(tmp_path / "twin.yaml")
    assert twin.fitted is not None
    again = compare_with_twin([source("busier", observed(workload(90, rate=11, seed=3)))], twin, Options())
    assert any("extrapolated beyond the fit" in line for line in warnings_of(again))


@pytest.fixture(scope="module")
def halved() -> Calibration:
    """A calibration without held-out traces: the fit saw the first half, whose rate is not that of the whole."""
    trace = observed(workload(60, rate=6, seed=6))
    arrival = trace.column("arrival_time_us").to_numpy(np.float64)
    assert abs(np.ptp(arrival[30:]) / np.ptp(arrival[:30]) - 1) > 0.1
    return calibrate([source("load6", trace)], GUESS, Options(latency_model="blackbox"))


def test_report_and_written_twin_name_one_fitted_load(
    found: Calibration, halved: Calibration, tmp_path: Path
) -> None:
    for calibration in (found, halved):
        write_config(calibration, tmp_path / "twin.yaml")
        fitted = load_config(tmp_path / "twin.yaml").fitted
        assert fitted is not None
        assert fitted.rate_per_s is not None
        load = fitted.rate_per_s[1]
        document = json.loads(json.dumps(document_of(calibration, command="")))
        assert document["beyond_load"]["rate_per_s"] == load
        assert document["config"]["latency"]["fitted_range"]["rate_per_s"][1] == load
        assert document["rate_curve"]["fitted_to_per_s"] == load
        assert calibration.beyond is not None
        assert f"({number_format.plain(load)} requests/s, load6)" in calibration.beyond.text()
        assert fitted.lasting is not None
        trusted = fitted.lasting[1]
        assert f"up to {number_format.plain(trusted)}{number_format.SPACE}req/s" in verdict_text(
            calibration, has_warnings=False
        )


def test_nothing_is_said_beyond_a_load_that_the_twin_misses(found: Calibration) -> None:
    assert found.fit is not None
    ready = [fit_trace(observed(workload(60, rate=6, seed=6)), GUESS, name="a")]
    for below in (FittedRange(), FittedRange(rate_per_s=(2.0, 5.0))):
        missing = replace(found.fit, config=replace(found.fit.config, fitted=below))
        assert beyond_load(missing, ready, ranges=[AT_SIX], priors={}) is None
    met = replace(found.fit, config=replace(found.fit.config, fitted=AT_SIX))
    assert beyond_load(met, ready, ranges=[AT_SIX], priors={}) is not None


def test_a_held_out_trace_at_its_twin_s_capacity_is_told() -> None:
    swamped = source("swamped", observed(workload(200, rate=60, seed=3)))
    told = warnings_of(compare_with_twin([swamped], SERVER, Options()))
    assert any(line.startswith("swamped: overloaded") for line in told)


@given(
    centre=st.floats(-5, 5),
    width=st.floats(0.03, 10),
    high=st.sampled_from([1.0, math.inf]),
    shares=st.lists(st.floats(0.001, 0.999), min_size=1, max_size=5),
)
def test_a_truncated_normal_is_scipys(centre: float, width: float, high: float, shares: list[float]) -> None:
    ends = (-centre / width, (high - centre) / width)
    expected = truncnorm.ppf(shares, *ends, loc=centre, scale=width)
    drawn = _truncated(Prior(centre=centre, width=width, source=""), np.array(shares), low=0.0, high=high)
    assert drawn == pytest.approx(expected, abs=1e-9 * width)
