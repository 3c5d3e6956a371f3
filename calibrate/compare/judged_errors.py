"""The errors that decide a verdict: of E2E, TTFT and TPOT, per request and of the mean, the worst of them first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from calibrate.compare.metric_errors import MetricErrors

JUDGED = ("e2e_us", "ttft_us", "tpot_us")
"""ITL is used where TPOT is not known."""

Kind = Literal["per request", "mean", "p99"]
USUAL: tuple[Kind, ...] = ("per request", "mean")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedError:
    """One error of a metric, as a fraction >= 0; ``floor``: the server's against itself, None where not measured."""

    metric: str
    kind: Kind
    error: float
    floor: float | None

    def exceeds(self, limit: float) -> bool:
        """Return whether the error is larger than the limit, and than the server's own."""
        return self.error > limit and not (self.floor is not None and self.error <= self.floor)


def judged_errors(
    errors: Mapping[str, MetricErrors], noise: Mapping[str, MetricErrors], kinds: Sequence[Kind] = USUAL
) -> tuple[JudgedError, ...]:
    """Return the errors that count, the largest first; of equal ones E2E before TTFT before TPOT."""
    names = [*JUDGED[:2], "tpot_us" if "tpot_us" in errors else "itl_us"]
    found = [
        JudgedError(metric=name, kind=kind, error=error, floor=_value(noise.get(name), kind))
        for name in names
        for kind in kinds
        if (error := _value(errors.get(name), kind)) is not None
    ]
    return tuple(sorted(found, key=lambda each: -each.error))


def _value(errors: MetricErrors | None, kind: Kind) -> float | None:
    if errors is None:
        return None
    value = errors.mape.value if kind == "per request" else errors.rel_error[kind].value
    return None if value is None else abs(value)
