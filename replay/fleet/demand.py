"""What a fleet is sized for, as every question of ``vtwin fleet`` takes it, and how the answer is simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

import numpy as np

from replay.console.progress import working
from replay.console.ready import load_engine
from replay.fleet.check.drawn_requests import Arrivals
from replay.fleet.check.steady import RunLength
from replay.fleet.inputs import OUTPUT_FRAC
from replay.fleet.inputs.computed import computed
from replay.fleet.inputs.failures import availability_note, availability_with, parse_failures
from replay.fleet.inputs.fleet_workload import (
    FleetWorkload,
    fitting_context,
    read_workload,
)
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.outside_fit import outside_notes
from replay.fleet.inputs.profiles import ProfileSource, power_source, priced, read_source, shipped_profiles
from replay.fleet.inputs.shared_prefixes import hits_note, with_hits
from replay.fleet.inputs.whole_requests import WholeRequests
from replay.fleet.plans.costs import behind
from replay.fleet.plans.size import NUM_REQUESTS, SizeCheck
from replay.model.gpus import find_gpu
from replay.model.prices import list_price_notes, read_prices
from replay.numbers.argument_ranges import AVAILABILITY, LENGTHS, NAMES, TOKENS
from replay.trace.measured_window import parse_measured
from sim import InvalidConfig
from sim.cluster import compile_cluster
from sim.fleet import Lengths
from sim.fleet.sizing import UTILIZATION_CAP, Objective
from traces import ConfigError, Trace, parse_run_slo
from traces.strict.arguments import PATH, TEXT, Expectation, Number, takes
from traces.strict.tell import tell_note
from traces.strict.whole_file import is_there
from traces.workload import ArrivalProcess, WorkloadOptions, workload_from_options

FEWER_REQUESTS = 20_000
"""The least of a simulation where a question takes many of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDemand:
    """What a fleet is sized for: the lengths and the longest request, the limits, the profiles, and notes on them.

    ``whole``: the requests that have these lengths, where the workload is a trace.
    """

    lengths: Lengths
    whole: WholeRequests | None
    context: int
    objective: Objective
    sources: list[ProfileSource]
    notes: list[str]

    def need(self, rate_per_s: float) -> Need:
        """Return what is to be served at this rate."""
        return Need(
            lengths=self.lengths, rate_per_s=rate_per_s, objective=self.objective, context=self.context
        )

    @property
    def rate_lines(self) -> list[str]:
        """What the rate counts, for the answer itself, where the workload has sessions; ``vtwin run`` counts those."""
        if self.whole is None or not self.whole.has_sessions:
            return []
        return [
            f"--rate counts requests here; sessions, of {self.whole.rounds:.3g} requests, begin "
            f"{self.whole.rounds:.3g} times less often (vtwin run --rate counts them)"
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCheck:
    """How a fleet is simulated, with ``verify``; without it the formulas are trusted.

    ``num_requests``: the least of each simulation; more where queues need longer.

    ``smallest``: also look for fewer engines than the formulas ask for. ``measure``: the measured part, as in
    ``60s:300s``; ``arrival``: ``poisson``, ``constant``, ``gamma``, ``weibull``, or ``trace`` for the recording's own
    gaps; ``burstiness``: the shape of gamma gaps.
    """

    verify: bool = True
    num_requests: int = NUM_REQUESTS
    seed: int = 1
    smallest: bool = True
    measure: str | None = None
    arrival: str | None = None
    burstiness: float | None = None

    def run_length(self, whole: WholeRequests | None, arrivals: Arrivals | None = None) -> RunLength:
        """Return how long each simulation is, what it is sent, and what is measured of it. Raises ConfigError."""
        window = parse_measured(self.measure, None)
        return RunLength(
            num_requests=self.num_requests,
            begins_s=None if window.from_us is None else window.from_us / 1e6,
            ends_s=None if window.to_us is None else window.to_us / 1e6,
            arrivals=arrivals or Arrivals(),
            requests=whole,
        )

    def arriving(self, lengths: Lengths, whole: WholeRequests | None) -> tuple[Lengths, RunLength, list[str]]:
        """Return the lengths with their arrivals, what is measured of each simulation, and notes on both."""
        arrivals = _arrivals_of(self.arrival, self.burstiness, lengths, whole)
        lengths = arrivals.of(lengths, whole)
        notes = [] if arrivals.is_poisson else [arrivals.text(lengths)]
        return lengths, self.run_length(whole, arrivals), notes

    def of_runs(self, runs: RunLength) -> SizeCheck | None:
        """Return how to simulate, with everything compiled; None: by formula alone."""
        if not self.verify:
            return None
        compile_once()
        return SizeCheck(asked=runs, seed=self.seed, smallest=self.smallest)


CHECKED = FleetCheck()
FEWER = FleetCheck(num_requests=FEWER_REQUESTS)
"""How a fleet is simulated where a question takes many simulations."""
BY_FORMULA = FleetCheck(verify=False, num_requests=FEWER_REQUESTS)


OF_A_FLEET: Final[Mapping[str, Expectation]] = {
    "workload": LENGTHS,
    "slo": TEXT,
    "output_frac": Number(0.001, 0.999),
    "total_tokens_max": TOKENS,
    "availability": AVAILABILITY,
    "failures": TEXT,
    "utilization_cap": Number(0.05, 0.99),
    "prices": PATH,
}
"""What every question that begins with a workload and an SLO expects of its arguments."""


@takes(**OF_A_FLEET, profiles=NAMES, context=TOKENS)
def fleet_demand(  # noqa: PLR0913 - what a fleet can be asked for
    workload: Trace | Lengths | Path | str,
    slo: str,
    profiles: str | Path | Sequence[str | Path],
    *,
    context: int | None = None,
    output_frac: float = OUTPUT_FRAC,
    total_tokens_max: int | None = None,
    availability: float = 1.0,
    failures: str | None = None,
    utilization_cap: float = UTILIZATION_CAP,
    prices: Path | None = None,
    most: int | None = 2,
) -> FleetDemand:
    """Return what a fleet is sized for, as the questions of ``vtwin fleet`` take it.

    ``workload``: a trace, lengths, or a file of either (a CDF as JSON). ``slo``: such as ``"ttft_p99=500ms"``, and
    ``tpot_p99`` if it matters. ``profiles``: of a GPU, by name, TWIN.yaml or MODEL@GPU:TP, at most ``most`` of them.
    ``context``: longer requests are left out; ``total_tokens_max``: longer prompts are cut; ``output_frac``: share of a
    total length that is output, for a CDF. ``availability``: share of the nodes that is up, or ``failures`` by class,
    as in ``"0.0065:4h"``. ``utilization_cap``: of the formulas, on the share of seats in use. ``prices``: a file of
    them. Raises ConfigError, or TraceError on a bad workload.
    """
    found, longest = workload_of(
        workload, context=context, output_frac=output_frac, total_tokens_max=total_tokens_max
    )
    up, of_nodes = share_up(availability, failures)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=up)
    sources = sources_of(_names(profiles), found.lengths, longest, prices=prices, most=most)
    caching = next((each.engine for each in sources if each.engine.enable_prefix_caching), None)
    known = found.lengths if caching is None else with_hits(found.lengths, found.whole, caching)
    return FleetDemand(
        lengths=known,
        whole=None if found.whole is None else found.whole.of(known),
        context=longest,
        objective=objective,
        sources=sources,
        notes=[*found.notes, *_alike(known), *hits_note(known), *outside_notes(sources, known), *of_nodes],
    )


