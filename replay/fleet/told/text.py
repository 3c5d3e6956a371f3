"""A fleet as lines and as a JSON document; each figure says whether a formula or a simulation gave it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from replay.fleet.check.fewest_engines import MORE
from replay.fleet.check.pool import LEAST_SPELLS, Verification
from replay.fleet.check.slo_limits import keeps, limits_of
from replay.fleet.check.steady import PRECISION, STAYS_A_BATCH, BatchedMean
from replay.fleet.inputs.computed import Computed
from replay.fleet.plans.costs import cost_text, per_year
from replay.fleet.plans.pools import PoolsPlan, Together
from replay.fleet.plans.size import FleetPlan, PoolPlan
from replay.fleet.told.headline import headlines
from sim.fleet.sizing import Objective
from traces import MOST_FAILED, or_null, shown_time, tool_version
from traces.facts import AlignedRows, AnswerPart, SideBySide, TermRows, mark

SCHEMA_VERSION = 1


SEATS_OF = {"kv_cache": "KV cache", "max_num_seqs": "max_num_seqs", "bandwidth": "bandwidth"}
"""What bounds the seats, in words."""


def gpus_text(number: int) -> str:
    """Return a number of GPUs in words: 1 GPU, 1,200 GPUs."""
    return f"{number:,} GPU{'s' if number != 1 else ''}"


def fleet_parts(plan: FleetPlan, *, together: Sequence[str] = ()) -> list[AnswerPart]:
    """Return the pools side by side, formula beside simulation, and the sums; ``together``: of all pools at once."""
    columns = [_column(each, plan.objective, is_judged=plan.together is None) for each in plan.pools]
    if all(each.get(CELL) in (None, "1 of 1") for each in columns):
        columns = [{name: cell for name, cell in each.items() if name != CELL} for each in columns]
    gpus, cost = sum(pool.gpus for pool in plan.pools), cost_per_hour(plan)
    is_simulated = any(pool.tried for pool in plan.pools) or plan.together is not None
    terms = [
        ("fleet", f"{gpus_text(gpus)} for {plan.rate_per_s:g} requests/s"),
        *([("cost", cost_text(cost, _currency(plan)))] if cost else []),
        *(("", line) for line in _differences(plan)),
        *(("error", line) for line in error_lines(plan)),
        *([("router", ROUTER)] if is_simulated and plan.together is None and gpus > len(plan.pools) else []),
        *([("noise", NOISE)] if is_simulated else []),
    ]
    shown: list[AnswerPart] = [*headlines(plan), SideBySide(columns), "", *together]
    return [*shown, TermRows(terms), *(f"note: {note}" for note in plan.notes)]


ROUTER = "least-loaded: a request goes to the engine of its pool that has the fewest (vtwin run: --routing)"
"""How a pool's simulated engines get their requests."""
CELL = "  cells simulated"
"""A large pool is simulated as one of several equal parts, each with its share of the engines and of the requests."""
NOISE = (
    "± is the noise of the simulation (90 %): how far its figure may lie from that of an endless run of the same "
    "engines. It is no error of the model"
)
"""What an interval of a verified fleet is of."""


def error_lines(plan: FleetPlan) -> list[str]:
    """Return how far the step times behind each profile were off on real servers, or that it is not known."""
    said = {}
    for pool in plan.pools:
        name, error = pool.source.name, pool.source.error
        if error is not None:
            said[name] = f"{name}: {error.sentence}"
        elif pool.source.held_out is not None and pool.source.held_out.errors:
            said[name] = f"{name}: {pool.source.held_out.text}"
        elif pool.source.is_fitted:
            said[name] = f"{name}: that of the twin's own fit (see its calibration report)"
        else:
            said[name] = f"{name}: not known; its figures were not compared with measurements"
    return list(said.values())


def cost_per_hour(plan: FleetPlan) -> float | None:
    """Return what all pools cost in an hour; None without prices."""
    total = sum(pool.provisioned * pool.source.profile.cost_per_hour for pool in plan.pools)
    return total or None


def _currency(plan: FleetPlan) -> str:
    """Return the currency of all costs, "" where it is not known, or not one."""
    known = {pool.source.currency for pool in plan.pools}
    return known.pop() if len(known) == 1 else ""


