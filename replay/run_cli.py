"""``vtwin run``: apart from ``replay``, which would import what draws workloads for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.cli import (
    BaseOption,
    ConfigOption,
    CounterfactualOption,
    DecisionsOption,
    DefaultsOption,
    DialectOption,
    FitnessOption,
    HorizonOption,
    InstancesOption,
    ItlOption,
    JsonOption,
    MeasureOption,
    OperatorTimesOption,
    OutputOption,
    OverwriteOption,
    ReportOption,
    RoutingOption,
    SetOption,
    SloOption,
    StepsOption,
    SweepOption,
    TraceEventsOption,
    WarmupFracOption,
    simulate_each,
    tell_replaced,
)
from replay.progress import working
from replay.simulation_command import SimulationOptions
from replay.twin.own.own_code import with_code_option
from replay.twins import AnywayOption, load_twins
from traces.strict.tell import tell
from traces.workload.options import WorkloadOptions, with_workload_options

if TYPE_CHECKING:
    from traces import Trace


@with_code_option
@with_workload_options
def run(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOptions,
    config: ConfigOption,
    output: OutputOption = None,
    settings: SetOption = None,
    base: BaseOption = False,
    as_json: JsonOption = False,
    slo: SloOption = None,
    measure: MeasureOption = None,
    warmup_frac: WarmupFracOption = None,
    horizon: HorizonOption = None,
    itl: ItlOption = False,
    operator_times: OperatorTimesOption = False,
    steps: StepsOption = None,
    trace_events: TraceEventsOption = None,
    report: ReportOption = None,
    instances: InstancesOption = None,
    routing: RoutingOption = None,
    decisions: DecisionsOption = None,
    counterfactual: CounterfactualOption = None,
    fitness_weights: FitnessOption = None,
    dialect: DialectOption = "vtwin",
    sweep: SweepOption = None,
    anyway: AnywayOption = False,
    defaults: DefaultsOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Draw a workload and simulate it."""
    _check_load(workload, sweep)
    twins = load_twins(
        config, defaults, settings, instances=instances, routing=routing, anyway=anyway, base=base
    )
    from replay.cluster.fitness import parse_weights
    from replay.trace.measured_window import parse_horizon, parse_measured
    from traces.slo import parse_slo
    from traces.strict.tell import tell_note
    from traces.workload import clipping_notes
    from traces.workload.recorded.served import served_note

    if len(twins) == 1 and sweep is None:
        tell_replaced(output, config, overwrite=overwrite)
    with working("drawing the workload"):
        loads = _loads(workload, sweep)
    for note in clipping_notes(workload):
        tell(f"warning: {note}")
    if (served := served_note(loads[0][2])) is not None:
        tell(f"note: {served}")
    options = SimulationOptions(
        at="arrival",
        loop="auto",
        itl=itl,
        operator_times=operator_times,
        steps=steps,
        trace_events=trace_events,
        report=report,
        overwrite=overwrite,
        decisions=decisions,
        counterfactual=counterfactual,
        fitness_weights=parse_weights(fitness_weights) if fitness_weights else {},
        dialect=dialect,
        as_json=as_json,
        measured=parse_measured(measure, warmup_frac),
        horizon_us=parse_horizon(horizon),
        slo_us=parse_slo(slo, tell=tell_note) if slo else {},
    )
    simulate_each(twins, loads, output=output, overwrite=overwrite, options=options)


def _check_load(workload: WorkloadOptions, sweep: str | None) -> None:
    """Raise ConfigError for options that contradict each other, before anything large is imported."""
    from traces.workload.options import check_options
    from traces.workload.sweep import sweep_options

    for options in [workload] if sweep is None else [each for _, _, each in sweep_options(workload, sweep)]:
        check_options(options)


def _loads(workload: WorkloadOptions, sweep: str | None) -> list[tuple[str, str, Trace]]:
    """Return the workload as one load without a name, or one per value of a sweep."""
    from traces.workload import trace_from_options
    from traces.workload.sweep import sweep_options

    if sweep is None:
        return [("", "", trace_from_options(workload))]
    return [
        (what, f"{value:g}", trace_from_options(each)) for what, value, each in sweep_options(workload, sweep)
    ]
