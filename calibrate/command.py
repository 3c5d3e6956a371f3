"""What ``vtwin calibrate`` does with its options: reads traces, compares or fits, writes, and tells."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from calibrate.compare.network import Network
    from calibrate.findings import Calibration, Options, Source
    from calibrate.gate.verdict import Verdict
    from replay import TwinConfig

LOG_WIDTH = 112
"""Characters of a line where nobody looks at a terminal."""


def check_writing(*, fit: bool, asked: Path | None, infer: bool) -> None:
    """Raise ConfigError where an option needs a fit and there is none."""
    from traces.errors import ConfigError

    if not fit and (asked is not None or infer):
        given = (
            "--infer-async, --fit-alpha2, --latency-model" if infer else "--write-config, --write-defaults"
        )
        raise ConfigError(f"{given}: got no --fit, expected it: there is nothing to write or infer without")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """The traces of a call by what they are for, read."""

    observed: Sequence[Source]
    simulated: Source | None
    holdout: Sequence[Source]
    repeats: Sequence[Source]


def network_of(text: str | None, traces: Traces) -> Network | None:
    """Return the client's network as given, ``rtt=measured`` as the first trace's header has it."""
    from calibrate.compare.network import parse_network

    if text is None:
        return None
    return parse_network(text, measured_rtt_ms=traces.observed[0].trace.header.network.measured_rtt_ms)


def calibration_of(
    traces: Traces, config: Path | None, *, fit: bool, options: Options, latency_model: str | None = None
) -> Calibration:
    """Return what was asked for: two traces compared, or a twin compared with traces, fitted first or as configured.

    ``latency_model``: another than the twin's file names.
    """
    from calibrate import run
    from calibrate.progress import fit_progress

    repeats, held_out = traces.repeats, traces.holdout
    if config is None:
        assert traces.simulated is not None  # noqa: S101 - check_options has seen to it
        return run.compare_with_simulated(traces.observed[0], traces.simulated, options, repeats=repeats)
    twin = _load(config, latency_model, fit=fit)
    if not fit:
        return run.compare_with_twin(traces.observed, twin, options, holdout=held_out, repeats=repeats)
    with fit_progress() as progress:
        return run.calibrate(
            traces.observed, twin, options, holdout=held_out, repeats=repeats, report=progress
        )


def _load(path: Path, latency_model: str | None, *, fit: bool) -> TwinConfig:
    """Return the configuration, its notes told."""
    from calibrate.latency_table import twin_for
    from sim.ready import is_compiled

    twin = twin_for(path, latency_model, fit=fit)
    for note in twin.notes:
        typer.echo(f"note: {note}", err=True)
    if not is_compiled():
        typer.echo("compiling the engine once, up to a minute …", err=True)
    return twin


def source_at(path: Path) -> Source:
    """Return the trace at a path, read and named."""
    from calibrate.compare.engine_steps import read_steps
    from calibrate.findings import Source
    from calibrate.report.document import digest_of
    from traces import read_trace
    from traces.tables.paths import beside, locate, stem_of

    stem = stem_of(path)
    return Source(
        name=stem.name,
        trace=read_trace(path),
        digest=digest_of(locate(path).table),
        steps=read_steps(beside(stem, ".steps.csv")),
    )


def write_all(
    calibration: Calibration,
    report: Path,
    *,
    verdict: Verdict | None,
    config: Path | None,
    defaults: Path | None,
    server: tuple[str | None, str | None, int | None],
    form: str,
) -> dict[str, dict[str, object]]:
    """Write everything asked for, return the JSON documents; what can be refused is worked out before."""
    from calibrate import save
    from calibrate.report.blis_report import blis_report
    from calibrate.report.write import write_report, write_text

    known = save.Server(model=server[0], gpu=server[1], tp=server[2])
    if defaults is not None:
        save.defaults_entry(calibration, server=known)
    document = write_report(
        calibration, report, command=shlex.join(["vtwin", *sys.argv[1:]]), verdict=verdict
    )
    documents = {"vtwin": document}
    if form == "blis":
        documents["blis"] = blis_report(calibration)
        text = json.dumps(documents["blis"], indent=2, allow_nan=False) + "\n"
        write_text(report / "report.blis.json", text)
    if config is not None:
        save.write_config(calibration, config)
    if defaults is not None:
        save.write_defaults(calibration, defaults, server=known)
    return documents


STRAIGHT_LINE = (
    "note: blackbox is a straight line, good within the loads and lengths that were fitted; --latency-model auto "
    "compares it with terms that carry further"
)


def summarise(calibration: Calibration, report: Path) -> None:
    """Print the errors and coefficients on stderr."""
    from rich.console import Console

    from calibrate.report.suggested_runs import suggested_runs
    from calibrate.report.terminal import headline, tables_of
    from calibrate.report.warnings import warnings_of

    # Where nobody looks at a terminal, a log must not lose half of a column to 80 characters.
    console = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else LOG_WIDTH)
    for table in tables_of(calibration):
        console.print(table)
    for each in calibration.traces:
        if each.saturation.state != "stable":
            said = f"{each.source.name}: {each.saturation.state} load: {each.saturation.reason}"
            console.print(said, soft_wrap=True)
    for reveal in suggested_runs(calibration):
        console.print(f"to see {', '.join(reveal.coefficients)}: {reveal.shows}", soft_wrap=True)
        console.print(f"  {reveal.command}", soft_wrap=True, markup=False)
    if calibration.fit is not None and calibration.fit.model == "blackbox" and not calibration.fit.candidates:
        console.print(STRAIGHT_LINE, soft_wrap=True)
    for line in warnings_of(calibration):
        console.print(f"warning: {line}", soft_wrap=True, markup=False)
    console.print(headline(calibration), soft_wrap=True)
    console.print(f"report: {report / 'report.html'}", soft_wrap=True)
