"""How well a run knows a 99th percentile: an interval for it, and how many requests a narrow one needs.

Latencies of a queue depend on each other: a long wait comes with others. So the requests over the percentile are
counted in batches that follow each other in time, and the scatter of these counts says how many independent requests
the run is worth (batch means: Law, "Simulation Modeling and Analysis", 2015, chapter 9). The interval is between two
order statistics (David and Nagaraja, "Order Statistics", 2003, section 7.1), their ranks from the binomial
distribution of so many requests. Where it has no upper end, the run is too short for one, and the lower end alone holds
with 95 %.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from traces.statistics.percentiles import percentile_of, quantile_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from traces.trace import Trace

Floats = NDArray[np.float64]
TAIL = 0.01
"""The share of requests beyond the percentile."""
LOWER = 90
"""The percentile that a run may know where it does not know the 99th,"""
LOWER_WORTH = (0.1, 0.25, 0.5)
"""of as many independent values as it is worth by the least of the scatters of these shares of the largest."""
NUM_BATCHES = 20
T_OF_BATCHES = 2.093
"""Student's t for 95 % with one degree less than there are batches;"""
Z = 1.96
"""of the normal distribution;"""
Z_ONE_SIDED = 1.645
"""the same for 95 % on one side."""
WIDER = 0.1
"""The share of largest values whose clusters stand in for those of the tail where the tail has too few,"""
ENOUGH_CLUSTERS = 20
"""fewer than this many."""
NARROW = 0.05
"""Half the width that is asked for, as a share of the percentile."""
MISSED = 0.05
"""The share of intervals that may miss the percentile, on both sides together."""
OF_MEDIAN = 1000
"""Values from which a median has an interval: near a server's capacity 58 to 79 % of those of 200 held."""
MOST_ALIKE = 0.9
"""How much of a batch's mean may be that of the one before, as far as a few batches tell it."""
LEAST_TAIL = 4
"""An upper end needs this many independent values beyond the percentile (of 368 one is beyond, at 97.5 %)."""
MOST_EXACT = 300
"""Values beyond the percentile from which the normal distribution gives the ranks."""
PRACTICAL = 10
"""A run of more than this many times as many requests is not advised: the percentile is no figure to judge by."""
SHOWN = {"ttft_us": "TTFT", "itl_us": "ITL", "e2e_us": "E2E"}
"""Metrics that a terminal has a word of; JSON has TPOT, too."""


Precision = dict[str, "TailPrecision | None"]
"""How well TTFT, TPOT, ITL and E2E are known, by the name of the metric, in µs."""


class TailPrecision(TypedDict):
    """A 99th percentile and its 95 % interval, in the values' unit.

    ``n``: values, of ITL gaps between tokens. ``high`` None: so few requests show no upper end; ``p90_low`` and
    ``p90_high`` are then the 95 % interval of the 90th, None where that has no upper end, either. ``p50_low`` and
    ``p50_high``: of the median, None likewise, and of ITL. ``num_effective``: how many independent requests they are
    worth, None of ITL. ``num_for_5_percent``: requests for an interval of ±5 %, None where nothing is known; where
    ``high`` is None it is a lower bound.
    """

    n: int
    p99: float
    low: float
    high: float | None
    num_effective: float | None
    num_for_5_percent: int | None
    p90_low: float | None
    p90_high: float | None
    p50_low: float | None
    p50_high: float | None


