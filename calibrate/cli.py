"""``vtwin calibrate``. What is heavy is imported when the command runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer


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
            help="A trace that the fit does not see, for the held-out errors; may be repeated. "
            "Default: fit the first half of each trace, hold out the second.",
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
    from calibrate.ci.run_gate import announce, gate_of, margins_of, verdict_on
    from calibrate.command import (
        Traces,
        calibration_of,
        check_writing,
        network_of,
        source_at,
        summarise,
        write_all,
    )
    from calibrate.compare_latency import compare_models, kind_of
    from calibrate.distinct_runs import check_distinct
    from calibrate.findings import Options
    from calibrate.fit.objective.coefficients import COEFFICIENTS, FITTED
    from calibrate.run import check_options
    from traces.slo import parse_slo

    held_out = holdout or []
    check_options(
        simulated=simulated is not None,
        config=config is not None,
        fitting=fit,
        num_observed=len(observed),
        num_holdout=len(held_out),
    )
    check_writing(
        fit=fit,
        asked=write_config or write_defaults,
        infer=infer_async or fit_alpha2 or latency_model in ("auto", "blackbox", "extended"),
    )
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
        slo_us={} if slo is None else parse_slo(slo),
        margins=margins_of(margin, None if gate is None else gate[0]),
    )
    traces = Traces(
        observed=[source_at(path) for path in observed],
        simulated=None if simulated is None else source_at(simulated),
        holdout=[source_at(path) for path in held_out],
        repeats=[source_at(path) for path in repeat or []],
    )
    check_distinct(traces.observed, holdout=traces.holdout, repeats=traces.repeats)
    options = replace(options, network=network_of(network, traces))
    if compare_latency is not None:
        compare_models(compare_latency, traces, config, report, fit=fit, options=options, as_json=as_json)
        return
    calibration = calibration_of(traces, config, fit=fit, options=options, latency_model=latency_model)
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
    summarise(calibration, report)
    if as_json:
        typer.echo(json.dumps(documents[form], indent=2, allow_nan=False))
    if verdict is not None:
        announce(verdict, calibration, junit=junit)
