"""Power that a fleet can shed, as lines and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict

from replay.fleet.plans.flex import PowerCut
from replay.fleet.told.text import interval_text, power_text, verification_document
from traces import shown_time
from traces.facts import AlignedRows, AnswerPart

LASTS = "lasts: by formula, not simulated: until the growing queue brings TTFT p99 to the SLO's limit"
IDLE = "in brackets: with the least and with the most power that an idle engine with a loaded model may draw"
RANGES = (("shed", "_w"), ("slots", ""), ("ttft_p99", "_s"), ("lasts", "_s"))
"""Figures, and their units, that have a range if the idle power is not known well."""


def flex_parts(cuts: Sequence[PowerCut], *, engines: int) -> list[AnswerPart]:
    """Return a row per share of power shed."""
    is_simulated = any(each.seen is not None for each in cuts)
    is_between = any(each.with_idle is not None for each in cuts)
    head = [
        "shed",
        "power shed",
        "seats",
        "TTFT p99",
        "lasts",
        *(["TTFT p99, simulated"] if is_simulated else []),
    ]
    rows = [[*_cells(each), *([_seen_text(each)] if is_simulated else [])] for each in cuts]
    return [
        f"by formula, {engines} engines; seats: requests at once per engine that the rest of the power allows",
        AlignedRows([head, *rows]),
        *([IDLE] if is_between else []),
        LASTS,
        *([] if is_simulated else ["--verify simulates the seats of every row"]),
    ]


def _cells(cut: PowerCut) -> list[str]:
    """Return a cut by formula, and in brackets its range with other idle powers."""
    formula, shed, slots, lasts = cut.formula, *(cut.between(name) for name in ("shed_w", "slots", "lasts_s"))
    ttft = "no end" if math.isinf(formula.ttft_p99_s) else shown_time(formula.ttft_p99_s * 1e6)
    return [
        f"{formula.shed_frac:.0%}",
        power_text(formula.shed_w, None) + _brackets(shed, lambda each: f"{each / 1000:,.2f}"),
        f"{formula.slots}" + _brackets(slots, lambda each: f"{each:.0f}"),
        ttft,
        _lasts(formula.lasts_s) + _brackets(lasts, _lasts),
    ]


def _brackets(between: tuple[float, float] | None, shown: Callable[[float], str]) -> str:
    """Return a range in brackets; nothing where there is none, or both ends look alike."""
    if between is None or shown(between[0]) == shown(between[1]):
        return ""
    return f" ({shown(between[0])} to {shown(between[1])})"


def _seen_text(cut: PowerCut) -> str:
    if cut.seen is None:
        return "-"
    return interval_text(cut.seen.ttft_p99) if cut.keeps_up else "the queue grows"


def _lasts(seconds: float) -> str:
    if math.isinf(seconds):
        return "no limit"
    return "not at all" if seconds == 0 else shown_time(seconds * 1e6)


def flex_document(cuts: Sequence[PowerCut], *, engines: int) -> dict[str, object]:
    """Return the JSON document; None for a range that is not asked."""
    rows = [
        {
            **asdict(each.formula),
            **{f"{name}_between{unit}": each.between(name + unit) for name, unit in RANGES},
            "keeps_up": each.keeps_up,
            "verified": None if each.seen is None else verification_document(each.seen),
        }
        for each in cuts
    ]
    told = {"lasts_s_method": "analytic"}  # of every row, simulated or not
    return {"schema_version": 1, "method": "analytic", **told, "engines": engines, "cuts": rows}
