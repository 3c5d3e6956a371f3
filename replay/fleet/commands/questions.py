"""The commands of ``vtwin fleet`` that formulas alone answer, or slots. What is heavy is imported by the command."""

from __future__ import annotations

import json
from typing import Annotated

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
    SpillOption,
    WorkloadOption,
    arrival_notes,
    arrivals_of,
    asked_of,
    check_of,
    compile_once,
    infeasible,
    misfit_notes,
    numbers_of,
    objective_of,
    share_up,
    sources_of,
    tell_notes,
    workload_of,
)
from replay.fleet.inputs import OUTPUT_FRAC, SPILL_PER_ENGINE
from replay.twin.own.own_code import with_code_option
from traces.strict.tell import say, say_text


@with_code_option
def split(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    context: ContextOption = None,
    output_frac: OutputFracOption = OUTPUT_FRAC,
    availability: AvailabilityOption = 1.0,
    failures: FailuresOption = None,
    utilization_cap: CapOption = 0.85,
    prices: PricesOption = None,
    compress: Annotated[
        str,
        typer.Option(
            metavar="FACTORS", help="Also cut prompts that are up to this many times too long: 1,1.5,2."
        ),
    ] = "1",
    as_json: JsonOption = False,
) -> None:
    """Compare splits into a pool for short and one for long requests: every threshold by formula."""
    from replay.fleet.questions import split_document, split_lines, splits_of

    lengths, longest, notes = workload_of(workload, context, output_frac)
    up, of_nodes = share_up(availability, failures)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=up)
    sources = sources_of(profile, lengths, longest, prices=prices)
    with infeasible():
        found = splits_of(
            sources, lengths, rate, objective, context=longest, factors=numbers_of(compress, "--compress")
        )
    tell_notes([*notes, *of_nodes, *misfit_notes(sources)])
    if as_json:
        say_text(json.dumps(split_document(found), indent=2))
    else:
        say(*split_lines(found))


@with_code_option
def routers(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    split: Annotated[
        int,
        typer.Option(
            min=16,
            max=1 << 30,
            metavar="TOKENS",
            help="Two pools: requests up to this many tokens, and longer ones.",
        ),
    ],
    context: ContextOption = None,
    output_frac: OutputFracOption = OUTPUT_FRAC,
    utilization_cap: CapOption = 0.85,
    spill: SpillOption = SPILL_PER_ENGINE,
    compress: Annotated[
        float, typer.Option(min=1.0, max=1000.0, help="Cut prompts that are up to this many times too long.")
    ] = 1.5,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Simulate with the token-level engine, too.")
    ] = True,
    num_requests: Annotated[
        int,
        typer.Option(
            min=1000, max=1_000_000, metavar="N", help="Smallest number of requests per simulation."
        ),
    ] = 20_000,
    measure: MeasureOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for arrivals and lengths.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Compare routers between a short and a long pool, both sized by formula.

    Simulated at the level of slots and by the token-level engine.
    """
    from replay.fleet.routers import Comparison, routed_document, routed_lines, routed_of
    from replay.progress import working

    lengths, longest, notes = workload_of(workload, context, output_frac)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=1.0)
    sources = sources_of(profile, lengths, longest)
    on = Comparison(
        threshold=split,
        context=longest,
        spill=spill,
        factor=compress,
        seed=seed,
        asked=asked_of(num_requests, measure),
        with_engines=verify,
    )
    if verify:
        compile_once()
    with infeasible(), working("simulating the routers"):
        found = routed_of(sources, lengths, rate, objective, on=on)
    tell_notes([*notes, *misfit_notes(sources)])
    if as_json:
        say_text(json.dumps(routed_document(found), indent=2))
    else:
        say(*routed_lines(found))


@with_code_option
def disagg(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    context: ContextOption = None,
    output_frac: OutputFracOption = OUTPUT_FRAC,
    availability: AvailabilityOption = 1.0,
    failures: FailuresOption = None,
    utilization_cap: CapOption = 0.85,
    prices: PricesOption = None,
    alpha_prefill: Annotated[
        float,
        typer.Option(
            min=0.01, max=1.0, help="Formula only: share of the prefill throughput that transfers leave."
        ),
    ] = 0.90,
    alpha_decode: Annotated[
        float,
        typer.Option(
            min=0.01, max=1.0, help="Formula only: share of the decode throughput that transfers leave."
        ),
    ] = 0.92,
    beta_ttft: Annotated[
        float, typer.Option(min=1.0, max=1000.0, help="Formula only: factor on TTFT for moving the KV cache.")
    ] = 1.80,
    kv_bandwidth: Annotated[
        float,
        typer.Option(
            min=0.001, max=1e6, metavar="GB/S", help="Simulation only: each engine's link, in each direction."
        ),
    ] = 25.0,
    kv_bytes_per_token: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=1 << 30,
            metavar="N",
            help="Simulation only: KV of one token in all layers. Default: the model's.",
            show_default=False,
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Simulate the cheapest with the token-level engine.")
    ] = True,
    num_requests: Annotated[
        int,
        typer.Option(
            min=1000, max=1_000_000, metavar="N", help="Smallest number of requests per simulation."
        ),
    ] = 20_000,
    measure: MeasureOption = None,
    arrival: ArrivalOption = None,
    burstiness: BurstinessOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for arrivals and lengths.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Size prefill and decode pools: the Pareto set over how many of each, the cheapest simulated token by token.

    Two profiles: of prefill and of decode. Where the simulation does not meet the SLO, both pools grow until it does.
    Exit code 1 if none does.
    """
    from replay.fleet.disagg import (
        KV_BYTES_70B,
        disagg_document,
        disagg_lines,
        plan_disagg,
        transfer_note,
    )
    from replay.fleet.size import Check
    from replay.progress import working
    from sim.cluster import Disaggregation
    from sim.fleet.disaggregated import Transfer

    lengths, longest, notes = workload_of(workload, context, output_frac)
    up, of_nodes = share_up(availability, failures)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=up)
    sources = sources_of(profile, lengths, longest, prices=prices)
    arrivals = arrivals_of(arrival, burstiness, lengths)
    lengths = arrivals.of(lengths)
    asked = asked_of(num_requests, measure, arrivals)
    known = kv_bytes_per_token if kv_bytes_per_token is not None else sources[-1].kv_bytes_per_token
    if verify:
        compile_once()
    with infeasible(), working("sizing and simulating the fleet"):
        plan = plan_disagg(
            (sources[0], sources[-1]),
            lengths,
            rate,
            objective,
            context=longest,
            by_formula=Transfer(alpha_prefill=alpha_prefill, alpha_decode=alpha_decode, beta_ttft=beta_ttft),
            transfer=Disaggregation(
                kv_bandwidth_gbps=kv_bandwidth, kv_bytes_per_token=KV_BYTES_70B if known is None else known
            ),
            check=Check(asked=asked, seed=seed) if verify else None,
        )
    links = [transfer_note(plan.transfer, assumed=known is None)] if verify else []
    tell_notes([*notes, *of_nodes, *arrival_notes(arrivals, lengths), *links, *misfit_notes(sources)])
    if as_json:
        say_text(json.dumps(disagg_document(plan), indent=2, allow_nan=False))
    else:
        say(*disagg_lines(plan))
    if not plan.fleets or plan.is_met is False:
        raise typer.Exit(1)


