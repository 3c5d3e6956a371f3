"""What the commands of ``vtwin fleet`` take: tables of options, those that several share declared once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from replay.fleet.inputs import OUTPUT_FRAC, SPILL_PER_ENGINE
from replay.numbers.argument_ranges import AVAILABILITY, FLEET_REQUESTS, RATE
from traces.console.options import AnswerForm, PricesOption
from traces.strict.option_table import option_table

GPU_HELP = (
    "What an engine can do: MODEL@GPU:TP, computed (Qwen/Qwen3-32B@H100:2); a TWIN.yaml; A100 or H100, the vLLM fleet "
    "simulator's constants for a model of 70B, whose prompts cost no compute; or a "
    "profile's file (vtwin fleet profile). "
)
SPILL_HELP = (
    "For spillover: a pool with this many requests per engine (running and waiting) passes new ones on. Try "
    "values near the seats in use at the planned load."
)
SPLIT_HELP = "Two pools: requests up to this many tokens, and longer ones."
_tokens = partial(typer.Option, max=1 << 30)
_spill = partial(typer.Option, min=0.001, max=1e6)
_verify = partial(typer.Option, "--verify/--no-verify")
_report = partial(typer.Option, metavar="FILE.html")
_split = partial(typer.Option, rich_help_panel="Layout split")
_disagg = partial(
    typer.Option, rich_help_panel="Layout disagg: simulation, and formula only where it says so"
)
_pools = partial(typer.Option, rich_help_panel="Layout pools")

WorkloadOption = Annotated[
    Path,
    typer.Option(
        metavar="CDF.json|STEM",
        help="Lengths: a JSON list of pairs (total tokens, share of requests up to it), a trace, or a file of Azure, …",
    ),
]
RateOption = Annotated[
    float, typer.Option(min=RATE.least, max=RATE.most, metavar="R", help="Requests per second.")
]
SloOption = Annotated[
    str,
    typer.Option(
        metavar="LIMITS", help="Latency limits over the run: ttft_p99=500ms, and tpot_p99=50ms if it matters."
    ),
]
ProfileOption = Annotated[
    str,
    typer.Option(
        metavar="PROFILE", help=f"{GPU_HELP}Two, separated by a comma: for the short and the long pool."
    ),
]
CapOption = Annotated[
    float, typer.Option(min=0.05, max=0.99, help="Formula only: largest share of the seats in use.")
]
MeasureOption = Annotated[
    str | None,
    typer.Option(
        metavar="FROM:TO",
        help="Measure the requests that arrive in this time of each simulation (60s:300s, or 60s:). Default: from when "
        "the fleet is filled to when it begins to drain.",
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed for arrivals and lengths.")]


@option_table
class LengthOptions:
    """Which requests count, and what of a total length is output."""

    context: Annotated[
        int | None,
        _tokens(
            min=16,
            metavar="N",
            help="Longest request, tokens. Default: the workload's, as a power of two.",
        ),
    ] = None
    output_frac: Annotated[
        float,
        typer.Option(min=0.001, max=0.999, help="Share of a total length that is output, for a CDF.json."),
    ] = OUTPUT_FRAC
    total_tokens_max: Annotated[
        int | None,
        _tokens(
            min=2,
            metavar="N",
            help="Maximum of prompt and answer together. Longer requests have their prompt cut, where --context leaves "
            "them out; the output says how many.",
        ),
    ] = None


@option_table
class NodeOptions:
    """How many of the nodes are up, and how full they may be."""

    availability: Annotated[
        float,
        typer.Option(
            min=AVAILABILITY.least,
            max=AVAILABILITY.most,
            metavar="A",
            help="Share of the nodes that are up on average (0.987). More nodes are provisioned accordingly; the "
            "output says how often they suffice, and how many it takes for 99 % of the time.",
        ),
    ] = 1.0
    failures: Annotated[
        str | None,
        typer.Option(
            metavar="RATE:REPAIR,…|FILE",
            help="In place of --availability: failures per node and day and the time to repair one, by class "
            "(0.0065:4h,0.001:48h), or a YAML file with failures.",
        ),
    ] = None
    utilization_cap: CapOption = 0.85


@option_table
class DemandOptions:
    """What must be served, within which limits, and by which GPUs."""

    workload: WorkloadOption
    rate: RateOption
    slo: SloOption
    profile: ProfileOption


@option_table
class ArrivalOptions:
    """When simulated requests come, and which are measured."""

    measure: MeasureOption = None
    arrival: Annotated[
        Literal["poisson", "constant", "gamma", "weibull", "trace"] | None,
        typer.Option(
            help="How requests arrive; --burstiness alone means gamma. trace: with the trace's gaps, scaled to --rate "
            "and repeated in order. The formulas use only the variance of the gaps. Default: poisson."
        ),
    ] = None
    burstiness: Annotated[
        float | None,
        typer.Option(
            metavar="B",
            help="Shape of gamma gaps, as in vtwin run: 1 is Poisson, below 1 is burstier, above 1 is more even.",
        ),
    ] = None


@option_table
class DrawnRunOptions:
    """How long each simulation is, and with which draws."""

    num_requests: Annotated[
        int,
        typer.Option(
            min=FLEET_REQUESTS.least,
            max=FLEET_REQUESTS.most,
            metavar="N",
            help="Smallest number of requests per simulation.",
        ),
    ] = 20_000
    seed: SeedOption = 1


@option_table
class SplitOptions:
    """A pool for short requests and one for long ones."""

    split: Annotated[
        int | None,
        _split(
            min=16,
            max=1 << 30,
            metavar="TOKENS",
            help=f"{SPLIT_HELP} Without it, --layout split compares every threshold, by formula.",
        ),
    ] = None
    compress: Annotated[
        str | None,
        _split(
            metavar="FACTORS",
            help="Also cut prompts that are up to this many times too long: 1,1.5,2 to compare thresholds (1), one "
            "number for --router compress (1.5).",
        ),
    ] = None


def _left_by_transfers(pool: str, share: float) -> Any:  # noqa: ANN401 - an option, as typer has it
    """Return the option of the share of a pool's throughput that transfers leave."""
    told = (
        f"Formula only: share of the {pool} throughput that transfers leave. Default: {share:g}, of a twin 1."
    )
    return _disagg(min=0.01, max=1.0, help=told)


