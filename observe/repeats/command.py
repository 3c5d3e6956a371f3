"""``vtwin observe --repeat``: what is shown of repeated loads, and the noise floor in their traces' headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from observe.repeats.beyond_chance import LEAST_RUNS
from observe.repeats.listed_runs import loads_of, whole_runs, write_noise_floors
from observe.repeats.run_figures import run_figures
from observe.repeats.text import parts, rows
from observe.result.json_document import SCHEMA_VERSION, summarize_observed
from traces import terminal_width
from traces.facts import PastedForm, say_json, say_pasted, terminal_lines
from traces.strict.tell import say, tell

if TYPE_CHECKING:
    from observe.campaign import Outcome


def report_repeats(
    outcomes: Sequence[Outcome],
    folder: Path,
    *,
    slo_us: Mapping[str, float],
    as_json: bool,
    form: PastedForm | None,
) -> None:
    """Write the noise floor into the traces' headers, and print the figures over the runs; notes go to stderr.

    A run that was interrupted counts in nothing.
    """
    traces = whole_runs(outcomes)
    summaries = {name: summarize_observed(trace, slo_us=slo_us) for name, trace in traces.items()}
    found = loads_of(traces, {name: run_figures(each) for name, each in summaries.items()})
    write_noise_floors(folder, found)
    if form is not None:
        say_pasted(form, lambda: parts(found), lambda: rows(found))
    else:
        say(*terminal_lines(parts(found), width=terminal_width()), err=as_json)
    for warning in found.warnings():
        tell(f"observe: warning: {warning}")
    most = max((len(each.runs) for each in found.loads), default=0)
    if most < LEAST_RUNS:
        tell(f"observe: fewer than {LEAST_RUNS} runs show no drift, and no run that is apart from the others")
    for name, summary in summaries.items():
        if summary["client"]["limited"]:
            tell(f"observe: warning: {name}: client-limited: {summary['client']['reason']}")
    if as_json:
        say_json({"schema_version": SCHEMA_VERSION, **found.document(), "runs": summaries})
