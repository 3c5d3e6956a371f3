"""A capacity as a JSON document and as lines for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from replay.capacity.binding import ADDED_TIMES, ALL, NOTHING, RESOURCES, STEP_TIME, Binding
from replay.capacity.capacity import BURSTS, Capacity
from replay.capacity.value import value_facts
from replay.search.evaluation import FAILED, SETTLING, THROUGHPUT, TOO_SHORT, Evaluation
from replay.twin.cluster_section import routing_name
from traces import MOST_FAILED, RunLimit, counted, shown_time, tool_version
from traces.facts import (
    AlignedRows,
    AnswerPart,
    Fact,
    TermRows,
    count,
    document,
    frac,
    mark,
    of_limit,
    per_s,
    row_of,
    whole,
)

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from sim import EngineConfig

SCHEMA_VERSION = 1
SURVIVES = "after a burst"
"""The term of the rate that survives one."""
BAR = 10
"""Characters of a bar for 100 % of what is allowed; it ends at twice that."""
RESOURCE_NAMES = {
    "seats": "seats",
    "kv_blocks": "KV blocks",
    "token_budget": "token budget",
    "adapters": "adapter places",
    "encoder": "encoder budget",
    "host_memory": "host memory's blocks",
    "long_prefills": "long prefills' threshold",
    "kv_links": "KV links",
    "grammars": "grammars' time",
    "adapter_loads": "adapter loads' time",
    "encoder_time": "encoder's time",
    "drafting": "drafts' time",
    "host_time": "host's time",
    ALL: "all together",
    STEP_TIME: "step time",
    NOTHING: "nothing of these",
}
LONG_NAMES = {
    "token_budget": "the token budget of a step",
    "long_prefills": "the threshold of long prefills",
    "kv_links": "the links that KV moves over (kv_bandwidth_gbps)",
    ALL: "all of these together",
    STEP_TIME: "the time of a step",
    NOTHING: "none of these: neither more of them nor faster steps give more",
}
SETTINGS = {**RESOURCES, **ADDED_TIMES}


def capacity_document(found: Capacity) -> dict[str, object]:
    """Return the JSON document; rates in requests/s, times in µs, null where nothing is known."""
    asked = found.asked
    assert asked is not None, "only of a capacity that a user asked for"  # noqa: S101
    limits, twin = asked.limits, asked.twin
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": tool_version(),
        "rate": found.rate_per_s,
        "low": found.low,
        "high": found.high,
        "interval": interval_method(found),
        "pace_frac": found.pace_frac,
        "assumed_seats": None if found.assumed_seats is None else asdict(found.assumed_seats),
        "limiting": found.limiting,
        "slo_us": {each.name: each.limit_us for each in limits},
        "ceiling": found.ceiling_per_s,
        "ceiling_low": found.ceiling_low,
        "ceiling_high": found.ceiling_high,
        "after_burst": after_burst_document(found),
        "binding": None
        if found.binding is None
        else {"resource": found.binding.resource, "rate_with_twice": found.binding.with_twice},
        "num_requests": found.num_requests,
        "step_scatter": step_scatter(twin),
        "evaluations": [document(rate_facts(each, found, limits)) for each in found.evaluations],
        "warnings": [*twin.notes, *asked.notes],
        **document(value_facts(found, asked.price_per_hour)),
        "unanswered": twin.unanswered_document,
    }


def rate_facts(each: Evaluation, found: Capacity, limits: Sequence[RunLimit]) -> list[Fact]:
    """Return what was found at a rate."""
    return [
        Fact("rate", "requests/s", each.rate_per_s, per_s),
        Fact("met", "met", found.is_met(each, limits), mark),
        *(of_limit(each.values_us[limit.name], limit) for limit in limits),
        Fact("failed_frac", "failed", each.failed_frac, frac),
        Fact("output_token_throughput", "tokens/s", each.output_tokens_per_s, whole),
        Fact("num_preemptions", "preemptions", each.num_preemptions, count),
        *(
            Fact(f"{name}_us.{stat}", f"{name.upper()} {stat}", value, shown_time)
            for name, values in each.curve_us.items()
            for stat, value in zip(("p50", "p99"), values, strict=True)
        ),
    ]


def capacity_facts(found: Capacity, key: str = "rate") -> list[Fact]:
    """Return a capacity and its interval, as it stands beside others; ``key``: what JSON calls it."""
    return [
        Fact(key, "capacity, requests/s", found.rate_per_s, per_s, none="none"),
        Fact("low", "  from", found.low, per_s),
        Fact("high", "  to", found.high, per_s),
    ]


def interval_method(found: Capacity) -> str | None:
    """Return how the interval was made, None where there is none."""
    if found.low is None:
        return None
    over = f"{found.num_parts} seeds" if found.is_by_seeds else f"{found.num_parts} stretches of the trace"
    method = f"90 % t interval over the capacities of {over}, {BURSTS - 1:.0%} wider"
    if found.pace_frac is not None:
        method += f", and with all steps {found.pace_frac:.1%} longer or shorter"
    if (seats := found.assumed_seats) is not None:
        method += f", and with {min(seats.rate_of_seats):,} to {max(seats.rate_of_seats):,} seats"
    return method


def capacity_parts(
    found: Capacity, limits: Sequence[RunLimit], *, twin: TwinConfig, lengths: str
) -> list[AnswerPart]:
    """Return what people read: the capacity, what limits it, and the curve."""
    facts = facts_of(found, limits, twin=twin, lengths=lengths)
    shown = TermRows(facts, width=15)
    return [shown, "", *_curve(found, limits)] if found.curve else [shown]


def facts_of(
    found: Capacity, limits: Sequence[RunLimit], *, twin: TwinConfig, lengths: str
) -> list[tuple[str, str]]:
    """Return the capacity, what limits it and how it was found, as terms with their values."""
    within = ", ".join(f"{each.name} <= {shown_time(each.limit_us)}" for each in limits)
    facts = [("capacity", _answer(found, limits)), ("within", within), *_reasons(found, limits, twin.engine)]
    if found.assumed_seats is not None:
        facts.append(("seats", found.assumed_seats.text))
    if (instances := sum(pool.num_slots for pool in twin.cluster.pools)) > 1:
        facts.append(("router", f"{routing_name(twin.cluster.routing)}, over {instances:,} instances"))
    facts += [("requests", lengths), ("simulated", _simulated(found))]
    if (method := interval_method(found)) is not None:
        facts.append(("interval", method))
    return [*facts, ("percentiles", _tail(step_scatter(twin)))]


def step_scatter(twin: TwinConfig) -> float:
    """Return the smallest scatter of the twin's steps around the computed times (lognormal sigma); 0: none."""
    models = [pool.latency for pool in twin.cluster.pools]
    return min(float(getattr(each, "sigma", 0.0)) for each in models)