def tail_precision(values: Floats) -> TailPrecision | None:
    """Return how well values, in the order in which their requests were sent, know their 99th percentile.

    float64 [n], NaN where a request has none. None of fewer than two for each batch.
    """
    known = values[np.isfinite(values)]
    n = len(known)
    if n < 2 * NUM_BATCHES:
        return None
    ordered = np.sort(known)
    p99 = quantile_of(ordered, 1 - TAIL)
    worth = num_effective(known, ordered)
    low, high = _ends(ordered, worth, tail=TAIL)
    p90: tuple[float, float] | tuple[None, None] = (None, None)
    if high is None:
        p90 = _within(
            ordered, LOWER, worth=min(num_effective(known, ordered, tail=tail) for tail in LOWER_WORTH)
        )
    p50 = _within(ordered, 50, worth=_worth_of_median(known, ordered)) if n >= OF_MEDIAN else (None, None)
    return TailPrecision(
        n=n,
        p99=p99,
        low=min(low, p99),
        high=None if high is None else max(high, p99),
        num_effective=worth,
        num_for_5_percent=_needed(n, worth, p99=p99, low=low, high=high),
        p90_low=p90[0],
        p90_high=p90[1],
        p50_low=p50[0],
        p50_high=p50[1],
    )


def _within(ordered: Floats, percent: float, *, worth: float) -> tuple[float, float] | tuple[None, None]:
    """Return the interval of a percentile of ascending values, None where it has no upper end.

    Of M/M/1 queues at 30 to 50 % load and 200 to 1,000 requests, and at 80 and 90 % and 5,000 and 20,000, 91 to 92 %
    held the 90th; of the few that 600 requests at 80 % tell, 68 %.
    """
    low, high = _ends(ordered, worth, tail=1 - percent / 100)
    if high is None:
        return None, None
    value = percentile_of(ordered, percent)
    return min(low, value), max(high, value)


def _ends(ordered: Floats, worth: float, *, tail: float) -> tuple[float, float | None]:
    """Return between which values a percentile lies with 95 %: ascending ones, worth so many independent ones."""
    most, least = _ranks(worth, tail)
    return (
        _largest(ordered, most, worth=worth),
        None if least is None else _largest(ordered, least, worth=worth),
    )


def _largest(ordered: Floats, rank: float, *, worth: float) -> float:
    """Return the value of a rank from the top, 1 the largest, where ascending values are worth so many."""
    return quantile_of(ordered, max(1 - (rank - 1) / max(worth - 1, 1.0), 0.0))


def num_effective(known: Floats, ordered: Floats, *, tail: float = TAIL) -> float:
    """Return how many independent values would scatter as much, never more than there are.

    ``known``: at least ``NUM_BATCHES`` values in time; ``ordered``: the same ascending; ``tail``: the share of the
    largest that is asked about. What the batches' scatter exceeds that of independent values by is itself known from
    few batches, and counts more.
    """
    n, of_tail = len(known), _times_scattered(known, ordered, tail)
    trust = min(n * tail / max(of_tail, 1.0) / ENOUGH_CLUSTERS, 1.0)
    times = trust * of_tail + (1 - trust) * _times_scattered(known, ordered, max(WIDER, tail))
    return n / max(1 + (times - 1) * (T_OF_BATCHES / Z) ** 2, 1.0)


def _times_scattered(known: Floats, ordered: Floats, level: float) -> float:
    """Return how much more the number of largest values scatters among batches than of independent values."""
    n = len(known)
    means, share = _of_batches(known, ordered, level)
    if share == 0.0:
        return 1.0
    return float(means.var(ddof=1)) / NUM_BATCHES * n / (share * (1 - share))


