"""What ``vtwin capacity`` does once it has the requests: search, and show one capacity or several side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from replay.capacity.capacity import Capacity, short_run_note
from replay.capacity.question import searched_capacity
from replay.capacity.text import column, document, lines, step_scatter
from replay.progress import working
from replay.search.draws import lengths_text
from replay.variants.side_by_side import (
    mark_unanswered,
    side_by_side,
    unanswered_facts,
    unanswered_lines,
)
from replay.variants.simulated import Variant
from traces import RunLimit, terminal_width, tool_version
from traces.strict.tell import say, say_text, tell, tell_note

if TYPE_CHECKING:
    from replay.capacity.options import CapacityOptions
    from replay.search.draws import Drawing
    from replay.twin.config import TwinConfig
    from traces import Trace


def show_one(
    traces: Sequence[Trace],
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    *,
    asked: CapacityOptions,
    drawing: Drawing | None = None,
) -> bool:
    """Find a twin's capacity, print it, write its page where one is asked for; return whether there is one.

    ``drawing``: draws the workload with as many requests as the search asks for.
    """
    found, notes = _search(
        traces, twin, limits, with_binding=not asked.no_binding, drawing=drawing, with_curve=True
    )
    warnings, num_requests = [*twin.notes, *notes], found.num_requests
    lengths = lengths_text(traces[0])
    if asked.report is not None:
        from replay.capacity.page import write_page

        write_page(
            asked.report,
            found,
            limits,
            twin=twin,
            num_requests=num_requests,
            lengths=lengths,
            notes=warnings,
        )
        tell(f"wrote {asked.report}")
    if asked.as_json:
        told = document(
            found,
            limits,
            num_requests=num_requests,
            scatter=step_scatter(twin),
            tool_version=tool_version(),
            warnings=warnings,
        )
        told["unanswered"] = twin.unanswered_document
        say_text(json.dumps(told, indent=2, allow_nan=False))
    else:
        shown = unanswered_facts(twin.unanswered_keys)
        shown += lines(found, limits, twin=twin, num_requests=num_requests, lengths=lengths)
        say(*shown)
    return found.rate_per_s is not None


def show_several(
    traces: Sequence[Trace],
    variants: Sequence[Variant],
    limits: Sequence[RunLimit],
    *,
    asked: CapacityOptions,
    drawing: Drawing | None = None,
) -> bool:
    """Find the capacity of each variant and print them side by side; return whether any has one."""
    told, columns, rates = [], [], []
    for variant in variants:
        found, notes = _search(
            traces,
            variant.twin,
            limits,
            with_binding=not asked.no_binding,
            drawing=drawing,
            with_curve=False,
        )
        rates.append(found.rate_per_s)
        columns.append({**variant.varied, **column(found, limits)})
        of_one = document(
            found,
            limits,
            num_requests=found.num_requests,
            scatter=step_scatter(variant.twin),
            tool_version=tool_version(),
            warnings=[*variant.twin.notes, *notes],
        )
        what = {"set": dict(variant.settings), "unanswered": variant.twin.unanswered_document}
        told.append({"name": variant.name, **what, **of_one})
    if asked.as_json:
        whole = {"schema_version": 1, "tool_version": tool_version(), "variants": told}
        say_text(json.dumps(whole, indent=2, allow_nan=False))
    else:
        unanswered = [each.twin.unanswered_keys for each in variants]
        say_text(side_by_side(mark_unanswered(columns, unanswered), width=terminal_width()))
        for line in unanswered_lines(unanswered):
            say("", line)
    return any(rate is not None for rate in rates)


def _search(
    traces: Sequence[Trace],
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    *,
    with_binding: bool,
    drawing: Drawing | None,
    with_curve: bool,
) -> tuple[Capacity, list[str]]:
    """Return a twin's capacity, and what a reader must know, told."""
    with working("simulating at many rates"):
        found, beyond = searched_capacity(
            traces, twin, limits, with_binding=with_binding, drawing=drawing, with_curve=with_curve
        )
    short = short_run_note(found, found.num_requests)
    notes = [note for note in (short, beyond) if note is not None]
    for note in notes:
        tell_note(note)
    return found, notes
