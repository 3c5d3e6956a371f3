"""``vtwin fleet size`` and ``profile``. What is heavy is imported by the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.fleet.commands.options import (
    ArrivalOption,
    AvailabilityOption,
    BurstinessOption,
    CapOption,
    ContextOption,
    FailuresOption,
    JsonOption,
    MeasureOption,
    OutputFracOption,
    PricesOption,
    ProfileOption,
    RateOption,
    SloOption,
    WorkloadOption,
    arrival_notes,
    arrivals_of,
    asked_of,
    compile_once,
    infeasible,
    misfit_notes,
    objective_of,
    share_up,
    sources_of,
    workload_of,
)
from replay.fleet.inputs import OUTPUT_FRAC
from replay.twin.own.own_code import with_code_option
from traces.strict.tell import say, say_text, tell

if TYPE_CHECKING:
    from replay.fleet.inputs.profiles import Source
    from replay.fleet.size import FleetPlan
    from sim.fleet import Lengths


@with_code_option
def size(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    split: Annotated[
        int | None,
        typer.Option(
            min=16,
            max=1 << 30,
            metavar="TOKENS",
            help="Two pools: requests up to this many tokens, and longer ones.",
            show_default=False,
        ),
    ] = None,
    context: ContextOption = None,
    output_frac: OutputFracOption = OUTPUT_FRAC,
    availability: AvailabilityOption = 1.0,
    failures: FailuresOption = None,
    utilization_cap: CapOption = 0.85,
    prices: PricesOption = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Simulate the fleet with the token-level engine.")
    ] = True,
    smallest: Annotated[
        bool,
        typer.Option(
            "--smallest/--no-smallest",
            help="Look for the fewest engines that meet the SLO in simulation. --no-smallest: the formula's number, or "
            "more.",
        ),
    ] = True,
    num_requests: Annotated[
        int,
        typer.Option(
            min=1000, max=1_000_000, metavar="N", help="Smallest number of requests per simulation."
        ),
    ] = 50_000,
    measure: MeasureOption = None,
    arrival: ArrivalOption = None,
    burstiness: BurstinessOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for arrivals and lengths.")] = 1,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="Also write a page: cost over load, sensitivity.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the smallest fleet that meets a TTFT objective, and simulate it.

    Formulas (Erlang C, Kimura) give a first number of engines; the token-level engine then serves the same
    workload with more or fewer, until the smallest is found that meets the objective with two seeds, the noise of the
    simulation included. Exit code 1 if none does.
    """
    from replay.fleet.size import Check, plan_fleet
    from replay.progress import working
    from traces import check_place

    check_place(report, option="--report")
    lengths, longest, notes = workload_of(workload, context, output_frac)
    up, of_nodes = share_up(availability, failures)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=up)
    sources = sources_of(profile, lengths, longest, prices=prices)
    arrivals = arrivals_of(arrival, burstiness, lengths)
    lengths = arrivals.of(lengths)
    asked = asked_of(num_requests, measure, arrivals)
    check = Check(smallest=smallest, asked=asked, seed=seed) if verify else None
    if check is not None:
        compile_once()
    with infeasible(), working("sizing and simulating the fleet"):
        plan = plan_fleet(sources, lengths, rate, objective, context=longest, split=split, check=check)
    plan = replace(
        plan, notes=(*notes, *of_nodes, *arrival_notes(arrivals, lengths), *misfit_notes(sources, power=True))
    )
    _show(plan, as_json=as_json)
    if report is not None:
        from replay.fleet.page import write_page

        with infeasible(), working("drawing the page"):
            write_page(report, plan, sources, lengths, context=longest, split=split)
        tell(f"wrote {report}")
    if plan.is_met is False:
        raise typer.Exit(1)


@with_code_option
def show_profile(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TWIN.yaml|NAME",
            help="A twin, or a profile of the table.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL|CONFIG.json",
            help="Compute it: a model that ships, or its config.json.",
            show_default=False,
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --model: a GPU of the table.", show_default=False),
    ] = None,
    tp: Annotated[
        int, typer.Option(min=1, metavar="N", help="With --model: GPUs that share each layer.")
    ] = 1,
    workload: Annotated[
        Path | None,
        typer.Option(
            metavar="CDF.json|STEM",
            help="Workload whose mean lengths the profile is for. Default: 1,000 and 250 tokens.",
        ),
    ] = None,
    context: ContextOption = None,
    output_frac: OutputFracOption = OUTPUT_FRAC,
    prices: PricesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a GPU's profile: W, H and the rest.

    Derived from any latency model, with its misfit; or computed from a model and a GPU, with the terms that W and H
    are made of.
    """
    import numpy as np

    from replay.fleet.inputs.profiles import profile_yaml
    from sim.fleet import Lengths
    from traces import ConfigError

    if (source is None) == (model is None) or (model is None) != (gpu is None):
        raise ConfigError("fleet profile: expected --from, or --model and --gpu")
    if workload is None:
        lengths, longest = (
            Lengths(input_tokens=np.array([1000.0]), output_tokens=np.array([250.0])),
            context or 8192,
        )
    else:
        lengths, longest, _ = workload_of(workload, context, output_frac)
    if model is not None and gpu is not None:
        _show_computed(model, gpu, tp, lengths=lengths, context=longest, prices=prices, as_json=as_json)
        return
    (found,) = sources_of(str(source), lengths, longest, prices=prices)[:1]
    say_text(json.dumps(_profile_document(found), indent=2) if as_json else profile_yaml(found).rstrip())


def _profile_document(found: Source) -> dict[str, object]:
    from dataclasses import asdict

    misfit = None if found.misfit is None else asdict(found.misfit)
    return {"name": found.name, "profile": asdict(found.profile), "misfit": misfit}


def _show_computed(
    model: str, gpu: str, tp: int, *, lengths: Lengths, context: int, prices: Path | None, as_json: bool
) -> None:
    from dataclasses import asdict

    from replay.fleet.inputs.computed import computed
    from replay.fleet.inputs.profiles import priced, profile_yaml
    from replay.fleet.text import term_lines
    from replay.search.prices import read_prices

    made = computed(model, gpu, tp=tp, lengths=lengths, context=context)
    found = priced(made.source, None if prices is None else read_prices(prices))
    if as_json:
        document = _profile_document(found) | {
            "terms": [asdict(each) for each in made.terms],
            "prefill": {**asdict(made.prefill), "bound": made.prefill.bound},
            "assumptions": dict(made.assumptions),
        }
        say_text(json.dumps(document, indent=2))
        return
    say(*(f"# {line}" for line in term_lines(made)))
    say_text(profile_yaml(found))


def _show(plan: FleetPlan, *, as_json: bool) -> None:
    from replay.fleet.text import document, lines
    from traces import terminal_width, tool_version

    if as_json:
        say_text(json.dumps(document(plan, tool_version=tool_version()), indent=2, allow_nan=False))
        return
    say(*lines(plan, width=terminal_width()))
