"""From options to a workload: presets, defaults, and errors in the options' own terms."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from traces.errors import ConfigError
from traces.importers.recorded import read_recorded
from traces.strict.limits import MOST_REQUESTS
from traces.units import to_us
from traces.workload.basics import DEFAULT_NUM_REQUESTS, DEFAULT_NUM_WAVES, DEFAULT_SEED, InvalidWorkload
from traces.workload.contradictions import can_scale, check_options
from traces.workload.lengths import Distribution, Gaussian, Lengths, Lognormal, Separate, Uniform
from traces.workload.model import (
    ONE_ROUND,
    Arrival,
    Client,
    OpenLoop,
    Rounds,
    UserLoop,
    Workload,
)
from traces.workload.options import (
    DEFAULT_TOKENS,
    LENGTH_SUFFIXES,
    WorkloadOptions,
    flag,
)
from traces.workload.recorded.resampling import requests_to_draw
from traces.workload.stages import stage_windows

PREFIX_GROUP: Final = "shared"
"""The prefix group of ``--prefix-tokens``."""

PRESETS: Final[dict[str, tuple[tuple[int, int, int, int], tuple[int, int, int, int]]]] = {
    "chatbot": ((256, 100, 2, 800), (256, 100, 1, 1024)),
    "contentgen": ((1024, 150, 10, 2048), (1024, 200, 10, 2048)),
    "summarization": ((4096, 500, 100, 8192), (512, 150, 10, 2048)),
    "multidoc": ((10240, 1200, 500, 20480), (1536, 300, 50, 4096)),
}
"""Prompt and output lengths of typical uses: mean, stdev, min, max. BLIS's numbers, to compare with it."""


def preset(name: str, rate: float, *, num_requests: int = DEFAULT_NUM_REQUESTS) -> Workload:
    """Return the workload of a preset at ``rate`` requests per second, Poisson.

    Raises ConfigError for an unknown name, or an invalid rate.
    """
    if name not in PRESETS:
        raise ConfigError(f"preset: got {name!r}, expected one of {', '.join(PRESETS)}")
    options = WorkloadOptions(preset=name, rate=rate, num_requests=num_requests)  # type: ignore[arg-type]
    return workload_from_options(options)


def workload_from_options(options: WorkloadOptions) -> Workload:
    """Return the workload of ``options`` without ``trace``.

    Raises ConfigError for options that contradict each other, or a specification that cannot be read.
    """
    check_options(options)
    assert options.trace is None, "a trace is not drawn: call trace_from_options"  # noqa: S101 - our own fault
    try:
        found = _from_plain(options) if options.workload is None else _from_spec(options)
    except InvalidWorkload as error:
        raise ConfigError(str(error.within("workload"))) from error
    if options.total_tokens_max is None:
        return found
    return replace(found, total_tokens_max=options.total_tokens_max)


def _from_plain(options: WorkloadOptions) -> Workload:
    """One client, of the options' own lengths or a preset's."""
    client = Client(
        id=options.preset or "default",
        lengths=_lengths(options),
        arrival=_arrival(options),
        prefix_group=PREFIX_GROUP if options.prefix_tokens else None,
        prefix_length=options.prefix_tokens or 0,
        rounds=_rounds(options),
    )
    num_requests, duration_us = _extent(options)
    if options.stages is not None:
        client = replace(client, windows=stage_windows(options.stages))
        num_requests, duration_us = options.num_requests, client.windows[-1].end_us
    return Workload(
        clients=(client,),
        load=_load(options),
        num_requests=num_requests,
        duration_us=duration_us,
        source=_source(options),
    )


def _lengths(options: WorkloadOptions) -> Lengths:
    """Return the source of the lengths: a trace's requests, or distributions."""
    if options.like is None:
        return Separate(prompt=_drawn(options, "prompt"), output=_drawn(options, "output"))
    return requests_to_draw(
        read_recorded(options.like),
        str(options.like),
        names_clients=True,
        prompt_scale=options.prompt_scale or 1.0,
        output_scale=options.output_scale or 1.0,
        prompt_max=options.prompt_tokens_max,
        output_max=options.output_tokens_max,
    )