def _alike(lengths: Lengths) -> list[str]:
    """Return a note where all requests have the same lengths: they leave in clumps, and those that follow come so.

    Four engines of an 8B model at 60/s, prompts of 1,000 tokens and answers of 200: TTFT p99 395 ms behind a router
    that sends to the least loaded, of answers that spread by 5 tokens 160.
    """
    if np.ptp(lengths.input_tokens) > 0 or np.ptp(lengths.output_tokens) > 0:
        return []
    return [
        "all requests have the same lengths: they finish together, and the least-loaded router sends the next ones "
        "together, too. TTFT p99 may then be above that of real requests, which differ (trace synth: "
        "--prompt-tokens-stdev, --output-tokens-stdev)"
    ]


def _names(profiles: str | Path | Sequence[str | Path]) -> list[str]:
    if isinstance(profiles, str):
        return [each.strip() for each in profiles.split(",")]
    return [str(profiles)] if isinstance(profiles, Path) else [str(each) for each in profiles]


def workload_of(
    workload: Trace | Lengths | Path | str,
    *,
    context: int | None,
    output_frac: float = OUTPUT_FRAC,
    total_tokens_max: int | None = None,
) -> tuple[FleetWorkload, int]:
    """Return the workload, with a note on what is left out of it, and the longest request of a pool."""
    found = read_workload(workload, output_frac=output_frac, total_tokens_max=total_tokens_max)
    if found.whole is None and not isinstance(workload, Lengths):
        told = f"{output_frac:.0%} of each length are taken for output (--output-frac)"
        found = replace(found, notes=(*found.notes, told))
    if context is None:
        return found, fitting_context(found.lengths)
    short, _, share = found.lengths.up_to(context)
    if short is None:
        raise ConfigError(f"--context: got {context}, expected a length that some request has")
    if share == 1:
        return replace(found, lengths=short), context
    told = f"{1 - share:.2%} of the requests are longer than {context:,} tokens and left out"
    return replace(found, lengths=short, notes=(*found.notes, told)), context


