"""What an SLO asks of a step's requests: by criterion, how far each is from its limit, and how many may be beyond.

A limit of a percentile, ``ttft_p99=500ms``, is kept where at most 1 % of the requests are beyond it. Limits of each
request, ``ttft=500ms,tpot=50ms``, make one criterion, goodput: at most 1 % may be beyond any of them. A request that
failed is beyond all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from lazy_dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces import MOST_FAILED, SLO_METRICS, ConfigError, parse_run_slo, parse_slo

GOODPUT: Final = "goodput"
FAILED: Final = "failed"
"""The criterion of requests without an answer: of them, 1 % may be."""
GOOD: Final = 0.99
"""The share of requests that must meet the limits of each request."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """``limits_us``: by latency (``SLO_METRICS``), µs; ``beyond_frac``: the share of requests that may be beyond."""

    name: str
    limits_us: Mapping[str, float]
    beyond_frac: float

    def ratios(self, latencies: Mapping[str, Floats], failed: NDArray[np.bool_]) -> Floats:
        """Return each request's largest latency over its limit, float64 [n]: above 1 it is beyond; failed: infinity.

        ``latencies``: columns of ``traces.request_metrics``, µs. What a single token does not have is 0.
        """
        worst = np.zeros(len(failed))
        for name, limit_us in self.limits_us.items():
            ratio = np.nan_to_num(latencies[SLO_METRICS[name]], nan=0.0) / limit_us
            worst = np.maximum(worst, ratio)
        return np.where(failed, np.inf, worst)


def criteria_of(
    slo: str, *, good_frac: float | None = None, tell: Callable[[str], None] | None = None
) -> tuple[Criterion, ...]:
    """Return the criteria of an SLO. Raises ConfigError for a mean, and for what is no limit.

    ``good_frac``: the share that must meet the limits of each request, None: 99 %. ``tell`` gets what a reader may not
    expect.
    """
    parts = [part.strip() for part in slo.split(",")]
    alone = [part for part in parts if part.partition("=")[0] in SLO_METRICS]
    over_run = [part for part in parts if part not in alone]
    found = [_of_percentile(part) for part in over_run]
    if alone:
        share = GOOD if good_frac is None else good_frac
        found.append(
            Criterion(name=GOODPUT, limits_us=parse_slo(",".join(alone)), beyond_frac=max(1 - share, 1e-4))
        )
    elif good_frac is not None:
        raise ConfigError(
            "--fail-below: needs limits of each request beside --find-capacity (--slo ttft=500ms); a percentile says "
            "its own share"
        )
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--slo {name}: got it twice, expected it once")
    if tell is not None and any("itl" in each.limits_us for each in found):
        tell("--slo: ITL is the mean of each request's gaps here")
    return (*found, Criterion(name=FAILED, limits_us={}, beyond_frac=MOST_FAILED))


def _of_percentile(part: str) -> Criterion:
    [limit] = parse_run_slo(part)
    if limit.percent is None or limit.percent == 0:
        raise ConfigError(
            f"--slo: got {limit.name}, expected a percentile (ttft_p99=500ms) or a limit of each request (ttft=500ms): "
            "--find-capacity counts requests beyond a limit"
        )
    beyond = 1 - limit.percent / 100
    return Criterion(name=limit.name, limits_us={limit.metric: limit.limit_us}, beyond_frac=beyond)