def _drawn(options: WorkloadOptions, side: str) -> Distribution:
    """Return what a side's lengths are drawn from: normal, uniform as vllm bench draws, or lognormal (outputs)."""
    normal = drawn_lengths(options, side)
    ratio = options.random_range_ratio
    if ratio is not None:
        low, high = math.floor(normal.mean * (1 - ratio)), math.ceil(normal.mean * (1 + ratio))
        return Uniform(min=max(1, low), max=high)
    if side == "prompt" or options.output_shape != "lognormal":
        return normal
    variance = math.log1p((normal.std_dev / normal.mean) ** 2)
    mu = math.log(normal.mean) - variance / 2
    return Lognormal(mu=mu, sigma=math.sqrt(variance), min=normal.min, max=normal.max)


def _source(options: WorkloadOptions) -> str | None:
    """Return the workload's name in the trace's header, None for lengths given by options."""
    if options.like is not None:
        return f"like:{options.like}"
    return f"preset:{options.preset}" if options.preset else None


def seed_of(options: WorkloadOptions, workload: Workload | None = None) -> int:
    """Return the effective seed: the one given, else the workload's own, else the default."""
    if options.seed is not None:
        return options.seed
    return workload.seed if workload is not None and workload.seed is not None else DEFAULT_SEED


def _from_spec(options: WorkloadOptions) -> Workload:
    """Return the specification with the load, number and duration of the command line in place of its own."""
    from traces.workload.spec.spec_read import load_spec  # which most loads do without

    assert options.workload is not None  # noqa: S101 - the caller has looked
    workload = load_spec(options.workload)
    if options.shares is not None:
        from traces.workload.spec.class_shares import with_shares

        workload = with_shares(workload, options.shares)
    if options.rate is not None:
        if not isinstance(workload.load, OpenLoop) or workload.load.rate_per_s is None:
            raise ConfigError(
                f"--rate: got it, expected none: the specification has no aggregate_rate ({options.workload})"
            )
        workload = replace(workload, load=OpenLoop(rate_per_s=options.rate))
    if options.num_requests is not None or options.duration is not None:
        if options.duration is not None and isinstance(workload.load, UserLoop):
            raise ConfigError(
                f"--duration: cannot be combined with a closed loop, expected --num-requests ({options.workload})"
            )
        num_requests, duration_us = _extent(options)
        workload = replace(workload, num_requests=num_requests, duration_us=duration_us)
    return workload


def _extent(options: WorkloadOptions) -> tuple[int | None, int | None]:
    """(num_requests, duration_us): the default number applies where neither is given."""
    if options.batch is not None:
        number = options.batch * (options.waves or DEFAULT_NUM_WAVES)
        if number > MOST_REQUESTS:
            raise ConfigError(
                f"--batch and --waves: got {number:,} requests, expected at most {MOST_REQUESTS:,}"
            )
        return number, None
    if options.duration is None:
        return options.num_requests or DEFAULT_NUM_REQUESTS, None
    return options.num_requests, max(1, to_us(options.duration))


def _load(options: WorkloadOptions) -> OpenLoop | UserLoop:
    if options.batch is not None:
        return UserLoop(concurrency=options.batch, in_waves=True)
    if options.concurrency is not None:
        return UserLoop(concurrency=options.concurrency, think_time_us=to_us(options.think_time or 0.0))
    return OpenLoop(rate_per_s=options.rate)


def _rounds(options: WorkloadOptions) -> Rounds:
    if options.rounds is None:
        return ONE_ROUND
    return Rounds(
        number=options.rounds,
        think_time_us=to_us(options.think_time or 0.0),
        accumulate=options.context_growth != "none",
    )