def _column(pool: PoolPlan, objective: Objective, *, is_judged: bool) -> dict[str, str]:
    analytic, at, seen = pool.analytic, pool.at, pool.verified
    cells = {
        "pool": pool.name,
        "profile": pool.source.name,
        "requests/s": f"{pool.need.rate_per_s:.4g}",
        "longest request": f"{pool.need.context:,}",
        **_seats(pool),
        "engines by formula": f"{analytic.engines:,} ({analytic.binding})",
        ("  the last tried" if pool.is_met(objective) is False else "  recommended"): f"{pool.engines:,}",
        **_spare(pool),
        "TTFT p99, formula": _within(at.ttft_p99_s, objective.ttft_p99_s),
        "  waiting for a seat": _time_or_none(at.wait_p99_s),
        **_under_way(pool),
        "TPOT mean, formula": shown_time(at.tpot_s * 1e6),
        "running per engine, formula": f"{at.active:.1f}",
        "  seats taken": _taken(at.active, pool),
        "  rate, of full engines' rate": f"{at.utilization:.0%}",
    }
    if seen is not None:
        cells |= _simulated(seen, pool, objective, is_judged=is_judged)
    if pool.second is not None:
        cells[f"TTFT p99, another seed, {MORE} more"] = interval_text(pool.second.ttft_p99)
    if pool.source.profile.nominal_w:
        cells["power, formula"] = power_text(pool.energy.power_w, pool.power_between_w)
        cells["  tokens per joule"] = f"{pool.energy.tokens_per_joule:.3g}"
    return cells


def power_text(power_w: float, between_w: tuple[float, float] | None) -> str:
    """Return a power, and between which it lies where the idle power is not known well."""
    if between_w is None:
        return f"{power_w / 1000:,.1f} kW"
    return f"{power_w / 1000:,.1f} kW ({between_w[0] / 1000:,.2f} to {between_w[1] / 1000:,.2f})"


def _spare(pool: PoolPlan) -> dict[str, str]:
    """Return how often enough engines are up, and how many it takes for 99 % of the time; nothing where all are up."""
    if pool.availability == 1:
        return {}
    return {
        "  with spares for failures": f"{pool.provisioned:,}",
        "  enough of them work": f"{pool.enough_frac:.1%} of the time",
        "  for 99 % of the time": f"{pool.provisioned_99:,}",
    }


def _seats(pool: PoolPlan) -> dict[str, str]:
    """Return how many requests run at once on an engine, what bounds them, and what would where the KV cache does."""
    profile, bound = pool.source.profile, pool.seats_bound_by
    cells = {"seats per engine": f"{pool.at.slots:,} ({SEATS_OF[bound]})"}
    is_less = bound == "kv_cache" and not profile.reserves_context
    return cells | ({"  max_num_seqs": f"{profile.max_slots:,}"} if is_less else {})


def _taken(active: float, pool: PoolPlan) -> str:
    """Return the share of the seats that so many requests on an engine take."""
    return f"{active / pool.at.slots:.0%} of {pool.at.slots:,}"


def _under_way(pool: PoolPlan) -> dict[str, str]:
    """Return how long newcomers wait for the step under way; nothing of a profile that knows no steps."""
    longest = pool.at.step_s
    return {} if longest == 0 else {"  for the step under way": f"up to {shown_time(longest * 1e6)}"}


def _simulated(
    seen: Verification, pool: PoolPlan, objective: Objective, *, is_judged: bool
) -> dict[str, str]:
    """Return the simulation's rows; ``is_judged``: the objective is this pool's, not all pools' together."""
    kept = {each.name: f" {mark(each.is_kept)}" for each in limits_of(seen, objective) if is_judged}
    window = seen.window
    return {
        "TTFT p99, simulated": f"{interval_text(seen.ttft_p99)}{kept.get('TTFT p99', '')}",
        "  TTFT p50": interval_text(seen.ttft_p50),
        "TPOT mean, simulated": interval_text(seen.tpot_mean),
        "  TPOT p99": f"{interval_text(seen.tpot_p99)}{kept.get('TPOT p99', '')}",
        "E2E p99, simulated": interval_text(seen.e2e_p99),
        "running per engine, simulated": f"{seen.active:.1f}",
        "  seats taken, simulated": _taken(seen.active, pool),
        "  requests simulated": f"{seen.num_requests:,}",
        CELL: f"1 of {seen.cells}",
        "  measured": f"{window.begins_s:,.0f} to {window.ends_s:,.0f} s of {window.last_s:,.0f} s",
        f"  needed for ±{PRECISION:.0%}": "-" if math.isnan(seen.needed_s) else f"{seen.needed_s:,.0f} s",
    }


