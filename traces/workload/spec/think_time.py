"""Pauses as BLIS spells them: ``lognormal:mu=1,sigma=0.5,min=0.5,max=60`` in seconds, ``constant:value=500ms``."""

from __future__ import annotations

import math

from traces.units import parse_seconds
from traces.workload.basics import InvalidWorkload, require
from traces.workload.lengths import Distribution, Lognormal
from traces.workload.spec.fields import not_negative, shown

_EXPECTED = "expected µs, lognormal:mu=…,sigma=…[,min=…,max=…] or constant:value=…, in seconds"


def think_time(value: object) -> int | Distribution:
    """Return the pause in µs, or what pauses are drawn from, in µs."""
    if not isinstance(value, str) or ":" not in value:
        return not_negative(value)
    family, _, text = value.partition(":")
    given = dict(part.partition("=")[::2] for part in text.replace(" ", "").split(","))
    if family == "constant" and set(given) == {"value"}:
        return round(_seconds(given["value"], value) * 1e6)
    if family != "lognormal" or not {"mu", "sigma"} <= set(given) <= {"mu", "sigma", "min", "max"}:
        raise InvalidWorkload(f"got {shown(value)}, {_EXPECTED}")
    low, high = (_seconds(given[name], value) if name in given else None for name in ("min", "max"))
    mu, sigma = (_number(given[name], value) for name in ("mu", "sigma"))
    return Lognormal(
        mu=mu + math.log(1e6),
        sigma=sigma,
        min=round((low or 0.0) * 1e6),
        max=None if high is None else round(high * 1e6),
    )


def _seconds(text: str, value: str) -> float:
    from typer import BadParameter

    try:
        seconds = parse_seconds(text)
    except BadParameter as error:
        raise InvalidWorkload(f"got {shown(value)}, {_EXPECTED}") from error
    require(0 <= seconds < math.inf, f"got {shown(value)}, {_EXPECTED}")
    return seconds


def _number(text: str, value: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidWorkload(f"got {shown(value)}, {_EXPECTED}") from error
