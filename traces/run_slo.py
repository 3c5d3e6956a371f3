"""Latency limits over a run: ``--slo ttft_p99=500ms,tpot_p99=50ms``. Those of one request are in ``traces.slo``."""

from __future__ import annotations

import re
from collections.abc import Callable
from lazy_dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.errors import ConfigError, quoted
from traces.peers.peer_metrics import own_limit
from traces.strict.arguments import ANY_TEXT, takes
from traces.strict.limits import MOST_S
from traces.units import BadTimeError, parse_seconds

RUN_METRICS: Final = ("ttft", "tpot", "itl", "e2e")
"""Metrics that may be limited. ITL is over all gaps between tokens, the others are over requests."""
EXAMPLE: Final = "ttft_p99=500ms,tpot_p99=50ms"
LEAST_S: Final = 1e-6
"""Times are whole microseconds."""
_NAME: Final = re.compile(r"(?P<metric>[a-z0-9]+)_(?P<statistic>mean|p(?P<percent>\d{1,2}(\.\d+)?))")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimit:
    """One limit: a metric of ``RUN_METRICS``, the percentile in [0, 100) or None for the mean, and the limit in µs."""

    metric: str
    percent: float | None
    limit_us: float

    @property
    def name(self) -> str:
        """Return the limit's name as it is written: ``ttft_p99``."""
        return f"{self.metric}_mean" if self.percent is None else f"{self.metric}_p{self.percent:g}"

    def of(self, values_us: NDArray[np.float64]) -> float:
        """Return the statistic of the values that are not NaN, µs; NaN where there is none."""
        known = values_us[~np.isnan(values_us)]
        if len(known) == 0:
            return float("nan")
        return float(known.mean() if self.percent is None else np.percentile(known, self.percent))


@takes(text=ANY_TEXT)
def parse_run_slo(text: str, *, tell: Callable[[str], None] | None = None) -> tuple[RunLimit, ...]:
    """Return the limits of ``ttft_p99=500ms,tpot_mean=30ms``, in the order given. Raises ConfigError.

    A limit of each request, ``ttft=500ms``, is taken as one of the 99th percentile, and ``tell`` gets the sentence that
    says so.
    """
    limits: dict[str, RunLimit] = {}
    for part in text.split(","):
        given, _, value = part.strip().partition("=")
        name = f"{given}_p99" if given in RUN_METRICS else given
        found = _NAME.fullmatch(name)
        if found is None or found["metric"] not in RUN_METRICS:
            hint = own_limit(given)
            raise ConfigError(
                f"--slo: got {given!r}, expected {', '.join(RUN_METRICS)} with _mean or a percentile ({EXAMPLE})"
                f"{f'; {hint}' if hint else ''}"
            )
        percent = None if found["percent"] is None else float(found["percent"])
        limit = RunLimit(metric=found["metric"], percent=percent, limit_us=limit_us(given, value))
        if limit.name in limits:
            raise ConfigError(f"--slo {given}: got {limit.name} twice, expected it once")
        limits[limit.name] = limit
        if name != given and tell is not None:
            tell(f"--slo {given}={value} is a limit of each request: taken as {name}={value} over the run")
    return tuple(limits.values())


def limit_us(name: str, value: str) -> float:
    """Return the time, µs; a bare number is refused, since most users would mean ms and elsewhere it is seconds."""
    value = value.strip()
    try:
        seconds = parse_seconds(value)
    except BadTimeError:
        raise ConfigError(
            f"--slo {name}: got {quoted(value)}, expected a time with a unit (500ms, 2m)"
        ) from None
    if not LEAST_S <= seconds <= MOST_S:
        raise ConfigError(f"--slo {name}: got {value!r}, expected a time > 0, from 1us to {MOST_S:.3g}s")
    if not value[-1].isalpha():
        raise ConfigError(f"--slo {name}: got {value!r} without a unit, expected {value}ms or {value}s")
    return seconds * 1e6
