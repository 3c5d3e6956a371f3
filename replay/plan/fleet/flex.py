"""How much power a fleet can shed: by formula, and what simulated engines make of the slots that are left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from replay.plan.fleet.check.pool import Verification, verify
from replay.plan.fleet.inputs.profiles import Source
from replay.plan.fleet.size import Check
from replay.plan.fleet.text import interval_text, verification_document
from replay.plan.json_values import or_null
from replay.units import shown_time
from sim.fleet import Lengths
from sim.fleet.energy import Curtailment, curtail
from sim.fleet.sizing import Objective, pool_at

SHARES = tuple(each / 20 for each in range(15))
"""Of the fleet's power at this rate, those that are shed."""
LASTS = (
    "lasts: by formula, not simulated: until the queue that grows makes TTFT p99 as long as the SLO has it"
)
KEEPS_UP = 0.97
"""A fleet keeps up where it answers so much of what comes, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A share of the power shed. ``seen``: simulated with the slots that are left; None: not, or there are none.

    ``keeps_up``: whether the simulated engines answer as fast as requests come; None: not simulated.
    """

    formula: Curtailment
    seen: Verification | None = None
    keeps_up: bool | None = None


def cuts_of(
    source: Source,
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    context: int,
    engines: int,
    check: Check | None,
) -> list[Cut]:
    """Return what shedding each of ``SHARES`` does, by formula, and with ``check`` simulated."""
    cuts = curtail(
        source.profile, lengths, rate_per_s, objective, context=context, engines=engines, shares=SHARES
    )
    if check is None:
        return [Cut(formula=each) for each in cuts]
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
    return [_cut(each, seen.get(each.slots), rate_per_s) for each in cuts]


def _cut(formula: Curtailment, seen: Verification | None, rate_per_s: float) -> Cut:
    keeps_up = seen is not None and seen.rate_per_s >= KEEPS_UP * rate_per_s
    return Cut(formula=formula, seen=seen, keeps_up=keeps_up)


def flex_lines(cuts: Sequence[Cut], *, engines: int) -> list[str]:
    """Return a row per share of power shed."""
    is_simulated = any(each.seen is not None for each in cuts)
    head = f"{'shed':>6}{'power shed':>13}{'slots':>8}{'TTFT p99':>12}{'lasts':>14}"
    head += f"{'TTFT p99, simulated':>24}" if is_simulated else ""
    rows = [_row(each.formula) + (f"{_seen_text(each):>24}" if is_simulated else "") for each in cuts]
    return [
        f"by formula, {engines} engines; slots: requests at once per engine that the rest of the power allows",
        head,
        *rows,
        LASTS,
        *([] if is_simulated else ["--verify simulates the slots of every row"]),
    ]


def _row(cut: Curtailment) -> str:
    ttft = "no end" if math.isinf(cut.ttft_p99_s) else shown_time(cut.ttft_p99_s * 1e6)
    return (
        f"{cut.shed_frac:>6.0%}{cut.shed_w / 1000:>10.1f} kW{cut.slots:>8}{ttft:>12}{_lasts(cut.lasts_s):>14}"
    )


def _seen_text(cut: Cut) -> str:
    if cut.seen is None:
        return "-"
    return interval_text(cut.seen.ttft_p99) if cut.keeps_up else "the queue grows"


def _lasts(seconds: float) -> str:
    if math.isinf(seconds):
        return "for ever"
    return "not at all" if seconds == 0 else shown_time(seconds * 1e6)


def flex_document(cuts: Sequence[Cut], *, engines: int) -> dict[str, object]:
    """Return the JSON document; null for a time without an end."""
    rows = [
        {
            **{key: or_null(value) for key, value in asdict(each.formula).items()},
            "keeps_up": each.keeps_up,
            "verified": None if each.seen is None else verification_document(each.seen),
        }
        for each in cuts
    ]
    told = {"lasts_s_method": "analytic"}  # of every row, simulated or not
    return {"schema_version": 1, "method": "analytic", **told, "engines": engines, "cuts": rows}
