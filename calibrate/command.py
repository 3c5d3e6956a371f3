"""``vtwin calibrate`` with its options read: reads traces, compares or fits, writes, and prints."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from traces.strict.secrets import redact_command
from traces.strict.tell import say, tell

if TYPE_CHECKING:
    from calibrate.compare.network import NetworkFigures
    from calibrate.findings import Calibration, NamedTrace, Options
    from calibrate.gate.verdict import Verdict
    from calibrate.steps.step_logs import StepLogs
    from replay import TwinConfig


def check_writing(*, fit: bool, places: Mapping[str, Path | None], infer: bool) -> None:
    """Raise ConfigError if an option needs a fit and there is none, or if a file could not be written."""
    from traces import ConfigError, check_place

    asked = places.get("--write-config") or places.get("--write-defaults")
    if not fit and (asked is not None or infer):
        given = (
            "--infer-async, --fit-alpha2, --latency-model" if infer else "--write-config, --write-defaults"
        )
        raise ConfigError(f"{given}: needs --fit: without a fit there is nothing to write or infer")
    for option, place in places.items():
        check_place(place, option=option)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """The traces of a call, read, by their role."""

    observed: Sequence[NamedTrace]
    simulated: NamedTrace | None
    holdout: Sequence[NamedTrace]
    repeats: Sequence[NamedTrace]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLogPaths:
    """What ``--steps`` names, nothing without it, and the observed traces' paths, beside which ``auto`` looks."""

    asked: Sequence[Path] = ()
    traces: Sequence[Path] = ()

    def read(self, twin: TwinConfig) -> StepLogs:
        """Return the steps of a twin's server, after printing what is left out of them."""
        from calibrate.steps.step_logs import read_step_logs

        logs = read_step_logs(self.asked, traces=self.traces, is_async=twin.engine.async_scheduling)
        for remark in logs.remarks:
            tell(f"note: {remark}")
        return logs


NO_PATHS = StepLogPaths()


def network_of(text: str | None, traces: Traces) -> NetworkFigures | None:
    """Return the client's network as given, ``rtt=measured`` as the first trace's header has it."""
    from calibrate.compare.network import parse_network

    if text is None:
        return None
    return parse_network(text, measured_rtt_ms=traces.observed[0].trace.header.network.measured_rtt_ms)


def calibration_of(
    traces: Traces,
    config: Path | None,
    *,
    fit: bool,
    options: Options,
    latency_model: str | None = None,
    accepts_flags: bool = False,
    steps: StepLogPaths = NO_PATHS,
) -> Calibration:
    """Return the requested result: two traces compared, or a twin compared with traces, fitted first or as configured.

    ``latency_model``: another than the twin's file names. Raises ConfigError if a header has other server flags than
    the twin, unless ``accepts_flags``. ``steps``: files of the server's own steps, to fit them to.
    """
    from calibrate import calibration_run
    from calibrate.fit_progress import fit_progress
    from calibrate.flags.known_model_and_gpu import absent_candidates
    from calibrate.not_measured import refuse_unmeasured

    repeats, held_out = traces.repeats, traces.holdout
    if config is None:
        assert traces.simulated is not None  # noqa: S101 - check_options has seen to it
        return calibration_run.compare_with_simulated(
            traces.observed[0], traces.simulated, options, repeats=repeats
        )
    sources = (*traces.observed, *held_out)
    if fit:
        refuse_unmeasured(sources)
    twin = _load(config, latency_model, fit=fit, sources=sources, is_async_open=options.infer_async)
    for note in absent_candidates(traces.observed[0].trace, twin, options) if fit else ():
        tell(f"note: {note}")
    _check_twin(sources, twin, is_async_open=options.infer_async, accepts_flags=accepts_flags)
    if not fit:
        return calibration_run.compare_with_twin(
            traces.observed, twin, options, holdout=held_out, repeats=repeats
        )
    logs = steps.read(twin)
    with fit_progress() as progress:
        return calibration_run.calibrate(
            traces.observed, twin, options, holdout=held_out, repeats=repeats, steps=logs, report=progress
        )


