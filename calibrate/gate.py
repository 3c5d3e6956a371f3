"""The gate's verdict: whether errors keep their limits, fail them, or cannot say. Pure: no files, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from calibrate import words
from calibrate.bootstrap import Estimate
from calibrate.errors import STATISTICS, MetricErrors
from calibrate.strata import Stratum

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]

EXIT_CODES: Mapping[Outcome, int] = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 5}
PER_REQUEST = ("mape", "bias")
LIMITED = (*PER_REQUEST, *STATISTICS)
"""What may have a limit: errors per request, and the relative error of each statistic."""
MIN_SAMPLES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How far a metric's statistic may be off, as a fraction, either way. At least one of the two is there."""

    metric: str
    statistic: str
    warn: float | None
    fail: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What must hold. ``strata``: limits on every kind of request, on MAPE and bias only."""

    limits: tuple[Limit, ...]
    strata: tuple[Limit, ...] = ()
    min_samples: int = MIN_SAMPLES
    require_kv_capacity: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One limit held against one error. ``stratum`` None: all requests. ``reason`` is empty on a plain PASS.

    ``before`` is the baseline's error; ``excused``: beyond its limit there already, so that it does not count.
    """

    limit: Limit
    stratum: str | None
    n: int
    estimate: Estimate | None
    outcome: Outcome
    reason: str = ""
    warned: bool = False
    before: Estimate | None = None
    excused: bool = False

    @property
    def name(self) -> str:
        """What is limited, in words."""
        what = f"{words.METRIC_NAMES[self.limit.metric]} {self.limit.statistic}"
        return what if self.stratum is None else f"{what}, {self.stratum}"

    @property
    def word(self) -> str:
        """The outcome, or what softens it."""
        return "known" if self.excused else "WARN" if self.warned and self.outcome == "PASS" else self.outcome

    @property
    def drift(self) -> float | None:
        """The error now minus the baseline's."""
        now = None if self.estimate is None else self.estimate.value
        then = None if self.before is None else self.before.value
        return None if now is None or then is None else now - then


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome; ``obstacles`` are what makes the two sides not comparable, whatever the errors."""

    outcome: Outcome
    obstacles: tuple[str, ...]
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """An older report's errors by (metric, statistic), and by kind of request, in the order of the report.

    ``fingerprints`` are those that its traces named.
    """

    errors: Mapping[tuple[str, str], Estimate]
    strata: Mapping[tuple[str, int, str, str], Estimate]
    fingerprints: frozenset[str] = frozenset()


def decide(
    gate: Gate,
    errors: Mapping[str, MetricErrors],
    *,
    strata: Sequence[Stratum] = (),
    obstacles: Sequence[str] = (),
    baseline: Baseline | None = None,
) -> Verdict:
    """Return the gate's verdict on errors by metric and by kind of request.

    With a baseline only what was within its limit there can block.
    """
    checks = []
    for limit in gate.limits:
        found = _check_metric(limit, errors.get(limit.metric), least=gate.min_samples)
        if baseline is not None:
            found = against(
                found, baseline.errors.get((limit.metric, limit.statistic)), least=gate.min_samples
            )
        checks.append(found)
    for limit in gate.strata:
        kinds = _check_strata(limit, strata, least=gate.min_samples)
        if baseline is not None:
            kinds = _kinds_against(kinds, strata, baseline=baseline, least=gate.min_samples)
        checks += kinds
    return verdict_of(checks, obstacles)


def against(check: Check, before: Estimate | None, *, least: int = MIN_SAMPLES) -> Check:
    """Return a check beside the baseline's error.

    Beyond the limit then and not within it now: excused, unless the samples are fewer than ``least``.
    Beyond it now and not on record then: inconclusive, as nobody knows whether it ever was within.
    """
    if before is None or before.value is None:
        if check.outcome != "FAIL":
            return check
        return replace(check, outcome="INCONCLUSIVE", reason=f"{check.reason}; not in the baseline")
    check = replace(check, before=before)
    fail = check.limit.fail
    has_said = check.n >= least and check.estimate is not None and reach(check.estimate) is not None
    if check.outcome == "PASS" or not has_said or fail is None or abs(before.value) <= fail:
        return check
    return replace(check, excused=True, reason=f"{check.reason}; beyond it in the baseline, too")


def _kinds_against(
    checks: list[Check], strata: Sequence[Stratum], *, baseline: Baseline, least: int
) -> list[Check]:
    """Return the checks of kinds of requests beside the baseline's: the first third by length with the first."""
    places: dict[str, int] = {}
    found = []
    for each, kind in zip(checks, strata, strict=False):
        place = places[kind.by] = places.get(kind.by, -1) + 1
        key = (kind.by, place, each.limit.metric, each.limit.statistic)
        found.append(against(each, baseline.strata.get(key), least=least))
    return found or checks


