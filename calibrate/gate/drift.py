"""Coefficients of a fit against last week's: how far each has moved, with an interval from both. Pure: no files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from calibrate.gate.checks import DRIFT, Check, ErrorLimit, check
from traces.statistics.bootstrap import Estimate

COEFFICIENTS = tuple(
    f"{kind}{number}" for kind, most in (("alpha", 3), ("beta", 5)) for number in range(most + 1)
)
NAMES = (*COEFFICIENTS, "floor", "kappa", "u0", "tau_s", "concavity")
"""Coefficients that may have a limit: those of blackbox and extended."""


def drift_checks(
    limits: Sequence[ErrorLimit],
    now: Mapping[str, Estimate],
    then: Mapping[str, Estimate] | None,
    *,
    least: int,
) -> list[Check]:
    """Return each limit compared with a coefficient's change; ``then`` None: there is no baseline."""
    found = []
    for limit in limits:
        if limit.statistic != DRIFT:
            continue
        before = None if then is None else then.get(limit.metric)
        after = now.get(limit.metric)
        moved = None if before is None or after is None else relative_drift(after, before)
        found.append(check(limit, moved, n=least, least=least))
    return found


def relative_drift(now: Estimate, then: Estimate) -> Estimate | None:
    """Return now / then - 1; None where one is unknown or zero.

    The interval takes both to be lognormal and independent: half their widths in logarithms, added as squares. A
    coefficient whose interval reaches zero has none.
    """
    if now.value is None or then.value is None or then.value <= 0 or now.value <= 0:
        return None
    ratio = now.value / then.value
    widths = [_half_width(each) for each in (now, then)]
    if None in widths:
        return Estimate(value=ratio - 1)
    reach = math.hypot(*(width for width in widths if width is not None))
    return Estimate(value=ratio - 1, low=ratio * math.exp(-reach) - 1, high=ratio * math.exp(reach) - 1)


def _half_width(estimate: Estimate) -> float | None:
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return None
    return math.log(estimate.high / estimate.low) / 2
