"""The same requests by several twins, side by side: what a change of settings does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from replay.numbers.distribution import Distribution
from replay.simulation.variants.kv_tier import (
    EMPTY,
    cheapest_line,
    host_memory_gib,
    per_million_tokens,
    price_per_hour,
    tier_cells,
)
from replay.simulation.variants.no_answer import mark_unanswered, unanswered_notes
from replay.simulation.variants.variant import VariantResult
from replay.timeline.watch_engine import Usage
from replay.trace.simulation_summary import SimulationSummary
from replay.trace.summary_text import has_idle_end, why_no_verdict
from traces import shown_time
from traces.facts import AnswerPart, SideBySide

if TYPE_CHECKING:
    from replay.simulation.pace_band import Ranges
    from sim.cluster import Pool


OFFERED = "  offered"
BAND = "  pace band,"
"""The row below a p99: its range over the paces of the fit."""
INSTANCES_MEAN = "instances, mean"
INSTANCES_MOST = "  most at once"
COSTS = ("GPU-hours", "cost", INSTANCES_MEAN, INSTANCES_MOST, "size changes", "failures")
"""Rows of clusters that cost something, or whose size changes."""
SESSIONS = (
    "sessions complete",
    "  to finish, p50",
    "  to finish, p99",
    "  of it for the model, mean",
    "  computed again",
)
"""Rows of sessions as wholes."""
NO_PACE = "verdict -: answers set the pace, so there is no rate to fall behind; what is too slow, --slo ttft=500ms says"
"""Why there is no verdict where requests wait for answers."""
SWEPT = ("rate",)
"""Loads of which several may be simulated side by side, and of which a server keeps up with some."""
IDLE_END = "requests/s: over the whole run; at its end the last answers come and no request is sent"
"""What explains a throughput below the rate that was sent."""


def document(results: Sequence[VariantResult], *, warnings: Sequence[str] = ()) -> dict[str, object]:
    """Return the JSON document: the variants' summaries, each with what was set and what was in use, and warnings."""
    return {
        "schema_version": results[0].summary["schema_version"],
        "tool_version": results[0].summary["tool_version"],
        "variants": [
            {
                "name": each.variant.name,
                "set": dict(each.variant.settings),
                "unanswered": each.variant.twin.unanswered_document,
                **_in_use(each),
                **each.summary,
                "fitness": each.score,
                "infrastructure": each.infrastructure,
                **_price(each),
                "pace_band": each.band,
            }
            for each in results
        ],
        "warnings": list(warnings),
    }


def _in_use(result: VariantResult) -> dict[str, object]:
    usage = result.usage
    kv = usage.kv_frac
    return {
        "seats_in_use": {"mean": float(usage.running.mean()), "max": float(usage.running.max(initial=0))},
        "num_seats": usage.num_seats,
        "num_seats_up_mean": usage.num_seats if usage.seats_up is None else usage.seats_up,
        "kv_usage_frac": None if kv is None else {"mean": float(kv.mean()), "max": float(kv.max(initial=0))},
        "waits_for": usage.waits_for,
    }


def _price(result: VariantResult) -> dict[str, float | None]:
    """Return the variant's price, nothing if prices were not given."""
    if result.prices is None:
        return {}
    return {
        "host_memory_gib": host_memory_gib(result.variant.twin),
        "price_per_hour": price_per_hour(result.variant.twin, result.prices),
        "price_per_million_output_tokens": per_million_tokens(
            result.variant.twin, result.summary, result.prices
        ),
    }


def variants_parts(results: Sequence[VariantResult]) -> list[AnswerPart]:
    """Return the variants side by side, a column each, and the notes on the figures."""
    notes = notes_of(results)
    return [SideBySide(columns_of(results)), *(["", *notes] if notes else [])]


def columns_of(results: Sequence[VariantResult]) -> list[dict[str, str]]:
    """Return each variant's figures by their names, as text; all have the same, without those that none has."""
    columns = [_column(each) for each in results]
    bands = {f"{BAND} {name}": "-" for name in ("TTFT", "TPOT", "E2E")}
    empty = {"failed": "", OFFERED: "-", **bands, **dict.fromkeys((*COSTS, *SESSIONS), "-"), **EMPTY}
    unsaid = {name for name, nothing in empty.items() if all(each[name] == nothing for each in columns)}
    columns = [{name: cell for name, cell in each.items() if name not in unsaid} for each in columns]
    return mark_unanswered(columns, [each.variant.twin.unanswered_keys for each in results])


def notes_of(results: Sequence[VariantResult]) -> list[str]:
    """Return the notes on the figures."""
    notes = unanswered_notes([each.variant.twin.unanswered_keys for each in results])
    notes += cheapest_line(results, results[0].prices)
    notes += _highest_load(results)
    notes += _without_verdict(results)
    return notes + ([IDLE_END] if any(_is_idle_at_end(each.summary) for each in results) else [])


def _without_verdict(results: Sequence[VariantResult]) -> list[str]:
    """Return why no run has a verdict, [] where one has."""
    if any(each.summary["verdict"] is not None for each in results):
        return []
    whys = dict.fromkeys(
        NO_PACE if each.summary["offered_rate_per_s"] is None else why_no_verdict(each.summary)
        for each in results
    )
    return [why if why == NO_PACE else f"verdict -: {why}" for why in whys if why is not None]


