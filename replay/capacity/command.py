"""``vtwin capacity`` once it has the requests: search, and show one capacity or several side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from replay.capacity.capacity import Capacity, short_run_note
from replay.capacity.question import searched_capacity
from replay.capacity.text import SURVIVES, capacity_document, capacity_parts, column_facts
from replay.capacity.value import best_value_line, price_of, value_facts
from replay.console.progress import working
from replay.model.prices import read_server_prices
from replay.search.workload_draws import lengths_text
from replay.simulation.variants.no_answer import mark_unanswered, unanswered_notes
from replay.simulation.variants.variant import Variant
from replay.trace.summary_text import unanswered_rows
from traces import RunLimit, reading_notes, tool_version
from traces.facts import SideBySide, TermRows, columns_of, document, say_answer
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
    found, notes = _search(
        traces, twin, limits, with_binding=not asked.no_binding, drawing=drawing, with_curve=True
    )
    notes = [*_told_of_the_files(traces), *notes]
    lengths = lengths_text(traces[0])
    if asked.report is not None:
        from replay.capacity.page import write_page

        write_page(asked.report, found, limits, twin=twin, lengths=lengths, notes=[*twin.notes, *notes])
        tell(f"wrote {asked.report}")
    say_answer(
        lambda: {
            **capacity_document(found, limits, twin=twin, notes=notes),
            **document(value_facts(found, price)),
            "unanswered": twin.unanswered_document,
        },
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
    told, columns, rates, capacities = [], [], [], []
    prices = [price_of(each.twin, prices_of(asked)) for each in variants]
    of_files = _told_of_the_files(traces)
    for variant, price in zip(variants, prices, strict=True):
        found, notes = _search(
            traces,
            variant.twin,
            limits,
            with_binding=not asked.no_binding,
            drawing=drawing,
            with_curve=False,
        )
        notes = [*of_files, *notes]
        rates.append(found.rate_per_s)
        capacities.append(found)
        value = value_facts(found, price)
        [figures] = columns_of([[*column_facts(found, limits), *value]])
        columns.append({**variant.varied, **figures})
        what = {"set": dict(variant.settings), "unanswered": variant.twin.unanswered_document}
        of_one = capacity_document(found, limits, twin=variant.twin, notes=notes)
        told.append({"name": variant.name, **what, **of_one, **document(value)})
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
    return any(rate is not None for rate in rates)


def prices_of(asked: CapacityOptions) -> ServerPrices | None:
    """Return the prices of the file that was given. Raises ConfigError."""
    return None if asked.prices is None else read_server_prices(asked.prices)


def _told_of_the_files(traces: Sequence[Trace]) -> list[str]:
    """Return, after printing them, the notes on the file that the requests are from."""
    notes = list(reading_notes(traces[0]))
    for note in notes:
        tell_note(note)
    return notes


def _search(
    traces: Sequence[Trace],
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    *,
    with_binding: bool,
    drawing: Drawing | None,
    with_curve: bool,
) -> tuple[Capacity, list[str]]:
    """Return a twin's capacity, after printing the notes that a reader needs."""
    with working("simulating at many rates"):
        found, beyond = searched_capacity(
            traces, twin, limits, with_binding=with_binding, drawing=drawing, with_curve=with_curve
        )
    short = short_run_note(found, found.num_requests)
    seats = None if found.assumed_seats is None else found.assumed_seats.text
    notes = [note for note in (short, beyond, seats, _of_memory(found, traces[0], twin, limits)) if note]
    for note in notes:
        tell_note(note)
    return found, notes


def _of_memory(found: Capacity, trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit]) -> str | None:
    """Return how far the latencies at the capacity hang on a KV cache whose size nobody told: at most three runs."""
    from replay.search import Evaluator, load_of
    from replay.verdict.kv_doubt import OVERLOAD, kv_doubt

    rate = found.rate_per_s
    if rate is None or not twin.assumes_memory:
        return None

    def measure(other: TwinConfig) -> dict[str, float]:
        there = Evaluator(loads=[load_of(trace, other)], limits=limits).at(rate)
        values = {f"{name} at {rate:.4g} requests/s": value for name, value in there.values_us.items()}
        return {
            name: OVERLOAD if there.is_behind or math.isnan(value) else value
            for name, value in values.items()
        }

    doubt = kv_doubt(twin, measure(twin), measure)
    return None if doubt is None else doubt.line()
