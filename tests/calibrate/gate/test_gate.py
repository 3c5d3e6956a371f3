import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.ci.outputs import annotations_of, junit_of
from calibrate.compare.rates import Rate
from calibrate.compare.strata import Stratum
from calibrate.gate.checks import Check, ErrorLimit, check, reach
from calibrate.gate.drift import drift_checks, relative_drift
from calibrate.gate.gate_file import loose_limits, read_gate
from calibrate.gate.verdict import Baseline, Gate, against, decide, verdict_of
from tests.coverage_bounds import assert_covers
from traces.errors import ConfigError
from traces.statistics.bootstrap import Estimate

LIMIT = ErrorLimit(metric="e2e_us", statistic="bias", warn=0.05, fail=0.1)


def checked(low: float | None, value: float, high: float | None, *, n: int = 100) -> Check:
    return check(LIMIT, Estimate(value=value, low=low, high=high), n=n, least=30)


@pytest.mark.parametrize(
    ("low", "value", "high", "outcome"),
    [
        (-0.02, 0.01, 0.03, "PASS"),
        (-0.1, 0.0, 0.1, "PASS"),
        (0.101, 0.2, 0.3, "FAIL"),
        (-0.3, -0.2, -0.101, "FAIL"),
        (0.09, 0.12, 0.15, "INCONCLUSIVE"),
        (-0.15, -0.05, 0.02, "INCONCLUSIVE"),
        (-0.2, 0.0, 0.2, "INCONCLUSIVE"),
        (None, 0.0, None, "INCONCLUSIVE"),
    ],
)
def test_an_interval_fails_only_as_a_whole_and_passes_only_as_a_whole(
    low: float | None, value: float, high: float | None, outcome: str
) -> None:
    assert checked(low, value, high).outcome == outcome


@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(0, 1))
def test_reach_holds_the_size_of_every_error_in_the_interval(a: float, b: float, share: float) -> None:
    low, high = sorted((a, b))
    sizes = reach(Estimate(value=low, low=low, high=high))
    assert sizes is not None
    assert sizes[0] - 1e-12 <= abs(low + share * (high - low)) <= sizes[1] + 1e-12


def test_too_few_samples_say_nothing_however_large_the_error() -> None:
    assert checked(0.5, 0.6, 0.7, n=29).outcome == "INCONCLUSIVE"
    assert checked(0.5, 0.6, 0.7, n=30).outcome == "FAIL"


def test_a_warning_does_not_change_the_outcome() -> None:
    found = checked(0.04, 0.06, 0.08)
    assert (found.outcome, found.warned, found.word) == ("PASS", True, "WARN")
    assert not checked(0.01, 0.04, 0.08).warned


def test_the_worst_that_counts_is_the_verdict_and_nothing_counts_where_sides_are_not_comparable() -> None:
    passed, failed, unclear = checked(0, 0.01, 0.02), checked(0.2, 0.3, 0.4), checked(0, 0.1, 0.2)
    assert verdict_of([passed], ()).outcome == "PASS"
    assert verdict_of([passed, unclear], ()).outcome == "INCONCLUSIVE"
    assert verdict_of([passed, unclear, failed], ()).outcome == "FAIL"
    assert verdict_of([passed, failed], ["another server"]).outcome == "INCONCLUSIVE"


def test_a_metric_that_was_not_measured_and_kinds_that_are_missing_are_inconclusive() -> None:
    limit = ErrorLimit(metric="queue_us", statistic="p99", warn=None, fail=0.1)
    by_kind = ErrorLimit(metric="e2e_us", statistic="mape", warn=None, fail=0.1)
    verdict = decide(Gate(limits=(limit,), strata=(by_kind,)), {})
    assert [each.outcome for each in verdict.checks] == ["INCONCLUSIVE", "INCONCLUSIVE"]


def test_a_limit_on_kinds_is_held_against_each_kind() -> None:
    near, far = (Estimate(value=value, low=value - 0.01, high=value + 0.01) for value in (0.05, 0.5))
    strata = [
        Stratum(by="prompt_tokens", low=i, high=i + 1, n=50, mape={"e2e_us": each}, bias={"e2e_us": each})
        for i, each in enumerate((near, far))
    ]
    limit = ErrorLimit(metric="e2e_us", statistic="mape", warn=None, fail=0.1)
    verdict = decide(Gate(limits=(), strata=(limit,)), {}, strata=strata)
    assert [(each.name, each.outcome) for each in verdict.checks] == [
        ("E2E mape, prompt tokens 0 to 1", "PASS"),
        ("E2E mape, prompt tokens 1 to 2", "FAIL"),
    ]


