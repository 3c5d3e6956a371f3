"""Today's pace of a server whose twin was good: the one factor on all steps that explains today's errors, if any.

A server that has become slower or faster as a whole, and a bad twin, both give large errors. The twin is run with all
its steps longer or shorter: where one factor brings every latency as close as the fit once was, it is the pace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from calibrate.compare.metric_errors import MetricErrors
    from calibrate.compare.pair import Pairs
    from replay import TwinConfig
    from replay.twin.fitted import HeldOut

LEAST = 0.03
"""A smaller change of pace is not told: servers differ by as much from day to day."""
FAR = 0.10
"""An error per request above this is not explained, unless the fit's own was as large."""
FAR_OF_TTFT = 0.20
"""The same of TTFT, which hangs on whether a request comes just before a step or just after."""
FAR_OF_MEANS = 0.05
"""The same of means, in which that cancels."""
AS_THEN = 2.0
"""Today's errors at today's pace may be this many times those of the fit: other requests, another day."""
MOST = 1.1
"""Log factors beyond this, either way, are another server: a factor of three."""
ROUNDS = 6
"""Most runs in search of the factor, by secants of the log ratio of E2E over the log factor."""
FIRST_SLOPE = -1.5
"""The first guess of that slope: a longer step makes requests stay longer, and so makes the steps longer, too."""
METRICS = {"ttft_us": "ttft", "tpot_us": "tpot", "e2e_us": "e2e"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AtPace:
    """A twin beside the runs: each one's pairs, without those that were overloaded, and the errors over all."""

    pairs: Sequence[Pairs]
    errors: Mapping[str, MetricErrors]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceToday:
    """``factor``: a step today over a step of the twin. ``errors``: mean errors per request at that pace.

    ``then``: what the twin's file says of its fit.
    """

    factor: float
    errors: Mapping[str, float]
    then: HeldOut


def pace_today(config: TwinConfig, as_it_is: AtPace, run: Callable[[TwinConfig], AtPace]) -> PaceToday | None:
    """Return today's pace; None where the twin was not good, is as good as it was, or is off in no one way.

    ``run``: sets a twin beside all runs.
    """
    then = config.held_out
    if then is None or then.e2e is None or then.e2e > FAR or _is_as_then(as_it_is.errors, then):
        return None
    from replay import paced

    start = _log_ratio(as_it_is.pairs)
    if start is None:
        return None
    tried, (pace, left) = as_it_is, (0.0, start)
    before = (0.0, start)
    for number in range(ROUNDS):
        if abs(left) < LEAST / 10:
            break
        slope = (left - before[1]) / (pace - before[0]) if number and pace != before[0] else FIRST_SLOPE
        before = (pace, left)
        pace = float(np.clip(pace - left / min(slope, -1 / 2), -MOST, MOST))
        tried = run(paced(config, float(np.exp(pace))))
        left = _log_ratio(tried.pairs) or 0.0
    factor = float(np.exp(pace))
    found = tried.errors
    if abs(factor - 1) < LEAST or abs(left) > LEAST or not _is_explained(found, then):
        return None
    return PaceToday(
        factor=factor,
        errors={name: value for name in METRICS if (value := _mape(found, name)) is not None},
        then=then,
    )


def _log_ratio(pairs: Sequence[Pairs]) -> float | None:
    """Return the log of observed over simulated, the sums of E2E over all runs; None where there is none."""
    sums = np.zeros(2)
    for each in pairs:
        seen, made = (side["e2e_us"].to_numpy(dtype=np.float64) for side in (each.observed, each.simulated))
        known = np.isfinite(seen) & np.isfinite(made)
        sums += seen[known].sum(), made[known].sum()
    return float(np.log(sums[0] / sums[1])) if sums.min() > 0 else None


def _is_as_then(errors: Mapping[str, MetricErrors], then: HeldOut) -> bool:
    """Return whether no error is much larger than the fit's was."""
    return all(error <= max(LEAST, AS_THEN * before) for _, error, before in _each(errors, then))


def _is_explained(errors: Mapping[str, MetricErrors], then: HeldOut) -> bool:
    """Return whether every error, per request and of the mean, is small or as small as the fit's was."""
    for name, error, before in _each(errors, then):
        of_mean = errors[name].rel_error["mean"].value
        far = FAR_OF_TTFT if name == "ttft_us" else FAR
        if error > max(far, AS_THEN * before) or abs(of_mean or 0.0) > max(FAR_OF_MEANS, before):
            return False
    return True


def _each(errors: Mapping[str, MetricErrors], then: HeldOut) -> Iterator[tuple[str, float, float]]:
    """Yield each latency that is known, its mean error per request, and the fit's, 0 where that is not known."""
    for name, key in METRICS.items():
        if (error := _mape(errors, name)) is not None:
            yield name, error, getattr(then, key) or 0.0


def _mape(errors: Mapping[str, MetricErrors], name: str) -> float | None:
    return errors[name].mape.value if name in errors else None