def _check_twin(
    sources: Sequence[NamedTrace], twin: TwinConfig, *, is_async_open: bool, accepts_flags: bool
) -> None:
    """Print what the simulation ignores of traces. Raises ConfigError for other flags, unless they are accepted."""
    from calibrate.flags.evidence import check_shown
    from calibrate.flags.headers import check_flags
    from traces import ConfigError

    try:
        check_flags(sources, twin, is_async_open=is_async_open)
        check_shown(sources, twin)
    except ConfigError as error:
        if not accepts_flags:
            raise
        tell(f"warning: {error}")
    _tell_what_is_not_simulated(sources, twin)


def twin_of_header(
    path: Path, report: Path, *, gpu: str | None, model_config: str | None = None, tp: int | None = None
) -> Path:
    """Write the twin that a trace's header describes as start.yaml into the report's folder; return where.

    GPU, model and tensor parallelism that the options do not give are taken from the header. Raises ConfigError if
    there is no trace.
    """
    from calibrate.distinct_runs import distinct_names
    from replay.twin.start import named, refuse_several, start_from_header, twin_text_to_fit
    from traces import make_folder, read_recorded, write_text

    header = read_recorded(path).header
    refuse_several(header.server, name=str(path))
    start = start_from_header(header, name=distinct_names([path])[0])
    start = named(start, model_config=model_config, tp=tp)
    text, notes = twin_text_to_fit(start, gpu=gpu or header.server.gpu)
    for note in notes:
        tell(f"note: {note}")
    make_folder(report, option="--report")
    write_text(report / "start.yaml", text, option="--report")
    tell(f"no --config: the fit starts from the header of {path}, written to {report / 'start.yaml'}")
    return report / "start.yaml"


def _tell_what_is_not_simulated(sources: Sequence[NamedTrace], twin: TwinConfig) -> None:
    """Print which parts of traces the simulation ignores; each report has them among a trace's notes."""
    from replay import pacing_of, trace_notes

    for source in sources:
        for note in trace_notes(source.trace, twin, pacing_of(source.trace)):
            tell(f"note: {source.name}: {note}")


def _load(
    path: Path, latency_model: str | None, *, fit: bool, sources: Sequence[NamedTrace], is_async_open: bool
) -> TwinConfig:
    """Return the configuration, after printing its notes; flags that it leaves open are taken from the traces."""
    from calibrate.flags.evidence import learned_of
    from calibrate.flags.headers import said_of, version_notes
    from calibrate.latency_table import twin_for
    from replay import tell_when_compiling

    twin = twin_for(path, latency_model, fit=fit)
    learned = (*said_of(sources, twin, is_async_open=is_async_open), *learned_of(sources, twin))
    if learned:
        twin = twin_for(path, latency_model, fit=fit, learned=[each.setting() for each in learned])
        twin = replace(twin, notes=(*(each.note() for each in learned), *twin.notes))
    for note in (*version_notes(sources, twin), *twin.notes):
        tell(f"note: {note}")
    tell_when_compiling()
    return twin


def read_traces(
    observed: Sequence[Path],
    simulated: Path | None,
    holdout: Sequence[Path],
    repeats: Sequence[Path],
) -> Traces:
    """Return the traces of a call, read, with different names."""
    from calibrate.distinct_runs import distinct_names

    paths = [*observed, *holdout, *repeats]
    sources = [source_at(path, name) for path, name in zip(paths, distinct_names(paths), strict=True)]
    first, last = len(observed), len(observed) + len(holdout)
    return Traces(
        observed=sources[:first],
        simulated=None if simulated is None else source_at(simulated, distinct_names([simulated])[0]),
        holdout=sources[first:last],
        repeats=sources[last:],
    )