def rate_of(error: float) -> Rate:
    estimate = Estimate(value=error, low=error - 0.01, high=error + 0.01)
    return Rate(n=100, observed=1.0, simulated=1.0 + error, error=estimate, rel_error=estimate)


THROUGHPUT = ErrorLimit(metric="request_throughput", statistic="rel_error", warn=None, fail=0.05)


def test_a_limit_on_throughput_is_held_against_the_run_and_the_capacity_of_what_was_saturated() -> None:
    verdict = decide(
        Gate(limits=(THROUGHPUT,)),
        {},
        rates={"request_throughput": rate_of(0.0)},
        capacity={"request_throughput": rate_of(0.2)},
    )
    assert [each.outcome for each in verdict.checks] == ["PASS", "FAIL"]
    assert "capacity" in verdict.checks[1].name


def test_latencies_of_a_saturated_run_decide_nothing_and_capacity_decides_in_their_stead() -> None:
    latency = ErrorLimit(metric="e2e_us", statistic="mape", warn=None, fail=0.1)
    rates = {"request_throughput": rate_of(0.0)}
    alone = decide(Gate(limits=(latency,)), {}, rates=rates, of_saturated=True)
    assert (alone.outcome, alone.checks[0].reason[:28]) == ("INCONCLUSIVE", "the observed run is saturate")
    both = decide(Gate(limits=(latency, THROUGHPUT)), {}, rates=rates, capacity=rates, of_saturated=True)
    assert both.outcome == "PASS"
    assert [each.word for each in both.checks] == ["not used", "PASS", "PASS"]
    assert ' skipped="1"' in junit_of(both)


def test_a_rate_that_one_side_does_not_know_is_inconclusive() -> None:
    hits = ErrorLimit(metric="prefix_hit_frac", statistic="error", warn=None, fail=0.02)
    assert decide(Gate(limits=(hits,)), {}).outcome == "INCONCLUSIVE"


def test_a_gate_is_read_as_written(tmp_path: Path) -> None:
    file = tmp_path / "gate.yaml"
    file.write_text(
        "min_samples: 50\nrequire_kv_capacity: false\n"
        "metrics:\n  ttft_us: {p99: {warn: 0.1, fail: 0.2}}\n  e2e_us: {mape: {fail: 0.1}}\n"
        "strata: {e2e_us: {bias: {warn: 0.3}}}\n"
        "rates: {goodput: {rel_error: {fail: 0.05}}}\nequivalence: {tpot_us: 0.04}\n"
    )
    assert read_gate(file) == Gate(
        limits=(
            ErrorLimit(metric="ttft_us", statistic="p99", warn=0.1, fail=0.2),
            ErrorLimit(metric="e2e_us", statistic="mape", warn=None, fail=0.1),
            ErrorLimit(metric="goodput", statistic="rel_error", warn=None, fail=0.05),
            ErrorLimit(metric="tpot_us", statistic="equivalence", warn=None, fail=0.04),
        ),
        strata=(ErrorLimit(metric="e2e_us", statistic="bias", warn=0.3, fail=None),),
        min_samples=50,
        require_kv_capacity=False,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("min_samples: 5", "metrics: got nothing, expected metrics with limits"),
        ("metric: {}", "metric: unknown key, did you mean metrics?"),
        ("metrics: {ttft: {mape: {fail: 1}}}", "metrics.ttft: unknown key, did you mean metrics.ttft_us?"),
        ("metrics: {ttft_us: {p98: {fail: 1}}}", "metrics.ttft_us.p98: unknown key"),
        ("metrics: {ttft_us: {mape: 0.1}}", "metrics.ttft_us.mape: got 0.1, expected {warn: FRACTION"),
        ("metrics: {ttft_us: {mape: {}}}", "metrics.ttft_us.mape: got nothing"),
        ("metrics: {ttft_us: {mape: {fail: -1}}}", "metrics.ttft_us.mape.fail: got -1, expected a fraction"),
        ("metrics: {ttft_us: {mape: {fail: .1, warn: .2}}}", "mape.warn: got 0.2, expected at most fail"),
        ("rates: {goodput: {p99: {fail: 1}}}", "rates.goodput.p99: unknown key"),
        ("equivalence: {e2e_us: 0}", "equivalence.e2e_us: got 0, expected a fraction > 0"),
        (
            "strata: {itl_us: {mape: {fail: 1}}}\nmetrics: {itl_us: {mape: {fail: 1}}}",
            "strata.itl_us: unknown",
        ),
    ],
)
def test_a_gate_that_cannot_be_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "gate.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_gate(file)
    assert message in str(refused.value)
    assert f"({file}:" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_junit_has_a_case_per_check_and_one_for_comparability() -> None:
    checks = [checked(0, 0.01, 0.02), checked(0.2, 0.3, 0.4), checked(0, 0.1, 0.2)]
    suite = ET.fromstring(junit_of(verdict_of(checks, ['a "quoted" <name>\x00'])))[0]  # noqa: S314 - our own
    assert [[child.tag for child in case] for case in suite] == [["error"], [], ["failure"], ["error"]]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "1", "2")
    assert suite[0][0].get("message") == 'a "quoted" <name>\ufffd'


