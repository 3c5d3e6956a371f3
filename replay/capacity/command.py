"""``vtwin capacity`` once it has the requests: search, and show one capacity or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from replay.capacity.capacity import Capacity, CapacityAsked
from replay.capacity.question import asked_capacity
from replay.capacity.text import SURVIVES, capacity_parts, column_facts
from replay.capacity.value import best_value_line, price_of, value_facts
from replay.console.progress import working
from replay.model.prices import read_server_prices
from replay.simulation.variants.no_answer import mark_unanswered, unanswered_notes
from replay.simulation.variants.variant import Variant
from replay.trace.summary_text import unanswered_rows
from traces import RunLimit, reading_notes, tool_version
from traces.facts import SideBySide, TermRows, columns_of, say_answer
from traces.strict.tell import tell, tell_note

if TYPE_CHECKING:
    from replay.capacity.options import CapacityOptions
    from replay.model.prices import ServerPrices
    from replay.search.workload_draws import Drawing
    from replay.twin.twin_config import TwinConfig
    from traces import Trace


def show_one(
    traces: Sequence[Trace],
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    *,
    asked: CapacityOptions,
    drawing: Drawing | None = None,
) -> bool:
    """Find a twin's capacity, print it, write its page if requested; return whether there is a capacity.

    ``drawing``: draws the workload with as many requests as the search asks for.
    """
    price = price_of(twin, prices_of(asked))
    _tell_of_the_files(traces)
    found, question = _search(traces, twin, limits, asked=asked, drawing=drawing, price=price)
    lengths = question.lengths
    if asked.report is not None:
        from replay.capacity.page import write_page

        notes = [*twin.notes, *question.notes]
        write_page(asked.report, found, limits, twin=twin, lengths=lengths, notes=notes)
        tell(f"wrote {asked.report}")
    say_answer(
        found.document,
        lambda: [
            TermRows(unanswered_rows(twin.unanswered_keys)),
            TermRows([(each.term or "", each.text) for each in value_facts(found, price)], width=32),
            *capacity_parts(found, limits, twin=twin, lengths=lengths),
        ],
        asked.answer,
    )
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
    told, columns, capacities = [], [], []
    prices = [price_of(each.twin, prices_of(asked)) for each in variants]
    _tell_of_the_files(traces)
    for variant, price in zip(variants, prices, strict=True):
        found, _ = _search(
            traces, variant.twin, limits, asked=asked, drawing=drawing, price=price, with_curve=False
        )
        capacities.append(found)
        [figures] = columns_of([[*column_facts(found, limits), *value_facts(found, price)]])
        columns.append({**variant.varied, **figures})
        what = {"set": dict(variant.settings), "unanswered": variant.twin.unanswered_document}
        told.append({"name": variant.name, **what, **found.document()})
    if all(each[SURVIVES] == "-" for each in columns):
        columns = [{name: cell for name, cell in each.items() if name != SURVIVES} for each in columns]
    unanswered = [each.twin.unanswered_keys for each in variants]
    named = [", ".join(f"{key} {value}" for key, value in each.varied.items()) for each in variants]
    most = best_value_line(named, capacities, prices)
    say_answer(
        lambda: {"schema_version": 1, "tool_version": tool_version(), "variants": told},
        lambda: [
            SideBySide(mark_unanswered(columns, unanswered)),
            *(told for note in (*most, *unanswered_notes(unanswered)) for told in ("", note)),
        ],
        asked.answer,
    )
    return any(each.rate_per_s is not None for each in capacities)


def prices_of(asked: CapacityOptions) -> ServerPrices | None:
    """Return the prices of the file that was given. Raises ConfigError."""
    return None if asked.prices is None else read_server_prices(asked.prices)


def _tell_of_the_files(traces: Sequence[Trace]) -> None:
    """Print the notes on the file that the requests are from, before the search."""
    for note in reading_notes(traces[0]):
        tell_note(note)


def _search(
    traces: Sequence[Trace],
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    *,
    asked: CapacityOptions,
    drawing: Drawing | None,
    price: float | None,
    with_curve: bool = True,
) -> tuple[Capacity, CapacityAsked]:
    """Return a twin's capacity and its question, after printing the notes that a reader needs."""
    with working("simulating at many rates"):
        found, question = asked_capacity(
            traces,
            twin,
            limits,
            with_binding=not asked.no_binding,
            drawing=drawing,
            with_curve=with_curve,
            price_per_hour=price,
        )
    for note in question.notes[len(reading_notes(traces[0])) :]:
        tell_note(note)
    return found, question