def source_at(path: Path, name: str) -> NamedTrace:
    """Return the trace at a path, read, under a name."""
    from calibrate.compare.engine_steps import as_step_times, read_steps
    from calibrate.findings import NamedTrace
    from calibrate.flags.shown import shown_by
    from calibrate.report.document import digest_of
    from traces import (
        check_load,
        companion_file,
        file_at,
        format_of,
        load_alone,
        locate,
        read_recorded,
        stem_of,
        with_known_lengths,
    )

    trace = load_alone(with_known_lengths(read_recorded(path, events=True)))
    check_load(trace, path, asked="a comparison with the twin")
    logged = read_steps(companion_file(stem_of(path), ".steps.csv"))
    steps, remark = (None, None) if logged is None else as_step_times(logged, trace)
    return NamedTrace(
        name=name,
        trace=trace,
        digest=digest_of(locate(path).table if format_of(path) is None else file_at(path)),
        steps=steps,
        shown=shown_by(path, trace),
        remarks=() if remark is None else (remark,),
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
    """Write all requested files, return the JSON documents; errors are found before anything is written."""
    from calibrate.report.blis_report import blis_report
    from calibrate.report.report_folder import write_report
    from calibrate.written import save
    from traces import write_text

    known = save.ServerName(model=server[0], gpu=server[1], tp=server[2])
    if defaults is not None:
        save.defaults_entry(calibration, server=known)
    document = write_report(
        calibration, report, command=redact_command(["vtwin", *sys.argv[1:]], os.environ), verdict=verdict
    )
    documents = {"vtwin": document}
    if form == "blis":
        documents["blis"] = blis_report(calibration)
        text = json.dumps(documents["blis"], indent=2, allow_nan=False) + "\n"
        write_text(report / "report.blis.json", text, option="--report")
    if config is not None:
        save.write_config(calibration, config)
    if defaults is not None:
        save.write_defaults(calibration, defaults, server=known)
    return documents


LINEAR = (
    "note: blackbox is linear: valid only inside the observed loads and lengths. Use --latency-model auto to "
    "extrapolate."
)

MOST_SUGGESTED = 2
"""Runs that the first screen suggests; the report has all."""


def summarise(calibration: Calibration, report: Path, *, is_stdout_free: bool) -> None:
    """Print the verdict, errors and coefficients on stdout, or on stderr where stdout holds JSON; the rest is reported.

    Warnings, below the verdict, and advice go to stderr.
    """
    from calibrate.report.suggested_runs import suggested_runs
    from calibrate.report.terminal import console_of, fit_line, headline, print_table, tables_of
    from calibrate.report.warnings import warnings_of
    from calibrate.verdict_text import has_small_errors, verdict_text

    results = console_of(stderr=not is_stdout_free)
    warned = warnings_of(calibration)
    verdict = verdict_text(calibration, has_warnings=bool(warned))
    say(*verdict.split("\n"), err=not is_stdout_free)
    for line in warned:
        tell(f"warning: {line}")
    for each in calibration.traces:
        if each.source.trace.header.mode == "replayed":
            tell(f"note: {each.source.name} is simulated: these are the errors between two simulations")
    for table in tables_of(calibration):
        print_table(results, table)
    for each in calibration.traces:
        if each.saturation.state != "stable":
            word = "overloaded" if each.is_saturated else "perhaps overloaded"
            say(f"{each.source.name}: {word}: {each.saturation.reason}", err=not is_stdout_free)
    say(headline(calibration), err=not is_stdout_free)
    if calibration.fit is not None:
        say(fit_line(calibration.fit), err=not is_stdout_free)
    suggested = suggested_runs(calibration)
    if suggested and has_small_errors(calibration):
        names = ", ".join(dict.fromkeys(name for each in suggested for name in each.coefficients))
        tell(
            f"not determined by these traces: {names}. Not needed for loads and lengths like the fitted ones: the "
            "held-out errors are small. For others, the report has the runs that would determine them"
        )
        suggested = ()
    for calibration_run in suggested[:MOST_SUGGESTED]:
        shows = f"to determine {', '.join(calibration_run.coefficients)}: {calibration_run.shows}"
        tell(shows)
        tell(f"  {calibration_run.command}")
    if len(suggested) > MOST_SUGGESTED:
        more = [name for each in suggested[MOST_SUGGESTED:] for name in each.coefficients]
        tell(f"the report has the runs that determine {', '.join(dict.fromkeys(more))}, too")
    fit = calibration.fit
    if fit is not None and fit.model == "blackbox" and not fit.candidates and fit.carried_from is None:
        tell(LINEAR)
    tell(f"report: {report / 'report.html'}")
