"""A run's figures with all steps longer, or shorter, by the fit's uncertainty: two further simulations.

The run itself is in the band, too: at both paces a batch may be formed in another way, and both be slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from replay.numbers.argument_ranges import FACTOR
from replay.twin.config_read import twin_of
from replay.twin.twin_config import with_pools
from sim.latency import at_pace
from traces import in_unit, unit_of
from traces.facts import AnswerPart, TermRows
from traces.strict.arguments import TWIN, takes

if TYPE_CHECKING:
    from replay.numbers.distribution import Distribution
    from replay.trace.simulation_summary import SimulationSummary
    from replay.twin.twin_config import TwinConfig

SHOWN = ("mean", "p50", "p99")
"""The statistics that have a band."""
Range = tuple[float, float]
Ranges = dict[str, Range | None]
"""The smallest and the largest of the run and the two others by statistic, µs; None where nothing was answered."""


class PaceBand(TypedDict):
    """``delta_frac``: how far steps may be off; ``is_beyond``: whether that is the bound beyond the fitted loads."""

    delta_frac: float
    is_beyond: bool
    ttft_us: Ranges
    tpot_us: Ranges
    e2e_us: Ranges


@takes(twin=TWIN, factor=FACTOR)
def paced(twin: TwinConfig | str | Path, factor: float) -> TwinConfig:
    """Return the twin with all steps, of all its servers, ``factor`` times as long."""
    twin = twin_of(twin)
    return with_pools(
        twin, [replace(pool, latency=at_pace(pool.latency, factor)) for pool in twin.cluster.pools]
    )


def pace_band(
    twin: TwinConfig,
    own: SimulationSummary,
    *,
    is_beyond: bool,
    simulate: Callable[[TwinConfig], SimulationSummary],
) -> PaceBand | None:
    """Return the band of a run whose summary is ``own``; ``simulate``: from a twin to its summary.

    None where the twin has no pace.
    """
    if twin.pace is None:
        return None
    delta = twin.pace.of(is_beyond=is_beyond)
    runs = [own, *(simulate(paced(twin, factor)) for factor in (1 - delta, 1 + delta))]
    return PaceBand(
        delta_frac=delta,
        is_beyond=is_beyond,
        ttft_us=_ranges([each["ttft_us"] for each in runs]),
        tpot_us=_ranges([each["tpot_us"] for each in runs]),
        e2e_us=_ranges([each["e2e_us"] for each in runs]),
    )


def band_parts(band: PaceBand | None) -> list[AnswerPart]:
    """Return the lines of a band that stand under the table of a run."""
    if band is None:
        return []
    where = "beyond the fitted loads" if band["is_beyond"] else "within the fitted loads"
    head = f"pace band: the same run with all steps {band['delta_frac']:.1%} shorter or longer ({where})"
    ranges = {"TTFT": band["ttft_us"], "TPOT": band["tpot_us"], "E2E": band["e2e_us"]}
    rows = [
        (f"  {name}", ", ".join(f"{each} {_text(found, each)}" for each in ("mean", "p99")))
        for name, found in ranges.items()
    ]
    return [head, TermRows(rows, width=7)]


def band_rows(band: PaceBand) -> list[list[str]]:
    """Return a band as rows of a page's table: a metric, and its mean, median and p99 from low to high."""
    named = {"TTFT": band["ttft_us"], "TPOT": band["tpot_us"], "E2E": band["e2e_us"]}
    return [[name, *(_text(found, each) for each in SHOWN)] for name, found in named.items()]


def band_lead(band: PaceBand) -> str:
    """Return an explanation of a band, as a sentence."""
    where = "beyond the loads it was fitted to" if band["is_beyond"] else "within the loads it was fitted to"
    return (
        f"The same run with all steps {band['delta_frac']:.1%} shorter, and longer: by so much the twin may be off "
        f"{where}."
    )


def _ranges(runs: Sequence[Distribution]) -> Ranges:
    """Return from the smallest to the largest."""
    return {
        "mean": _range([each["mean"] for each in runs]),
        "p50": _range([each["p50"] for each in runs]),
        "p99": _range([each["p99"] for each in runs]),
    }  # as in SHOWN; a TypedDict's keys must be literals


def _range(values: Sequence[float | None]) -> Range | None:
    known = [each for each in values if each is not None]
    return (min(known), max(known)) if len(known) == len(values) else None


def _text(ranges: Ranges, statistic: str) -> str:
    """Return a range in the unit of the run's table, which goes by the median."""
    found, median = ranges[statistic], ranges["p50"]
    if found is None:
        return "not known"
    unit = unit_of(0.0 if median is None else median[0])
    return f"{in_unit(found[0], unit)} to {in_unit(found[1], unit)} {unit}"