@option_table
class DisaggOptions:
    """Pools for prefill and for decode."""

    alpha_prefill: Annotated[float | None, _left_by_transfers("prefill", 0.9)] = None
    alpha_decode: Annotated[float | None, _left_by_transfers("decode", 0.92)] = None
    beta_ttft: Annotated[
        float | None,
        _disagg(
            min=1.0,
            max=1000.0,
            help="Formula only: factor on TTFT for moving the KV cache. Default: 1.8, of a twin 1.",
        ),
    ] = None
    kv_bandwidth: Annotated[
        float | None,
        _disagg(
            min=0.001, max=1e6, metavar="GB/S", help="Each engine's link, in each direction. Default: 25."
        ),
    ] = None
    kv_bytes_per_token: Annotated[
        int | None,
        _disagg(min=0, max=1 << 30, metavar="N", help="KV of one token in all layers. Default: the model's."),
    ] = None
    beside: Annotated[
        bool | None,
        _disagg(
            "--beside/--no-beside",
            help="Also size one pool for the same demand, and show both: GPUs, cost, latencies. Default: yes.",
        ),
    ] = None


@option_table
class PoolsOptions:
    """The pools of a file, and the router before them."""

    router: Annotated[
        str | None,
        _pools(
            metavar="NAME",
            help="With pools: length, spillover, compress, least-loaded, random, model or semantic. Default: the "
            "file's, else length.",
        ),
    ] = None
    labels: Annotated[
        Path | None,
        _pools(
            metavar="FILE.csv",
            help="For semantic: request_id and label of each request, as your classifier says.",
        ),
    ] = None
    spill: Annotated[
        float | None,
        _spill(help=f"{SPILL_HELP} Default: {SPILL_PER_ENGINE:g}.", rich_help_panel="Layout pools"),
    ] = None


