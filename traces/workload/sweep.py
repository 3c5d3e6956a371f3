"""``--sweep``: one workload per rate, or per number of users, of the same lengths."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from traces.errors import ConfigError
from traces.workload.options import WorkloadOptions


def parse_sweep(text: str) -> tuple[Literal["rate", "concurrency"], list[float]]:
    """Return what is swept and its values, ascending as given: ``1,2,4`` (rates) or ``concurrency=8,16``.

    Raises ConfigError.
    """
    what, equals, values = text.partition("=")
    if not equals:
        what, values = "rate", text
    what = what.strip()
    try:
        numbers = [float(value) for value in values.split(",")]
    except ValueError:
        numbers = []
    whole = what == "rate" or all(number == int(number) for number in numbers if math.isfinite(number))
    good = bool(numbers) and all(0 < number < math.inf for number in numbers) and whole
    if what == "rate" and good:
        return "rate", numbers
    if what == "concurrency" and good:
        return "concurrency", numbers
    raise ConfigError(f"--sweep: got {text!r}, expected rates (1,2,4), users (concurrency=8,16), or auto")


def sweep_options(options: WorkloadOptions, text: str) -> list[tuple[str, float, WorkloadOptions]]:
    """Return (what is swept, value, the options with it) per value. Raises ConfigError."""
    what, values = parse_sweep(text)
    if options.rate is not None or options.concurrency is not None:
        raise ConfigError("--sweep: cannot be combined with --rate or --concurrency")
    if what == "rate":
        return [(what, value, replace(options, rate=value)) for value in values]
    return [(what, value, replace(options, concurrency=int(value))) for value in values]