def _arrivals_of(
    process: str | None, burstiness: float | None, lengths: Lengths, whole: WholeRequests | None
) -> Arrivals:
    """Return when requests arrive. Raises ConfigError on a family and a burstiness that cannot be combined."""
    if process != "trace":
        asked = WorkloadOptions(
            rate=1.0, num_requests=1, arrival_scaling="none", arrival=cast("ArrivalProcess | None", process),
            burstiness=burstiness,
        )  # fmt: skip
        return Arrivals(gaps=workload_from_options(asked).clients[0].arrival)
    if burstiness is not None:
        raise ConfigError("--burstiness: cannot be combined with --arrival trace")
    if lengths.arrival_s is None and (whole is None or whole.begins_s is None):
        raise ConfigError(
            "--arrival trace: got a --workload without arrivals, expected a trace that has them"
        )
    return Arrivals(gaps=None)


def share_up(availability: float, failures: str | None) -> tuple[float, list[str]]:
    """Return the share of nodes that is up, and where it is from. Raises ConfigError where both options are given."""
    if failures is None:
        return availability, []
    if availability < 1:
        raise ConfigError("--failures: cannot be combined with --availability")
    classes = parse_failures(failures)
    return availability_with(classes), [availability_note(classes)]


def objective_of(slo: str, *, utilization_cap: float, availability: float) -> Objective:
    """Return what ``--slo`` asks for. Raises ConfigError on anything but ttft_p99 and tpot_p99."""
    limits = {each.name: each.limit_us / 1e6 for each in parse_run_slo(slo, tell=tell_note)}
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


def sources_of(
    names: Sequence[str], lengths: Lengths, context: int, *, prices: Path | None = None, most: int | None = 2
) -> list[ProfileSource]:
    """Return the profiles that are named. Raises ConfigError."""
    if most is not None and len(names) > most:
        raise ConfigError(f"--profile: got {len(names)}, expected one, or two with a comma between")
    costs: Mapping[str, float] | None = None if prices is None else read_prices(prices)
    return [source_of(name, lengths, context, prices=costs) for name in names]


def source_of(
    name: str, lengths: Lengths, context: int, *, prices: Mapping[str, float] | None = None
) -> ProfileSource:
    """Return one profile: of the table, of a file, of a twin, or computed from MODEL@GPU:TP. Raises ConfigError."""
    if "@" not in name or is_there(Path(name)):
        return read_source(name, lengths, context=context, prices=prices)
    model, _, where = name.rpartition("@")
    gpu, _, number = where.partition(":")
    if not (model and gpu and (number or "1").isdecimal() and int(number or 1) > 0):
        raise ConfigError(f"--profile: got {name!r}, expected MODEL@GPU:TP, as in Qwen/Qwen3-32B@H100:2")
    find_gpu(gpu, where="--profile")
    found = computed(model, gpu, tp=int(number or 1), lengths=lengths, context=context)
    return priced(found.source, prices)


def misfit_notes(sources: list[ProfileSource], *, power: bool = False) -> list[str]:
    """Return notes: which twins not to trust and prices count, what profiles stand for, and how far they are off.

    ``power``: also where the power figures of the table are from.
    """
    of_table = [each for each in sources if each.name in shipped_profiles()]
    listed = [gpu for each in sources if each.gpus and _is_listed(each) for gpu in each.gpus]
    has_own_price = any(each.profile.cost_per_hour > 0 and not each.has_list_price for each in sources)
    return [
        *doubts_of(sources),
        *list_price_notes(listed),
        *(["costs are in the currency of your prices"] if has_own_price else []),
        *(
            f"profile {each.name}: the vLLM fleet simulator's figures for a 70B-class model, whose prompts cost no "
            f"compute of their own; {each.profile.cost_per_hour:g}{behind(each.currency)} an hour. --profile TWIN.yaml "
            "sizes for your model, --prices has your prices"
            for each in of_table
        ),
        *([f"power: {power_source()}"] if power and any(each.idle_between_w for each in sources) else []),
        *_derived(sources),
    ]


def doubts_of(sources: Sequence[ProfileSource]) -> list[str]:
    """Return which twins not to trust."""
    doubts = {each.name: each.held_out.doubt for each in sources if each.held_out is not None}
    return [f"{name}: {doubt}" for name, doubt in doubts.items() if doubt]


def _is_listed(source: ProfileSource) -> bool:
    """Return whether a source's GPUs are counted with list prices, or would be if there were any."""
    return source.has_list_price or source.profile.cost_per_hour == 0


def _derived(sources: list[ProfileSource]) -> list[str]:
    return [
        f"profile of {each.name}: its iterations are off by {each.misfit.median:.1%} (median) and at most "
        f"{each.misfit.largest:.1%}, over {each.misfit.num_batches} batches of its model"
        for each in sources
        if each.misfit is not None
    ]


def compile_once() -> None:
    """Compile the code that simulates fleets, with a line that says so, unless it is compiled."""
    load_engine()
    with working("compiling the cluster once, up to a minute"):
        compile_cluster()


@contextmanager
def infeasible() -> Iterator[None]:
    """Turn an impossible fleet into one line and exit code 2."""
    try:
        yield
    except InvalidConfig as error:
        raise ConfigError(f"fleet: {error}") from error