def verdict_of(checks: Sequence[Check], obstacles: Sequence[str]) -> Verdict:
    """Return the worst of what counts; where the sides are not comparable, nothing can be concluded."""
    counted = {check.outcome for check in checks if not check.excused}
    outcome: Outcome = "FAIL" if "FAIL" in counted else "PASS"
    if obstacles or (outcome == "PASS" and "INCONCLUSIVE" in counted):
        outcome = "INCONCLUSIVE"
    return Verdict(outcome=outcome, obstacles=tuple(obstacles), checks=tuple(checks))


def check(
    limit: Limit, estimate: Estimate | None, *, n: int, least: int, stratum: str | None = None
) -> Check:
    """Return one limit held against one error.

    FAIL only where the whole interval is beyond the limit, PASS only where it is within: at a level of 90 % that
    is the two one-sided test of equivalence at 5 % (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987).
    """
    outcome, reason = _outcome(limit, estimate, n=n, least=least)
    value = None if estimate is None else estimate.value
    warned = limit.warn is not None and value is not None and abs(value) > limit.warn
    if warned and not reason:
        reason = f"{words.percent(value)}, above the warning at {words.percent(limit.warn)}"
    return Check(
        limit=limit,
        stratum=stratum,
        n=n,
        estimate=estimate,
        outcome=outcome,
        reason=reason,
        warned=warned,
    )


def reach(estimate: Estimate) -> tuple[float, float] | None:
    """Return the least and greatest size of the error that its interval allows, None without an interval."""
    if estimate.low is None or estimate.high is None:
        return None
    sizes = sorted((abs(estimate.low), abs(estimate.high)))
    return (0.0 if estimate.low <= 0 <= estimate.high else sizes[0]), sizes[1]


def _outcome(limit: Limit, estimate: Estimate | None, *, n: int, least: int) -> tuple[Outcome, str]:
    if estimate is None:
        return "INCONCLUSIVE", "not measured on both sides"
    if n < least:
        return "INCONCLUSIVE", f"{n:,} samples, expected at least {least:,}"
    sizes = reach(estimate)
    if sizes is None:
        return "INCONCLUSIVE", "no interval can be given"
    if limit.fail is None or sizes[1] <= limit.fail:
        return "PASS", ""
    between = f"{words.percent(sizes[0])} to {words.percent(sizes[1])}"
    if sizes[0] > limit.fail:
        return "FAIL", f"{between}, all of it beyond {words.percent(limit.fail)}"
    return "INCONCLUSIVE", f"{between}, on both sides of {words.percent(limit.fail)}"


def _check_metric(limit: Limit, found: MetricErrors | None, *, least: int) -> Check:
    if found is None:
        return check(limit, None, n=0, least=least)
    per_request = {"mape": found.mape, "bias": found.bias}
    estimate = per_request.get(limit.statistic) or found.rel_error[limit.statistic]
    return check(limit, estimate, n=found.n, least=least)


def _check_strata(limit: Limit, strata: Sequence[Stratum], *, least: int) -> list[Check]:
    if not strata:
        return [check(limit, None, n=0, least=least, stratum="by kind of request")]
    return [
        check(
            limit,
            (each.mape if limit.statistic == "mape" else each.bias).get(limit.metric),
            n=each.n,
            least=least,
            stratum=stratum_name(each.by, each.low, high=each.high),
        )
        for each in strata
    ]


def stratum_name(by: str, low: float, *, high: float) -> str:
    """Return a kind of request in words."""
    return f"{words.STRATUM_NAMES[by]} {low:,.0f} to {high:,.0f}"


def check_table(checks: Sequence[Check]) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows that tell of the checks; the baseline's columns only where there is one."""
    compared = any(each.before is not None for each in checks)
    head = ["limit on", "n", "error", "interval", "warn", "fail"]
    head += [*(["baseline", "drift"] if compared else []), "outcome", "why"]
    return head, [_row(each, compared=compared) for each in checks]


def _row(check: Check, *, compared: bool) -> list[str]:
    signed = check.limit.statistic != "mape"
    error = check.estimate or Estimate(value=None)
    cells = [
        check.name,
        f"{check.n:,}",
        words.percent(error.value, signed=signed),
        words.percent_interval(error, signed=signed),
        words.percent(check.limit.warn),
        words.percent(check.limit.fail),
    ]
    if compared:
        before = None if check.before is None else check.before.value
        cells += [words.percent(before, signed=signed), words.percent(check.drift, signed=True)]
    return [*cells, check.word, check.reason]