def _tail(scatter: float) -> str:
    """Return whose percentiles these are: a real server's steps scatter, which lengthens its tail."""
    if scatter == 0:
        return "the simulation's; its steps do not scatter, as a server's do"
    return f"the simulation's, whose steps scatter by {scatter:.1%}"


def column_facts(found: Capacity, limits: Sequence[RunLimit]) -> list[Fact]:
    """Return a capacity as a column beside others."""
    at, bound = found.at_capacity, None if found.binding is None else RESOURCE_NAMES[found.binding.resource]
    tokens = None if found.rate_per_s is None else at.output_tokens_per_s
    return [
        *capacity_facts(found),
        Fact("limiting", "breaks first", found.limiting),
        Fact("", "bound by", bound),
        Fact("ceiling", "serves at most", found.ceiling_per_s, per_s),
        survives_fact(found),
        *(of_limit(at.values_us[each.name], each) for each in limits),
        Fact("output_token_throughput", "output tokens/s", tokens, whole),
    ]


def _answer(found: Capacity, limits: Sequence[RunLimit]) -> str:
    """Return the rate with its interval, of chance alone, and whether runs were too short for queues to grow."""
    if found.rate_per_s is None:
        return "not found: the runs are too short" if found.is_too_short else why_none(found, limits)
    sure = "" if found.low is None else f" ({found.low:.3g} to {found.high:.3g})"
    if found.is_cut_short:
        return f"{_per_s(found.rate_per_s)} or more: the runs are too short to tell"
    too_high = ", too high: the runs are too short" if found.is_too_short else ""
    return f"{_per_s(found.rate_per_s)}{sure}{too_high}"


def why_none(found: Capacity, limits: Sequence[RunLimit]) -> str:
    """Return why no rate meets the limits: what an idle server breaks, or the load's bursts."""
    if found.limiting == FAILED:
        return f"none: {found.idle.failed_frac:.1%} of the requests fail on an idle server, more than {MOST_FAILED:.0%}"
    value = found.idle.values_us.get(found.limiting)
    if value is None:
        return "none: no rate meets the limits"
    if math.isnan(value):
        return "none: an idle server answers no request"
    if breaks_by_bursts(found, limits):
        return (
            f"none: the load's own bursts break {found.limiting} at any rate tried: {shown_time(value)} at "
            f"{found.idle.rate_per_s:.2g}/s; requests that come alone have {shown_time(found.alone_us[found.limiting])}"
        )
    return f"none: an idle server has {found.limiting} {shown_time(value)} already"


def breaks_by_bursts(found: Capacity, limits: Sequence[RunLimit]) -> bool:
    """Return whether requests that come alone are within the limit that breaks at the lowest rate tried."""
    return any(
        each.name == found.limiting and found.alone_us.get(each.name, math.inf) <= each.limit_us
        for each in limits
    )


def survives_fact(found: Capacity) -> Fact:
    """Return the rate that survives a burst, ``-`` where the capacity does."""
    burst = found.after_burst
    return Fact("", SURVIVES, None if burst is None else (burst.survives_per_s or 0.0), per_s)


