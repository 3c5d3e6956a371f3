"""Rates of a run on both sides: throughput, goodput, prefix hits, preemptions, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.compare.metric_errors import Bootstrap
from calibrate.compare.pair import Pairs
from traces.statistics.bootstrap import (
    MIN_REQUESTS,
    Estimate,
    Floats,
    block_length,
    finite,
    interval,
    over_resamples,
    weighted_sums,
)

RATES = (
    "request_throughput",
    "output_token_throughput",
    "goodput",
    "good_frac",
    "prefix_hit_frac",
    "num_preemptions",
)
COMPARED, COUNTED = "compared requests", "the server's counters, entire run"
STREAM = 900
"""Makes the draws independent of those of the latencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One number of a run on both sides; ``error`` is simulated minus observed, ``rel_error`` of the observed.

    Throughputs and goodput per second, the others as their name says. ``basis``: what was counted.
    """

    n: int
    observed: float | None
    simulated: float | None
    error: Estimate
    rel_error: Estimate
    basis: str = COMPARED


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The server's counts over the entire run, and the simulator's over the same; None where not known."""

    hit_frac: tuple[float | None, float | None] = (None, None)
    preemptions: tuple[float | None, float | None] = (None, None)
    num_requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """Amounts and what they are divided by, a row per request: a rate is sum / sum."""

    amount: Floats
    per: Floats

    def rate(self, counts: NDArray[np.floating]) -> Floats:
        """Return the rate of each row of ``counts`` [replicates, rows]."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(weighted_sums(counts, self.amount) / weighted_sums(counts, self.per))


def rates_of(
    pairs: Pairs,
    *,
    slo_us: Mapping[str, float] | None = None,
    bootstrap: Bootstrap | None = None,
    counters: Sequence[Counters] = (),
) -> dict[str, Rate]:
    """Return the run's numbers that both sides know, in the order of ``RATES``.

    A throughput is what finished over the time from first arrival to last token. Its interval redraws stretches of
    consecutive completions, the k-th of one side together with the k-th of the other. ``counters`` (of entire runs) are
    used where single requests have no values.
    """
    settings = bootstrap or Bootstrap()
    observed, simulated = (_progress(pairs, prefix) for prefix in ("", "simulated_"))
    second = 1e-6
    found: dict[str, Rate] = {}
    amounts = {"request_throughput": "requests", "output_token_throughput": "tokens"}
    if slo_us:
        good = _good(pairs, slo_us)
        observed, simulated = _progress(pairs, "", good[0]), _progress(pairs, "simulated_", good[1])
        amounts |= {"goodput": "good", "good_frac": "good"}
    for name, column in amounts.items():
        per = "requests" if name == "good_frac" else "span_us"
        unit = 1.0 if per == "requests" else second
        sides = [
            _Side(amount=side[column].to_numpy(), per=side[per].to_numpy() * unit)
            for side in (observed, simulated)
        ]
        found[name] = _rate(sides, settings)
    found |= _cache(pairs, settings, counters) | _preemptions(pairs, settings, counters)
    return found


def _progress(pairs: Pairs, prefix: str, good: Floats | None = None) -> pd.DataFrame:
    """Return a row per completion in order, trace after trace: the time since the one before, and its amounts."""
    requests = pairs.requests
    side = pairs.simulated if prefix else pairs.observed
    arrival = requests[f"{prefix}arrival_us"].to_numpy()
    table = pd.DataFrame(
        {
            "trace": requests["trace"].to_numpy(),
            "end_us": arrival + side["e2e_us"].to_numpy(),
            "requests": 1.0,
            "tokens": np.nan_to_num(requests[f"{prefix}output_tokens"].to_numpy(dtype=np.float64)),
            "good": 0.0 if good is None else good,
        }
    )
    table = table.sort_values(["trace", "end_us"], kind="stable", ignore_index=True)
    begun = pd.Series(arrival).groupby(requests["trace"].to_numpy()).min()
    before = table.groupby("trace")["end_us"].shift(1).fillna(table["trace"].map(begun))
    return table.assign(span_us=table["end_us"] - before)


def _good(pairs: Pairs, slo_us: Mapping[str, float]) -> tuple[Floats, Floats]:
    from traces import meets_slo

    observed, simulated = (meets_slo(side, slo_us) for side in (pairs.observed, pairs.simulated))
    return observed.astype(np.float64), simulated.astype(np.float64)


def _rate(sides: Sequence[_Side], settings: Bootstrap) -> Rate:
    """Return one number of both sides with the intervals of its errors."""
    n = len(sides[0].amount)
    observed, simulated = (float(side.rate(np.ones((1, n)))[0]) for side in sides)
    ratio = simulated / observed - 1 if observed else np.nan
    error, relative = Estimate(value=finite(simulated - observed)), Estimate(value=finite(ratio))
    if n >= MIN_REQUESTS:
        difference = (sides[1].per - sides[0].per) + (sides[1].amount - sides[0].amount)
        block = block_length(difference)
        first, second = over_resamples(
            lambda counts: np.column_stack([side.rate(counts) for side in sides]),
            n,
            block,
            replicates=settings.replicates,
            seed=settings.seed,
            stream=STREAM,
        ).T
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(first != 0, second / first - 1, np.nan)
        error = interval(simulated - observed, second - first, level=settings.level)
        relative = interval(ratio, ratios, level=settings.level)
    return Rate(n=n, observed=finite(observed), simulated=finite(simulated), error=error, rel_error=relative)


def _cache(pairs: Pairs, settings: Bootstrap, counters: Sequence[Counters]) -> dict[str, Rate]:
    """Return the share of prompt tokens found in the prefix cache, where both sides know it."""
    cached = [pairs.requests[f"{prefix}cached_tokens"].to_numpy() for prefix in ("", "simulated_")]
    prompt = pairs.requests["prompt_tokens"].to_numpy()
    known = np.isfinite(cached[0]) & np.isfinite(cached[1]) & np.isfinite(prompt)
    if known.any() and prompt[known].sum() > 0:
        sides = [_Side(amount=each[known], per=prompt[known]) for each in cached]
        return {"prefix_hit_frac": _rate(sides, settings)}
    return _counted("prefix_hit_frac", counters)


def _preemptions(pairs: Pairs, settings: Bootstrap, counters: Sequence[Counters]) -> dict[str, Rate]:
    """Return how often requests were preempted, where both sides know it."""
    counts = [pairs.requests[f"{prefix}num_preemptions"].to_numpy() for prefix in ("", "simulated_")]
    known = np.isfinite(counts[0]) & np.isfinite(counts[1])
    if known.any():
        n = int(known.sum())
        sides = [_Side(amount=each[known], per=np.full(n, 1 / n)) for each in counts]
        return {"num_preemptions": _rate(sides, settings)}
    return _counted("num_preemptions", counters)


def _counted(name: str, counters: Sequence[Counters]) -> dict[str, Rate]:
    """Return a number from the runs' counters, without an interval; nothing if one of them lacks it."""
    n = sum(each.num_requests for each in counters)
    sides: list[float] = []
    for side in (0, 1):
        values = [
            (each.hit_frac if name == "prefix_hit_frac" else each.preemptions)[side] for each in counters
        ]
        known = [value for value in values if value is not None]
        if not counters or len(known) < len(values):
            return {}
        weights = (
            [each.num_requests / n for each in counters] if name == "prefix_hit_frac" else [1.0] * len(known)
        )
        sides.append(float(np.dot(known, weights)))
    observed, simulated = sides
    ratio = simulated / observed - 1 if observed else None
    return {
        name: Rate(
            n=n,
            observed=observed,
            simulated=simulated,
            error=Estimate(value=simulated - observed),
            rel_error=Estimate(value=ratio),
            basis=COUNTED,
        )
    }
