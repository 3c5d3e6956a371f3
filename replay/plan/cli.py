"""``vtwin capacity``: its options. What is heavy is imported by the command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replay.simulation_command import AnywayOption
from replay.twin.own.own_code import with_code_option
from traces.workload.options import WorkloadOptions, with_workload_options

DEFAULT_SEEDS = 8
"""With fewer, the interval's width is chance; with more, too much of each run is spent on settling."""
MOST_SEEDS = 16
"""This many are drawn where the interval is wide."""


@with_code_option
@with_workload_options
def capacity(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOptions,
    config: Annotated[
        Path, typer.Option(metavar="TWIN.yaml", help="What to simulate (docs/reference/config.md).")
    ],
    slo: Annotated[
        str,
        typer.Option(
            metavar="LIMITS",
            help="Latency limits over the run: ttft, tpot, itl or e2e with _p99 (any percentile) or _mean, as in "
            "ttft_p99=500ms,tpot_p99=50ms.",
        ),
    ],
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="STEM", help="Take lengths and prefixes from this trace (short for --lengths-from)."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=50,
            help="How many times to draw the workload. The interval comes from them; --trace needs none.",
            show_default=f"{DEFAULT_SEEDS}, up to {MOST_SEEDS} where the interval is wide",
        ),
    ] = None,
    no_binding: Annotated[
        bool,
        typer.Option("--no-binding", help="Do not look for the resource that limits the capacity."),
    ] = False,
    instances: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            metavar="N",
            help="Simulate N such servers behind a router.",
            show_default=False,
        ),
    ] = None,
    routing: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="How the router chooses, as in run.", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of TWIN.yaml in place of the file's, as in run; several values give a table of capacities.",
            show_default=False,
        ),
    ] = None,
    base: Annotated[
        bool,
        typer.Option(
            "--base", help="With --set: also the capacity of TWIN.yaml as it is, in the first column."
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Also write a page with the curves.", show_default=False),
    ] = None,
    anyway: AnywayOption = False,
    defaults: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Your own defaults.yaml, read before the built-in one."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Find the highest rate at which a twin meets latency limits.

    The workload is drawn once per seed and simulated at many rates: 150,000 requests together, more where queues take
    longer to grow, or --num-requests for each seed. Exit code 1 if no rate meets the limits.
    """
    from replay.plan.capacity_command import show_one, show_several
    from replay.plan.draws import drawing_of, draws, searchable, tell_too_long
    from replay.plan.variants_command import variants_from
    from replay.simulation_command import load_twins, prepare_engine
    from traces.atomic import check_place
    from traces.errors import ConfigError
    from traces.run_slo import parse_run_slo
    from traces.strict.tell import tell_note

    limits = parse_run_slo(slo, tell=tell_note)
    most_seeds = MOST_SEEDS if seeds is None else seeds
    seeds = DEFAULT_SEEDS if seeds is None else seeds
    check_place(report, option="--report")
    options = searchable(workload, like)
    twins = load_twins(
        config, defaults, settings, instances=instances, routing=routing, anyway=anyway, base=base
    )
    if len(twins) > 1 and report is not None:
        raise ConfigError("--report: cannot be combined with several variants")
    takes_all = workload.num_requests is None and workload.trace is None
    drawing = drawing_of(options, seeds=seeds, most_seeds=most_seeds) if takes_all else None
    traces = draws(options, 1 if takes_all else seeds)
    tell_too_long(traces[0], [twin for _, twin in twins])
    for _, twin in twins:
        prepare_engine(twin)
    if len(twins) == 1:
        is_met = show_one(
            traces,
            twins[0][1],
            limits,
            with_binding=not no_binding,
            report=report,
            as_json=as_json,
            drawing=drawing,
        )
    else:
        variants = variants_from(twins, [("", "", traces[0])])
        is_met = show_several(
            traces,
            variants,
            limits,
            with_binding=not no_binding,
            as_json=as_json,
            drawing=drawing,
        )
    if not is_met:
        raise typer.Exit(1)
