"""``vtwin capacity --sessions`` once it has its options: search, and show one twin or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from replay.capacity.question import sessions_of
from replay.capacity.sessions import BEGINNING, FAILED, AtOnce, SessionCapacity, most_sessions
from replay.console.progress import working
from replay.console.ready import prepare_engine
from replay.simulation.variants.command import variants_from
from traces import MOST_FAILED, RunLimit, shown_time, tool_version
from traces.facts import (
    AlignedRows,
    AnswerPart,
    Fact,
    SideBySide,
    TermRows,
    columns_of,
    document,
    frac,
    mark,
    of_limit,
    per_s,
    row_of,
    say_answer,
    whole,
)
from traces.strict.tell import tell_note

if TYPE_CHECKING:
    from replay.capacity.options import CapacityOptions
    from replay.twin.keys.overlay import Setting
    from replay.twin.twin_config import TwinConfig
    from traces.workload import WorkloadOptions

SCHEMA_VERSION = 1
ALIKE = (
    "likely too few: all sessions are alike, so they move in step and meet at the server; "
    "real ones differ (--prompt-tokens-stdev, --output-tokens-stdev, --trace), and are in the interval"
)
"""What an answer for sessions of equal lengths and pauses says: spread lengths gave 20 and more instead of 11."""


def show_sessions(
    workload: WorkloadOptions,
    twins: Sequence[tuple[Sequence[Setting], TwinConfig]],
    limits: Sequence[RunLimit],
    *,
    asked: CapacityOptions,
) -> bool:
    """Find how many sessions at once each twin serves within the limits; print it; return whether any serves one."""
    from traces.workload import SessionStarts

    most_think_us = None if asked.max_think_time is None else round(asked.max_think_time * 1e6)
    starts = SessionStarts(most_think_us=most_think_us, seed=twins[0][1].seed)
    with working("drawing sessions"):
        trace = sessions_of(workload, [twin for _, twin in twins], limits, starts)
    variants = variants_from(twins, [("", "", trace)])
    for each in variants:
        prepare_engine(each.twin, trace=trace)
    with working("simulating numbers of sessions"):
        found = [
            replace(
                most_sessions(trace, each.twin, limits, starts), limits=tuple(limits), notes=each.twin.notes
            )
            for each in variants
        ]
    for note in dict.fromkeys(note for each in found for note in _notes(each)):
        tell_note(note)
    told = [
        {"name": variant.name, "set": dict(variant.settings), **_told(each)}
        for variant, each in zip(variants, found, strict=True)
    ]
    if len(found) == 1:
        say_answer(
            found[0].document,
            lambda: session_parts(found[0], limits, no_more=_no_more(workload, len(trace))),
            asked.answer,
        )
    else:
        columns = [
            {**variant.varied, **columns_of([session_facts(each, limits)])[0]}
            for variant, each in zip(variants, found, strict=True)
        ]
        say_answer(lambda: {**_head(), "variants": told}, lambda: [SideBySide(columns)], asked.answer)
    return any(each.number for each in found)


def session_facts(found: SessionCapacity, limits: Sequence[RunLimit]) -> list[Fact]:
    """Return the number of sessions, and what is so at it."""
    at = _at_the_number(found)
    per_gpu = (
        [] if found.num_gpus is None else [Fact("per_gpu", "  per GPU", found.number / found.num_gpus, per_s)]
    )
    facts = [
        Fact("sessions", "sessions at once", found.number, whole),
        Fact("low", "  90 % interval from", found.low, whole),
        Fact("high", "  to", found.high, whole),
        *per_gpu,
        Fact("limiting", "breaks first", found.limiting, none="none of the trace's"),
    ]
    return facts if at is None else [*facts, *_values(at, limits)]


def _at_the_number(found: SessionCapacity) -> AtOnce | None:
    """Return the simulation of the number itself; None where not even one session is within the limits."""
    return next((each for each in found.evaluations if each.number == found.number), None)


def _limiting_text(found: SessionCapacity) -> str:
    """Return what breaks first; of failed rounds also how many fail, and how many may."""
    if found.limiting != FAILED:
        return found.limiting or ""
    above = next(each for each in found.evaluations if each.number > found.number)
    return (
        f"{frac(above.failed_frac)} of the rounds fail at {above.number:,} at once, at most {MOST_FAILED:.0%} may "
        "(too long for the server, or too hasty)"
    )


def _notes(found: SessionCapacity) -> list[str]:
    """Return how far the answer goes beyond the fit."""
    at = _at_the_number(found)
    return [] if at is None or at.beyond is None else [at.beyond]


def _values(at: AtOnce, limits: Sequence[RunLimit]) -> list[Fact]:
    return [
        *(of_limit(at.values_us[each.name], each) for each in limits),
        Fact("failed_frac", "failed", at.failed_frac, frac),
        Fact("rounds_per_s", "rounds/s", at.rounds_per_s, per_s),
        Fact("sessions_per_hour", "sessions/h", at.sessions_per_hour, per_s),
    ]


def session_document(found: SessionCapacity) -> dict[str, object]:
    """Return the JSON document; times in µs."""
    return {**_head(), **_told(found)}


def _head() -> dict[str, object]:
    return {"schema_version": SCHEMA_VERSION, "tool_version": tool_version()}


def _told(found: SessionCapacity) -> dict[str, object]:
    """Return the number of sessions, and what is so at it, as one of several in a document."""
    limits = found.limits
    return {
        **document(session_facts(found, limits)),
        "num_sessions": found.num_sessions,
        "gpus": found.num_gpus,
        "are_alike": found.are_alike,
        "warnings": [*found.notes, *_notes(found), *([ALIKE] if found.are_alike else [])],
        "slo_us": {each.name: each.limit_us for each in limits},
        "evaluations": [
            {"sessions": each.number, "met": each.broken(limits) is None, **document(_values(each, limits))}
            for each in found.evaluations
        ],
    }


def _no_more(workload: WorkloadOptions, num_rounds: int) -> str:
    """Return that all sessions at once are within the limits, and the option that gives more of them."""
    if workload.trace is not None:
        return "the trace has no more (give a longer --trace)"
    option = "a longer --duration" if workload.duration is not None else f"--num-requests {4 * num_rounds}"
    return f"the workload has no more (give more: {option})"


def session_parts(
    found: SessionCapacity, limits: Sequence[RunLimit], *, no_more: str = "the workload has no more"
) -> list[AnswerPart]:
    """Return what people read: the number, what breaks first, and a row for each number that was simulated.

    ``no_more``: said where all sessions at once are within the limits.
    """
    within = ", ".join(f"{each.name} <= {shown_time(each.limit_us)}" for each in limits)
    per_gpu = "" if found.num_gpus is None else f", {found.number / found.num_gpus:.3g} per GPU"
    answer = (
        f"{found.number:,} sessions at once{per_gpu}"
        if found.number
        else "none: one session breaks the limits"
    )
    if found.low is not None and found.high is not None:
        answer += f" (90 % interval: {found.low:,} to {found.high:,})"
    if found.number and found.limiting is None:
        answer += f", or more: {no_more}"
    facts = [("capacity", answer), *([("", ALIKE)] if found.are_alike else []), ("within", within)]
    if found.limiting is not None:
        facts.append(("breaks first", _limiting_text(found)))
    facts.append(
        (
            "sessions",
            f"{found.num_sessions:,}, so many in progress at a time; the first {BEGINNING:.0%} of a run not measured",
        )
    )
    rows = [["sessions", *(each.name for each in limits), "failed", "rounds/s", "sessions/h", "met"]]
    keys = ("values_us", "failed_frac", "rounds_per_s", "sessions_per_hour")
    for each in found.evaluations:
        is_met = mark(each.broken(limits) is None)
        rows.append([f"{each.number:,}", *row_of(_values(each, limits), keys), is_met])
    widths = [10, *[max(12, len(each.name) + 4) for each in limits], 10, 10, 12, 5]
    return [TermRows(facts, width=15), "", AlignedRows(rows, widths)]
