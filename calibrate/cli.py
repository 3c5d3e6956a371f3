"""``vtwin calibrate``. What is heavy is imported when the command runs."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from calibrate.calibration import Calibration, Options, Source
    from calibrate.gate import Baseline, Gate, Verdict
    from calibrate.network import Network
    from replay import TwinConfig


LOG_WIDTH = 112


def calibrate(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    observed: Annotated[
        list[Path], typer.Argument(metavar="OBSERVED…", help="Observed traces: stems, headers or tables.")
    ],
    report: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for report.json, report.md, report.html.")
    ],
    simulated: Annotated[
        Path | None, typer.Option(metavar="STEM", help="A trace to compare the observed one with.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="TWIN.yaml", help="The twin to simulate the traces with.")
    ] = None,
    fit: Annotated[bool, typer.Option("--fit", help="Fit the twin's coefficients to the traces.")] = False,
    holdout: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="STEM",
            help="A trace to judge on, unseen by the fit; may be repeated. "
            "Without one: fitted on the first half of each trace, judged on the second.",
        ),
    ] = None,
    repeat: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="STEM",
            help="A second run of the load of one of the traces: how far the server is from itself stands beside "
            "every error. Found by itself where two of the traces sent the same requests.",
        ),
    ] = None,
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="PROMISES", help="Count the requests that keep all of them: ttft=500ms,tpot=30ms."
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NETWORK",
            help="Give what is simulated the client's network: rtt=2ms,bandwidth=100 (Mbit/s); rtt=measured takes "
            "the trace's own.",
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="FRAC", help="Test whether the means are equivalent: their ratio within 1 ± this."
        ),
    ] = None,
    write_config: Annotated[
        Path | None, typer.Option(metavar="TWIN2.yaml", help="Where the fitted twin goes.")
    ] = None,
    write_defaults: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A defaults.yaml to put the fit into.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The entry's model; default: what the trace says.")
    ] = None,
    model_config: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIG.json",
            help="The model's config.json, or a model that ships: with the GPU, what the fit expects of the extended "
            "model where the traces are silent. Default: what the trace says, if it is a model that ships.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="The server's GPU, of the entry and of priors; default: what the trace says."),
    ] = None,
    tp: Annotated[
        int | None, typer.Option(min=1, help="The entry's tensor parallelism; default: what the trace says.")
    ] = None,
    infer_async: Annotated[
        bool, typer.Option("--infer-async", help="Fit with and without async scheduling, keep the better.")
    ] = False,
    latency_model: Annotated[
        Literal["auto", "blackbox", "extended", "physics", "profiled", "roofline"] | None,
        typer.Option(
            help="Which latency model to fit. auto compares blackbox and the extended model's terms on requests held "
            "out; physics and roofline follow from the twin's model_config and hardware, profiled from its table, and "
            "physics is refined. "
            "Default: as configured.",
            show_default=False,
        ),
    ] = None,
    compare_latency: Annotated[
        str | None,
        typer.Option(
            metavar="MODELS",
            help="Instead: each of these latency models beside the traces, such as blackbox,roofline,physics,profiled. "
            "Every model gets a report of its own in DIR/MODEL; with --fit what can be fitted is.",
        ),
    ] = None,
    fit_alpha2: Annotated[
        bool, typer.Option("--fit-alpha2", help="Fit alpha2, too, instead of holding it as configured.")
    ] = False,
    thresholds: Annotated[
        Path | None,
        typer.Option(
            metavar="GATE.yaml",
            help="Limits on the errors: exit 1 where one is broken, 5 where none can say.",
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the gate's verdict goes as JUnit XML.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="REPORT.json",
            help="An older report: only what was within its limit there, and no longer is, fails the gate.",
        ),
    ] = None,
    pair_by: Annotated[
        Literal["request_id", "order"], typer.Option(help="What makes two rows the same request.")
    ] = "request_id",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap and of the search.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json on stdout, too.")] = False,
    form: Annotated[
        Literal["vtwin", "blis"],
        typer.Option(
            "--format",
            help="blis: write report.blis.json, too, with that tool's fields and quality words; --json prints it.",
        ),
    ] = "vtwin",
) -> None:
    """Compare observed with simulated, fit the twin, write a report."""
    from calibrate.calibration import Options
    from calibrate.judge import check_options
    from calibrate.problem import COEFFICIENTS, FITTED
    from traces.slo import parse_slo

    held_out = holdout or []
    check_options(
        simulated=simulated is not None,
        config=config is not None,
        fitting=fit,
        num_observed=len(observed),
        num_holdout=len(held_out),
    )
    _check_writing(
        fit=fit,
        asked=write_config or write_defaults,
        infer=infer_async or fit_alpha2 or latency_model in ("auto", "blackbox", "extended"),
    )
    gate = _gate(thresholds, junit=junit, baseline=baseline)
    options = Options(
        pair_by=pair_by,
        seed=seed,
        infer_async=infer_async,
        latency_model=_kind(latency_model),
        model_config=model_config,
        gpu=gpu,
        tp=tp,
        names=COEFFICIENTS if fit_alpha2 else FITTED,
        promises_us={} if slo is None else parse_slo(slo),
        margins=_margins(margin, None if gate is None else gate[0]),
    )
    traces = Traces(
        observed=[_source(path) for path in observed],
        simulated=None if simulated is None else _source(simulated),
        holdout=[_source(path) for path in held_out],
        repeats=[_source(path) for path in repeat or []],
    )
    options = replace(options, network=_network(network, traces))
    if compare_latency is not None:
        _compare_latency(compare_latency, traces, config, report, fit=fit, options=options, as_json=as_json)
        return
    calibration = _calibration(traces, config, fit=fit, options=options, latency_model=latency_model)
    verdict = None if gate is None else _verdict(calibration, *gate)
    documents = _write(
        calibration,
        report,
        verdict=verdict,
        config=write_config,
        defaults=write_defaults,
        server=(model, gpu, tp),
        form=form,
    )
    _summarise(calibration, report)
    if as_json:
        typer.echo(json.dumps(documents[form], indent=2, allow_nan=False))
    if verdict is not None:
        _announce(verdict, calibration, junit=junit)


def _gate(
    thresholds: Path | None, *, junit: Path | None, baseline: Path | None
) -> tuple[Gate, Baseline | None] | None:
    """Return the gate and what it is held against, read before anything slow is done."""
    from calibrate.baseline import read_baseline
    from calibrate.gatefile import read_gate
    from traces.errors import ConfigError

    if thresholds is not None:
        return read_gate(thresholds), None if baseline is None else read_baseline(baseline)
    if junit is not None or baseline is not None:
        given = "--baseline" if junit is None else "--junit"
        raise ConfigError(f"{given}: got no --thresholds, expected it: there is no verdict without limits")
    return None


def _verdict(calibration: Calibration, gate: Gate, baseline: Baseline | None) -> Verdict:
    from calibrate.comparable import changed_since, obstacles_of
    from calibrate.gate import decide

    obstacles = obstacles_of(calibration, require_kv_capacity=gate.require_kv_capacity)
    if baseline is not None:
        obstacles += changed_since(calibration, baseline)
    judged = calibration.judged
    return decide(
        gate,
        judged.errors,
        rates=judged.rates,
        capacity=judged.capacity,
        of_saturated=judged.of_saturated,
        strata=calibration.strata,
        obstacles=obstacles,
        baseline=baseline,
    )


def _announce(verdict: Verdict, calibration: Calibration, *, junit: Path | None) -> None:
    """Tell people and the CI system of the verdict; leave with its exit code."""
    from calibrate import ci
    from calibrate.gate import EXIT_CODES
    from calibrate.report import write_text

    if junit is not None:
        write_text(junit, ci.junit_of(verdict))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        ci.append_summary(Path(summary), ci.summary_of(verdict, calibration.holdout))
    if os.environ.get("GITHUB_ACTIONS"):
        for line in ci.annotations_of(verdict):
            typer.echo(line, err=True)  # stdout may be a JSON document; the runner reads both
    for line in verdict.obstacles:
        typer.echo(f"not comparable: {line}", err=True)
    for check in verdict.checks:
        if check.reason:
            typer.echo(f"{check.word}: {check.name}: {check.reason}", err=True)
    typer.echo(f"verdict: {verdict.outcome}", err=True)
    raise typer.Exit(EXIT_CODES[verdict.outcome])


def _check_writing(*, fit: bool, asked: Path | None, infer: bool) -> None:
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


def _margins(margin: float | None, gate: Gate | None) -> dict[str, float]:
    """Return the margins of equivalence by metric: the gate's own, and that of all others."""
    from calibrate.checks import EQUIVALENCE

    found = {"": margin} if margin else {}
    limits = () if gate is None else gate.limits
    found |= {limit.metric: limit.fail for limit in limits if limit.statistic == EQUIVALENCE and limit.fail}
    return found