@option_table
class SizeOptions:
    """All options of ``vtwin fleet size``; None: not given."""

    pools_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[POOLS.yaml]",
            show_default=False,
            help="For --layout pools. It has router, failures, and pools: each with profile, and name, up_to (tokens), "
            "takes (labels), share, price, failures.",
        ),
    ] = None
    workload: WorkloadOption
    rate: Annotated[
        str,
        typer.Option(metavar="R[,R…]", help="Requests per second. Several: a row for each (--compare)."),
    ]
    slo: SloOption
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE[,…]",
            help=f"{GPU_HELP}Several, with commas: in one pool a row for each (--compare); split: of the short and the "
            "long pool; disagg: of prefill and decode. Needed, except for pools, whose file says it.",
        ),
    ] = None
    layout: Annotated[
        Literal["one-pool", "split", "disagg", "pools"] | None,
        typer.Option(
            metavar="NAME",
            help="one-pool, split (short and long requests apart), disagg (prefill and decode apart) or pools (those "
            "of POOLS.yaml). Default: what --split or POOLS.yaml asks for, else one-pool.",
        ),
    ] = None
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="A row for each rate and profile: GPUs, cost per year, power. One pool each, by formula unless "
            "--verify is given. Default with several rates or profiles.",
        ),
    ] = False
    split: SplitOptions
    lengths: LengthOptions
    nodes: NodeOptions
    prices: PricesOption = None
    verify: Annotated[
        bool | None,
        _verify(
            help="Simulate with the token-level engine, and take the fewest engines that meet the SLO in simulation. "
            "Default: yes, but not where rates, profiles or thresholds are compared.",
        ),
    ] = None
    smallest: Annotated[
        bool | None,
        typer.Option(
            "--smallest/--no-smallest",
            help="Look for the fewest engines that meet the SLO in simulation. --no-smallest: the formula's number, or "
            "more. Default: yes.",
        ),
    ] = None
    num_requests: Annotated[
        int | None,
        typer.Option(
            min=1000,
            max=1_000_000,
            metavar="N",
            help="Smallest number of requests per simulation. Default: 50,000; of POOLS.yaml and --compare 20,000.",
        ),
    ] = None
    arrivals: ArrivalOptions
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed for arrivals, lengths and drawn labels. Default: 1.")
    ] = None
    disagg: DisaggOptions
    pools: PoolsOptions
    report: Annotated[Path | None, _report(help="Also write a page: cost over load, sensitivity.")] = None
    answer: AnswerForm = AnswerForm()


@option_table
class ProfileOptions:
    """All options of ``vtwin fleet profile``."""

    source: Annotated[
        str | None,
        typer.Option("--from", metavar="TWIN.yaml|NAME", help="A twin, or a profile of the table."),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL|CONFIG.json", help="Compute it: a model that ships, or its config.json."),
    ] = None
    gpu: Annotated[str | None, typer.Option(metavar="NAME", help="With --model: a GPU of the table.")] = None
    tp: Annotated[int, typer.Option(min=1, metavar="N", help="With --model: GPUs that share each layer.")] = 1
    workload: Annotated[
        Path | None,
        typer.Option(
            metavar="CDF.json|STEM",
            help="Workload whose mean lengths the profile is for. Default: 1,000 and 250 tokens.",
        ),
    ] = None
    lengths: LengthOptions
    prices: PricesOption = None
    answer: AnswerForm = AnswerForm()


@option_table
class RouterOptions:
    """All options of ``vtwin fleet routers``."""

    demand: DemandOptions
    split: Annotated[int, _tokens(min=16, metavar="TOKENS", help=SPLIT_HELP)]
    lengths: LengthOptions
    utilization_cap: CapOption = 0.85
    spill: Annotated[float, _spill(help=SPILL_HELP)] = SPILL_PER_ENGINE
    compress: Annotated[
        float, typer.Option(min=1.0, max=1000.0, help="Cut prompts that are up to this many times too long.")
    ] = 1.5
    verify: Annotated[bool, _verify(help="Simulate with the token-level engine, too.")] = True
    runs: DrawnRunOptions
    measure: MeasureOption = None
    answer: AnswerForm = AnswerForm()


@option_table
class FlexOptions:
    """All options of ``vtwin fleet flex``."""

    demand: DemandOptions
    engines: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Engines of the fleet. Default: as many as it needs."),
    ] = None
    lengths: LengthOptions
    utilization_cap: CapOption = 0.85
    verify: Annotated[bool, _verify(help="Simulate the seats of every row, too.")] = False
    runs: DrawnRunOptions
    answer: AnswerForm = AnswerForm()


@option_table
class ReserveOptions:
    """All options of ``vtwin fleet reserve``."""

    workload: WorkloadOption
    diurnal: Annotated[
        str,
        typer.Option(
            metavar="PEAK:TROUGH|FILE",
            help="Requests per second over the day: a cosine from trough to peak (at hour 14), or a file of 24 "
            "hourly rates.",
        ),
    ]
    slo: SloOption
    profile: ProfileOption
    burst_price: Annotated[
        str,
        typer.Option(
            metavar="PRICE|FACTORx",
            help="Price of an engine that is paid by the hour; 1.8x: 1.8 times the reserved price.",
        ),
    ]
    prices: PricesOption = None
    lengths: LengthOptions
    nodes: NodeOptions
    verify: Annotated[
        bool,
        _verify(
            help="Simulate every hour and take the fewest engines that meet the SLO in simulation.",
        ),
    ] = False
    runs: DrawnRunOptions
    report: Annotated[Path | None, _report(help="Also write a page with the day.")] = None
    answer: AnswerForm = AnswerForm()