@with_code_option
def whatif(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rates: Annotated[str, typer.Option(metavar="R,R,…", help="Requests per second, separated by commas.")],
    slo: SloOption,
    profiles: Annotated[str, typer.Option(metavar="NAME,NAME,…", help="Profiles or twins, one column each.")],
    context: ContextOption = None,
    output_frac: OutputFracOption = OUTPUT_FRAC,
    availability: AvailabilityOption = 1.0,
    failures: FailuresOption = None,
    utilization_cap: CapOption = 0.85,
    prices: PricesOption = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify",
            help="Simulate every answer and take the fewest engines that meet the SLO in simulation.",
        ),
    ] = False,
    num_requests: Annotated[
        int,
        typer.Option(
            min=1000, max=1_000_000, metavar="N", help="Smallest number of requests per simulation."
        ),
    ] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed for arrivals and lengths.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Compare rates and GPU types, by formula or simulated: GPUs, cost per year, power, tokens per joule.

    Exit code 1 where nothing that is compared meets the SLO.
    """
    from replay.fleet.questions import whatif_document, whatif_lines, whatif_of
    from replay.progress import working

    lengths, longest, notes = workload_of(workload, context, output_frac)
    up, of_nodes = share_up(availability, failures)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=up)
    sources = sources_of(profiles, lengths, longest, prices=prices, most=None)
    check = check_of(verify=verify, num_requests=num_requests, seed=seed)
    with infeasible(), working("sizing the fleets"):
        found = whatif_of(
            sources, lengths, numbers_of(rates, "--rates"), objective, context=longest, check=check
        )
    tell_notes([*notes, *of_nodes, *misfit_notes(sources, power=True)])
    if as_json:
        say_text(json.dumps(whatif_document(found), indent=2))
    else:
        say(*whatif_lines(found))
    if all(each.size is None for each in found):
        raise typer.Exit(1)


@with_code_option
def flex(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    engines: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            help="Engines of the fleet. Default: as many as it needs.",
            show_default=False,
        ),
    ] = None,
    context: ContextOption = None,
    output_frac: OutputFracOption = OUTPUT_FRAC,
    utilization_cap: CapOption = 0.85,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Simulate the slots of every row, too.")
    ] = False,
    num_requests: Annotated[
        int,
        typer.Option(
            min=1000, max=1_000_000, metavar="N", help="Smallest number of requests per simulation."
        ),
    ] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed for arrivals and lengths.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Say how much power a fleet can shed, and for how long, within its SLO."""
    from replay.fleet.flex import cuts_of, flex_document, flex_lines
    from replay.fleet.size import plan_pool
    from replay.progress import working

    lengths, longest, notes = workload_of(workload, context, output_frac)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=1.0)
    sources = sources_of(profile, lengths, longest)[:1]
    source = sources[0]
    check = check_of(verify=verify, num_requests=num_requests, seed=seed)
    with infeasible(), working("shedding power"):
        number = engines or plan_pool(source, lengths, rate, objective, context=longest, check=check).engines
        cuts = cuts_of(source, lengths, rate, objective, context=longest, engines=number, check=check)
    tell_notes([*notes, *misfit_notes(sources, power=True)])
    if as_json:
        say_text(json.dumps(flex_document(cuts, engines=number), indent=2))
    else:
        say(*flex_lines(cuts, engines=number))