def _arrival(options: WorkloadOptions) -> Arrival:
    """Return the requested gaps, scaled to the run's rate unless they are to stay as drawn."""
    drawn = _gaps(options)
    if options.arrival_scaling == "none" or not can_scale(options) or drawn.process == "constant":
        return drawn
    assert options.rate is not None  # noqa: S101 - can_scale has looked
    if options.num_requests is None and options.duration is not None:
        number, span_s = max(1, round(options.rate * options.duration)), options.duration
    else:
        number = options.num_requests or DEFAULT_NUM_REQUESTS
        span_s = number / options.rate
    return replace(drawn, exactly=(number, max(1, to_us(span_s))))


def _gaps(options: WorkloadOptions) -> Arrival:
    """Return the gaps' family: gamma's shape is the burstiness b, their coefficient of variation is b^-½."""
    burstiness = options.burstiness
    if options.arrival == "constant" or burstiness == math.inf:
        return Arrival(process="constant", cv=0.0)
    if burstiness is None or (burstiness == 1 and options.arrival is None):
        return Arrival(process=options.arrival or "poisson")
    return Arrival(process=options.arrival or "gamma", cv=burstiness**-0.5)


MAX_CLIPPED_FRAC: Final = 0.05
"""If a larger share of the draws is clipped, the mean differs from the requested one."""


def clipping_notes(options: WorkloadOptions) -> list[str]:
    """Return a line for each side of which more than 5 % of the lengths are expected to be clipped.

    There is none for recorded lengths or a specification's. Raises ConfigError if the lengths are invalid.
    """
    notes: list[str] = []
    recorded = (options.trace, options.like, options.workload, options.random_range_ratio)
    if any(each is not None for each in recorded):
        return notes
    for side in ("prompt", "output"):
        drawn = drawn_lengths(options, side)
        clipped = _clipped_frac(_drawn(options, side))
        if clipped > MAX_CLIPPED_FRAC:
            name = flag(f"{side}_tokens")
            notes.append(
                f"about {clipped:.0%} of the {side} lengths are clipped to [{drawn.min}, {drawn.max}], so their mean "
                f"is not {drawn.mean:g}: lower {name}-stdev ({drawn.std_dev:g}) or widen {name}-min and {name}-max"
            )
    return notes


def _clipped_frac(drawn: Distribution) -> float:
    """Return the share of the draws outside the bounds, by the normal distribution's own function.

    The logarithm of a lognormal is normal.
    """
    assert isinstance(drawn, Gaussian | Lognormal)  # noqa: S101 - what options draw from
    if drawn.max is None:
        return 0.0
    low, high = drawn.min - 0.5, drawn.max + 0.5  # half a token is rounded to the bound
    if isinstance(drawn, Gaussian):
        mean, deviation = drawn.mean, drawn.std_dev
    else:
        mean, deviation, low, high = drawn.mu, drawn.sigma, math.log(low), math.log(high)
    if deviation == 0:
        return 0.0
    below, above = ((bound - mean) / (deviation * math.sqrt(2)) for bound in (low, high))
    return 0.5 * (math.erfc(-below) + math.erfc(above))


def drawn_lengths(options: WorkloadOptions, side: str) -> Gaussian:
    """Return the lengths of one side: each number from its option, else the preset, else the default.

    A mean without a standard deviation is the length of every request; default bounds are then widened for it.
    """
    defaults = list(DEFAULT_TOKENS.values())
    if options.preset is not None:
        prompt, output = PRESETS[options.preset]
        defaults = list(prompt if side == "prompt" else output)
    given = [getattr(options, f"{side}_tokens{suffix}") for suffix in LENGTH_SUFFIXES]
    if given[0] is not None and given[1] is None:
        defaults = [given[0], 0, min(defaults[2], given[0]), max(defaults[3], given[0])]
    mean, stdev, low, high = (d if g is None else g for g, d in zip(given, defaults, strict=True))
    name = flag(f"{side}_tokens")
    if low > high:
        raise ConfigError(f"{name}-max: got {high}, expected >= {name}-min ({low})")
    if not low <= mean <= high:
        raise ConfigError(
            f"{name}: got {mean}, expected a mean in [{name}-min, {name}-max] = [{low}, {high}]"
        )
    return Gaussian(mean=mean, std_dev=stdev, min=low, max=high)
