"""Whether a twin is equivalent to its server within a margin: two one-sided tests on the ratio of the means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from lazy_dataclasses import dataclass

from calibrate.compare.metric_errors import MetricErrors

LEVEL = 0.05
"""The probability of calling means equivalent that differ by the margin: the usual 5 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """The test of one metric. ``margin``: the ratio may lie between 1/(1 + margin) and 1 + margin.

    ``ratio``: simulated mean over observed mean. ``p_value``: of the weaker of both tests; ``equivalent`` when it is at
    most 5 %, None where there is no ratio or no replicate to test it by.
    """

    margin: float
    ratio: float | None
    p_value: float | None
    equivalent: bool | None


def equivalence(found: MetricErrors, margin: float) -> Equivalence:
    """Return the test of a metric's means (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987), on the log ratio.

    The log ratio is taken as normal with the spread that its bootstrap replicates have.
    """
    error, sd = found.rel_error["mean"].value, found.log_ratio_sd
    ratio = None if error is None else 1 + error
    if ratio is None or ratio <= 0 or sd is None:
        return Equivalence(margin=margin, ratio=ratio, p_value=None, equivalent=None)
    room = math.log1p(margin) - abs(math.log(ratio))
    p_value = _upper_tail(room / sd) if sd > 0 else float(room < 0)
    return Equivalence(margin=margin, ratio=ratio, p_value=p_value, equivalent=p_value <= LEVEL)


def equivalences(errors: Mapping[str, MetricErrors], margins: Mapping[str, float]) -> dict[str, Equivalence]:
    """Return the test of every metric that has a margin; ``""`` among the margins is that of all others."""
    wanted = {name: margins.get(name, margins.get("")) for name in errors}
    return {name: equivalence(errors[name], margin) for name, margin in wanted.items() if margin is not None}


def _upper_tail(z: float) -> float:
    """Return the chance that a standard normal number exceeds ``z``."""
    return 0.5 * math.erfc(z / math.sqrt(2))
