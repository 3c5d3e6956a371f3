"""``--sweep auto``: the rates of a sweep between what one user gets from a server and the most that it answers.

Two loads come first: one request after another, and all requests at once. The rates lie evenly between their
throughputs, as those of guidellm's profile ``sweep`` do (guidellm 0.8 ``benchmark/profiles.py``); the last is that of
all at once, at which a queue is long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from observe.plan.loads import ListedLoad, single_load, sweep_loads
from traces import ConfigError, ServerError

if TYPE_CHECKING:
    from traces.workload import WorkloadOptions

AUTO: Final = "auto"
NUM_RATES: Final = 8
MOST_RATES: Final = 100
_ALONE_REQUESTS: Final = 16
"""One request after another takes long: as many show an idle server."""
_DIGITS: Final = 3
"""Of a rate: it names its trace."""


def num_rates(text: str | None) -> int | None:
    """Return how many rates ``auto`` or ``auto:N`` asks for, None of any other text. Raises ConfigError."""
    name, colon, number = (text or "").partition(":")
    if name.strip() != AUTO:
        return None
    if not colon:
        return NUM_RATES
    if not number.isdecimal() or not 1 <= int(number[:9]) <= MOST_RATES:
        raise ConfigError(f"--sweep: got {text!r}, expected auto or auto:N, N rates from 1 to {MOST_RATES}")
    return int(number)


def end_loads(options: WorkloadOptions) -> list[ListedLoad]:
    """Return the two loads between whose throughputs the rates lie. Raises ConfigError."""
    if options.rate is not None or options.concurrency is not None:
        raise ConfigError("--sweep: cannot be combined with --rate or --concurrency")
    most = options.num_requests or _ALONE_REQUESTS
    alone = replace(
        options, concurrency=1, duration=None, num_requests=min(most, _ALONE_REQUESTS), burstiness=None
    )
    at_once = replace(options, rate=math.inf, duration=None, num_requests=options.num_requests)
    return [
        replace(single_load(alone), name="alone", purpose="one request after another"),
        replace(single_load(at_once), name="all-at-once", purpose="all requests at once"),
    ]


def rate_loads(
    options: WorkloadOptions, throughputs: Sequence[float | None], *, number: int
) -> list[ListedLoad]:
    """Return a load for each rate; ``throughputs``: of the two end loads, requests per second.

    Raises ServerError where one of them was not answered.
    """
    alone, at_once = throughputs
    if not alone or not at_once:
        raise ServerError(
            "--sweep auto: got no answers to its first loads, expected throughputs to choose rates by"
        )
    low, high = sorted((alone, at_once))
    rates = low + (high - low) * np.arange(1, number + 1) / number
    rounded = dict.fromkeys(float(f"{rate:.{_DIGITS}g}") for rate in rates.tolist())
    return sweep_loads(options, ",".join(f"{rate:g}" for rate in rounded))
