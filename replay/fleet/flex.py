"""How much power a fleet can shed: by formula, and by simulating engines with the seats that are left."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from replay.fleet.check.pool import Verification, verify
from replay.fleet.inputs.profiles import ProfileSource
from replay.fleet.size import SizeCheck
from replay.fleet.text import interval_text, power_text, verification_document
from sim.fleet import Lengths
from sim.fleet.energy import Curtailment, curtail
from sim.fleet.profile import GpuProfile
from sim.fleet.sizing import Objective, pool_at
from traces import shown_time
from traces.facts import AlignedRows, AnswerPart

SHARES = tuple(each / 20 for each in range(15))
"""Of the fleet's power at this rate, those that are shed."""
LASTS = "lasts: by formula, not simulated: until the growing queue brings TTFT p99 to the SLO's limit"
IDLE = "in brackets: with the least and with the most power that an idle engine with a loaded model may draw"
RANGES = (("shed", "_w"), ("slots", ""), ("ttft_p99", "_s"), ("lasts", "_s"))
"""Figures, and their units, that have a range if the idle power is not known well."""
KEEPS_UP = 0.97
"""A fleet keeps up if it answers at least this share of the requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCut:
    """A share of the power shed. ``seen``: simulated with the seats that are left; None: not, or there are none.

    ``keeps_up``: whether the simulated engines answer as fast as requests come; None: not simulated. ``with_idle``: the
    same share by formula, with the least and with the most power that an idle engine may draw; None where the profile's
    idle power is taken as it is. The more an idle engine draws, the less power is saved by removing seats, so fewer
    seats are left at the same share.
    """

    formula: Curtailment
    seen: Verification | None = None
    keeps_up: bool | None = None
    with_idle: tuple[Curtailment, Curtailment] | None = None

    def between(self, name: str) -> tuple[float, float] | None:
        """Return the lower and the higher of a figure's two values with other idle power, in the figure's unit."""
        if self.with_idle is None:
            return None
        first, second = (getattr(each, name) for each in self.with_idle)
        return min(first, second), max(first, second)


def cuts_of(
    source: ProfileSource,
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    context: int,
    engines: int,
    check: SizeCheck | None,
) -> list[PowerCut]:
    """Return what shedding each of ``SHARES`` does, by formula, and with ``check`` simulated."""

    def by_formula(profile: GpuProfile) -> list[Curtailment]:
        return curtail(
            profile, lengths, rate_per_s, objective, context=context, engines=engines, shares=SHARES
        )

    cuts = by_formula(source.profile)
    idle = source.idle_between_w
    with_idle: list[tuple[Curtailment, Curtailment] | None] = [None] * len(cuts)
    if idle is not None:
        least, most = (by_formula(replace(source.profile, idle_w=each)) for each in idle)
        with_idle = list(zip(least, most, strict=True))
    seen = (
        {}
        if check is None
        else _simulated(source, lengths, rate_per_s, cuts, context=context, engines=engines, check=check)
    )
    return [
        PowerCut(
            formula=each,
            seen=seen.get(each.slots),
            keeps_up=None if check is None else _keeps_up(seen.get(each.slots), rate_per_s),
            with_idle=others,
        )
        for each, others in zip(cuts, with_idle, strict=True)
    ]


def _simulated(
    source: ProfileSource,
    lengths: Lengths,
    rate_per_s: float,
    cuts: Sequence[Curtailment],
    *,
    context: int,
    engines: int,
    check: SizeCheck,
) -> dict[int, Verification]:
    """Return by number of seats what simulated engines do with this many."""
    service = pool_at(source.profile, lengths, rate_per_s, context=context, engines=engines).service_s
    seen = dict[int, Verification]()
    for slots in dict.fromkeys(each.slots for each in cuts if each.slots > 0):
        seats = min(slots, source.engine.max_num_seqs)
        seen[slots] = verify(
            replace(source, engine=replace(source.engine, max_num_seqs=seats)),
            lengths,
            rate_per_s,
            engines=engines,
            service_s=service,
            seed=check.seed,
            asked=check.asked,
        )
    return seen


def _keeps_up(seen: Verification | None, rate_per_s: float) -> bool:
    return seen is not None and seen.rate_per_s >= KEEPS_UP * rate_per_s


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