def _network(text: str | None, traces: Traces) -> Network | None:
    """Return the client's network as given, ``rtt=measured`` as the first trace's header has it."""
    from calibrate.network import parse_network

    if text is None:
        return None
    return parse_network(text, measured_rtt_ms=traces.observed[0].trace.header.network.measured_rtt_ms)


def _compare_latency(
    asked: str,
    traces: Traces,
    config: Path | None,
    report: Path,
    *,
    fit: bool,
    options: Options,
    as_json: bool,
) -> None:
    """Write a report per latency model and a table of all; print the table."""
    from rich.console import Console

    from calibrate.side_by_side import models_in, row_of, table_of, twin_for, unable, write_rows
    from traces.errors import ConfigError

    if config is None:
        raise ConfigError(
            "--compare-latency: got no --config, expected the twin whose latency models to compare"
        )
    rows = []
    for model in models_in(asked):
        can_fit = fit and model in FITTABLE
        try:
            twin = twin_for(config, model, fit=can_fit)
        except ConfigError as error:
            rows.append(unable(model, str(error)))
            continue
        as_this = replace(options, latency_model=_kind(model) if can_fit else None)
        calibration = _calibration(traces, config, fit=can_fit, options=as_this, latency_model=model)
        _write(
            calibration,
            report / model,
            verdict=None,
            config=None,
            defaults=None,
            server=(None, None, None),
            form="vtwin",
        )
        rows.append(row_of(model, calibration, reason=twin.latency_reason))
    document = write_rows(rows, report)
    Console(stderr=True, highlight=False).print(table_of(rows))
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))