def after_burst_document(found: Capacity) -> dict[str, float | None] | None:
    """Return the rates with and after a burst, requests/s; None where the capacity survives it."""
    burst = found.after_burst
    return None if burst is None else {"survives": burst.survives_per_s, "left": burst.left_per_s}


def after_burst_text(found: Capacity) -> str | None:
    """Return which rate survives a burst; None where the capacity does."""
    burst = found.after_burst
    if burst is None:
        return None
    most = "no rate" if burst.survives_per_s is None else _per_s(burst.survives_per_s)
    return (
        f"{most}: what the server keeps up with. At the capacity a burst empties the caches, and "
        f"{_per_s(burst.left_per_s)} are answered from then on"
    )


def _reasons(found: Capacity, limits: Sequence[RunLimit], engine: EngineConfig) -> list[tuple[str, str]]:
    """Return what breaks first and what would have to grow; where nothing is met, what an idle server has."""
    if found.rate_per_s is None:
        values = [f"{each.name} {of_limit(found.idle.values_us[each.name], each).text}" for each in limits]
        if found.limiting == FAILED:
            values.append(f"{found.idle.failed_frac:.1%} of the requests failed")
        return [("lowest rate" if breaks_by_bursts(found, limits) else "idle server", ", ".join(values))]
    if found.limiting == THROUGHPUT:
        breaks = "none up to what the server serves at most"
    elif found.limiting == TOO_SHORT:
        breaks = "not found: the runs are too short to tell"
    else:
        breaks = "failed requests (more than 1 %)" if found.limiting == FAILED else found.limiting
    most = "not found: the runs are too short"
    if found.ceiling_per_s is not None:
        between = (
            "" if found.ceiling_low is None else f" ({found.ceiling_low:.4g} to {found.ceiling_high:.4g})"
        )
        most = f"{_per_s(found.ceiling_per_s)}{between}, whatever the latencies"
    facts = [("breaks first", breaks), ("serves at most", most)]
    if (left := after_burst_text(found)) is not None:
        facts.append((SURVIVES, left))
    return facts if found.binding is None else [*facts, *_bound(found.binding, engine)]


def _bound(binding: Binding, engine: EngineConfig) -> list[tuple[str, str]]:
    """Return the resource that binds, and what each would give if it were doubled."""
    name = binding.resource
    settings = SETTINGS.get(name, ())
    stated = ", ".join(f"{each} {getattr(engine, each):,}" for each in settings if getattr(engine, each, 0))
    bound = LONG_NAMES.get(name, RESOURCE_NAMES[name]) + (f" ({stated})" if stated else "")
    facts = [("bound by", bound)]
    for head, names in (("if doubled", (*RESOURCES, ALL)), ("if halved", (*ADDED_TIMES, STEP_TIME))):
        gains = [
            f"{RESOURCE_NAMES[each]} {binding.with_twice[each] / binding.base_per_s - 1:+.0%}"
            for each in names
            if each in binding.with_twice and binding.base_per_s > 0
        ]
        facts += [(head, ", ".join(gains))] if gains else []
    return facts


def _simulated(found: Capacity) -> str:
    draws = f"{found.num_seeds} seeds of " if found.is_by_seeds else ""
    requests, rates = counted(found.num_requests, "request"), counted(len(found.evaluations), "rate")
    return f"{draws}{requests} at {rates}, the first {SETTLING:.0%} not measured"


def _per_s(rate: float) -> str:
    return counted(rate, "request/s", written=f"{rate:.4g}")


def _curve(found: Capacity, limits: Sequence[RunLimit]) -> list[AnswerPart]:
    """Return a row per rate: the limited latencies, whether they are within, and how much of the allowed they take."""
    width = max(12, *(len(each.name) + 4 for each in limits))
    rows = [["requests/s", *(each.name for each in limits), "tokens/s", "", "of what is allowed (│: 100 %)"]]
    for each in found.curve:
        cells = row_of(rate_facts(each, found, limits), ("rate", "values_us", "output_token_throughput"))
        is_most = " ◄" if each.rate_per_s == found.rate_per_s else ""
        rows.append([*cells, is_most, _bar(max(each.ratios(limits).values()))])
    parts: list[AnswerPart] = [AlignedRows(rows, [10, *[width] * len(limits), 11, -3, 0])]
    if found.curve[-1].is_behind:
        parts.append("Above what the server serves at most, queues grow as long as the run lasts.")
    return parts


def _bar(ratio: float) -> str:
    """Return a bar, its full length twice of what is allowed."""
    filled = min(2 * BAR, round(ratio * BAR)) if math.isfinite(ratio) else 2 * BAR
    text = "█" * filled + " " * (2 * BAR - filled)
    return f"{text[:BAR]}│{text[BAR:]}".rstrip() + ("…" if ratio > 2 else "")
