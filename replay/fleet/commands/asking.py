"""Reading the options of ``vtwin fleet``'s commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from traces.facts import say_answer
from traces.strict.tell import tell_note

if TYPE_CHECKING:
    from replay.fleet.check.drawn_requests import Arrivals
    from replay.fleet.check.steady import RunLength
    from replay.fleet.commands.options import ArrivalOptions, LengthOptions, NodeOptions
    from replay.fleet.inputs.fleet_workload import FleetWorkload
    from replay.fleet.inputs.profiles import ProfileSource
    from replay.fleet.inputs.whole_requests import WholeRequests
    from replay.fleet.size import SizeCheck
    from sim.fleet import Lengths
    from sim.fleet.sizing import Objective
    from traces.console.options import AnswerForm
    from traces.facts import AnswerPart
    from traces.workload import ArrivalProcess


def workload_of(path: Path, asked: LengthOptions) -> tuple[FleetWorkload, int]:
    """Return the workload, with a note on what is left out of it, and the longest request of a pool."""
    from replay.fleet.inputs.fleet_workload import fitting_context, read_workload
    from traces import ConfigError

    context = asked.context
    found = read_workload(path, output_frac=asked.output_frac, total_tokens_max=asked.total_tokens_max)
    if found.whole is None:
        told = f"{asked.output_frac:.0%} of each length are taken for output (--output-frac)"
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


def share_up(availability: float, failures: str | None) -> tuple[float, list[str]]:
    """Return the share of nodes that is up, and where it is from. Raises ConfigError where both options are given."""
    if failures is None:
        return availability, []
    from replay.fleet.inputs.failures import availability_note, availability_with, parse_failures
    from traces import ConfigError

    if availability < 1:
        raise ConfigError("--failures: cannot be combined with --availability")
    classes = parse_failures(failures)
    return availability_with(classes), [availability_note(classes)]


def arrivals_of(
    process: str | None, burstiness: float | None, lengths: Lengths, whole: WholeRequests | None = None
) -> Arrivals:
    """Return when requests arrive. Raises ConfigError on a family and a burstiness that cannot be combined."""
    from replay.fleet.check.drawn_requests import Arrivals
    from traces import ConfigError
    from traces.workload import WorkloadOptions, workload_from_options

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


def arrival_notes(arrivals: Arrivals, lengths: Lengths) -> list[str]:
    """Return the note on what formulas know of these arrivals; none for Poisson arrivals."""
    return [] if arrivals.is_poisson else [arrivals.text(lengths)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is sized: the lengths and the longest request, the limits, the profiles, and notes on them.

    ``whole``: the requests that have these lengths, where the workload is a trace.
    """

    lengths: Lengths
    whole: WholeRequests | None
    context: int
    objective: Objective
    sources: list[ProfileSource]
    notes: list[str]

    @property
    def rate_lines(self) -> list[str]:
        """What the rate counts, for the answer itself, where the workload has sessions; ``vtwin run`` counts those."""
        if self.whole is None or not self.whole.has_sessions:
            return []
        return [
            f"--rate counts requests here; sessions, of {self.whole.rounds:.3g} requests, begin "
            f"{self.whole.rounds:.3g} times less often (vtwin run --rate counts them)"
        ]


def question_of(
    workload: Path,
    slo: str,
    profile: str,
    *,
    lengths: LengthOptions,
    nodes: NodeOptions,
    prices: Path | None = None,
    most: int | None = 2,
) -> Question:
    """Return what is sized. Raises ConfigError, or TraceError on a file that is not a workload."""
    from replay.fleet.inputs.outside_fit import outside_notes
    from replay.fleet.inputs.shared_prefixes import hits_note, with_hits

    found, longest = workload_of(workload, lengths)
    up, of_nodes = share_up(nodes.availability, nodes.failures)
    objective = objective_of(slo, utilization_cap=nodes.utilization_cap, availability=up)
    sources = sources_of(profile, found.lengths, longest, prices=prices, most=most)
    caching = next((each.engine for each in sources if each.engine.enable_prefix_caching), None)
    known = found.lengths if caching is None else with_hits(found.lengths, found.whole, caching)
    return Question(
        lengths=known,
        whole=None if found.whole is None else found.whole.of(known),
        context=longest,
        objective=objective,
        sources=sources,
        notes=[*found.notes, *hits_note(known), *outside_notes(sources, known), *of_nodes],
    )


