"""``vtwin calibrate`` and its subcommands. What is heavy is imported when a command runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from calibrate.commands.options import (
    CalibrateOptions,
    CostOptions,
    MeasureOptions,
    ModelGpuOptions,
    ModelsOptions,
    PairOptions,
)
from replay.twin import with_code_option
from traces.console.subcommands import Subcommands
from traces.facts import say_json
from traces.strict.option_table import with_option_tables

if TYPE_CHECKING:
    from calibrate.command import Traces
    from calibrate.findings import Calibration, Options
    from calibrate.gate.verdict import Baseline, Gate

calibrate_app = typer.Typer(cls=Subcommands, add_completion=False)


@calibrate_app.callback(
    invoke_without_command=True,
    epilog="Example: vtwin calibrate traces/low traces/high --fit --holdout traces/middle --write-config twin.yaml "
    "--report report",
)
@with_code_option
@with_option_tables
def calibrate(asked: CalibrateOptions) -> object:
    """Compare an observed trace with the simulated one, fit the twin, and write a report."""
    if asked.old.fit_guided is not None or asked.old.fit_host is not None:
        from calibrate.commands.old_spelling import fit_cost

        fit_cost(asked)
        return None
    from calibrate.ci.run_gate import gate_of

    asked = _with_other_twin(_with_steps(asked))
    if not asked.traces.paths:
        from calibrate.commands.steps_alone import fit_steps_alone

        return fit_steps_alone(asked)
    asked = _from_header(asked)
    _check(asked)
    gate = gate_of(asked.gate.thresholds, junit=asked.gate.junit, baseline=asked.gate.baseline)
    traces, options = _read(
        (asked.traces.paths, asked.simulated, asked.twin.holdout or [], asked.twin.repeat or []),
        asked.measure,
        _options(asked, None if gate is None else gate[0]),
    )
    if asked.old.compare_latency is not None:
        from calibrate.commands.old_spelling import compare_latency

        compare_latency(asked, traces, options)
        return None
    return _calibrated(asked, traces, options, gate)


@calibrate_app.command(
    "guided",
    epilog="Example: vtwin calibrate guided with-schema plain --config twin.yaml --report report "
    "--write-config twin-guided.yaml",
)
@with_code_option
@with_option_tables
def guided(
    guided: Annotated[
        Path, typer.Argument(metavar="GUIDED", help="The trace of a run with guided requests.")
    ],
    plain: Annotated[Path, typer.Argument(metavar="PLAIN", help="The same requests without grammars.")],
    asked: CostOptions,
) -> None:
    """Find what grammars cost, from a run of guided requests and one of the same requests without."""
    from calibrate.commands.pair_costs import fit_guided_cost

    fit_guided_cost((guided, plain), asked)


@calibrate_app.command(
    "host",
    epilog="Example: vtwin calibrate host sync async --config twin.yaml --report report --write-config twin-host.yaml",
)
@with_code_option
@with_option_tables
def host(
    synchronous: Annotated[
        Path, typer.Argument(metavar="SYNC", help="The trace of a server without async scheduling.")
    ],
    asynchronous: Annotated[
        Path, typer.Argument(metavar="ASYNC", help="The same requests on a server with it.")
    ],
    asked: CostOptions,
) -> None:
    """Find the CPU's time that async scheduling hides, from a run of a server without it and one with it."""
    from calibrate.commands.pair_costs import fit_host_cost

    fit_host_cost((synchronous, asynchronous), asked)


@calibrate_app.command(
    "models",
    epilog="Example: vtwin calibrate models traces/low traces/high --config twin.yaml --models blackbox,roofline "
    "--report report",
)
@with_code_option
@with_option_tables
def models(asked: ModelsOptions) -> None:
    """Score several latency models against the same traces. Each model's report goes to DIR/MODEL."""
    from calibrate.calibration_run import check_options
    from calibrate.commands.models import compare_models
    from traces import check_place

    check_place(asked.traces.report, option="--report")
    held_out = asked.holdout or []
    check_options(
        simulated=False,
        config=True,
        fitting=asked.fit,
        num_observed=len(asked.traces.observed),
        num_holdout=len(held_out),
    )
    paths = (asked.traces.observed, None, held_out, asked.repeat or [])
    traces, options = _read(paths, asked.measure, _options_of_models(asked))
    compare_models(
        asked.models,
        traces,
        asked.config,
        asked.traces.report,
        fit=asked.fit,
        options=options,
        as_json=asked.result.as_json,
    )


