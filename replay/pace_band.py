"""A run's figures with all steps longer, or shorter, by the fit's uncertainty: two further simulations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from replay.argument_ranges import FACTOR
from replay.twin.config_read import twin_of
from replay.twin.twin_config import with_pools
from sim.latency import at_pace
from traces import four_digits
from traces.facts import AnswerPart, TermRows
from traces.strict.arguments import TWIN, takes

if TYPE_CHECKING:
    from replay.distribution import Distribution
    from replay.trace.simulation_summary import SimulationSummary
    from replay.twin.twin_config import TwinConfig

SHOWN = ("mean", "p50", "p99")
"""The statistics that have a band."""
Range = tuple[float, float]
Ranges = dict[str, Range | None]
"""By statistic: from the faster run's to the slower's, µs; None where nothing was answered."""


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
    twin: TwinConfig, *, is_beyond: bool, simulate: Callable[[TwinConfig], SimulationSummary]
) -> PaceBand | None:
    """Return the band of a run; ``simulate``: from a twin to its summary. None where the twin has no pace."""
    if twin.pace is None:
        return None
    delta = twin.pace.of(is_beyond=is_beyond)
    faster, slower = (simulate(paced(twin, factor)) for factor in (1 - delta, 1 + delta))
    return PaceBand(
        delta_frac=delta,
        is_beyond=is_beyond,
        ttft_us=_ranges(faster["ttft_us"], slower["ttft_us"]),
        tpot_us=_ranges(faster["tpot_us"], slower["tpot_us"]),
        e2e_us=_ranges(faster["e2e_us"], slower["e2e_us"]),
    )


def band_parts(band: PaceBand | None) -> list[AnswerPart]:
    """Return the lines of a band that stand under the table of a run."""
    if band is None:
        return []
    where = "beyond the fitted loads" if band["is_beyond"] else "within the fitted loads"
    head = f"pace band: the same run with all steps {band['delta_frac']:.1%} shorter or longer ({where})"
    ranges = {"TTFT": band["ttft_us"], "TPOT": band["tpot_us"], "E2E": band["e2e_us"]}
    rows = [
        (f"  {name}", ", ".join(f"{statistic} {_text(found[statistic])}" for statistic in ("mean", "p99")))
        for name, found in ranges.items()
    ]
    return [head, TermRows(rows, width=7)]


def band_rows(band: PaceBand) -> list[list[str]]:
    """Return a band as rows of a page's table: a metric, and its mean, median and p99 from low to high."""
    named = {"TTFT": band["ttft_us"], "TPOT": band["tpot_us"], "E2E": band["e2e_us"]}
    return [[name, *(_text(found[each]) for each in SHOWN)] for name, found in named.items()]


def band_lead(band: PaceBand) -> str:
    """Return an explanation of a band, as a sentence."""
    where = "beyond the loads it was fitted to" if band["is_beyond"] else "within the loads it was fitted to"
    return (
        f"The same run with all steps {band['delta_frac']:.1%} shorter, and longer: by so much the twin may be off "
        f"{where}."
    )


def _ranges(faster: Distribution, slower: Distribution) -> Ranges:
    """Return from the smaller to the larger: at another pace another request may come first."""
    return {
        "mean": _range(faster["mean"], slower["mean"]),
        "p50": _range(faster["p50"], slower["p50"]),
        "p99": _range(faster["p99"], slower["p99"]),
    }  # as in SHOWN; a TypedDict's keys must be literals


def _range(one: float | None, other: float | None) -> Range | None:
    return None if one is None or other is None else (min(one, other), max(one, other))


def _text(found: Range | None) -> str:
    if found is None:
        return "not known"
    return f"{four_digits(found[0] / 1e3)} to {four_digits(found[1] / 1e3)} ms"
