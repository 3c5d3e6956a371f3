"""``vtwin fleet``: its commands and options. What is heavy is imported by the command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.twin.own.own_code import with_code_option

if TYPE_CHECKING:
    from replay.plan.fleet.profiles import Source
    from replay.plan.fleet.size import FleetPlan
    from sim.fleet import Lengths
    from sim.fleet.sizing import Objective

fleet_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="How many GPUs a fleet needs, which, and at what cost: by formulas, checked by simulated engines.",
)

WorkloadOption = Annotated[
    Path,
    typer.Option(
        metavar="CDF.json|STEM",
        help="Lengths: a JSON list of pairs (total tokens, share of requests up to it), a trace, or a file of Azure, …",
    ),
]
RateOption = Annotated[
    float, typer.Option(min=1e-6, metavar="R", help="Requests per second, Poisson arrivals.")
]
SloOption = Annotated[
    str,
    typer.Option(metavar="LIMITS", help="ttft_p99=500ms, and tpot_p99=50ms if it matters."),
]
ProfileOption = Annotated[
    str,
    typer.Option(
        metavar="NAME|TWIN.yaml|FILE",
        help="What a GPU can do: A100 or H100 of the table, a twin, or a profile's file (vtwin fleet profile). "
        "Two, with a comma between: of the short and of the long pool.",
    ),
]
ContextOption = Annotated[
    int | None,
    typer.Option(
        min=16,
        metavar="N",
        help="Longest request, tokens. Default: the workload's, as a power of two.",
        show_default=False,
    ),
]
OutputFracOption = Annotated[
    float,
    typer.Option(min=0.001, max=0.999, help="Share of a total length that is output, for a CDF.json."),
]
PricesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="What a GPU costs an hour, a line each (H100: 2.5).", show_default=False
    ),
]
CapOption = Annotated[
    float,
    typer.Option(min=0.05, max=0.99, help="Largest share of the slots that may be taken, by the formulas."),
]
AvailabilityOption = Annotated[
    float,
    typer.Option(
        min=0.01, max=1.0, metavar="A", help="Share of the nodes that are up: more are provisioned."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@fleet_app.callback()
def _fleet() -> None:
    """Size a fleet."""


@fleet_app.command(
    epilog="Example: vtwin fleet size --workload azure_cdf.json --rate 200 --slo ttft_p99=500ms --profile A100"
)
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
            metavar="TOKENS",
            help="Two pools: requests up to so long, and the others.",
            show_default=False,
        ),
    ] = None,
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.2,
    availability: AvailabilityOption = 1.0,
    utilization_cap: CapOption = 0.85,
    prices: PricesOption = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Simulate the fleet with the token-level engine.")
    ] = True,
    smallest: Annotated[
        bool,
        typer.Option("--smallest", help="Also look for fewer engines that keep the SLO in simulation."),
    ] = False,
    num_requests: Annotated[
        int, typer.Option(min=1000, metavar="N", help="Requests of a simulation, at least.")
    ] = 50_000,
    seed: Annotated[int, typer.Option(min=0, help="Of arrivals and lengths.")] = 1,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="Also write a page: cost over load, sensitivity.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the smallest fleet that keeps a TTFT objective, and simulate it.

    Formulas (Erlang C, Kimura) give the number of engines; the token-level engine then serves the same workload, and
    more engines are added until it keeps the objective. Exit code 1 if none does.
    """
    from replay.plan.fleet.size import Check, plan_fleet
    from replay.simulation_command import working

    lengths, longest, notes = _workload(workload, context, output_frac)
    objective = _objective(slo, utilization_cap=utilization_cap, availability=availability)
    sources = _sources(profile, lengths, longest, prices=prices)
    check = Check(smallest=smallest, num_requests=num_requests, seed=seed) if verify else None
    if check is not None:
        _ready()
    with _infeasible(), working("sizing and simulating the fleet"):
        plan = plan_fleet(sources, lengths, rate, objective, context=longest, split=split, check=check)
    _show(plan, [*notes, *_misfits(sources)], as_json=as_json)
    if report is not None:
        from replay.plan.fleet.page import write_page

        with _infeasible(), working("drawing the page"):
            write_page(report, plan, sources, lengths, context=longest, split=split)
        typer.echo(f"wrote {report}", err=True)
    if plan.is_met is False:
        raise typer.Exit(1)