def _with_steps(asked: CalibrateOptions) -> CalibrateOptions:
    """Return the options, those that ``--steps`` implies included. Raises an error for what it cannot go with."""
    from traces import ConfigError

    fitting, steps = asked.fitting, asked.twin.steps
    if not asked.traces.paths and steps is None:
        raise click.UsageError("Missing argument 'OBSERVED…'.")
    if asked.traces.paths and asked.traces.report is None:
        raise click.UsageError("Missing option '--report'.")
    if steps is None:
        return asked
    others = {
        "--infer-async": fitting.infer_async,
        "--fit-alpha2": asked.alpha.fit_alpha2,
        "--latency-model": fitting.latency_model not in (None, "extended"),
    }
    for option, is_given in others.items():
        if is_given:
            raise ConfigError(
                f"{option}: cannot be combined with --steps, which fits the extended model to the steps"
            )
    return replace(asked, twin=replace(asked.twin, fit=True))


def _with_other_twin(asked: CalibrateOptions) -> CalibrateOptions:
    """Return the options, those that ``--from`` implies included. Raises an error for what it cannot go with."""
    from traces import ConfigError

    if asked.twin.from_twin is None:
        return asked
    others = {
        "--infer-async": asked.fitting.infer_async,
        "--fit-alpha2": asked.alpha.fit_alpha2,
        "--latency-model": asked.fitting.latency_model is not None,
        "--steps": asked.twin.steps is not None,
        "--simulated": asked.simulated is not None,
    }
    for option, is_given in others.items():
        if is_given:
            raise ConfigError(f"{option}: cannot be combined with --from, which keeps the other twin's model")
    return replace(asked, twin=replace(asked.twin, fit=True))


def _from_header(asked: CalibrateOptions) -> CalibrateOptions:
    """Return the options, with a twin from the first trace's header if a fit has none to start from."""
    if not asked.twin.fit or asked.twin.config is not None or asked.simulated is not None:
        return asked
    from calibrate.command import twin_of_header

    server = asked.server
    config = twin_of_header(
        asked.traces.paths[0],
        asked.traces.folder,
        gpu=server.gpu,
        model_config=server.model_config,
        tp=server.tp,
    )
    return replace(asked, twin=replace(asked.twin, config=config))


def _check(asked: CalibrateOptions) -> None:
    """Raise ConfigError for options that cannot be combined, and for paths that cannot be written."""
    from calibrate.calibration_run import check_options
    from calibrate.command import check_writing

    twin, fitting = asked.twin, asked.fitting
    check_options(
        simulated=asked.simulated is not None,
        config=twin.config is not None,
        fitting=twin.fit,
        num_observed=len(asked.traces.paths),
        num_holdout=len(twin.holdout or []),
    )
    check_writing(
        fit=twin.fit,
        places={
            "--report": asked.traces.folder,
            "--write-config": asked.write.write_config,
            "--write-defaults": asked.write.write_defaults,
            "--junit": asked.gate.junit,
        },
        infer=fitting.infer_async
        or asked.alpha.fit_alpha2
        or fitting.latency_model in ("auto", "blackbox", "extended"),
    )
    if asked.old.compare_latency is not None:
        from calibrate.commands.old_spelling import check_alone

        check_alone(asked)


def _latency_model(asked: CalibrateOptions) -> str | None:
    """Return the latency model that is fitted, None: the configured one."""
    if asked.twin.steps is not None:
        return "extended"
    is_one = asked.twin.fit and asked.twin.config is not None and asked.old.compare_latency is None
    return asked.fitting.latency_model or ("auto" if is_one else None)


