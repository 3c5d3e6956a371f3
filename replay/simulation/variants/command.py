"""``run`` and ``replay`` with several variants: simulate each, write the traces, show them side by side."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from replay.console.progress import working
from replay.console.ready import prepare_engine
from replay.simulation.command import SimulationOptions, with_origin
from replay.simulation.variants.simulated import document, variants_parts
from replay.simulation.variants.variant import Variant, VariantResult, simulate_variant
from replay.twin.keys.overlay import Setting
from traces import ExitCode
from traces.facts import say_answer
from traces.strict.secrets import redact_command
from traces.strict.tell import tell

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from traces import Trace

MOST = 200
"""More variants than this are a sweep for many processes."""


def variants_from(
    twins: Sequence[tuple[Sequence[Setting], TwinConfig]], loads: Sequence[tuple[str, str, Trace]]
) -> list[Variant]:
    """Return every twin with every load, a load given as (what it is of, its value, its requests)."""
    values = [{each.key: each.value for each in settings} for settings, _ in twins]
    keys = list(dict.fromkeys(key for each in values for key in each))
    short = _short_names({key for key in keys if len({each.get(key) for each in values}) > 1})
    found = []
    for settings, (_, twin) in zip(values, twins, strict=True):
        own = "the file's" if twin.source is None else f"of {twin.source.name}"
        varied = {name: settings.get(key, own) for key, name in short.items()}
        for what, value, trace in loads:
            load = {what: value} if what else {}
            found.append(
                Variant(settings={**settings, **load}, varied={**varied, **load}, twin=twin, trace=trace)
            )
    return found


def _short_names(keys: set[str]) -> dict[str, str]:
    """Return the last part of each key, or all of it where two keys end alike; in the keys' order."""
    last = {key: key.rpartition(".")[2] for key in sorted(keys)}
    return {key: name if list(last.values()).count(name) == 1 else key for key, name in last.items()}


def simulate_variants(
    variants: Sequence[Variant], *, output: Path | None, overwrite: bool, options: SimulationOptions
) -> None:
    """Simulate the variants, write each trace into the folder ``output``, and show them side by side.

    Raises ConfigError on options that only one simulation can have, typer.Exit where nothing finished in any.
    """
    from replay.twin.fitted.fitted_range import note_of_runs, range_of_run
    from replay.twin.keys.overlay import notes_of_variants
    from traces import ConfigError, note_replaced, refuse_input, write_trace

    check_for_variants(options)
    for each in variants:
        options.gate.needs_limits(each.trace, options.how.slo_us)
    if len(variants) > MOST:
        raise ConfigError(f"--set: got {len(variants):,} variants, expected at most {MOST}")
    stems = [None if output is None else output / each.name for each in variants]
    for stem, variant in zip(stems, variants, strict=True):
        if stem is not None and variant.twin.source is not None:
            refuse_input(stem, variant.twin.source)
        if stem is not None and (note := note_replaced(stem, overwrite=overwrite)) is not None:
            tell(f"note: {note}")
    for each in {(id(each.twin), id(each.trace)): each for each in variants}.values():
        prepare_engine(each.twin, trace=each.trace)
    results, spans = [], []
    with working(f"simulating {len(variants)} variants"):
        for variant, stem in zip(variants, stems, strict=True):
            result = simulate_variant(variant, options.how, prices=options.prices)
            results.append(result)
            spans.append(range_of_run(result.simulated).within(variant.twin.most_seats))
            if stem is not None:
                written = with_origin(result.simulated, variant.twin)
                write_trace(written, stem, dialect=options.dialect, events=options.how.itl)
    is_cluster = any(not each.twin.is_plain_server for each in variants)
    note = note_of_runs(variants[0].twin.fitted, spans, is_cluster=is_cluster)
    if note is not None:
        tell(f"note: {note}")
    told = [*notes_of_variants(each.twin.notes for each in variants), *([] if note is None else [note])]
    if options.report is not None:
        _write_page(options.report, results, told, options=options)
    say_answer(lambda: document(results, warnings=told), lambda: variants_parts(results), options.answer)
    if not any(each.summary["num_by_status"].get("ok") for each in results):
        tell("no request finished in any variant")
        raise typer.Exit(ExitCode.NEGATIVE)
    options.gate.check({each.variant.name: each.summary["goodput"] for each in results})


def check_for_variants(options: SimulationOptions) -> None:
    """Raise ConfigError on outputs that only a single simulation has."""
    from traces import ConfigError

    for name, given in (
        ("--steps", options.steps),
        ("--series", options.series),
        ("--trace-events", options.trace_events),
        ("--decisions", options.decisions),
        ("--counterfactual", options.how.counterfactual),
        ("--operator-times", options.how.operator_times or None),
    ):
        if given is not None:
            raise ConfigError(f"{name}: cannot be combined with several variants, expected one simulation")


def _write_page(
    path: Path, results: Sequence[VariantResult], told: Sequence[str], *, options: SimulationOptions
) -> None:
    """Write the page that compares the variants, with the warnings that were told."""
    from replay.simulation.variants.page import write_variants_page

    write_variants_page(
        path,
        results,
        slo_us=options.how.slo_us,
        warnings=told,
        command=redact_command(["vtwin", *sys.argv[1:]], os.environ),
        overwrite=options.overwrite,
    )
    tell(f"wrote {path}")