def _highest_load(results: Sequence[VariantResult]) -> list[str]:
    """Return the line that says that no load of several was too high, so that a higher one may be served as well."""
    for what in SWEPT:
        loads = {float(each.variant.varied[what]) for each in results if what in each.variant.varied}
        if len(loads) < 2:
            continue
        most = [each for each in results if float(each.variant.varied[what]) == max(loads)]
        if all(each.summary["verdict"] == "stable" for each in most):
            return [
                f"{what} {max(loads):g}, the highest that was tried, is kept up with: more may be served, too"
            ]
    return []


def _is_idle_at_end(summary: SimulationSummary) -> bool:
    """Return whether a server that keeps up answers less than it was sent, its run ending without new requests."""
    return summary["verdict"] != "overloaded" and has_idle_end(summary)


def _column(result: VariantResult) -> dict[str, str]:
    """Return the figures of a variant by their names, as text."""
    summary, usage = result.summary, result.usage
    by_status = summary["num_by_status"]
    num_failed = summary["num_requests"] - by_status.get("ok", 0) - by_status.get("cancelled", 0)
    kv = usage.kv_frac
    cells = {
        **result.variant.varied,
        "requests": f"{summary['num_requests']:,}",
        "failed": f"{num_failed:,}" if num_failed else "",
        "requests/s": _number(summary["request_throughput"]),
        OFFERED: _number(summary["offered_rate_per_s"]),
        "output tokens/s": _number(summary["output_token_throughput"]),
        **_times("TTFT", summary["ttft_us"], result.band and result.band["ttft_us"]),
        **_times("TPOT", summary["tpot_us"], result.band and result.band["tpot_us"]),
        **_gaps(summary["itl_us"]),
        **_times("E2E", summary["e2e_us"], result.band and result.band["e2e_us"]),
        "seats in use": f"{usage.running.mean():.3g} of {_seats(usage)}",
        "  at most": f"{usage.running.max(initial=0):,.0f}",
        "KV in use": "-" if kv is None else f"{kv.mean():.1%}",
        "  KV at most": "-" if kv is None else f"{kv.max(initial=0):.1%}",
        "preemptions": f"{summary['num_preemptions']:,}",
        "prefix hits": _percent(summary["prefix_hit_frac"]),
        **_sessions(summary),
    }
    cells |= tier_cells(result.variant.twin, summary, result.prices) | _costs(result)
    if (good := summary["goodput"]) is not None:
        cells["within SLO"] = _percent(good["good_frac"])
    if result.score is not None:
        cells["fitness"] = f"{result.score['score']:.4g}"
    return {**cells, "queue waits for": usage.waits_for or "-", "verdict": summary["verdict"] or "-"}


def _sessions(summary: SimulationSummary) -> dict[str, str]:
    """Return how long sessions take as wholes, ``-`` where there are none of several requests."""
    sessions = summary["groups"]["sessions"]
    if sessions is None:
        return dict.fromkeys(SESSIONS, "-")
    times = (sessions["duration_us"]["p50"], sessions["duration_us"]["p99"], sessions["model_us"]["mean"])
    cells = [
        f"{sessions['num_complete']:,} of {sessions['num_sessions']:,}",
        *("-" if each is None else shown_time(float(each)) for each in times),
        _percent(sessions["recomputed_frac"]),
    ]
    return dict(zip(SESSIONS, cells, strict=True))


def _seats(usage: Usage) -> str:
    """Return the seats that there are: where instances come and go, those of instances that serve, on average."""
    if usage.seats_up is None or round(usage.seats_up) == usage.num_seats:
        return f"{usage.num_seats:,}"
    return _number(usage.seats_up)


def _costs(result: VariantResult) -> dict[str, str]:
    """Return the cost and the number of a variant's instances, ``-`` if they are not part of the answer."""
    parts = result.infrastructure
    if parts is None or not result.is_about_cost:
        return dict.fromkeys(COSTS, "-")
    cost = parts["cost"]
    mean = sum(each["instances_mean"] or 0.0 for each in parts["pools"])
    scales = any(pool.autoscaler is not None for pool in _pools(result))
    return {
        "GPU-hours": _number(parts["gpu_hours"]),
        "cost": "-" if cost is None else f"{cost:,.2f}",
        INSTANCES_MEAN: f"{mean:.4g}",
        INSTANCES_MOST: f"{result.instances_most:,}",
        "size changes": f"{len(parts['scaling']):,}" if scales else "-",
        "failures": f"{parts['num_failures']:,}" if parts["num_failures"] else "-",
    }


def _pools(result: VariantResult) -> Sequence[Pool]:
    return result.variant.twin.cluster.pools


def _times(name: str, values: Distribution, band: Ranges | None) -> dict[str, str]:
    """Return a latency's median and p99, and from where to where the p99 is at the paces that a fit leaves open."""
    shown = {f"{name} {stat}": values[stat] for stat in ("p50", "p99")}
    cells = {label: "-" if value is None else shown_time(float(value)) for label, value in shown.items()}
    found = None if band is None else band["p99"]
    reach = "-" if found is None else f"{shown_time(found[0])} to {shown_time(found[1])}"
    return {**cells, f"{BAND} {name}": reach}


def _gaps(values: Distribution) -> dict[str, str]:
    """Return the median and the tail of the gaps between tokens."""
    shown = {f"ITL {stat}": values[stat] for stat in ("p50", "p99")}
    return {label: "-" if value is None else shown_time(float(value)) for label, value in shown.items()}


def _number(value: float | None) -> str:
    return "-" if value is None else (f"{value:,.0f}" if value >= 1000 else f"{value:.4g}")


def _percent(value: float | None) -> str:
    return "-" if value is None or np.isnan(value) else f"{value:.1%}"
