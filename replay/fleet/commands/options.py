"""What the commands of ``vtwin fleet`` take: tables of options, those that several share declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from replay.argument_ranges import AVAILABILITY, FLEET_REQUESTS, RATE
from replay.fleet.inputs import OUTPUT_FRAC, SPILL_PER_ENGINE
from traces.console.options import AnswerForm, PricesOption
from traces.strict.option_table import option_table

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
ArrivalOption = Annotated[
    Literal["poisson", "constant", "gamma", "weibull", "trace"] | None,
    typer.Option(
        help="How requests arrive; --burstiness alone means gamma. trace: with the trace's gaps, scaled to --rate "
        "and repeated in order. The formulas use only the variance of the gaps. Default: poisson."
    ),
]
BurstinessOption = Annotated[
    float | None,
    typer.Option(
        metavar="B",
        help="Shape of gamma gaps, as in vtwin run: 1 is Poisson, below 1 is burstier, above 1 is more even.",
    ),
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
        metavar="PROFILE",
        help="What a GPU can do: A100 or H100 of the table; MODEL@GPU:TP, computed from a model and a GPU; a "
        "TWIN.yaml; or a profile's file (vtwin fleet profile). "
        "Two, separated by a comma: for the short and the long pool.",
    ),
]
ContextOption = Annotated[
    int | None,
    typer.Option(
        min=16,
        max=1 << 30,
        metavar="N",
        help="Longest request, tokens. Default: the workload's, as a power of two.",
    ),
]
OutputFracOption = Annotated[
    float, typer.Option(min=0.001, max=0.999, help="Share of a total length that is output, for a CDF.json.")
]
SPILL_HELP = (
    "For spillover: a pool with this many requests per engine (running and waiting) passes new ones on. Try "
    "values near the seats in use at the planned load."
)
SpillOption = Annotated[float, typer.Option(min=0.001, max=1e6, help=SPILL_HELP)]
CapOption = Annotated[
    float, typer.Option(min=0.05, max=0.99, help="Formula only: largest share of the seats in use.")
]
AvailabilityOption = Annotated[
    float,
    typer.Option(
        min=AVAILABILITY.least,
        max=AVAILABILITY.most,
        metavar="A",
        help="Share of the nodes that are up on average (0.987). More nodes are provisioned accordingly; the output "
        "says how often they suffice, and how many it takes for 99 % of the time.",
    ),
]
FailuresOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE:REPAIR,…|FILE",
        help="In place of --availability: failures per node and day and the time to repair one, by class "
        "(0.0065:4h,0.001:48h), or a YAML file with failures.",
    ),
]
MeasureOption = Annotated[
    str | None,
    typer.Option(
        metavar="FROM:TO",
        help="Measure the requests that arrive in this time of each simulation (60s:300s, or 60s:). Default: from when "
        "the fleet is filled to when it begins to drain.",
    ),
]
NumRequestsOption = Annotated[
    int,
    typer.Option(
        min=FLEET_REQUESTS.least,
        max=FLEET_REQUESTS.most,
        metavar="N",
        help="Smallest number of requests per simulation.",
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed for arrivals and lengths.")]


@option_table
class LengthOptions:
    """Which of a workload's requests count, and what of a total length is output."""

    context: ContextOption = None
    output_frac: OutputFracOption = OUTPUT_FRAC
    total_tokens_max: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=1 << 30,
            metavar="N",
            help="Maximum of prompt and answer together. Longer requests have their prompt cut, where --context leaves "
            "them out; the output says how many.",
        ),
    ] = None


@option_table
class NodeOptions:
    """How many of the nodes are up, and how full they may be."""

    availability: AvailabilityOption = 1.0
    failures: FailuresOption = None
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
    """When requests come in a simulation, and which of them are measured."""

    measure: MeasureOption = None
    arrival: ArrivalOption = None
    burstiness: BurstinessOption = None


SPLIT = "Layout split"
DISAGG = "Layout disagg: simulation, and formula only where it says so"
POOLS = "Layout pools"


