"""The gate's verdict: whether errors are within their limits, exceed them, or are inconclusive. No files, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass, field, replace

from calibrate.compare.metric_errors import MetricErrors
from calibrate.compare.rates import RATES, Rate
from calibrate.compare.strata import Stratum
from calibrate.gate.checks import Check, ErrorLimit, Outcome, check_metric, check_rate, check_strata, reach
from traces import ExitCode
from traces.statistics.bootstrap import Estimate

EXIT_CODES: Mapping[Outcome, int] = {
    "PASS": ExitCode.DONE,
    "FAIL": ExitCode.NEGATIVE,
    "INCONCLUSIVE": ExitCode.INCONCLUSIVE,
}
MIN_SAMPLES = 30
"""Requests below which a check is inconclusive, unless the gate's file says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The limits of a gate. ``coefficients``: limits on their changes since the baseline.

    ``strata``: limits on every kind of request, on MAPE and bias only.
    """

    limits: tuple[ErrorLimit, ...]
    coefficients: tuple[ErrorLimit, ...] = ()
    strata: tuple[ErrorLimit, ...] = ()
    min_samples: int = MIN_SAMPLES
    require_kv_capacity: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome; ``obstacles``: reasons why the two sides are not comparable, whatever the errors.

    ``unknown_flags``: flags of the server that are not known: the twin's are assumed. They do not change the outcome.
    """

    outcome: Outcome
    obstacles: tuple[str, ...]
    checks: tuple[Check, ...]
    unknown_flags: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The outcome with its qualifications: known failures, unknown flags."""
        known = sum(check.excused for check in self.checks)
        told = [f"{known} known failure{'' if known == 1 else 's'}"] if known else []
        if self.unknown_flags:
            told.append(f"flags unknown: {', '.join(self.unknown_flags)}")
        return f"{self.outcome} ({'; '.join(told)})" if told else self.outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """An older report's errors by (metric, statistic), and by kind of request, in the order of the report.

    ``fingerprints`` are those that its traces named. ``samples``: how many requests are behind an error, by the same
    keys. ``coefficients``: of its fit.
    """

    errors: Mapping[tuple[str, str], Estimate]
    strata: Mapping[tuple[str, str, str, str], Estimate]
    fingerprints: frozenset[str] = frozenset()
    samples: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    coefficients: Mapping[str, Estimate] = field(default_factory=dict)

    def clear_error(self, key: tuple[str, ...], *, least: int) -> Estimate | None:
        """Return the error on record; without its interval where the samples were fewer than ``least``."""
        found = self.errors.get(key) if len(key) == 2 else self.strata.get(key)  # type: ignore[arg-type]
        if found is None or self.samples.get(key, least) >= least:
            return found
        return Estimate(value=found.value)


SATURATED = "the observed run is saturated: its latencies only reflect run length"
CAPACITY = "capacity, of the saturated runs"
CAPACITY_RATES = ("request_throughput", "output_token_throughput")


def decide(
    gate: Gate,
    errors: Mapping[str, MetricErrors],
    *,
    rates: Mapping[str, Rate] | None = None,
    capacity: Mapping[str, Rate] | None = None,
    of_saturated: bool = False,
    strata: Sequence[Stratum] = (),
    obstacles: Sequence[str] = (),
    baseline: Baseline | None = None,
) -> Verdict:
    """Return the gate's verdict on errors by metric, over the run, and by kind of request.

    Limits on throughput are also checked for the saturated runs (``capacity``) alone; if all runs are saturated
    (``of_saturated``), these checks alone decide. With a baseline only errors within their limit there can fail.
    """
    least, checks = gate.min_samples, []
    for limit in gate.limits:
        if limit.metric in RATES:
            found = [check_rate(limit, (rates or {}).get(limit.metric), least=least)]
            if limit.metric in CAPACITY_RATES and capacity:
                found.append(check_rate(limit, capacity.get(limit.metric), least=least, stratum=CAPACITY))
        else:
            found = [check_metric(limit, errors.get(limit.metric), least=least)]
        if baseline is not None:
            before = baseline.clear_error((limit.metric, limit.statistic), least=least)
            found = [against(each, before) for each in found]
        checks += found
    for limit in gate.strata:
        kinds = check_strata(limit, strata, least=least)
        if baseline is not None:
            kinds = _kinds_against(kinds, strata, baseline=baseline, least=least)
        checks += kinds
    return verdict_of(_without_latencies(checks) if of_saturated else checks, obstacles)


def _without_latencies(checks: Sequence[Check]) -> list[Check]:
    """Return the checks with those on latencies inconclusive; set aside if capacity has a limit."""
    has_capacity = any(check.limit.metric in CAPACITY_RATES for check in checks)
    return [
        check
        if check.limit.metric in RATES
        else replace(check, outcome="INCONCLUSIVE", reason=SATURATED, is_set_aside=has_capacity)
        for check in checks
    ]


def against(check: Check, before: Estimate | None) -> Check:
    """Return a check with the baseline's error; only a FAIL can change.

    It is excused if all of the baseline's interval was beyond the limit: a failure there already. If the baseline has
    no such error, or was inconclusive itself, it is not known whether it got worse: inconclusive.
    """
    if before is not None and before.value is not None:
        check = replace(check, before=before)
    fail = check.limit.fail
    if check.outcome != "FAIL" or fail is None:
        return check
    if before is None or before.value is None:
        return replace(check, outcome="INCONCLUSIVE", reason=f"{check.reason}; not in the baseline")
    if abs(before.value) <= fail:
        return check
    sizes = reach(before)
    if sizes is None or sizes[0] <= fail:
        return replace(check, outcome="INCONCLUSIVE", reason=f"{check.reason}; inconclusive in the baseline")
    return replace(check, excused=True, reason=f"{check.reason}; beyond it in the baseline, too")


def _kinds_against(
    checks: list[Check], strata: Sequence[Stratum], *, baseline: Baseline, least: int
) -> list[Check]:
    """Return the checks of kinds of requests with the baseline's: the first third by length with the first."""
    found = []
    for each, kind in zip(checks, places_of(strata), strict=False):
        before = baseline.clear_error((*kind, each.limit.metric, each.limit.statistic), least=least)
        found.append(against(each, before))
    return found or checks


def places_of(strata: Sequence[Stratum]) -> list[tuple[str, str]]:
    """Return the key by which a kind of request is found in another report: its word, or its place among the thirds."""
    places: dict[str, int] = {}
    found = []
    for kind in strata:
        place = places[kind.by] = places.get(kind.by, -1) + 1
        found.append((kind.by, kind.value or str(place)))
    return found


def verdict_of(checks: Sequence[Check], obstacles: Sequence[str]) -> Verdict:
    """Return the worst outcome of the checks that count; inconclusive if the sides are not comparable."""
    counted = {check.outcome for check in checks if not (check.excused or check.is_set_aside)}
    outcome: Outcome = "FAIL" if "FAIL" in counted else "PASS"
    if obstacles or (outcome == "PASS" and "INCONCLUSIVE" in counted):
        outcome = "INCONCLUSIVE"
    return Verdict(outcome=outcome, obstacles=tuple(obstacles), checks=tuple(checks))
