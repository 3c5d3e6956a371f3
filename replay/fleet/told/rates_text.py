"""Profiles and rates side by side as lines and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from replay.fleet.plans.costs import HEAD, WIDTHS, cost_cells, year_text
from replay.fleet.plans.rates_compared import WhatIf
from replay.fleet.told.text import gpus_text, power_text, verification_document
from traces import shown_time
from traces.facts import AlignedRows, AnswerPart


def whatif_headline(found: Sequence[WhatIf]) -> str:
    """Return which profile to take at each rate, and why; "" where there is nothing to choose from."""
    if len({each.profile for each in found}) < 2:
        return ""
    able = [each for each in found if each.size is not None]
    if not able:
        return "no profile meets the SLO"
    has_prices = all(each.cost_per_hour for each in able)
    told = []
    for rate in dict.fromkeys(each.rate_per_s for each in able):
        at = [each for each in able if each.rate_per_s == rate]
        best = min(at, key=lambda each: (each.cost_per_hour or 0 if has_prices else 0, each.gpus))
        cost = f"{year_text(best.cost_per_hour, best.currency)} on " if best.cost_per_hour else ""
        alone = ", the only one that meets the SLO" if len(at) == 1 else ""
        told.append(f"{best.profile} at {rate:g} requests/s ({cost}{gpus_text(best.gpus)}{alone})")
    return f"{'cheapest' if has_prices else 'fewest GPUs'}: {'; '.join(told)}"


def whatif_parts(found: Sequence[WhatIf]) -> list[AnswerPart]:
    """Return what to take, and a row per profile and rate."""
    wide = max(10, *(len(each.profile) + 2 for each in found))
    head = ("profile", "req/s", "GPUs", "asked by", "TTFT p99", "seats taken", *HEAD, "power", "tok/J")
    widths = (-wide, 8, 8, 13, 12, 12, *WIDTHS, 26, 8)
    rows: list[Sequence[str]] = [head]
    for each in found:
        start = (each.profile, f"{each.rate_per_s:g}")
        if each.size is None:
            rows.append((*start, f"    none: {each.reason}"))
            continue
        power = "-" if each.energy is None else power_text(each.energy.power_w, each.power_between_w)
        tokens = "-" if each.energy is None else f"{each.energy.tokens_per_joule:.3g}"
        ttft, taken, binding = each.size.ttft_p99_s, each.size.active / each.size.slots, each.size.binding
        if each.simulated is not None and each.simulated.verified is not None:
            seen = each.simulated.verified
            ttft, taken = seen.ttft_p99.value, seen.active / each.simulated.at.slots
            binding = f"formula {each.size.engines:,}"
        told = (f"{each.gpus:,}", binding, shown_time(ttft * 1e6), f"{taken:.0%}")
        rows.append((*start, *told, *cost_cells(each.cost_per_hour), power, tokens))
    if any(each.simulated is not None for each in found):
        how = "simulated: the fewest engines that meet the SLO, next to the formula's number"
    else:
        how = "by formula; --verify simulates them"
    first = whatif_headline(found)
    return [*([first] if first else []), AlignedRows(rows, widths), how]


def whatif_document(found: Sequence[WhatIf]) -> dict[str, object]:
    """Return the JSON document."""
    is_simulated = any(each.simulated is not None for each in found)
    return {
        "schema_version": 1,
        "method": "simulated" if is_simulated else "analytic",
        "headline": whatif_headline(found) or None,
        "answers": [
            {
                **asdict(replace(each, simulated=None)),
                "engines": None if each.simulated is None else each.simulated.engines,
                "verified": None
                if each.simulated is None or each.simulated.verified is None
                else verification_document(each.simulated.verified),
            }
            for each in found
        ],
    }
