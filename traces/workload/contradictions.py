"""Which workload options contradict each other, are incomplete, or are no such quantity: one line, ConfigError."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from traces.errors import ConfigError
from traces.strict.limits import MOST_REQUESTS, MOST_TOKENS
from traces.tables.paths import companion_file, stem_of
from traces.workload.options import LENGTH_NAMES, WorkloadOptions, flag

_DRAWN = (*LENGTH_NAMES, "output_shape", "random_range_ratio", "prefix_tokens")
_CLIPPING = ("prompt_tokens_max", "output_tokens_max")
"""Lengths that also apply to recorded requests: longer ones are cut."""

_REDRAWN = tuple(name for name in _DRAWN if name not in _CLIPPING)
_IN_ROUNDS = ("rounds", "context_growth")
_IN_WAVES = ("batch", "waves")
_NOT_WITH: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "trace": (
        ("rate", "concurrency", "think_time", "arrival", "burstiness", *_IN_ROUNDS, *_IN_WAVES, *_REDRAWN),
        "the trace has times and lengths of its own",
    ),
    "like": (("speed", *_IN_ROUNDS, *_REDRAWN), "lengths and sessions are the trace's"),
    "workload": (
        ("concurrency", "think_time", "arrival", "burstiness", *_IN_ROUNDS, *_IN_WAVES, *_DRAWN),
        "the specification says it for each client",
    ),
    "stages": (
        ("rate", "concurrency", "duration", "trace", "workload"),
        "each stage has its rate and its time",
    ),
    "random_range_ratio": (
        (
            *(name for name in LENGTH_NAMES if name not in ("prompt_tokens", "output_tokens")),
            "output_shape",
        ),
        "lengths are then uniform around --prompt-tokens and --output-tokens",
    ),
    "batch": (
        (
            *("rate", "concurrency", "stages", "think_time", "arrival", "burstiness"),
            *("duration", "num_requests", *_IN_ROUNDS),
        ),
        "answers set the pace of waves, and --waves their number",
    ),
    "concurrency": (
        ("rate", "arrival", "burstiness", "duration"),
        "answers set the pace, and --num-requests the end",
    ),
}
"""Option: those that cannot be combined with it, and why."""
_WHY: Final = {
    (
        "concurrency",
        "rate",
    ): "with --concurrency answers set the pace and --num-requests the end, with --rate "
    "requests come at their own times (--max-concurrency of observe and replay caps those in flight)",
}
"""Pairs of which the user may have meant either: an explanation of both."""


def check_output(options: WorkloadOptions, output: Path) -> None:
    """Raise ConfigError if a trace at the stem ``output`` would overwrite its own source."""
    stem = stem_of(output).resolve()
    for name in ("trace", "like"):
        read = getattr(options, name)
        if read is not None and stem_of(read).resolve() == stem:
            raise ConfigError(f"--output: got {output}, which is {flag(name)} itself, expected another")
    if options.workload is not None and options.workload.resolve() == companion_file(stem, ".yaml"):
        raise ConfigError(
            f"--output: got {output}, whose header would overwrite --workload, expected another stem"
        )


def check_options(options: WorkloadOptions) -> None:
    """Raise ConfigError, one line, for options that contradict each other, are incomplete, or are invalid."""
    _check_sources(options)
    for name, (others, instead) in _NOT_WITH.items():
        if getattr(options, name) is not None:
            clash = next((other for other in others if getattr(options, other) is not None), None)
            if clash is not None:
                why = _WHY.get((name, clash), instead)
                raise ConfigError(f"{flag(clash)}: cannot be combined with {flag(name)}: {why}")
    if options.think_time is not None and options.concurrency is None and options.rounds is None:
        raise ConfigError("--think-time: needs --concurrency or --rounds: else no user waits for an answer")
    if options.context_growth is not None and options.rounds is None:
        raise ConfigError("--context-growth: needs --rounds, sessions of several rounds")
    if options.shares is not None and options.workload is None:
        raise ConfigError("--shares: needs --workload SPEC.yaml, whose clients it is about")
    if options.waves is not None and options.batch is None:
        raise ConfigError("--waves: needs --batch N, the requests of a wave")
    if options.arrival_scaling == "rate":
        _check_scaling(options)
    _check_numbers(options)
    _check_arrival(options)


def can_scale(options: WorkloadOptions) -> bool:
    """Return whether there is one rate that gaps can be scaled to."""
    return (
        options.rate is not None
        and options.rate != math.inf
        and options.workload is None
        and options.rounds is None
    )


def _check_scaling(options: WorkloadOptions) -> None:
    """Raise ConfigError if there is no single rate that gaps could be scaled to."""
    if can_scale(options):
        return
    clash = next((name for name in ("workload", "rounds") if getattr(options, name) is not None), None)
    if clash is not None:
        raise ConfigError(
            f"--arrival-scaling rate: cannot be combined with {flag(clash)}, expected --rate alone"
        )
    raise ConfigError("--arrival-scaling rate: needs --rate R, the rate to scale to")


def _check_sources(options: WorkloadOptions) -> None:
    sources = ("workload", "preset", "trace", "like")
    given = [name for name in sources if getattr(options, name) is not None]
    if len(given) > 1:
        raise ConfigError(f"{flag(given[0])}: cannot be combined with {' and '.join(map(flag, given[1:]))}")
    loaded = any(
        given is not None for given in (options.rate, options.concurrency, options.stages, options.batch)
    )
    if given in (["preset"], ["like"]) and not loaded:
        raise ConfigError(
            f"{flag(given[0])} {getattr(options, given[0])}: needs a load: --rate R or --concurrency N "
            "(or --stages, --batch)"
        )
    if not given and not loaded:
        raise ConfigError(
            "workload: got none, expected one of --workload SPEC.yaml, --preset NAME --rate R, --rate R, "
            "--stages …, --concurrency N, --batch N, --trace STEM, --like STEM --rate R"
        )


_AT_LEAST_ONE = (
    *("concurrency", "num_requests", "rounds", "batch", "waves"),
    *("prompt_tokens", "prompt_tokens_min", "output_tokens", "output_tokens_min"),
)
_NOT_NEGATIVE = (
    "prefix_tokens",
    "seed",
    "think_time",
    "prompt_tokens_stdev",
    "output_tokens_stdev",
)
_POSITIVE = ("rate", "duration", "burstiness", "speed", "prompt_scale", "output_scale")


_TOKENS = (
    *("prompt_tokens", "prompt_tokens_min", "prompt_tokens_max", "prompt_tokens_stdev", "prefix_tokens"),
    *("output_tokens", "output_tokens_min", "output_tokens_max", "output_tokens_stdev"),
)
RANGES: Final[dict[str, tuple[float, float]]] = {
    **dict.fromkeys(_TOKENS, (1e-6, MOST_TOKENS)),
    **dict.fromkeys(("concurrency", "num_requests", "batch", "waves"), (1, MOST_REQUESTS)),
    "rounds": (1, 1_000_000),
    "rate": (1e-6, 1e9),
    "duration": (1e-6, 1e9),
    "think_time": (1e-6, 1e9),
    "speed": (1e-6, 1e6),
    "prompt_scale": (1e-6, 1e6),
    "output_scale": (1e-6, 1e6),
    "seed": (0, 2**63 - 1),
}
"""The least and the most of each option that is a quantity, 0 aside; times in s, rates per s."""


def _check_numbers(options: WorkloadOptions) -> None:
    _check_least(options, ("total_tokens_max",), least=2, expected="an integer >= 2")
    _check_least(options, _AT_LEAST_ONE, least=1, expected="an integer >= 1")
    _check_least(options, _NOT_NEGATIVE, least=0, expected="a number >= 0")
    _check_least(options, _POSITIVE, least=math.ulp(0), expected="a number > 0")
    for name, (low, high) in RANGES.items():
        value = getattr(options, name)
        if value is not None and value not in (math.inf, 0) and not low <= value <= high:
            raise ConfigError(f"{flag(name)}: got {value:g}, expected {low:g} to {high:g}")
    ratio = options.random_range_ratio
    if ratio is not None and not 0 <= ratio < 1:
        raise ConfigError(f"--random-range-ratio: got {ratio:g}, expected a share in [0, 1)")
    for name in ("speed", "prompt_scale", "output_scale"):
        what = "times" if name == "speed" else "lengths"
        recorded = options.trace is not None or options.like is not None
        if getattr(options, name) is not None and not recorded:
            raise ConfigError(f"{flag(name)}: needs --trace, whose recorded {what} it scales")
        if getattr(options, name) == math.inf:
            raise ConfigError(f"{flag(name)}: got inf, expected a number (all at once is --rate inf)")
    for name in ("think_time", "duration"):
        if getattr(options, name) == math.inf:
            raise ConfigError(f"{flag(name)}: got inf, expected a time that ends")
    if options.rate == math.inf and options.duration is not None:
        raise ConfigError(
            "--duration: cannot be combined with --rate inf, expected --num-requests: all are due at 0"
        )


def _check_least(options: WorkloadOptions, names: tuple[str, ...], *, least: float, expected: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not value >= least:  # so that nan is refused too
            raise ConfigError(f"{flag(name)}: got {value:g}, expected {expected}")


def _check_arrival(options: WorkloadOptions) -> None:
    process, burstiness = options.arrival, options.burstiness
    if process in ("gamma", "weibull") and burstiness is None:
        raise ConfigError(f"--arrival {process}: needs --burstiness (1 would be Poisson)")
    if burstiness is None:
        return
    if process == "poisson" and burstiness != 1:
        raise ConfigError(
            f"--burstiness {burstiness:g}: cannot be combined with --arrival poisson, expected gamma or weibull"
        )
    if process == "constant" and burstiness != math.inf:
        raise ConfigError(f"--burstiness {burstiness:g}: cannot be combined with --arrival constant")
    if process != "constant" and not (process is None and burstiness == math.inf):
        low, high = BURSTINESS_RANGE
        if not low <= burstiness <= high:
            raise ConfigError(
                f"--burstiness: got {burstiness:g}, expected a number in [{low:g}, {high:g}], or inf"
            )


BURSTINESS_RANGE: Final = (1e-2, 1e4)
"""1/cv² for the coefficients of variation that are drawn (``traces.workload.model.CV_RANGE``)."""