def test_annotations_are_one_line_each_with_what_github_would_misread_escaped() -> None:
    lines = list(annotations_of(verdict_of([checked(0.2, 0.3, 0.4), checked(0, 0.06, 0.07)], ["a\nb"])))
    assert lines[0] == "::error title=vtwin%3A not comparable::a%0Ab"
    assert lines[1].startswith("::error title=vtwin%3A FAIL::E2E bias: 20.0\u00a0%25 to")
    assert lines[2].startswith("::warning title=vtwin%3A WARN::E2E bias")
    assert len(lines) == 3


def test_a_limit_that_is_not_used_is_a_notice_of_that_name() -> None:
    aside = replace(checked(0.2, 0.3, 0.4), outcome="INCONCLUSIVE", is_set_aside=True)
    (line,) = annotations_of(verdict_of([aside], []))
    assert line.startswith("::notice title=vtwin%3A limit not used::")


def test_only_what_was_within_its_limit_blocks() -> None:
    within, beyond = Estimate(value=0.08), Estimate(value=-0.2, low=-0.3, high=-0.15)
    failed, unclear, passed = checked(0.2, 0.3, 0.4), checked(0, 0.1, 0.2), checked(0, 0.01, 0.02)
    assert [against(each, within).excused for each in (failed, unclear, passed)] == [False] * 3
    assert [against(each, beyond).excused for each in (failed, unclear, passed)] == [True, False, False]
    assert against(failed, within).drift == pytest.approx(0.22)
    assert verdict_of([against(failed, within)], ()).outcome == "FAIL"
    assert verdict_of([against(failed, beyond), passed], ()).outcome == "PASS"


def test_an_inconclusive_check_stays_inconclusive_whatever_the_baseline() -> None:
    beyond = Estimate(value=-0.2, low=-0.3, high=-0.15)
    unclear, failed = checked(0, 0.1, 0.2), checked(0.2, 0.3, 0.4)
    assert verdict_of([against(unclear, beyond)], ()).outcome == "INCONCLUSIVE"
    for before in (Estimate(value=0.87), Estimate(value=0.87, low=0.01, high=1.5)):
        assert verdict_of([against(failed, before)], ()).outcome == "INCONCLUSIVE"


def test_a_baseline_of_too_few_samples_excuses_nothing() -> None:
    bad = Estimate(value=0.5, low=0.4, high=0.6)
    key = ("e2e_us", "bias")
    few, enough = (Baseline(errors={key: bad}, strata={}, samples={key: n}) for n in (29, 30))
    assert few.clear_error(key, least=30) == Estimate(value=0.5)
    assert enough.clear_error(key, least=30) == bad


def test_the_verdict_is_told_with_its_known_failures_and_unknown_flags() -> None:
    known = against(checked(0.2, 0.3, 0.4), Estimate(value=0.3, low=0.2, high=0.4))
    verdict = replace(verdict_of([known, known], ()), unknown_flags=("max_num_seqs",))
    assert verdict.line == "PASS (2 known failures; flags unknown: max_num_seqs)"


def test_what_is_beyond_its_limit_and_not_in_the_baseline_is_inconclusive() -> None:
    assert against(checked(0.2, 0.3, 0.4), None).outcome == "INCONCLUSIVE"
    assert against(checked(0, 0.01, 0.02), None).outcome == "PASS"


def test_too_few_samples_are_not_excused_by_a_bad_baseline() -> None:
    assert not against(checked(None, 0.3, None), Estimate(value=0.5)).excused
    assert not against(checked(0.2, 0.3, 0.4, n=29), Estimate(value=0.5, low=0.4, high=0.6)).excused


