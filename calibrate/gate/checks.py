"""One limit compared with one error: within, beyond, or inconclusive. Pure: no files, no clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import Literal

from calibrate import number_format
from calibrate.compare.metric_errors import STATISTICS, MetricErrors
from calibrate.compare.rates import Rate
from calibrate.compare.strata import Stratum
from traces.statistics.bootstrap import Estimate

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]

PER_REQUEST = ("mape", "bias")
EQUIVALENCE = "equivalence"
DRIFT = "drift"
"""How far a coefficient is from the baseline's."""
LIMITED = (*PER_REQUEST, *STATISTICS, "ks")
"""Errors of a latency that may have a limit: per request, relative for each statistic, and a distance."""
RATE_LIMITED = ("error", "rel_error")
"""Errors of a rate that may have a limit: simulated minus observed, and that as a fraction of the observed."""
UNSIGNED = ("mape", "ks")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLimit:
    """How far a metric's statistic may be off, as a fraction, either way. At least one of the two is given."""

    metric: str
    statistic: str
    warn: float | None
    fail: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One limit compared with one error. ``stratum`` None: all requests. ``reason`` is empty on a plain PASS.

    ``before`` is the baseline's error; ``excused``: beyond its limit there already, so that it does not count.
    ``is_set_aside``: it does not count, and other checks decide instead.
    """

    limit: ErrorLimit
    stratum: str | None
    n: int
    estimate: Estimate | None
    outcome: Outcome
    reason: str = ""
    warned: bool = False
    before: Estimate | None = None
    excused: bool = False
    is_set_aside: bool = False

    @property
    def name(self) -> str:
        """What is limited, as text."""
        if self.limit.statistic == DRIFT:
            return f"{self.limit.metric} drift"
        what = f"{number_format.NAMES[self.limit.metric]} {number_format.statistic(self.limit.statistic)}"
        return what if self.stratum is None else f"{what}, {self.stratum}"

    @property
    def word(self) -> str:
        """The outcome, or the word for an excused or set-aside one."""
        if self.is_set_aside:
            return "not used"
        return "known" if self.excused else "WARN" if self.warned and self.outcome == "PASS" else self.outcome

    @property
    def drift(self) -> float | None:
        """The error now minus the baseline's."""
        now = None if self.estimate is None else self.estimate.value
        then = None if self.before is None else self.before.value
        return None if now is None or then is None else now - then


def check(
    limit: ErrorLimit, estimate: Estimate | None, *, n: int, least: int, stratum: str | None = None
) -> Check:
    """Return one limit compared with one error.

    FAIL only where all of the interval is beyond the limit, PASS only where it is within: at a level of 90 % that
    is the two one-sided test of equivalence at 5 % (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987).
    """
    outcome, reason = _outcome(limit, estimate, n=n, least=least)
    value = None if estimate is None else estimate.value
    warned = limit.warn is not None and value is not None and abs(value) > limit.warn
    if warned and not reason:
        reason = f"{number_format.percent(value)}, above the warning at {number_format.percent(limit.warn)}"
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


def _outcome(limit: ErrorLimit, estimate: Estimate | None, *, n: int, least: int) -> tuple[Outcome, str]:
    if estimate is None:
        return "INCONCLUSIVE", "not measured on both sides"
    if n < least:
        return "INCONCLUSIVE", f"{n:,} samples, expected at least {least:,}"
    sizes = reach(estimate)
    if sizes is None:
        return "INCONCLUSIVE", "no interval can be given"
    if limit.fail is None or sizes[1] <= limit.fail:
        return "PASS", ""
    between = f"{number_format.percent(sizes[0])} to {number_format.percent(sizes[1])}"
    if sizes[0] > limit.fail:
        return "FAIL", f"{between}, all of it beyond {number_format.percent(limit.fail)}"
    return "INCONCLUSIVE", f"{between}, on both sides of {number_format.percent(limit.fail)}"


def check_metric(limit: ErrorLimit, found: MetricErrors | None, *, least: int) -> Check:
    """Return a limit on a latency compared with its errors; None: it was not measured on both sides."""
    if found is None:
        return check(limit, None, n=0, least=least)
    named = {"mape": found.mape, "bias": found.bias, "ks": found.ks}
    if limit.statistic == EQUIVALENCE:
        estimate = ratio_distance(found.rel_error["mean"])
    else:
        estimate = named.get(limit.statistic) or found.rel_error[limit.statistic]
    return check(limit, estimate, n=found.n, least=least)


def ratio_distance(rel_error: Estimate) -> Estimate:
    """Return a ratio's distance from 1, symmetric in both directions: 1.25 and 0.8 are +25 % and -25 %.

    So that one margin bounds both, as the test of equivalence has it.
    """

    def distance(error: float | None) -> float | None:
        if error is None or error >= 0:
            return error
        return -(1 / (1 + error) - 1) if error > -1 else -math.inf

    return Estimate(
        value=distance(rel_error.value), low=distance(rel_error.low), high=distance(rel_error.high)
    )


def check_rate(limit: ErrorLimit, found: Rate | None, *, least: int, stratum: str | None = None) -> Check:
    """Return a limit on a rate compared with its error; None: it was not measured on both sides."""
    if found is None:
        return check(limit, None, n=0, least=least, stratum=stratum)
    estimate = found.error if limit.statistic == "error" else found.rel_error
    return check(limit, estimate, n=found.n, least=least, stratum=stratum)


def check_strata(limit: ErrorLimit, strata: Sequence[Stratum], *, least: int) -> list[Check]:
    """Return a limit compared with the errors of every kind of request."""
    if not strata:
        return [check(limit, None, n=0, least=least, stratum="by kind of request")]
    return [
        check(
            limit,
            (each.mape if limit.statistic == "mape" else each.bias).get(limit.metric),
            n=each.n,
            least=least,
            stratum=stratum_name(each),
        )
        for each in strata
    ]


def stratum_name(stratum: Stratum) -> str:
    """Return a kind of request as text."""
    return f"{number_format.STRATUM_NAMES[stratum.by]} {stratum.label}"


def check_table(checks: Sequence[Check]) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the rows of the checks; the baseline's columns only if there is one."""
    compared = any(each.before is not None for each in checks)
    head = ["limit on", "n", "error", "interval", "warn", "fail"]
    head += [*(["baseline", "drift"] if compared else []), "outcome", "why"]
    return head, [_row(each, compared=compared) for each in checks]


def _row(check: Check, *, compared: bool) -> list[str]:
    signed = check.limit.statistic not in UNSIGNED
    error = check.estimate or Estimate(value=None)
    cells = [
        check.name,
        f"{check.n:,}",
        number_format.percent(error.value, signed=signed),
        number_format.percent_interval(error, signed=signed),
        number_format.percent(check.limit.warn),
        number_format.percent(check.limit.fail),
    ]
    if compared:
        before = None if check.before is None else check.before.value
        cells += [
            number_format.percent(before, signed=signed),
            number_format.percent(check.drift, signed=True),
        ]
    return [*cells, check.word, check.reason]
