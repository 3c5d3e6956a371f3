"""Formatting of numbers: units by size, percentages with their sign, intervals."""

from __future__ import annotations

from collections.abc import Sequence

from traces.statistics.bootstrap import Estimate

METRIC_NAMES = {
    "ttft_us": "TTFT",
    "ttft_from_due_us": "TTFT from scheduled send time",
    "itl_us": "ITL",
    "tpot_us": "TPOT",
    "e2e_us": "E2E",
    "queue_us": "Queue time",
}
METRIC_MEANINGS = {
    "ttft_us": "time to first token",
    "ttft_from_due_us": "time to first token from when the request was scheduled to be sent",
    "itl_us": "inter-token latency",
    "tpot_us": "time per output token",
    "e2e_us": "end to end",
    "queue_us": "time in the server's queue",
}
RATE_NAMES = {
    "request_throughput": "requests/s",
    "output_token_throughput": "output tokens/s",
    "goodput": "good requests/s",
    "good_frac": "share of good requests",
    "prefix_hit_frac": "prefix hits, share of prompt tokens",
    "num_preemptions": "preemptions",
}
NAMES = METRIC_NAMES | RATE_NAMES
STATISTIC_NAMES = {"rel_error": "relative error", "ks": "KS distance"}
STRATUM_NAMES = {
    "prompt_tokens": "prompt tokens",
    "output_tokens": "output tokens",
    "in_flight": "requests in flight at arrival",
    "window_s": "seconds into the run",
    "trace": "trace",
    "cached": "prefix cache",
    "slo_class": "SLO class",
    "model": "model",
    "tenant_id": "tenant",
}
MINUS, NONE, SPACE = "\u2212", "\u2013", "\u00a0"
"""True minus, the dash of a missing value, and the space between a number and its unit, where no line breaks."""


def duration(value_us: float | None) -> str:
    """Return a time with three digits and the unit that suits it."""
    if value_us is None:
        return NONE
    size = abs(value_us)
    if size < 1_000:
        text = f"{value_us:.3g} µs" if size < 100 else f"{value_us:.0f} µs"
    elif size < 1_000_000:
        text = f"{digits(value_us / 1_000)} ms"
    else:
        text = f"{digits(value_us / 1_000_000)} s"
    return text.replace("-", MINUS).replace(" ", SPACE)


TIME_UNITS = {"s": 1e6, "ms": 1e3, "µs": 1.0}
"""What to divide µs by, the larger unit first."""
MOST = 100.0
"""Times that reach this many of a unit are written in it, however small the others are."""
NEGLIGIBLE = 1e-4
"""A time of less than this share of the largest is ignored: an error near 0 needs no unit of its own."""


def unit_of(values_us: Sequence[float | None]) -> str:
    """Return the one unit for times that stand in one column: the largest in which the smallest keeps its digits."""
    sizes = [abs(value) for value in values_us if value]
    if not sizes:
        return "ms"
    longest = max(sizes)
    smallest = min(size for size in sizes if size >= NEGLIGIBLE * longest)
    fitting = (
        unit
        for unit, divisor in TIME_UNITS.items()
        if smallest >= 0.95 * divisor or longest >= MOST * divisor
    )
    return next(fitting, "µs")


def in_one_unit(*columns: Sequence[float | None]) -> tuple[str, list[list[str]]]:
    """Return the unit of some columns of times, and the columns as text in it, three digits each."""
    unit = unit_of([value for column in columns for value in column])
    divisor = TIME_UNITS[unit]
    shown = [
        [NONE if value is None else digits(value / divisor).replace("-", MINUS) for value in column]
        for column in columns
    ]
    return unit, shown


def digits(value: float) -> str:
    """Return a number with three significant digits, never in powers of ten."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def percent(value: float | None, *, signed: bool = False) -> str:
    """Return a fraction as a percentage, with a true minus sign."""
    if value is None:
        return NONE
    if value == 0:
        return f"0{SPACE}%"
    size = 100 * abs(value)
    if size >= 1000:
        return f">{SPACE}999{SPACE}%"
    places = 0 if size >= 100 else 1 if size >= 0.995 else 2
    text = f"{100 * value:+.{places}f}" if signed else f"{100 * value:.{places}f}"
    if float(text) == 0:
        text = text.replace("+", "").replace("-", "")
    return text.replace("-", MINUS) + SPACE + "%"


def percent_interval(estimate: Estimate, *, signed: bool = False) -> str:
    """Return ``low … high`` as percentages, a dash where there is none."""
    if estimate.low is None or estimate.high is None:
        return NONE
    low, high = (
        percent(bound, signed=signed).removesuffix(f"{SPACE}%") for bound in (estimate.low, estimate.high)
    )
    return f"{low} … {high}{SPACE}%"


def share(value: float | None) -> str:
    """Return a correlation or a distance with three digits."""
    return NONE if value is None else f"{value:.3f}".replace("-", MINUS)


def coefficient(value: float | None) -> str:
    """Return a coefficient with digits by its size."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def plain(value: float) -> str:
    """Return a number with three significant digits, without zeros behind its point and never in powers of ten."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def rate(value: float | None) -> str:
    """Return a rate with three digits."""
    return NONE if value is None else digits(value)


def reason(name: str) -> str:
    """Return an exclusion's reason as text."""
    return name.replace("_", " ")


def signed(value: float) -> str:
    """Return a number of two decimals with its sign."""
    return f"{value:+.2f}".replace("-", MINUS)


def p_value(value: float | None) -> str:
    """Return the chance of a test, three digits at most."""
    return NONE if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def statistic(name: str) -> str:
    """Return a statistic that a limit is on, as text."""
    return STATISTIC_NAMES.get(name, name)