def test_kinds_of_requests_are_held_against_those_of_the_same_place() -> None:
    bad = Estimate(value=0.5, low=0.4, high=0.6)
    strata = [
        Stratum(by=by, low=0, high=i, n=50, mape={"e2e_us": bad}, bias={"e2e_us": bad})
        for by in ("prompt_tokens", "in_flight")
        for i in range(2)
    ]
    limit = ErrorLimit(metric="e2e_us", statistic="mape", warn=None, fail=0.1)
    before = {
        ("in_flight", "1", "e2e_us", "mape"): bad,
        ("prompt_tokens", "0", "e2e_us", "mape"): Estimate(value=0.0),
    }
    found = decide(
        Gate(limits=(), strata=(limit,)), {}, strata=strata, baseline=Baseline(errors={}, strata=before)
    )
    assert [each.word for each in found.checks] == ["FAIL", "INCONCLUSIVE", "INCONCLUSIVE", "known"]


# -- coefficients against last week's ---------------------------------------------------------------------------


def drifted(now: Estimate, then: Estimate | None, *, fail: float = 0.1) -> Check:
    limit = ErrorLimit(metric="beta0", statistic="drift", warn=None, fail=fail)
    baseline = None if then is None else {"beta0": then}
    return drift_checks([limit], {"beta0": now}, baseline, least=30)[0]


def test_a_coefficient_that_moved_beyond_its_limit_fails_only_as_far_as_both_intervals_say() -> None:
    then = Estimate(value=100.0, low=98.0, high=102.0)
    assert drifted(Estimate(value=101.0, low=99.0, high=103.0), then).outcome == "PASS"
    assert drifted(Estimate(value=130.0, low=127.0, high=133.0), then).outcome == "FAIL"
    assert drifted(Estimate(value=109.0, low=107.0, high=111.0), then).outcome == "INCONCLUSIVE"
    assert drifted(Estimate(value=130.0, low=80.0, high=200.0), then).outcome == "INCONCLUSIVE"
    assert drifted(Estimate(value=130.0, low=127.0, high=133.0), None).outcome == "INCONCLUSIVE"
    assert drifted(Estimate(value=101.0), then).reason == "no interval can be given"


def test_the_drifts_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Two lognormal estimates of coefficients whose ratio is 1.2, 90 % intervals of each."""
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(500):
        estimates = []
        for truth, sigma in ((100.0, 0.05), (120.0, 0.08)):
            value = truth * math.exp(rng.normal(0, sigma))
            reach = math.exp(1.645 * sigma)
            estimates.append(Estimate(value=value, low=value / reach, high=value * reach))
        found = relative_drift(estimates[1], estimates[0])
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.2 <= found.high
    assert_covers(held, 500)


def test_limits_above_100_percent_are_told(tmp_path: Path) -> None:
    file = tmp_path / "gate.yaml"
    file.write_text(
        "metrics: {ttft_us: {p99: {warn: 5}}, e2e_us: {mape: {fail: 10, warn: 0.1}, bias: {fail: 1}}}\n"
        "rates: {num_preemptions: {error: {fail: 20}}, good_frac: {error: {fail: 2}}}\n"
        "strata: {e2e_us: {mape: {fail: 1.5}}}\ncoefficients: {beta0: {fail: 0.1}, beta1: {fail: 15}}\n"
    )
    assert loose_limits(read_gate(file)) == (
        "limits above 100 %: ttft_us p99: 5 is 500 %, e2e_us mape: 10 is 1,000 %, good_frac error: 2 is 200 %, "
        "beta1 drift: 15 is 1,500 %, e2e_us mape: 1.5 is 150 %; 10 % is 0.1"
    )
    file.write_text("metrics: {e2e_us: {mape: {fail: 1}}}\n")
    assert loose_limits(read_gate(file)) is None


def test_a_gate_on_coefficients_is_read_strictly(tmp_path: Path) -> None:
    (tmp_path / "gate.yaml").write_text("coefficients: {beta0: {fail: 0.1}, floor: {warn: 0.05}}\n")
    limits = read_gate(tmp_path / "gate.yaml").coefficients
    assert [(each.metric, each.statistic, each.warn, each.fail) for each in limits] == [
        ("beta0", "drift", None, 0.1),
        ("floor", "drift", 0.05, None),
    ]
    (tmp_path / "gate.yaml").write_text("coefficients: {beta9: {fail: 0.1}}\n")
    with pytest.raises(ConfigError, match=r"coefficients.beta9: unknown key"):
        read_gate(tmp_path / "gate.yaml")