def interval_text(measured: BatchedMean) -> str:
    """Return a figure with half of its interval, which is the simulation's noise and no error."""
    if math.isnan(measured.low):
        return shown_time(measured.value * 1e6)
    return f"{shown_time(measured.value * 1e6)} ± {shown_time(measured.half * 1e6)}"


def _within(value: float, limit: float) -> str:
    return f"{_time_or_none(value)} {mark(value <= limit)}"


def _time_or_none(seconds: float) -> str:
    """Return a time, or that it has no end."""
    return "no end" if math.isinf(seconds) else shown_time(seconds * 1e6)


def _differences(plan: FleetPlan) -> list[str]:
    """Return a sentence for each pool in which the simulation changed the number, or was too short."""
    said = []
    for pool in plan.pools:
        if not pool.tried:
            said.append(f"{pool.name}: by formula alone, not simulated")
            continue
        if plan.together is None:
            said += _changes(pool, plan.objective)
            said += [] if pool.verified is None else remarks(pool.name, pool.verified)
    if plan.together is not None:
        said += remarks("all pools", plan.together)
    return said


def _changes(pool: PoolPlan, objective: Objective) -> list[str]:
    if pool.is_met(objective) is False:
        return []  # the first line says so
    first, said = pool.of_formula, []
    if first is not None and pool.engines > pool.analytic.engines and not keeps(first, objective):
        said.append(
            f"{pool.name}: {first.engines:,} engines by formula break in simulation: {broken_text(first, objective)}; "
            f"{pool.engines:,} meet the SLO"
        )
    for each in pool.confirmed:
        if not keeps(each, objective):
            told = broken_text(each, objective)
            said.append(
                f"{pool.name}: {each.engines:,} engines break with another seed at {MORE} more load: {told}"
            )
    return said


def broken_text(seen: Verification, objective: Objective) -> str:
    """Return the limits that a simulation broke, each with its value."""
    return " and ".join(each.text for each in limits_of(seen, objective) if not each.is_kept)


def remarks(name: str, seen: Verification) -> list[str]:
    """Return how many requests were not answered, and what a longer run would do better."""
    window, said = seen.window, []
    if seen.failed_frac > MOST_FAILED:
        said.append(f"{name}: {seen.failed_frac:.1%} of the measured requests were not answered")
    if not window.is_steady:
        said.append(
            f"{name}: measured from {window.begins_s:,.0f} to {window.ends_s:,.0f} of {window.last_s:,.0f} s; by the "
            f"formulas the fleet fills for {window.filling_s:,.0f} s and drains for {window.stay_s:,.0f} s "
            "(--num-requests, --measure)"
        )
    if seen.ttft_p99.half > PRECISION * seen.ttft_p99.value:
        said.append(
            f"{name}: TTFT p99 is known to ±{seen.ttft_p99.half / seen.ttft_p99.value:.0%}; ±{PRECISION:.0%} takes a "
            f"run of about {seen.needed_s:,.0f} s (--num-requests)"
        )
    if not seen.is_seen_full:
        said.append(
            f"{name}: free seats are {max(seen.room, 0.0):.1f} standard deviations of those taken, and the run saw the "
            f"fleet full in {seen.full_spells:,} spells; to know what that does to TTFT p99 it takes {LEAST_SPELLS} "
            "(--num-requests)"
        )
    if not window.has_long_batches:
        said.append(
            f"{name}: the intervals are from {window.num_batches} batches of {window.batch_s:,.1f} s, and requests "
            f"stay up to {window.stay_s:,.1f} s, which takes {STAYS_A_BATCH * window.stay_s:,.0f} s: they may be too "
            "narrow (--num-requests, --measure)"
        )
    return said


