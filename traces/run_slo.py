"""Latency limits over a run: ``--slo ttft_p99=500ms,tpot_p99=50ms``. Those of one request are in ``traces.slo``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.errors import ConfigError
from traces.units import parse_seconds

RUN_METRICS: Final = ("ttft", "tpot", "itl", "e2e")
"""What may be limited. ITL is over all gaps between tokens, the others are over requests."""
EXAMPLE: Final = "ttft_p99=500ms,tpot_p99=50ms"
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


def parse_run_slo(text: str) -> tuple[RunLimit, ...]:
    """Return the limits of ``ttft_p99=500ms,tpot_mean=30ms``, in the order given. Raises ConfigError."""
    limits: dict[str, RunLimit] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        found = _NAME.fullmatch(name)
        if found is None or found["metric"] not in RUN_METRICS:
            raise ConfigError(f"--slo: got {name!r}, {_expected(name)}")
        percent = None if found["percent"] is None else float(found["percent"])
        limit = RunLimit(metric=found["metric"], percent=percent, limit_us=_limit_us(name, value))
        if limit.name in limits:
            raise ConfigError(f"--slo {name}: got it twice, expected it once")
        limits[limit.name] = limit
    return tuple(limits.values())


def _expected(name: str) -> str:
    if name in RUN_METRICS:
        return f"a limit of each request; expected one over the run: {name}_p99, {name}_p50 or {name}_mean"
    return f"expected {', '.join(RUN_METRICS)} with _mean or a percentile ({EXAMPLE})"


def _limit_us(name: str, value: str) -> float:
    """Return the time, µs; a bare number is refused, since most people would mean ms and elsewhere it is seconds."""
    from typer import BadParameter

    value = value.strip()
    try:
        seconds = parse_seconds(value)
    except BadParameter as error:
        raise ConfigError(f"--slo {name}: {error.message}") from error
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"--slo {name}: got {value!r}, expected a time > 0")
    if not value[-1].isalpha():
        raise ConfigError(f"--slo {name}: got {value!r} without a unit, expected {value}ms or {value}s")
    return seconds * 1e6
