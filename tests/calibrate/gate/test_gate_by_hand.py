"""The gate's arithmetic at its ends: how far a ratio is from 1, what an interval allows, when there is a warning."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from calibrate.compare.rates import Rate
from calibrate.compare.strata import Stratum
from calibrate.gate.checks import (
    Check,
    ErrorLimit,
    check,
    check_metric,
    check_rate,
    check_table,
    ratio_distance,
    reach,
)
from calibrate.gate.drift import relative_drift
from calibrate.gate.gate_file import loose_limits, read_gate
from calibrate.gate.verdict import Baseline, Gate, Verdict, against, decide, places_of, verdict_of
from traces.errors import ConfigError
from traces.statistics.bootstrap import Estimate


@pytest.mark.parametrize(
    ("error", "distance"),
    [
        (None, None),
        (0.0, 0.0),
        (0.25, 0.25),
        (-0.2, -0.25),
        (-0.5, -1.0),
        (-1.0, -math.inf),
        (-1.5, -math.inf),
    ],
)
def test_a_fifth_less_is_as_far_as_a_quarter_more(error: float | None, distance: float | None) -> None:
    found = ratio_distance(Estimate(value=error, low=error, high=error))
    for each in (found.value, found.low, found.high):
        assert each == (None if distance is None else pytest.approx(distance))


@pytest.mark.parametrize(
    ("low", "high", "sizes"),
    [
        (-0.3, 0.1, (0.0, 0.3)),
        (-0.3, 0.0, (0.0, 0.3)),
        (0.0, 0.2, (0.0, 0.2)),
        (0.1, 0.2, (0.1, 0.2)),
        (-0.3, -0.1, (0.1, 0.3)),
        (None, 0.1, None),
        (0.1, None, None),
    ],
)
def test_the_sizes_of_an_error_that_an_interval_allows(
    low: float | None, high: float | None, sizes: tuple[float, float] | None
) -> None:
    assert reach(Estimate(value=0.0, low=low, high=high)) == sizes


@pytest.mark.parametrize(
    ("value", "is_warned"), [(0.1, False), (-0.1, False), (0.1001, True), (-0.1001, True), (None, False)]
)
def test_a_warning_is_for_what_is_beyond_it(value: float | None, is_warned: bool) -> None:
    limit = ErrorLimit(metric="ttft_us", statistic="p50", warn=0.1, fail=0.5)
    estimate = Estimate(value=value, low=value, high=value)
    found = check(limit, estimate, n=100, least=30)
    assert ("above the warning at 10" in found.reason) is is_warned


FAIL = ErrorLimit(metric="ttft_us", statistic="p50", warn=0.125, fail=0.25)
RATE = ErrorLimit(metric="request_throughput", statistic="error", warn=None, fail=0.25)


def between(low: float | None, high: float | None, *, value: float = 0.25) -> Estimate:
    return Estimate(value=value, low=low, high=high)


def checked(low: float | None, high: float | None, *, value: float = 0.25, limit: ErrorLimit = FAIL) -> Check:
    return check(limit, between(low, high, value=value), n=30, least=30)


@pytest.mark.parametrize(
    ("low", "high", "outcome", "reason"),
    [
        (-0.25, 0.25, "PASS", ""),
        (0.25, 0.5, "INCONCLUSIVE", "25.0\xa0% to 50.0\xa0%, on both sides of 25.0\xa0%"),
        (0.26, 0.5, "FAIL", "26.0\xa0% to 50.0\xa0%, all of it beyond 25.0\xa0%"),
        (None, 0.5, "INCONCLUSIVE", "no interval can be given"),
    ],
)
def test_an_interval_that_ends_at_the_limit_is_within_it_and_one_that_begins_there_is_not_beyond(
    low: float | None, high: float, outcome: str, reason: str
) -> None:
    found = check(replace(FAIL, warn=None), between(low, high), n=30, least=30)
    assert (found.outcome, found.reason, found.warned) == (outcome, reason, False)


def test_without_a_limit_to_fail_by_everything_that_was_measured_passes() -> None:
    warned = checked(0.1, 9.0, limit=replace(FAIL, fail=None))
    assert (warned.outcome, warned.word) == ("PASS", "WARN")
    assert warned.reason == "25.0\xa0%, above the warning at 12.5\xa0%"
    few = check(FAIL, between(0.1, 9.0), n=1029, least=1030)
    assert (few.outcome, few.reason) == ("INCONCLUSIVE", "1,029 samples, expected at least 1,030")
    none = check(FAIL, None, n=30, least=30)
    assert (none.outcome, none.reason, none.drift) == ("INCONCLUSIVE", "not measured on both sides", None)


def test_a_rates_error_and_its_relative_error_have_limits_of_their_own() -> None:
    rate = Rate(n=30, observed=2.0, simulated=3.0, error=between(0.3, 0.4), rel_error=between(0.1, 0.2))
    assert check_rate(RATE, rate, least=30).outcome == "FAIL"
    assert check_rate(replace(RATE, statistic="rel_error"), rate, least=30).outcome == "PASS"
    assert check_rate(RATE, None, least=0).reason == "not measured on both sides"


def test_the_table_has_the_baselines_columns_where_a_check_has_one() -> None:
    plain = Check(limit=FAIL, stratum=None, n=1200, estimate=between(0.125, 0.375), outcome="PASS")
    missing = Check(
        limit=replace(FAIL, statistic="mape", warn=None),
        stratum="short",
        n=7,
        estimate=None,
        outcome="INCONCLUSIVE",
        reason="why",
    )
    head = ["limit on", "n", "error", "interval", "warn", "fail"]
    row = ["TTFT p50", "1,200", "+25.0\xa0%", "+12.5 … +37.5\xa0%", "12.5\xa0%", "25.0\xa0%"]
    other = ["TTFT mape, short", "7", "–", "–", "–", "25.0\xa0%"]  # noqa: RUF001 - the dash of what is missing
    rest, end = ["PASS", ""], ["INCONCLUSIVE", "why"]
    assert check_table([plain, missing]) == ([*head, "outcome", "why"], [[*row, *rest], [*other, *end]])
    compared = replace(plain, before=Estimate(value=0.125))
    assert check_table([compared, missing]) == (
        [*head, "baseline", "drift", "outcome", "why"],
        [
            [*row, "+12.5\xa0%", "+12.5\xa0%", *rest],
            [*other, "–", "–", *end],  # noqa: RUF001 - as above
        ],
    )
    unsigned = replace(compared, limit=replace(FAIL, statistic="ks"))
    assert check_table([unsigned])[1][0][2:4] == ["25.0\xa0%", "12.5 … 37.5\xa0%"]
    assert check_table([unsigned])[1][0][6:8] == ["12.5\xa0%", "+12.5\xa0%"]
    drift = replace(compared, limit=ErrorLimit(metric="beta0", statistic="drift", warn=None, fail=0.25))
    assert drift.name == "beta0 drift"


BEYOND = checked(0.3, 0.4, value=0.35)


@pytest.mark.parametrize(
    ("before", "outcome", "is_excused", "more"),
    [
        (None, "INCONCLUSIVE", False, "; not in the baseline"),
        (Estimate(value=None, low=0.3, high=0.4), "INCONCLUSIVE", False, "; not in the baseline"),
        (Estimate(value=0.25, low=0.3, high=0.4), "FAIL", False, ""),
        (Estimate(value=-0.25, low=0.3, high=0.4), "FAIL", False, ""),
        (Estimate(value=0.26), "INCONCLUSIVE", False, "; inconclusive in the baseline"),
        (Estimate(value=0.26, low=0.25, high=0.3), "INCONCLUSIVE", False, "; inconclusive in the baseline"),
        (Estimate(value=-0.3, low=-0.4, high=-0.26), "FAIL", True, "; beyond it in the baseline, too"),
    ],
)
def test_a_failure_counts_only_where_the_baseline_was_within_its_limit(
    before: Estimate | None, outcome: str, is_excused: bool, more: str
) -> None:
    found = against(BEYOND, before)
    assert (found.outcome, found.excused) == (outcome, is_excused)
    assert found.reason == BEYOND.reason + more
    is_known = before is not None and before.value is not None
    assert found.before == (before if is_known else None)
    passed = against(checked(0.0, 0.1), before)
    assert (passed.outcome, passed.reason, passed.before) == (
        "PASS",
        checked(0.0, 0.1).reason,
        before if is_known else None,
    )


def test_an_error_on_record_of_too_few_samples_has_no_interval() -> None:
    known = between(0.1, 0.2)
    baseline = Baseline(
        errors={("ttft_us", "p50"): known, ("e2e_us", "p50"): known},
        strata={("cached", "hit", "ttft_us", "bias"): known},
        samples={("ttft_us", "p50"): 29, ("cached", "hit", "ttft_us", "bias"): 30},
    )
    for key, found in (
        (("ttft_us", "p50"), Estimate(value=0.25)),
        (("e2e_us", "p50"), known),  # from a report that did not say
        (("cached", "hit", "ttft_us", "bias"), known),
        (("queue_us", "p50"), None),
        (("cached", "miss", "ttft_us", "bias"), None),
    ):
        assert baseline.clear_error(key, least=30) == found


def kind(by: str, value: str | None, error: Estimate) -> Stratum:
    return Stratum(by=by, n=40, mape={}, bias={"ttft_us": error}, value=value)


def test_kinds_are_found_by_their_word_or_their_place() -> None:
    """The first third by length with the first, whatever its bounds are."""
    kinds = [kind(by, value, BEYOND.estimate or Estimate(value=None)) for by, value in BY]
    assert places_of(kinds) == [
        ("prompt_tokens", "0"),
        ("prompt_tokens", "1"),
        ("cached", "hit"),
        ("output_tokens", "0"),
        ("prompt_tokens", "2"),
    ]
    limit = replace(FAIL, statistic="bias")
    baseline = Baseline(
        errors={},
        strata={
            ("prompt_tokens", "1", "ttft_us", "bias"): Estimate(value=0.3, low=0.28, high=0.4),
            ("cached", "hit", "ttft_us", "bias"): Estimate(value=0.1, low=0.0, high=0.2),
        },
    )
    found = decide(Gate(limits=(), strata=(limit,)), {}, strata=kinds, baseline=baseline)
    assert [(each.outcome, each.excused) for each in found.checks] == [
        ("INCONCLUSIVE", False),
        ("FAIL", True),
        ("FAIL", False),
        ("INCONCLUSIVE", False),
        ("INCONCLUSIVE", False),
    ]
    assert found.line == "FAIL (1 known failure)"
    nothing = decide(Gate(limits=(), strata=(limit,)), {}, baseline=baseline)
    assert [each.reason for each in nothing.checks] == ["not measured on both sides"]


BY = [
    ("prompt_tokens", None),
    ("prompt_tokens", None),
    ("cached", "hit"),
    ("output_tokens", None),
    ("prompt_tokens", None),
]


def test_saturated_runs_are_judged_by_their_throughput_alone() -> None:
    good = Rate(n=40, observed=2.0, simulated=2.0, error=between(0.0, 0.1), rel_error=between(0.0, 0.1))
    bad = replace(good, error=between(0.3, 0.4))
    share = ErrorLimit(metric="good_frac", statistic="error", warn=None, fail=0.25)
    gate = Gate(limits=(FAIL, RATE, share))
    rates = {"request_throughput": good, "good_frac": good}
    found = decide(gate, {}, rates=rates, capacity={"request_throughput": good}, of_saturated=True)
    assert [each.word for each in found.checks] == ["not used", "PASS", "PASS", "PASS"]
    assert (found.checks[2].stratum, found.checks[3].stratum) == ("capacity, of the saturated runs", None)
    assert found.outcome == "PASS"
    failed = decide(gate, {}, rates=rates, capacity={"request_throughput": bad}, of_saturated=True)
    assert [each.outcome for each in failed.checks] == ["INCONCLUSIVE", "PASS", "FAIL", "PASS"]
    assert failed.outcome == "FAIL"
    alone = decide(Gate(limits=(FAIL, share)), {}, rates=rates, of_saturated=True)
    assert [each.word for each in alone.checks] == ["INCONCLUSIVE", "PASS"]
    assert alone.checks[0].reason == "the observed run is saturated: its latencies only reflect run length"
    assert alone.outcome == "INCONCLUSIVE"


def test_the_line_tells_what_is_known_and_what_is_not() -> None:
    passed, excused = checked(0.0, 0.1), replace(BEYOND, excused=True)
    assert verdict_of([passed], ()).line == "PASS"
    assert verdict_of([excused, passed], ()).line == "PASS (1 known failure)"
    two = replace(verdict_of([excused, excused], ()), unknown_flags=("a", "b"))
    assert two.line == "PASS (2 known failures; flags unknown: a, b)"
    assert (
        Verdict(outcome="FAIL", obstacles=(), checks=(), unknown_flags=("a",)).line
        == "FAIL (flags unknown: a)"
    )
    aside = replace(checked(None, None), is_set_aside=True)
    assert verdict_of([aside], ()).outcome == "PASS"
    assert verdict_of([BEYOND, checked(None, None)], ()).outcome == "FAIL"
    assert verdict_of([BEYOND], ["another model"]).outcome == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("now", "then", "drift"),
    [
        ((3.0, None, None), (2.0, 1.0, 4.0), (0.5, None, None)),
        ((3.0, 1.0, 9.0), (2.0, 0.0, 4.0), (0.5, None, None)),
        ((3.0, 1.0, None), (2.0, 1.0, 4.0), (0.5, None, None)),
        ((0.5, 0.25, 1.0), (0.25, 0.25, 0.25), (1.0, 0.0, 3.0)),
        # half widths of 4 and 3 quarters of ln 2, together 5 quarters
        ((2.0, 1.0, 4.0), (2.0, 1.0, 2.0**1.5), (0.0, 2.0**-1.25 - 1, 2.0**1.25 - 1)),
    ],
)
def test_a_coefficients_drift_by_hand(
    now: tuple[float | None, ...], then: tuple[float | None, ...], drift: tuple[float | None, ...]
) -> None:
    found = relative_drift(*(Estimate(value=each[0], low=each[1], high=each[2]) for each in (now, then)))
    assert found is not None
    for seen, expected in zip((found.value, found.low, found.high), drift, strict=True):
        assert seen == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(("now", "then"), [(None, 1.0), (1.0, None), (0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_what_was_or_is_nothing_has_no_drift(now: float | None, then: float | None) -> None:
    assert relative_drift(Estimate(value=now), Estimate(value=then)) is None


def gate_of(text: str, folder: Path) -> Gate:
    (folder / "gate.yaml").write_text(text)
    return read_gate(folder / "gate.yaml")


def test_limits_that_look_like_percent_are_told_and_those_in_a_rates_own_unit_are_not(tmp_path: Path) -> None:
    gate = gate_of(
        "metrics: {e2e_us: {mape: {fail: 10}, p50: {warn: 1.0}, p99: {warn: 1.5}, bias: {warn: 2, fail: 3}}}\n"
        "rates: {num_preemptions: {error: {fail: 7}}, good_frac: {error: {fail: 8}, rel_error: {fail: 1.0}}}\n"
        "coefficients: {beta0: {fail: 4}}\n"
        "strata: {e2e_us: {mape: {warn: 5}}}\n",
        tmp_path,
    )
    assert loose_limits(gate) == (
        "limits above 100 %: e2e_us mape: 10 is 1,000 %, e2e_us p99: 1.5 is 150 %, e2e_us bias: 3 is 300 %, "
        "good_frac error: 8 is 800 %, beta0 drift: 4 is 400 %, e2e_us mape: 5 is 500 %; 10 % is 0.1"
    )
    assert loose_limits(Gate(limits=(FAIL,))) is None


def test_what_a_gate_says_nothing_of_is_as_it_is_everywhere(tmp_path: Path) -> None:
    coefficients = gate_of("coefficients: {beta0: {fail: 0.1}}\n", tmp_path)
    assert (coefficients.min_samples, coefficients.require_kv_capacity) == (30, True)
    assert coefficients.coefficients == (ErrorLimit(metric="beta0", statistic="drift", warn=None, fail=0.1),)
    one = gate_of("min_samples: 1\nrequire_kv_capacity: false\nequivalence: {e2e_us: 0.5}\n", tmp_path)
    assert (one.min_samples, one.require_kv_capacity) == (1, False)
    assert one.limits == (ErrorLimit(metric="e2e_us", statistic="equivalence", warn=None, fail=0.5),)
    same = gate_of("metrics: {e2e_us: {mape: {warn: 0.1, fail: 0.1}}}\n", tmp_path)
    assert same.limits == (ErrorLimit(metric="e2e_us", statistic="mape", warn=0.1, fail=0.1),)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("min_samples: 10\n", "metrics: got nothing"),
        ("min_samples: 0\nequivalence: {e2e_us: 0.5}\n", "min_samples: got 0"),
        ("equivalence: {e2e_us: 0}\n", "e2e_us: got 0, expected a fraction > 0"),
        ("equivalence: {e2e_us: -0.1}\n", "e2e_us: got -0.1, expected a fraction > 0"),
        ("metrics: {e2e_us: {mape: {}}}\n", "mape: got "),
        (
            "metrics: {e2e_us: {mape: {warn: 0.2, fail: 0.1}}}\n",
            "warn: got 0.2, expected at most fail, which is 0.1",
        ),
    ],
)
def test_what_is_no_gate_is_told(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=complaint):
        gate_of(text, tmp_path)


def test_a_metric_that_was_not_measured_on_both_sides_has_no_requests() -> None:
    found = check_metric(FAIL, None, least=8)
    assert (found.n, found.estimate, found.outcome) == (0, None, "INCONCLUSIVE")
