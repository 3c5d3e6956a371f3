"""The report's first sentences: how close the twin is, whether closer than the server to itself, where to trust it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrate import number_format
from calibrate.distinct_runs import has_lengths_of

if TYPE_CHECKING:
    from calibrate.compare.errors import MetricErrors
    from calibrate.findings import Calibration
    from replay.twin.fitted_range import FittedRange, Range

FAR = 0.10
"""A twin with a larger error per request is not to be trusted, unless the server is as far from itself: the band that
the report shades around equal times."""

JUDGED = ("e2e_us", "ttft_us", "tpot_us")


def verdict_text(calibration: Calibration, *, has_warnings: bool) -> str:
    """Return the verdict: the mean absolute error per request, the noise floor, and the loads and lengths fitted.

    What is not known is left out: the noise floor without a repeat run, the range of a twin whose file has none.
    """
    held_out, which = calibration.held_out, _which(calibration)
    if held_out.of_saturated:
        return _of_capacity(calibration, which)
    errors = calibration.holdout
    if not any(name in errors for name in JUDGED):
        errors, which = calibration.in_sample, ", in sample"
    name = next((name for name in JUDGED if name in errors), None)
    if name is None:
        return "No error can be told: no latency is known on both sides."
    error, floor = errors[name].mape.value, _floor(calibration.noise_floor.get(name))
    metric = number_format.METRIC_NAMES[name]
    said = f"{_subject(calibration, number_format.percent(error))} (mean {metric} error per request{which})"
    if error is not None and floor is not None:
        said += f", {_closer(error, floor)} the server repeats itself ({number_format.percent(floor)})"
    is_far = error is None or (error > FAR and not (floor is not None and error <= floor))
    return " ".join([f"{said}.", *_trust(calibration, is_far=is_far, has_warnings=has_warnings)])


def _which(calibration: Calibration) -> str:
    """Return which requests the error is of, after a comma; nothing for two traces."""
    if calibration.config is None:
        return ""
    if calibration.fit is None:
        return ", the twin as configured"
    if held_out := [each.source.trace for each in calibration.traces if each.role == "held out"]:
        fitted = [each.source.trace for each in calibration.traces if each.role == "fitted"]
        seen = any(has_lengths_of(one, other) for one in held_out for other in fitted)
        return ", held out, on lengths that were fitted" if seen else ", held out"
    return ", held out: the second half of the requests"


def _subject(calibration: Calibration, within: str) -> str:
    """Return who is compared with whom."""
    if calibration.config is not None:
        return f"The twin predicts this server within {within}"
    first = calibration.traces[0]
    other = "The simulation" if first.partner is None else first.partner.name
    return f"{other} is within {within} of {first.source.name}"


def _floor(noise: MetricErrors | None) -> float | None:
    return None if noise is None else noise.mape.value


def _closer(error: float, floor: float) -> str:
    if number_format.percent(error) == number_format.percent(floor):
        return "as close as"
    return "closer than" if error < floor else "not as close as"


def _of_capacity(calibration: Calibration, which: str) -> str:
    """Return the verdict on runs that were all overloaded: their latencies only tell how long they lasted."""
    rate = calibration.held_out.capacity.get("output_token_throughput")
    off = None if rate is None else rate.rel_error.value
    if off is None:
        return "No error can be told: every run was overloaded, and no throughput is known on both sides."
    within = number_format.percent(abs(off))
    metric = f"served output tokens/s, {number_format.percent(off, signed=True)}{which}"
    return f"{_subject(calibration, within)} ({metric}). Every run was overloaded: latencies were not tested."


def _trust(calibration: Calibration, *, is_far: bool, has_warnings: bool) -> list[str]:
    """Return where the twin may be trusted: a sentence, or none for two traces or an unknown range."""
    config = calibration.config
    if config is None:
        return []
    range_ = (
        "" if config.fitted is None else _range_text(config.fitted, is_load_known=_is_served(calibration))
    )
    if is_far:
        why = f"Do not trust it yet: the error exceeds {100 * FAR:.0f}{number_format.SPACE}%."
        return [why, f"It was fitted {range_}."] if range_ else [why]
    first = ["Read the warnings first."] if has_warnings else []
    return [f"Trust it {range_}.", *first] if range_ else first


def _is_served(calibration: Calibration) -> bool:
    """Return whether the fitted loads were served: a load that overloads the server is no load to trust a twin at."""
    fitted = [each for each in calibration.traces if each.role != "held out"]
    return calibration.fit is None or not any(each.is_saturated for each in fitted)


def _range_text(fitted: FittedRange, *, is_load_known: bool) -> str:
    """Return the fitted loads and lengths in words, empty where nothing is known."""
    parts = []
    if is_load_known and fitted.rate_per_s is not None:
        parts.append(f"up to {number_format.plain(fitted.rate_per_s[1])}{number_format.SPACE}req/s")
    elif is_load_known and fitted.concurrency is not None:
        parts.append(f"up to {number_format.plain(fitted.concurrency[1])} requests in flight")
    if fitted.prompt_tokens is not None:
        parts.append(f"for prompts of {_span(fitted.prompt_tokens)}{number_format.SPACE}tokens")
    return " ".join(parts)


def _span(span: Range) -> str:
    low, high = (f"{round(value):,}" for value in span)
    return low if low == high else f"{low}\u2013{high}"
