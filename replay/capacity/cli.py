"""``vtwin capacity``: its options. What is heavy is imported by the command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replay.search.seeds import DEFAULT_SEEDS, MOST_SEEDS
from replay.twin.own.own_code import with_code_option
from replay.twins import AnywayOption
from traces.workload import WorkloadOptions, with_workload_options


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
    from replay.capacity.command import show_one, show_several
    from replay.capacity.question import drawn
    from replay.ready import prepare_engine
    from replay.search.draws import searchable, tell_too_long
    from replay.twins import load_twins
    from replay.variants.command import variants_from
    from traces import ConfigError, check_place, parse_run_slo
    from traces.strict.tell import tell_note

    limits = parse_run_slo(slo, tell=tell_note)
    check_place(report, option="--report")
    searchable(workload, like)  # refuses what cannot be searched, before files are read
    twins = load_twins(
        config, defaults, settings, instances=instances, routing=routing, anyway=anyway, base=base
    )
    if len(twins) > 1 and report is not None:
        raise ConfigError("--report: cannot be combined with several variants")
    traces, drawing = drawn(workload, like=like, seeds=seeds)
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