def _of_batches(known: Floats, ordered: Floats, level: float) -> tuple[Floats, float]:
    """Return the shares of each batch, and of all, that are among so many of the largest values."""
    n = len(known)
    beyond = (known > ordered[int(n * (1 - level))]).astype(np.float64)
    sizes = np.full(NUM_BATCHES, n // NUM_BATCHES)
    sizes[: n % NUM_BATCHES] += 1
    return np.add.reduceat(beyond, np.cumsum(sizes) - sizes) / sizes, float(beyond.mean())


def _worth_of_median(known: Floats, ordered: Floats) -> float:
    """Return how many independent values know the median as well.

    What moves a median lasts longer than what makes a tail, so that batches follow each other alike. Means of which
    each is the one before to the part r, and chance, scatter as (1 - r) / (1 + r) as many independent ones (Law,
    section 4.4); the r of so few batches comes out too low by one of their number (Kendall 1954).
    """
    means, _ = _of_batches(known, ordered, 0.5)
    apart = means - means.mean()
    of_all = float((apart * apart).sum())
    alike = float((apart[1:] * apart[:-1]).sum()) / of_all + 1 / NUM_BATCHES if of_all > 0 else 0.0
    r = min(max(alike, 0.0), MOST_ALIKE)
    return num_effective(known, ordered, tail=0.5) * (1 - r) / (1 + r)


def _ranks(worth: float, tail: float = TAIL) -> tuple[float, float | None]:
    """Return the ranks from the top, of so many values, between which the percentile lies with 95 %.

    Ranks lie between whole numbers as the chances do. The second is None where even the largest may be below.
    """
    up_to = _up_to(worth, tail)
    if up_to is None:
        wide = Z * math.sqrt(worth * tail * (1 - tail))
        return worth * tail + wide + 1, worth * tail - wide
    ranks = np.arange(1, len(up_to) + 1)
    if up_to[0] > MISSED / 2:
        return float(np.interp(1 - MISSED, up_to, ranks)), None
    return float(np.interp(1 - MISSED / 2, up_to, ranks)), float(np.interp(MISSED / 2, up_to, ranks))


def _up_to(worth: float, tail: float = TAIL) -> Floats | None:
    """Return the chances that at most 0, 1, 2, … of so many values lie beyond the percentile; None of too many."""
    mean = worth * tail
    if mean > MOST_EXACT:
        return None
    number, chances = max(round(worth), 1), []
    chance = (1 - tail) ** number
    for k in range(min(number, int(mean + 10 * math.sqrt(mean) + 20)) + 1):
        chances.append(chance)
        chance *= (number - k) / (k + 1) * tail / (1 - tail)
    return np.cumsum(chances)


def fewest_beyond(number: int) -> float:
    """Return how many of so many independent values lie beyond the 99th percentile at least, with 97.5 %."""
    up_to = _up_to(float(number))
    if up_to is None:
        return number * TAIL - Z * math.sqrt(number * TAIL * (1 - TAIL))
    return float(np.searchsorted(up_to, MISSED / 2, side="right"))


def _needed(n: int, worth: float, *, p99: float, low: float, high: float | None) -> int | None:
    """Return the requests for an interval of ±5 %: its width falls with the root of their number."""
    if p99 <= 0:
        return None
    half = ((high - low) / 2 if high is not None else (p99 - low) * Z / Z_ONE_SIDED) / p99
    number = n * (half / NARROW) ** 2
    return _rounded_up(number if high is not None else max(number, n * LEAST_TAIL / (TAIL * worth)))


def _rounded_up(number: float) -> int:
    """Return a number with two digits, not below, and at least 1."""
    unit = int(10 ** max(int(math.log10(max(number, 1.0))) - 1, 0))
    return max(int(math.ceil(number / unit) * unit), 1)


def precision_of(trace: Trace, latencies: Mapping[str, Floats]) -> Precision:
    """Return how well a trace knows the 99th percentiles of TTFT, TPOT, ITL and E2E; None where it cannot say.

    ``latencies``: ``ttft_us``, ``tpot_us`` and ``e2e_us`` of its rows. ITL needs the tokens' times.
    """
    from traces.metrics import sent_or_due

    order = np.argsort(
        sent_or_due(trace).floats(), kind="stable"
    )  # never sent: at the end, without a latency
    return {
        "ttft_us": tail_precision(latencies["ttft_us"][order]),
        "tpot_us": tail_precision(latencies["tpot_us"][order]),
        "itl_us": None if trace.events is None else _of_gaps(trace, order),
        "e2e_us": tail_precision(latencies["e2e_us"][order]),
    }


def _of_gaps(trace: Trace, order: NDArray[np.int64]) -> TailPrecision | None:
    """Return it of the gaps between tokens, from the percentiles of batches of requests."""
    from traces.metrics import token_gaps

    gaps = token_gaps(trace)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    values = np.repeat(gaps.gap_us, gaps.num_tokens)
    batch = np.repeat(place[gaps.request], gaps.num_tokens) * NUM_BATCHES // max(len(order), 1)
    numbers = np.bincount(batch, minlength=NUM_BATCHES)
    if len(order) < 2 * NUM_BATCHES or numbers.min() == 0:
        return None
    p99 = float(np.percentile(values, 100 * (1 - TAIL)))
    each = np.array([np.percentile(values[batch == k], 100 * (1 - TAIL)) for k in range(NUM_BATCHES)])
    half = T_OF_BATCHES * math.sqrt(float(((each - p99) ** 2).sum()) / NUM_BATCHES / (NUM_BATCHES - 1))
    needed = None if p99 <= 0 else _rounded_up(len(order) * (half / p99 / NARROW) ** 2)
    return TailPrecision(
        n=len(values),
        p99=p99,
        low=max(p99 - half, 0.0),
        high=p99 + half,
        num_effective=None,
        num_for_5_percent=needed,
        p90_low=None,
        p90_high=None,
        p50_low=None,
        p50_high=None,
    )


def precision_rows(
    precision: Precision,
    medians_us: Mapping[str, float | None] | None = None,
    *,
    requests_per_s: float | None = None,
) -> list[tuple[str, str]]:
    """Return the lines that say how well the 99th percentiles are known; [] where nothing is.

    ``medians_us``: of the metrics, which decide the units as in a run's table; None: all are told in ms.
    ``requests_per_s``: of the run, by which the requests that ±5 % takes are a time, too.
    """
    known = {name: each for name in SHOWN if (each := precision.get(name)) is not None}
    if not known:
        return []
    medians = {name: (medians_us or {}).get(name) for name in known}
    told = ", ".join(
        f"{SHOWN[name]} {interval_text(each['low'], each['high'], medians[name])}"
        for name, each in known.items()
    )
    rows = [("p99 within", told)]
    lower = ", ".join(
        f"{SHOWN[name]} {interval_text(low, each['p90_high'], medians[name])}"
        for name, each in known.items()
        if (low := each["p90_low"]) is not None
    )
    rows += [(f"p{LOWER} within", lower)] if lower else []
    needed = [each["num_for_5_percent"] for each in known.values() if each["num_for_5_percent"] is not None]
    wide = [each for each in known.values() if not _is_narrow(each)]
    if needed and wide:
        from traces.units import shown_time

        least = "at least " if any(each["high"] is None for each in wide) else ""
        why = " (so few show no upper end)" if least else ""
        here = max((each["n"] for name, each in known.items() if name != "itl_us"), default=0)
        time = f", {shown_time(max(needed) / requests_per_s * 1e6)} at this load" if requests_per_s else ""
        told = f"{least}{max(needed):,} requests{time}{why}"
        if here and max(needed) > PRACTICAL * here:
            told = f"p99 takes more than {PRACTICAL} times these {here:,} requests"
        rows.append(("", f"for ±5 %: {told}"))
    return rows


def _is_narrow(each: TailPrecision) -> bool:
    return each["high"] is not None and each["high"] - each["low"] <= 2 * NARROW * each["p99"]


def interval_text(low_us: float, high_us: float | None, median_us: float | None) -> str:
    """Return an interval in words, in the unit of its median; ``high_us`` None: without an upper end."""
    from traces.units import in_unit, unit_of

    unit = unit_of(median_us or 0.0)
    low = in_unit(low_us, unit)
    return f"{low} {unit} or more" if high_us is None else f"{low} to {in_unit(high_us, unit)} {unit}"