def _options(asked: CalibrateOptions, gate: Gate | None) -> Options:
    """Return how ``vtwin calibrate`` compares and fits."""
    from calibrate.ci.run_gate import margins_of
    from calibrate.commands.question import kind_of

    return replace(
        _shared_options(asked.measure, asked.server, asked.pair),
        seed=asked.result.seed,
        infer_async=asked.fitting.infer_async,
        from_twin=asked.twin.from_twin,
        latency_model=kind_of(_latency_model(asked)),
        names=_fitted_names(with_alpha2=asked.alpha.fit_alpha2),
        margins=margins_of(asked.measure.margin, gate),
    )


def _options_of_models(asked: ModelsOptions) -> Options:
    """Return how ``vtwin calibrate models`` compares and fits."""
    from calibrate.ci.run_gate import margins_of

    return replace(
        _shared_options(asked.measure, asked.server, asked.pair),
        seed=asked.result.seed,
        infer_async=asked.infer_async,
        names=_fitted_names(with_alpha2=asked.alpha.fit_alpha2),
        margins=margins_of(asked.measure.margin, None),
    )


def _shared_options(measure: MeasureOptions, server: ModelGpuOptions, pair: PairOptions) -> Options:
    from calibrate.findings import Options
    from traces import parse_slo
    from traces.strict.tell import tell_note

    return Options(
        pair_by=pair.pair_by,
        model_config=server.model_config,
        gpu=server.gpu,
        tp=server.tp,
        slo_us={} if measure.slo is None else parse_slo(measure.slo, tell=tell_note),
        max_concurrency=measure.max_concurrency,
    )


def _fitted_names(*, with_alpha2: bool) -> tuple[str, ...]:
    from calibrate.fit.objective.coefficients import COEFFICIENTS, FITTED

    return COEFFICIENTS if with_alpha2 else FITTED


def _read(
    paths: tuple[Sequence[Path], Path | None, Sequence[Path], Sequence[Path]],
    measure: MeasureOptions,
    options: Options,
) -> tuple[Traces, Options]:
    """Return the traces, and the options with the client's network, which a trace may contain.

    ``paths``: observed, simulated, held out, repeated.
    """
    from calibrate.command import network_of, read_traces
    from calibrate.distinct_runs import check_distinct

    traces = read_traces(*paths)
    check_distinct(traces.observed, holdout=traces.holdout, repeats=traces.repeats)
    return traces, replace(options, network=network_of(measure.network, traces))


def _calibrated(
    asked: CalibrateOptions, traces: Traces, options: Options, gate: tuple[Gate, Baseline | None] | None
) -> Calibration:
    """Compare or fit, write the requested files, print the results, and return them."""
    from calibrate.ci.run_gate import announce, verdict_on
    from calibrate.command import StepLogPaths, calibration_of, summarise, write_all

    report, is_stdout_free = asked.traces.folder, not asked.result.as_json
    calibration = calibration_of(
        traces,
        asked.twin.config,
        fit=asked.twin.fit,
        options=options,
        latency_model=None if asked.twin.steps else _latency_model(asked),
        accepts_flags=asked.fitting.accept_flags or gate is not None,
        steps=StepLogPaths(asked=asked.twin.steps or [], traces=asked.traces.paths),
    )
    verdict = None if gate is None else verdict_on(calibration, *gate)
    documents = write_all(
        calibration,
        report,
        verdict=verdict,
        config=asked.write.write_config,
        defaults=asked.write.write_defaults,
        server=(asked.write.model, asked.server.gpu, asked.server.tp),
        form=asked.form,
    )
    summarise(calibration, report, is_stdout_free=is_stdout_free)
    if asked.result.as_json:
        say_json(documents[asked.form])
    if verdict is not None:
        announce(verdict, calibration, junit=asked.gate.junit, is_stdout_free=is_stdout_free)
    return calibration