@option_table
class SplitOptions:
    """A pool for short requests and one for long ones."""

    split: Annotated[
        int | None,
        typer.Option(
            min=16,
            max=1 << 30,
            metavar="TOKENS",
            help="Two pools: requests up to this many tokens, and longer ones. Without it, --layout split compares "
            "every threshold, by formula.",
            rich_help_panel=SPLIT,
        ),
    ] = None
    compress: Annotated[
        str | None,
        typer.Option(
            metavar="FACTORS",
            help="Also cut prompts that are up to this many times too long: 1,1.5,2 to compare thresholds (1), one "
            "number for --router compress (1.5).",
            rich_help_panel=SPLIT,
        ),
    ] = None


@option_table
class DisaggOptions:
    """Pools for prefill and for decode."""

    alpha_prefill: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=1.0,
            help="Formula only: share of the prefill throughput that transfers leave. Default: 0.9.",
            rich_help_panel=DISAGG,
        ),
    ] = None
    alpha_decode: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=1.0,
            help="Formula only: share of the decode throughput that transfers leave. Default: 0.92.",
            rich_help_panel=DISAGG,
        ),
    ] = None
    beta_ttft: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            max=1000.0,
            help="Formula only: factor on TTFT for moving the KV cache. Default: 1.8.",
            rich_help_panel=DISAGG,
        ),
    ] = None
    kv_bandwidth: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=1e6,
            metavar="GB/S",
            help="Each engine's link, in each direction. Default: 25.",
            rich_help_panel=DISAGG,
        ),
    ] = None
    kv_bytes_per_token: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=1 << 30,
            metavar="N",
            help="KV of one token in all layers. Default: the model's.",
            rich_help_panel=DISAGG,
        ),
    ] = None
    beside: Annotated[
        bool | None,
        typer.Option(
            "--beside/--no-beside",
            help="Also size one pool for the same demand, and show both: GPUs, cost, latencies. Default: yes.",
            rich_help_panel=DISAGG,
        ),
    ] = None


@option_table
class PoolsOptions:
    """The pools of a file, and the router before them."""

    router: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With pools: length, spillover, compress, least-loaded, random, model or semantic. Default: the "
            "file's, else length.",
            rich_help_panel=POOLS,
        ),
    ] = None
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="For semantic: request_id and label of each request, as your classifier says.",
            rich_help_panel=POOLS,
        ),
    ] = None
    spill: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=1e6,
            help=f"{SPILL_HELP} Default: {SPILL_PER_ENGINE:g}.",
            rich_help_panel=POOLS,
        ),
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
            help="What a GPU can do: A100 or H100 of the table; MODEL@GPU:TP, computed from a model and a GPU; a "
            "TWIN.yaml; or a profile's file (vtwin fleet profile). Several, with commas: in one pool a row for each "
            "(--compare); split: of the short and the long pool; disagg: of prefill and decode. Needed, except for "
            "pools, whose file says it.",
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
        typer.Option(
            "--verify/--no-verify",
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
            help="Smallest number of requests per simulation. Default: 50,000 for one pool or a split, else 20,000.",
        ),
    ] = None
    arrivals: ArrivalOptions
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed for arrivals, lengths and drawn labels. Default: 1.")
    ] = None
    disagg: DisaggOptions
    pools: PoolsOptions
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Also write a page: cost over load, sensitivity.")
    ] = None
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
    split: Annotated[
        int,
        typer.Option(
            min=16,
            max=1 << 30,
            metavar="TOKENS",
            help="Two pools: requests up to this many tokens, and longer ones.",
        ),
    ]
    lengths: LengthOptions
    utilization_cap: CapOption = 0.85
    spill: SpillOption = SPILL_PER_ENGINE
    compress: Annotated[
        float, typer.Option(min=1.0, max=1000.0, help="Cut prompts that are up to this many times too long.")
    ] = 1.5
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Simulate with the token-level engine, too.")
    ] = True
    num_requests: NumRequestsOption = 20_000
    measure: MeasureOption = None
    seed: SeedOption = 1
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
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Simulate the seats of every row, too.")
    ] = False
    num_requests: NumRequestsOption = 20_000
    seed: SeedOption = 1
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
        typer.Option(
            "--verify/--no-verify",
            help="Simulate every hour and take the fewest engines that meet the SLO in simulation.",
        ),
    ] = False
    num_requests: NumRequestsOption = 20_000
    seed: SeedOption = 1
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Also write a page with the day.")
    ] = None
    answer: AnswerForm = AnswerForm()
