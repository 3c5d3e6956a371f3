"""``vtwin calibrate``. What is heavy is imported when the command runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from replay.twin import with_code_option
from traces.strict.tell import say_text


@with_code_option
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
        Path | None,
        typer.Option(
            metavar="TWIN.yaml",
            help="The twin to simulate the traces with. Default with --fit: what the first trace's header says.",
        ),
    ] = None,
    fit: Annotated[bool, typer.Option("--fit", help="Fit the twin's coefficients to the traces.")] = False,
    holdout: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="STEM",
            help="A trace that the fit does not see, for the held-out errors; may be repeated. "
            "Default: fit the first half of each trace, hold out the second.",
        ),
    ] = None,
    repeat: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="STEM",
            help="A second run of one trace's load. Shows run-to-run noise next to every error. "
            "Detected automatically if two of the traces sent the same requests.",
        ),
    ] = None,
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS", help="Latency limits (SLO); count requests that meet all: ttft=500ms,tpot=30ms."
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NETWORK",
            help="Add the client's network to the simulated side: rtt=2ms,bandwidth=100 (Mbit/s). "
            "rtt=measured takes the round trip that the trace recorded.",
        ),
    ] = None,
    max_concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The traces' client sent with at most N requests in flight, and their headers do not say it: simulate "
            "from due times, with this cap.",
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=10,
            metavar="FRAC",
            help="Test equivalence of the means: their ratio within 1 ± this fraction.",
        ),
    ] = None,
    write_config: Annotated[
        Path | None, typer.Option(metavar="TWIN2.yaml", help="Write the fitted twin to this file.")
    ] = None,
    write_defaults: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Add the fit to this defaults.yaml.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model name for --write-defaults. Default: from the trace.")
    ] = None,
    model_config: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIG.json",
            help="The model's config.json, or the name of a model that ships with vtwin. With the GPU, it gives priors "
            "for coefficients that the traces cannot determine. Default: the trace's model, if it ships.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="The server's GPU, for priors and for --write-defaults. Default: from the trace."),
    ] = None,
    tp: Annotated[
        int | None,
        typer.Option(min=1, max=65_536, help="Tensor parallelism, as --gpu. Default: from the trace."),
    ] = None,
    infer_async: Annotated[
        bool,
        typer.Option("--infer-async", help="Fit with and without async scheduling and take the better fit."),
    ] = False,
    accept_flags: Annotated[
        bool,
        typer.Option(
            "--accept-flags",
            help="Go on if the twin's flags are not those that a trace's header says of its server.",
        ),
    ] = False,
    latency_model: Annotated[
        Literal["auto", "blackbox", "extended", "physics", "profiled", "roofline"] | None,
        typer.Option(
            help="Latency model to fit. auto compares blackbox, the extended model's terms, physics if model and GPU "
            "are known, and the profile if the twin has one, on held-out requests, and takes the best. physics starts "
            "from the twin's model_config and hardware, and its corrections are fitted; of profiled, the factor on its "
            "tables and the time between steps. roofline is not fitted. Default: auto. "
            "Without --fit: as configured.",
            show_default=False,
        ),
    ] = None,
    compare_latency: Annotated[
        str | None,
        typer.Option(
            metavar="MODELS",
            help="Score each of these latency models against the traces, such as blackbox,roofline,physics,profiled. "
            "Each model's report goes to DIR/MODEL. With --fit, models that can be fitted are. Not with a gate or "
            "--write-config, which need one twin.",
        ),
    ] = None,
    fit_alpha2: Annotated[
        bool, typer.Option("--fit-alpha2", help="Also fit alpha2. Default: held at its configured value.")
    ] = False,
    thresholds: Annotated[
        Path | None,
        typer.Option(
            metavar="GATE.yaml",
            help="Error limits: exit 1 if one is exceeded, 5 if inconclusive.",
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the gate's verdict to this file as JUnit XML.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="REPORT.json",
            help="An older report. Only errors that were within their limit there and no longer are fail the gate.",
        ),
    ] = None,
    pair_by: Annotated[
        Literal["request_id", "order"],
        typer.Option(help="How requests are matched: by id, or by order of arrival."),
    ] = "request_id",
    fit_guided: Annotated[
        Path | None,
        typer.Option(
            metavar="PLAIN",
            help="Find what grammars cost: the trace has guided requests, PLAIN the same requests without. With "
            "--config; --write-config writes the cost.",
            show_default=False,
        ),
    ] = None,
    fit_host: Annotated[
        Path | None,
        typer.Option(
            metavar="ASYNC",
            help="Find the CPU's time that async scheduling hides: the trace is of a server without it, ASYNC of the "
            "same requests with it. With --config; --write-config writes the time.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(min=0, help="Seed of the bootstrap and the search (physics draws nothing)."),
    ] = 42,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print report.json on stdout, the tables on stderr.")
    ] = False,
    form: Annotated[
        Literal["vtwin", "blis"],
        typer.Option(
            "--format",
            help="blis: also write report.blis.json with that tool's fields and quality labels; --json prints it.",
        ),
    ] = "vtwin",
) -> object:
    """Compare an observed trace with the simulated one, fit the twin, and write a report."""
    for option, other in (("--fit-guided", fit_guided), ("--fit-host", fit_host)):
        if other is not None:
            from calibrate.guided_command import fit_guided_cost, fit_host_cost

            _check_pair(option, observed, {"--fit": fit, "--simulated": simulated, "--holdout": holdout})
            found = fit_guided_cost if option == "--fit-guided" else fit_host_cost
            runs = (observed[0], other)
            found(runs, config, report, write_config=write_config, as_json=as_json, seed=seed)
            return None
    from calibrate.ci.run_gate import announce, gate_of, margins_of, verdict_on
    from calibrate.command import (
        calibration_of,
        check_writing,
        network_of,
        read_traces,
        summarise,
        twin_of_header,
        write_all,
    )
    from calibrate.compare_latency import check_alone, compare_models, kind_of
    from calibrate.distinct_runs import check_distinct
    from calibrate.findings import Options
    from calibrate.fit.objective.coefficients import COEFFICIENTS, FITTED
    from calibrate.run import check_options
    from traces import parse_slo
    from traces.strict.tell import tell_note

    held_out = holdout or []
    if fit and config is None and simulated is None:
        config = twin_of_header(observed[0], report, gpu=gpu, model_config=model_config, tp=tp)
    check_options(
        simulated=simulated is not None,
        config=config is not None,
        fitting=fit,
        num_observed=len(observed),
        num_holdout=len(held_out),
    )
    check_writing(
        fit=fit,
        places={
            "--report": report,
            "--write-config": write_config,
            "--write-defaults": write_defaults,
            "--junit": junit,
        },
        infer=infer_async or fit_alpha2 or latency_model in ("auto", "blackbox", "extended"),
    )
    if compare_latency is not None:
        check_alone(
            thresholds=thresholds,
            junit=junit,
            baseline=baseline,
            latency_model=latency_model,
            write_config=write_config,
            write_defaults=write_defaults,
            format=None if form == "vtwin" else form,
        )
    if fit and config is not None and compare_latency is None:
        latency_model = latency_model or "auto"
    gate = gate_of(thresholds, junit=junit, baseline=baseline)
    options = Options(
        pair_by=pair_by,
        seed=seed,
        infer_async=infer_async,
        latency_model=kind_of(latency_model),
        model_config=model_config,
        gpu=gpu,
        tp=tp,
        names=COEFFICIENTS if fit_alpha2 else FITTED,
        slo_us={} if slo is None else parse_slo(slo, tell=tell_note),
        max_concurrency=max_concurrency,
        margins=margins_of(margin, None if gate is None else gate[0]),
    )
    traces = read_traces(observed, simulated, held_out, repeat or [])
    check_distinct(traces.observed, holdout=traces.holdout, repeats=traces.repeats)
    options = replace(options, network=network_of(network, traces))
    if compare_latency is not None:
        compare_models(compare_latency, traces, config, report, fit=fit, options=options, as_json=as_json)
        return None
    calibration = calibration_of(
        traces,
        config,
        fit=fit,
        options=options,
        latency_model=latency_model,
        accepts_flags=accept_flags or gate is not None,
    )
    verdict = None if gate is None else verdict_on(calibration, *gate)
    documents = write_all(
        calibration,
        report,
        verdict=verdict,
        config=write_config,
        defaults=write_defaults,
        server=(model, gpu, tp),
        form=form,
    )
    summarise(calibration, report, is_stdout_free=not as_json)
    if as_json:
        say_text(json.dumps(documents[form], indent=2, allow_nan=False))
    if verdict is not None:
        announce(verdict, calibration, junit=junit, is_stdout_free=not as_json)
    return calibration


def _check_pair(option: str, observed: Sequence[Path], others: Mapping[str, object]) -> None:
    """Raise ConfigError where a fit to a pair of runs stands beside what asks for another fit."""
    from traces import ConfigError

    given = [name for name, value in others.items() if value]
    if given or len(observed) != 1:
        got = ", ".join(given) or f"{len(observed)} traces"
        raise ConfigError(f"{option}: cannot be combined with {got}, expected one trace and --config alone")