def pools_parts(plan: PoolsPlan) -> list[AnswerPart]:
    """Return the fleet of several pools, and what the simulation of all together found."""
    shown, objective = list[str](), plan.fleet.objective
    for each in _shown(plan):
        counts = " + ".join(f"{number:,}" for number in each.engines)
        parts = ", ".join(
            f"{pool.name} {share:.1%}"
            for pool, share in zip(plan.fleet.pools, each.check.shares, strict=True)
        )
        whole = each.check.whole
        again = f" with another seed at {MORE} more load" if each.run > 0 else ""
        shown.append(
            f"simulated together{again}, router {plan.router}, {counts} engines: TTFT p99 "
            f"{interval_text(whole.ttft_p99)} {mark(keeps(whole, objective))}, "
            f"p50 {interval_text(whole.ttft_p50)}; sent to {parts}"
        )
    if plan.tried and not plan.fleet.is_met:
        last = broken_text(plan.tried[-1].check.whole, objective)
        shown.append(f"no number of engines that was tried meets the SLO in simulation; the last: {last}")
    return fleet_parts(plan.fleet, together=shown)


def _shown(plan: PoolsPlan) -> list[Together]:
    """Return the simulations of the fleet that is recommended; without one, the last."""
    mine = [each for each in plan.tried if each.engines == plan.best and each.run >= 0]
    return mine or list(plan.tried[-1:])


def pools_document(plan: PoolsPlan) -> dict[str, object]:
    """Return the JSON document: that of ``size``, the router, and what verified it."""
    together = [
        {
            "confirms": each.run == 1,
            "is_glance": each.run < 0,
            "engines": list(each.engines),
            "shares": list(each.check.shares),
            **verification_document(each.check.whole),
        }
        for each in plan.tried
    ]
    return {
        **fleet_document(plan.fleet),
        "router": plan.router,
        "verified_by": plan.level,
        "together": together,
    }


def fleet_document(plan: FleetPlan) -> dict[str, object]:
    """Return the JSON document; rates in requests/s, times in µs, null where nothing is known."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": tool_version(),
        "rate": plan.rate_per_s,
        "slo_us": {
            "ttft_p99": plan.objective.ttft_p99_s * 1e6,
            **({} if plan.objective.tpot_p99_s is None else {"tpot_p99": plan.objective.tpot_p99_s * 1e6}),
        },
        "headline": headlines(plan),
        "pools": [_pool(pool, plan.objective) for pool in plan.pools],
        "gpus": sum(pool.gpus for pool in plan.pools),
        "cost_per_hour": cost_per_hour(plan),
        "cost_per_year": per_year(cost_per_hour(plan)),
        "verified": _worst(plan),
        "met": plan.is_met,
        "notes": [*plan.notes, *_differences(plan)],
    }


def _pool(pool: PoolPlan, objective: Objective) -> dict[str, object]:
    at, misfit = pool.at, pool.source.misfit
    return {
        "name": pool.name,
        "profile": pool.source.name,
        "context": pool.need.context,
        "rate": pool.need.rate_per_s,
        "share": pool.share,
        "engines": pool.engines,
        "gpus": pool.gpus,
        "slots": at.slots,
        "slots_bound_by": pool.seats_bound_by,
        "slots_taken_frac": at.active / at.slots,
        "utilization": at.utilization,
        "active": at.active,
        "p99_ttft_us": _us(at.ttft_p99_s),
        "p99_wait_us": _us(at.wait_p99_s),
        "step_under_way_most_us": _us(at.step_s),
        "tpot_us": _us(at.tpot_s),
        "service_us": _us(at.service_s),
        "throughput": at.throughput,
        "availability": pool.availability,
        "provisioned": pool.provisioned,
        "enough_up_frac": pool.enough_frac,
        "provisioned_99": pool.provisioned_99,
        "method": "analytic",
        "analytic": {
            "engines": pool.analytic.engines,
            "engines_without_cap": pool.uncapped,
            "binding": pool.analytic.binding,
            "p99_ttft_us": _us(pool.analytic.ttft_p99_s),
            "utilization": pool.analytic.utilization,
        },
        "cost_per_year": pool.cost_per_year or None,
        "power_w": pool.energy.power_w or None,
        "power_between_w": pool.power_between_w,
        "known_error": None if pool.source.error is None else pool.source.error.document(),
        "broken_by_formula": [
            each.name
            for each in (() if pool.of_formula is None else limits_of(pool.of_formula, objective))
            if not each.is_kept
        ],
        "misfit": None if misfit is None else {"median": misfit.median, "max": misfit.largest},
        "verified": None if pool.verified is None else verification_document(pool.verified),
        "confirmed": None if pool.second is None else verification_document(pool.second),
        "tried": [{"engines": each.engines, **verification_document(each)} for each in pool.tried],
    }


def verification_document(seen: Verification) -> dict[str, object]:
    """Return a simulation's figures as JSON has them."""
    return {
        **_interval("ttft_p50", seen.ttft_p50),
        **_interval("ttft_p99", seen.ttft_p99),
        **_interval("tpot_mean", seen.tpot_mean),
        **_interval("tpot_p99", seen.tpot_p99),
        **_interval("e2e_p50", seen.e2e_p50),
        **_interval("e2e_p99", seen.e2e_p99),
        "active": seen.active,
        "utilization": seen.utilization,
        "request_throughput": seen.rate_per_s,
        "failed_frac": seen.failed_frac,
        "cells": seen.cells,
        "num_requests": seen.num_requests,
        "num_measured": seen.num_measured,
        "duration_us": _us(seen.window.last_s),
        "measured_from_us": _us(seen.window.begins_s),
        "measured_to_us": _us(seen.window.ends_s),
        "filling_us": _us(seen.window.filling_s),
        "stay_us": _us(seen.window.stay_s),
        "batch_us": _us(seen.window.batch_s),
        "needed_us": _us(seen.needed_s),
        "num_batches": seen.window.num_batches,
        "room": or_null(seen.room),
        "full_spells": seen.full_spells,
        "long_enough": seen.is_long_enough,
        "engine_cpu_s": seen.cpu_s,
        "method": "simulated",
    }


