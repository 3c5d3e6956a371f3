"""``vtwin observe --repeat``: what is shown of repeated loads, and the noise floor in their traces' headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from observe.repeats.beyond_chance import LEAST_RUNS
from observe.repeats.repeated_load import RepeatedLoad, RepeatedLoads, in_order, load_name
from observe.repeats.run_figures import run_figures
from observe.repeats.text import parts, rows
from observe.result.json_document import SCHEMA_VERSION, summarize_observed
from traces import companion_file, read_header, sole_owner, terminal_width, write_header
from traces.facts import PastedForm, say_json, say_pasted, terminal_lines
from traces.strict.tell import say, tell

if TYPE_CHECKING:
    from observe.campaign import Outcome
    from observe.result.json_document import ObservedSummary
    from traces import Trace


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
    found = loads_of(traces, summaries)
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


def whole_runs(outcomes: Sequence[Outcome]) -> dict[str, Trace]:
    """Return the traces of a list by name, without one that was interrupted."""
    return {
        each.load.name: each.trace
        for each in outcomes
        if each.observation is None or not each.observation.interrupted
    }


def loads_of(traces: Mapping[str, Trace], summaries: Mapping[str, ObservedSummary]) -> RepeatedLoads:
    """Return the loads of a list in blocks, each with its runs in order of time."""
    groups: dict[str, list[str]] = {}
    for name in traces:
        groups.setdefault(load_name([name]), []).append(name)
    loads = [
        RepeatedLoad(name=load, runs={name: run_figures(summaries[name]) for name in in_order(group, traces)})
        for load, group in sorted(groups.items(), key=lambda pair: _natural(pair[0]))
    ]
    return RepeatedLoads(loads=tuple(loads))


def _natural(name: str) -> tuple[str, float]:
    """Return a sweep's load by its number, so that 2 comes before 10."""
    what, _, value = name.rpartition("-")
    try:
        return what, float(value)
    except ValueError:
        return name, 0.0


def write_noise_floors(folder: Path, found: RepeatedLoads) -> None:
    """Write into the header of each run what one run of its load lies off by. Raises ConfigError where it cannot."""
    with sole_owner(folder):
        for load in found.loads:
            floor = load.noise_floor()
            for name in load.runs if floor is not None else ():
                header = read_header(companion_file(folder / name, ".yaml"))
                write_header(replace(header, noise_floor=floor), folder / name)