def simulated_of(
    lengths: Lengths, whole: WholeRequests | None, options: ArrivalOptions, *, num_requests: int
) -> tuple[Lengths, RunLength, list[str]]:
    """Return the lengths with their arrivals, what is measured of each simulation, and notes on both."""
    arrivals = arrivals_of(options.arrival, options.burstiness, lengths, whole)
    lengths = arrivals.of(lengths, whole)
    asked = asked_of(num_requests, options.measure, arrivals, whole)
    return lengths, asked, arrival_notes(arrivals, lengths)


def asked_of(
    num_requests: int,
    measure: str | None,
    arrivals: Arrivals | None = None,
    whole: WholeRequests | None = None,
) -> RunLength:
    """Return how long each simulation is, what it is sent, and what is measured of it. Raises ConfigError."""
    from replay.fleet.check.drawn_requests import Arrivals
    from replay.fleet.check.steady import RunLength
    from replay.trace.measured_window import parse_measured

    window = parse_measured(measure, None)
    return RunLength(
        num_requests=num_requests,
        begins_s=None if window.from_us is None else window.from_us / 1e6,
        ends_s=None if window.to_us is None else window.to_us / 1e6,
        arrivals=arrivals or Arrivals(),
        requests=whole,
    )


def objective_of(slo: str, *, utilization_cap: float, availability: float) -> Objective:
    """Return what ``--slo`` asks for. Raises ConfigError on anything but ttft_p99 and tpot_p99."""
    from sim.fleet.sizing import Objective
    from traces import ConfigError, parse_run_slo

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
    text: str, lengths: Lengths, context: int, *, prices: Path | None = None, most: int | None = 2
) -> list[ProfileSource]:
    """Return the profiles that are named. Raises ConfigError."""
    from replay.model.prices import read_prices
    from traces import ConfigError

    names = [each.strip() for each in text.split(",")]
    if most is not None and len(names) > most:
        raise ConfigError(f"--profile: got {len(names)}, expected one, or two with a comma between")
    costs: Mapping[str, float] | None = None if prices is None else read_prices(prices)
    return [source_of(name, lengths, context, prices=costs) for name in names]


def source_of(
    name: str, lengths: Lengths, context: int, *, prices: Mapping[str, float] | None = None
) -> ProfileSource:
    """Return one profile: of the table, of a file, of a twin, or computed from MODEL@GPU:TP. Raises ConfigError."""
    from replay.fleet.inputs.profiles import priced, read_source
    from traces import ConfigError
    from traces.strict.whole_file import is_there

    if "@" not in name or is_there(Path(name)):
        return read_source(name, lengths, context=context, prices=prices)
    from replay.fleet.inputs.computed import computed
    from replay.model.gpus import find_gpu

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
    from replay.fleet.costs import behind
    from replay.fleet.inputs.profiles import power_source, shipped_profiles
    from replay.model.prices import list_price_notes

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


def numbers_of(text: str, option: str) -> list[float]:
    """Return an option's numbers, commas between. Raises ConfigError."""
    from traces import ConfigError

    try:
        numbers = [float(each) for each in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or any(not 0 < each < float("inf") for each in numbers):
        raise ConfigError(f"{option}: got {text!r}, expected numbers > 0 with commas between")
    return numbers


def compile_once() -> None:
    """Compile the code that simulates fleets, with a line that says so, unless it is compiled."""
    from replay.console.progress import working
    from replay.console.ready import load_engine
    from sim.cluster import compile_cluster

    load_engine()
    with working("compiling the cluster once, up to a minute"):
        compile_cluster()


def check_of(runs: RunLength, *, verify: bool | None, seed: int, smallest: bool = True) -> SizeCheck | None:
    """Return how to simulate, with everything compiled, if simulation is requested; None: by formula alone."""
    if not verify:
        return None
    from replay.fleet.size import SizeCheck

    compile_once()
    return SizeCheck(asked=runs, seed=seed, smallest=smallest)


@contextmanager
def infeasible() -> Iterator[None]:
    """Turn an impossible fleet into one line and exit code 2."""
    from sim import InvalidConfig
    from traces import ConfigError

    try:
        yield
    except InvalidConfig as error:
        raise ConfigError(f"fleet: {error}") from error


def say_with_notes(
    notes: Sequence[str],
    told: Callable[[], Mapping[str, object]],
    answer: Callable[[], Sequence[AnswerPart]],
    how: AnswerForm,
) -> None:
    """Print an answer, after its notes to stderr; a JSON document has them as ``notes``."""
    for note in notes:
        tell_note(note)
    say_answer(lambda: {**told(), "notes": list(notes)}, answer, how)