def _interval(name: str, measured: BatchedMean) -> dict[str, float | None]:
    ends = {"_us": measured.value, "_low_us": measured.low, "_high_us": measured.high}
    return {f"{name}{end}": _us(seconds) for end, seconds in ends.items()}


def _worst(plan: FleetPlan) -> dict[str, object] | None:
    """Return the simulation of all pools together, else of the pool with the highest TTFT; None: not simulated."""
    if plan.together is not None:
        return verification_document(plan.together)
    checks = [pool.verified for pool in plan.pools]
    if None in checks:
        return None
    known = [each for each in checks if each is not None]
    return verification_document(max(known, key=lambda each: each.ttft_p99.value))


def _us(seconds: float) -> float | None:
    return or_null(seconds * 1e6)


def profile_parts(made: Computed) -> list[AnswerPart]:
    """Return the terms of a computed profile, ms, and what bounds a prompt."""
    profile, prefill = made.source.profile, made.prefill
    assumed = ", ".join(f"{name} {value:g}" for name, value in made.assumptions.items())
    of = f"  H is per request of {profile.calibration_context:,} tokens"
    rows = [
        ["", "W", "H", ""],
        *([each.name, _ms(each.w_s), _ms(each.h_s), f"  {each.source}"] for each in made.terms),
        ["together", f"{profile.w_s * 1e3:.3f}", f"{profile.h_s * 1e3:.3f}", of],
    ]
    return [
        f"terms of {made.source.name} at this workload's lengths, ms",
        AlignedRows(rows, [-max(len(each.name) for each in made.terms) - 2, 9, 9, 0]),
        f"a chunk of {prefill.tokens:,} prompt tokens: compute {prefill.compute_s * 1e3:.1f}, memory "
        f"{prefill.memory_s * 1e3:.1f}, so {prefill.bound} bound; the step takes {prefill.step_s * 1e3:.1f}",
        f"assumed (roofline's defaults; shares of the peak, µs): {assumed}",
    ]


def _ms(seconds: float) -> str:
    """Return milliseconds with three digits; what rounds to nothing has no sign."""
    return f"{round(seconds * 1e3, 3) + 0.0:.3f}"
