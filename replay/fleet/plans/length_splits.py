"""Splits into a pool for short and one for long requests: every threshold by formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from replay.fleet.inputs.fleet_ranges import FACTORS, in_range
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.profiles import ProfileSource
from replay.fleet.inputs.shared_prefixes import known_to
from sim.fleet.split import Splits, marked, sweep_thresholds

NUM_THRESHOLDS = 250
NUM_BEYOND = 50
"""This many more thresholds are tried where the best one lies at the end of the first ones."""
EDGES = (0.01, 0.999)
"""A threshold is tried if the share of short requests is between these."""


def splits_of(sources: Sequence[ProfileSource], need: Need, *, factors: Sequence[float]) -> Splits:
    """Return one pool for all, and a split per threshold, 250 of them evenly through the lengths."""
    for factor in factors:
        in_range("--compress", factor, FACTORS)
    profiles = (sources[0].profile, sources[-1].profile)
    need = replace(need, lengths=known_to(need.lengths, sources))
    lengths, context, one = need.lengths, need.context, need.size(profiles[1])
    total = lengths.total_tokens
    low, high = np.quantile(total, EDGES)
    thresholds = sorted({round(each) for each in np.linspace(low, min(high, context - 1), NUM_THRESHOLDS)})

    def swept(tried: Sequence[int]) -> Splits:
        found = sweep_thresholds(
            profiles,
            lengths,
            need.rate_per_s,
            need.objective,
            thresholds=tried,
            context=context,
            factors=factors,
        )
        return Splits(one=one, profiles=profiles, splits=tuple(found), is_one_best=False)

    first = swept(thresholds)
    more = _beyond(
        first, thresholds, shortest=float(total.min()), longest=min(float(total.max()), context) - 1
    )
    splits = sorted((*first.splits, *swept(more).splits), key=lambda each: (each.threshold, each.factor))
    return marked(
        replace(
            first,
            splits=tuple(splits),
            thresholds=tuple(sorted({*thresholds, *more})),
            factors=tuple(factors),
        )
    )


def _beyond(first: Splits, tried: Sequence[int], *, shortest: float, longest: float) -> list[int]:
    """Return thresholds beyond the end of those that were tried at which the best one lies; none where it does not."""
    best = first.cheapest
    if best is None or best.threshold not in (tried[0], tried[-1]):
        return []
    low, high = (shortest, tried[0]) if best.threshold == tried[0] else (tried[-1], longest)
    between = {round(each) for each in np.linspace(low, high, NUM_BEYOND)} if low < high else set[int]()
    return sorted(between - set(tried))