@fleet_app.command(
    "profile", epilog="Example: vtwin fleet profile --from twin.yaml --workload azure_cdf.json > a100.yaml"
)
@with_code_option
def show_profile(
    source: Annotated[
        str, typer.Option("--from", metavar="TWIN.yaml|NAME", help="A twin, or a profile of the table.")
    ],
    workload: Annotated[
        Path | None,
        typer.Option(
            metavar="CDF.json|STEM", help="Lengths to derive it for. Default: 1,000 and 250 tokens."
        ),
    ] = None,
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.2,
    prices: PricesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a GPU's profile: W, H and the rest, derived from any latency model, with its misfit."""
    from dataclasses import asdict

    import numpy as np

    from replay.plan.fleet.profiles import profile_yaml
    from sim.fleet import Lengths

    if workload is None:
        lengths, longest = (
            Lengths(input_tokens=np.array([1000.0]), output_tokens=np.array([250.0])),
            context or 8192,
        )
    else:
        lengths, longest, _ = _workload(workload, context, output_frac)
    (found,) = _sources(source, lengths, longest, prices=prices)[:1]
    if as_json:
        misfit = None if found.misfit is None else asdict(found.misfit)
        typer.echo(
            json.dumps({"name": found.name, "profile": asdict(found.profile), "misfit": misfit}, indent=2)
        )
    else:
        typer.echo(profile_yaml(found), nl=False)


@fleet_app.command(
    epilog="Example: vtwin fleet split --workload azure_cdf.json --rate 200 --slo ttft_p99=500ms --profile A100"
)
@with_code_option
def split(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.2,
    availability: AvailabilityOption = 1.0,
    utilization_cap: CapOption = 0.85,
    prices: PricesOption = None,
    compress: Annotated[
        str, typer.Option(metavar="FACTORS", help="Also cut prompts up to so many times too long: 1,1.5,2.")
    ] = "1",
    as_json: JsonOption = False,
) -> None:
    """Compare where to part short from long requests: every threshold by formula, with the Pareto front."""
    from replay.plan.fleet.questions import split_document, split_lines, splits_of

    lengths, longest, notes = _workload(workload, context, output_frac)
    objective = _objective(slo, utilization_cap=utilization_cap, availability=availability)
    sources = _sources(profile, lengths, longest, prices=prices)
    with _infeasible():
        one, found = splits_of(
            sources, lengths, rate, objective, context=longest, factors=_numbers(compress, "--compress")
        )
    _tell([*notes, *_misfits(sources)])
    if as_json:
        typer.echo(json.dumps(split_document(one, found), indent=2))
    else:
        typer.echo("\n".join(split_lines(one, found)))


@fleet_app.command(
    epilog="Example: vtwin fleet routers --workload cdf.json --rate 200 --slo ttft_p99=1s --profile A100 --split 2048"
)
@with_code_option
def routers(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    split: Annotated[
        int, typer.Option(min=16, metavar="TOKENS", help="Two pools: up to so long, and the others.")
    ],
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.2,
    utilization_cap: CapOption = 0.85,
    spill: Annotated[float, typer.Option(help="Requests per GPU from which spillover sends on.")] = 2.0,
    compress: Annotated[float, typer.Option(help="Prompts up to so many times too long are cut.")] = 1.5,
    num_requests: Annotated[int, typer.Option(min=1000, metavar="N", help="Requests simulated.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Of arrivals and lengths.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Compare routers between a short and a long pool, both sized by formula, simulated at the level of slots."""
    from dataclasses import asdict

    from replay.plan.fleet.questions import routed_lines, routed_of
    from replay.simulation_command import working

    lengths, longest, notes = _workload(workload, context, output_frac)
    objective = _objective(slo, utilization_cap=utilization_cap, availability=1.0)
    sources = _sources(profile, lengths, longest)
    with _infeasible(), working("simulating slots"):
        found = routed_of(
            sources,
            lengths,
            rate,
            objective,
            threshold=split,
            context=longest,
            settings=(spill, compress),
            draw=(num_requests, seed),
        )
    _tell([*notes, *_misfits(sources)])
    if as_json:
        told = {"schema_version": 1, "method": "slots simulated", "routers": [asdict(each) for each in found]}
        typer.echo(json.dumps(told, indent=2))
    else:
        typer.echo("\n".join(routed_lines(found)))


@fleet_app.command(
    epilog="Example: vtwin fleet disagg --workload azure_cdf.json --rate 200 --slo ttft_p99=2s --profile A100"
)
@with_code_option
def disagg(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.25,
    utilization_cap: CapOption = 0.85,
    prices: PricesOption = None,
    alpha_prefill: Annotated[
        float, typer.Option(help="Share of prefill throughput left beside transfers.")
    ] = 0.90,
    alpha_decode: Annotated[float, typer.Option(help="Share of decode throughput left.")] = 0.92,
    beta_ttft: Annotated[float, typer.Option(help="Factor on TTFT for moving the KV cache.")] = 1.80,
    as_json: JsonOption = False,
) -> None:
    """Size prefill and decode pools: the Pareto set over how many of each. Two profiles: of prefill and of decode."""
    from replay.plan.fleet.questions import disagg_document, disagg_lines
    from sim.fleet.disaggregated import Transfer, sweep_disaggregated

    lengths, longest, notes = _workload(workload, context, output_frac)
    objective = _objective(slo, utilization_cap=utilization_cap, availability=1.0)
    sources = _sources(profile, lengths, longest, prices=prices)
    transfer = Transfer(alpha_prefill=alpha_prefill, alpha_decode=alpha_decode, beta_ttft=beta_ttft)
    with _infeasible():
        found = sweep_disaggregated(
            (sources[0].profile, sources[-1].profile),
            lengths,
            rate,
            objective,
            context=longest,
            transfer=transfer,
        )
    _tell([*notes, *_misfits(sources)])
    if as_json:
        typer.echo(json.dumps(disagg_document(found), indent=2))
    else:
        typer.echo("\n".join(disagg_lines(found)))
    if not found:
        raise typer.Exit(1)


@fleet_app.command(
    epilog="Example: vtwin fleet whatif --workload cdf.json --rates 50,200 --slo ttft_p99=500ms --profiles A100,H100"
)
@with_code_option
def whatif(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rates: Annotated[str, typer.Option(metavar="R,R,…", help="Requests per second, several.")],
    slo: SloOption,
    profiles: Annotated[str, typer.Option(metavar="NAME,NAME,…", help="Profiles or twins, one column each.")],
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.2,
    availability: AvailabilityOption = 1.0,
    utilization_cap: CapOption = 0.85,
    prices: PricesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare rates and GPU types by formula: GPUs, cost per year, power, tokens per joule."""
    from replay.plan.fleet.questions import whatif_document, whatif_lines, whatif_of

    lengths, longest, notes = _workload(workload, context, output_frac)
    objective = _objective(slo, utilization_cap=utilization_cap, availability=availability)
    sources = _sources(profiles, lengths, longest, prices=prices, most=None)
    found = whatif_of(sources, lengths, _numbers(rates, "--rates"), objective, context=longest)
    _tell([*notes, *_misfits(sources)])
    if as_json:
        typer.echo(json.dumps(whatif_document(found), indent=2))
    else:
        typer.echo("\n".join(whatif_lines(found)))


@fleet_app.command(
    epilog="Example: vtwin fleet flex --workload azure_cdf.json --rate 200 --slo ttft_p99=2s --profile A100"
)
@with_code_option
def flex(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    engines: Annotated[
        int | None,
        typer.Option(min=1, help="Engines of the fleet. Default: as many as it needs.", show_default=False),
    ] = None,
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.2,
    utilization_cap: CapOption = 0.85,
    as_json: JsonOption = False,
) -> None:
    """Say how much power a fleet can shed, and for how long, within its SLO."""
    from replay.plan.fleet.questions import flex_document, flex_lines
    from sim.fleet.energy import curtail
    from sim.fleet.sizing import size_pool

    lengths, longest, notes = _workload(workload, context, output_frac)
    objective = _objective(slo, utilization_cap=utilization_cap, availability=1.0)
    sources = _sources(profile, lengths, longest)[:1]
    source = sources[0]
    with _infeasible():
        number = engines or size_pool(source.profile, lengths, rate, objective, context=longest).engines
        shares = [each / 20 for each in range(15)]
        cuts = curtail(
            source.profile, lengths, rate, objective, context=longest, engines=number, shares=shares
        )
    _tell([*notes, *_misfits(sources)])
    if as_json:
        typer.echo(json.dumps(flex_document(cuts, engines=number), indent=2))
    else:
        typer.echo("\n".join(flex_lines(cuts, engines=number)))


# -- what the commands share ------------------------------------------------------------------------------------


def _workload(path: Path, context: int | None, output_frac: float) -> tuple[Lengths, int, list[str]]:
    """Return the lengths, the longest request of a pool, and what is left out of it."""
    from replay.plan.fleet.workload import fitting_context, read_lengths
    from traces.errors import ConfigError

    lengths = read_lengths(path, output_frac=output_frac)
    from_totals = path.suffix == ".json"
    notes = [f"{output_frac:.0%} of each length are taken for output (--output-frac)"] if from_totals else []
    if context is None:
        return lengths, fitting_context(lengths), notes
    short, _, share = lengths.up_to(context)
    if short is None:
        raise ConfigError(f"--context: got {context}, expected a length that some request has")
    if share == 1:
        return short, context, []
    return (
        short,
        context,
        [f"{1 - share:.2%} of the requests are longer than {context:,} tokens and left out"],
    )


def _objective(slo: str, *, utilization_cap: float, availability: float) -> Objective:
    """Return what ``--slo`` asks for. Raises ConfigError on anything but ttft_p99 and tpot_p99."""
    from sim.fleet.sizing import Objective
    from traces.errors import ConfigError
    from traces.run_slo import parse_run_slo

    limits = {each.name: each.limit_us / 1e6 for each in parse_run_slo(slo)}
    unknown = [name for name in limits if name not in ("ttft_p99", "tpot_p99")]
    if unknown or "ttft_p99" not in limits:
        got = unknown[0] if unknown else "none of ttft_p99"
        raise ConfigError(f"--slo: got {got}, expected ttft_p99, and tpot_p99 if it matters")
    return Objective(
        ttft_p99_s=limits["ttft_p99"],
        tpot_p99_s=limits.get("tpot_p99"),
        utilization_cap=utilization_cap,
        availability=availability,
    )


def _sources(
    text: str, lengths: Lengths, context: int, *, prices: Path | None = None, most: int | None = 2
) -> list[Source]:
    """Return the profiles that are named. Raises ConfigError."""
    from replay.plan.fleet.profiles import read_source
    from replay.plan.prices import read_prices
    from traces.errors import ConfigError

    names = [each.strip() for each in text.split(",")]
    if most is not None and len(names) > most:
        raise ConfigError(f"--profile: got {len(names)}, expected one, or two with a comma between")
    costs: Mapping[str, float] | None = None if prices is None else read_prices(prices)
    return [read_source(name, lengths, context=context, prices=costs) for name in names]


def _misfits(sources: list[Source]) -> list[str]:
    """Return what a table's profile is of, and how far derived profiles are from their models."""
    from replay.plan.fleet.profiles import shipped_profiles

    return [
        *(
            f"profile {each.name}: the vLLM fleet simulator's figures for a 70B-class model, whose prompts cost no "
            f"compute of their own; {each.profile.cost_per_hour:g} an hour. --profile TWIN.yaml sizes for your model, "
            "--prices has your prices"
            for each in sources
            if each.name in shipped_profiles()
        ),
        *_derived(sources),
    ]


def _derived(sources: list[Source]) -> list[str]:
    return [
        f"profile of {each.name}: its iterations are off by {each.misfit.median:.1%} (median) and at most "
        f"{each.misfit.largest:.1%}, over {each.misfit.num_batches} batches of its model"
        for each in sources
        if each.misfit is not None
    ]


def _numbers(text: str, option: str) -> list[float]:
    from traces.errors import ConfigError

    try:
        numbers = [float(each) for each in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or any(not 0 < each < float("inf") for each in numbers):
        raise ConfigError(f"{option}: got {text!r}, expected numbers > 0 with commas between")
    return numbers


def _ready() -> None:
    from replay.simulation_command import load_engine, working
    from sim.cluster.ready import compile_cluster

    load_engine()
    with working("compiling the cluster once, up to a minute"):
        compile_cluster()


class _infeasible:  # noqa: N801 - used as a with statement reads
    """Turn a fleet that cannot be into one line, exit code 2."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from sim.config import InvalidConfig
        from traces.errors import ConfigError

        if isinstance(error, InvalidConfig):
            raise ConfigError(f"fleet: {error}") from error


def _tell(notes: list[str]) -> None:
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def _show(plan: FleetPlan, notes: list[str], *, as_json: bool) -> None:
    from dataclasses import replace

    from replay.plan.fleet.text import document, lines
    from replay.plan.side_by_side import terminal_width
    from traces.files.write import tool_version

    plan = replace(plan, notes=tuple(notes))
    if as_json:
        typer.echo(json.dumps(document(plan, tool_version=tool_version()), indent=2, allow_nan=False))
        return
    typer.echo("\n".join(lines(plan, width=terminal_width())))
