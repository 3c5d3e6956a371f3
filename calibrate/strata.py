"""The errors by kind of request: short and long prompts and outputs, a quiet and a busy server."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrate.bootstrap import MIN_REQUESTS, Estimate
from calibrate.errors import Bootstrap, compare
from calibrate.pair import Pairs, take

BY = ("prompt_tokens", "output_tokens", "in_flight")
METRICS = ("ttft_us", "tpot_us", "e2e_us")
LEAST = 3 * MIN_REQUESTS
"""With fewer requests than this a third would be too small to say anything."""
REPLICATES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """The requests whose ``by`` lies in [low, high], and their MAPE and bias by metric."""

    by: str
    low: float
    high: float
    n: int
    mape: dict[str, Estimate]
    bias: dict[str, Estimate]


def strata_of(pairs: Pairs, *, bootstrap: Bootstrap) -> tuple[Stratum, ...]:
    """Return the errors by thirds of prompt length, output length and load; equal values stay together."""
    if len(pairs) < LEAST:
        return ()
    found = []
    for by in BY:
        values = pairs.requests[by].to_numpy(dtype=np.float64)
        edges = np.unique(np.quantile(values, [1 / 3, 2 / 3], method="lower"))
        third = np.searchsorted(edges, values, side="left")
        for number in np.unique(third):
            chosen = third == number
            if np.count_nonzero(chosen) < MIN_REQUESTS or len(np.unique(third)) == 1:
                continue
            errors = compare(
                take(pairs, chosen),
                bootstrap=Bootstrap(seed=bootstrap.seed, replicates=REPLICATES),
                only=METRICS,
            )
            found.append(
                Stratum(
                    by=by,
                    low=float(values[chosen].min()),
                    high=float(values[chosen].max()),
                    n=int(np.count_nonzero(chosen)),
                    mape={name: each.mape for name, each in errors.items()},
                    bias={name: each.bias for name, each in errors.items()},
                )
            )
    return tuple(found)