FITTABLE = ("blackbox", "extended", "physics")
"""Latency models whose coefficients a fit finds."""


def _calibration(
    traces: Traces,
    config: Path | None,
    *,
    fit: bool,
    options: Options,
    latency_model: str | None = None,
) -> Calibration:
    """Return what was asked for: two traces compared, a twin judged, or a twin fitted and judged."""
    from calibrate import judge
    from calibrate.progress import fit_progress

    repeats, held_out = traces.repeats, traces.holdout
    if config is None:
        assert traces.simulated is not None  # noqa: S101 - check_options has seen to it
        return judge.compare_with_simulated(traces.observed[0], traces.simulated, options, repeats=repeats)
    twin = _load(config, latency_model, fit=fit)
    if not fit:
        return judge.compare_with_twin(traces.observed, twin, options, holdout=held_out, repeats=repeats)
    with fit_progress() as progress:
        return judge.calibrate(
            traces.observed, twin, options, holdout=held_out, repeats=repeats, report=progress
        )


def _kind(latency_model: str | None) -> Literal["auto", "blackbox", "extended"] | None:
    """Return the kind of straight lines that a fit is to find, None where it is to keep what is configured."""
    if latency_model in ("auto", "blackbox", "extended"):
        return latency_model  # type: ignore[return-value]  # mypy does not narrow text by a tuple
    return None


def _load(path: Path, latency_model: str | None, *, fit: bool) -> TwinConfig:
    """Return the configuration, its notes told."""
    from calibrate.side_by_side import twin_for
    from sim.compile import is_compiled

    twin = twin_for(path, latency_model, fit=fit)
    for note in twin.notes:
        typer.echo(f"note: {note}", err=True)
    if not is_compiled():
        typer.echo("compiling the engine once, up to a minute …", err=True)
    return twin


def _source(path: Path) -> Source:
    """Return the trace at a path, read and named."""
    from calibrate.calibration import Source
    from calibrate.document import digest_of
    from calibrate.enginesteps import read_steps
    from traces import read_trace
    from traces.paths import beside, locate, stem_of

    stem = stem_of(path)
    return Source(
        name=stem.name,
        trace=read_trace(path),
        digest=digest_of(locate(path).table),
        steps=read_steps(beside(stem, ".steps.csv")),
    )


def _write(
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
    from calibrate import keep
    from calibrate.blis_report import blis_report
    from calibrate.report import write_report, write_text

    known = keep.Server(model=server[0], gpu=server[1], tp=server[2])
    if defaults is not None:
        keep.defaults_entry(calibration, server=known)
    document = write_report(
        calibration, report, command=shlex.join(["vtwin", *sys.argv[1:]]), verdict=verdict
    )
    documents = {"vtwin": document}
    if form == "blis":
        documents["blis"] = blis_report(calibration)
        text = json.dumps(documents["blis"], indent=2, allow_nan=False) + "\n"
        write_text(report / "report.blis.json", text)
    if config is not None:
        keep.write_config(calibration, config)
    if defaults is not None:
        keep.write_defaults(calibration, defaults, server=known)
    return documents


def _summarise(calibration: Calibration, report: Path) -> None:
    """Print the errors and coefficients on stderr."""
    from rich.console import Console

    from calibrate.reveal import reveals_of
    from calibrate.terminal import tables_of

    # Where nobody looks at a terminal, a log must not lose half of a column to 80 characters.
    console = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else LOG_WIDTH)
    for table in tables_of(calibration):
        console.print(table)
    for each in calibration.traces:
        if each.saturation.state != "stable":
            said = f"{each.source.name}: {each.saturation.state} load: {each.saturation.reason}"
            console.print(said, soft_wrap=True)
    for reveal in reveals_of(calibration):
        console.print(f"to see {', '.join(reveal.coefficients)}: {reveal.shows}", soft_wrap=True)
        console.print(f"  {reveal.command}", soft_wrap=True, markup=False)
    console.print(f"report: {report / 'report.html'}", soft_wrap=True)
