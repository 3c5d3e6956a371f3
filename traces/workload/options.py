"""The workload options that ``observe``, ``run`` and ``trace synth`` share: one table, three commands.

The table is the dataclass ``WorkloadOptions``: a field is an option, its annotation the option's name and
help. A command takes all of them by having one parameter of that type under ``with_option_tables``::

    @with_option_tables
    def synth(workload: WorkloadOptions, output: Annotated[str, typer.Option()]) -> None: ...

An option that was not given is None, so that a contradiction can be told from a default; defaults are filled
in where the workload is made (``traces.workload.resolve``) and shown by the help from the same constants.
This module imports nothing heavy: a command's ``--help`` needs it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from traces.errors import ConfigError
from traces.strict.limits import MOST_REQUESTS, MOST_TOKENS
from traces.strict.option_table import option_table
from traces.tables.paths import companion_file, stem_of
from traces.units import parse_seconds
from traces.workload.model import (
    DEFAULT_NUM_REQUESTS,
    DEFAULT_NUM_WAVES,
    DEFAULT_SEED,
    ArrivalProcess,
)

Api = Literal["completions", "chat"]
PresetName = Literal["chatbot", "contentgen", "summarization", "multidoc"]

DEFAULT_TOKENS: Final = {"": 512, "_stdev": 256, "_min": 2, "_max": 7000}
"""Default lengths of prompt and output, by the option's suffix (BLIS's own defaults)."""

LENGTH_SUFFIXES: Final = tuple(DEFAULT_TOKENS)
LENGTH_NAMES: Final = tuple(
    f"{side}_tokens{suffix}" for side in ("prompt", "output") for suffix in LENGTH_SUFFIXES
)

WHAT = "Workload: one of these, or a load alone"
WHEN = "Load"
LENGTHS = "Lengths, in tokens: normal, clipped and rounded"
EXTENT = "Number of requests and duration"


def _option(panel: str, text: str, *, default: object = None, **more: Any) -> Any:  # noqa: ANN401 - typer's
    """Return a typer option without a value; its help shows the default that applies later."""
    ending = "" if default is None else f" Default: {default}."
    return typer.Option(help=text + ending, rich_help_panel=panel, show_default=False, **more)


def _length(suffix: str, text: str) -> Any:  # noqa: ANN401 - typer's
    default = f"{DEFAULT_TOKENS[suffix]}, or the preset's"
    return _option(LENGTHS, text, default=default, metavar="TOKENS")


Tokens = int | None
Mean = Annotated[
    Tokens, _length("", "Mean length of prompts; the shared prefix (--prefix-tokens) is not counted.")
]
Stdev = Annotated[
    Tokens,
    _option(
        LENGTHS,
        "Standard deviation before clipping; 0: all alike.",
        default=f"0 beside a mean, else {DEFAULT_TOKENS['_stdev']} or the preset's",
        metavar="TOKENS",
    ),
]
Least = Annotated[Tokens, _length("_min", "Minimum length; shorter samples are raised to it.")]
Most = Annotated[Tokens, _length("_max", "Maximum length; longer samples are cut to it.")]
Seconds = float | None


@option_table
class WorkloadOptions:
    """The workload's options on the command line; None: not given. Times in seconds, lengths in tokens.

    ``check_options`` checks that they are consistent; ``traces.workload.trace_from_options`` makes a trace.
    """

    workload: Annotated[
        Path | None,
        _option(WHAT, "Specification of several clients (BLIS workload v2).", metavar="SPEC.yaml"),
    ] = None
    preset: Annotated[PresetName | None, _option(WHAT, "Lengths of a typical use; needs a load.")] = None
    trace: Annotated[
        Path | None,
        _option(
            WHAT,
            "The requests of this trace, at its times; also an Azure or BurstGPT CSV, or Mooncake's JSONL.",
            metavar="STEM",
        ),
    ] = None

    like: Annotated[
        Path | None,
        _option(
            WHAT,
            "Draw requests like this trace's, for a load of your own. Each is drawn whole: lengths, shared prefixes, "
            "class, tenant. A session stays together: --rate is then of sessions. Formats as for --trace.",
            metavar="STEM",
        ),
    ] = None

    rate: Annotated[
        float | None,
        _option(
            WHEN,
            "Requests per second, sent when due whether or not earlier ones are answered; inf: all at once. "
            "With --workload: in place of its aggregate_rate.",
            metavar="R",
        ),
    ] = None
    stages: Annotated[
        str | None,
        _option(
            WHEN,
            "Rates in sequence, each with its duration, and ramps: 5:60s,5-20:2m. The run ends with the last.",
            metavar="STAGES",
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        _option(WHEN, "Number of users; each sends, waits for the answer, and sends again.", metavar="N"),
    ] = None
    think_time: Annotated[
        Seconds,
        _option(
            WHEN,
            "Pause between an answer and the next request of its user or session.",
            default="0",
            metavar="S",
            parser=parse_seconds,
        ),
    ] = None
    arrival: Annotated[
        ArrivalProcess | None,
        _option(
            WHEN, "Family of the gaps between requests; --burstiness alone means gamma.", default="poisson"
        ),
    ] = None
    burstiness: Annotated[
        float | None,
        _option(
            WHEN,
            "Shape of gamma gaps, as vllm bench has it: 1 is Poisson, below 1 comes in bursts, above 1 is "
            "more even, inf is constant. The gaps' coefficient of variation is 1/sqrt(B), for weibull too.",
            default="1",
            metavar="B",
        ),
    ] = None
    arrival_scaling: Annotated[
        Literal["rate", "none"] | None,
        _option(
            WHEN,
            "rate: scale the drawn gaps so that the run as a whole has exactly --rate, as vllm bench does. none: as "
            "drawn, so that a short run is off by chance (so are --rounds and --workload always).",
            default="rate",
        ),
    ] = None

    rounds: Annotated[
        int | None,
        _option(
            WHEN,
            "Turns per session; each turn is sent after the answer to the one before. With N > 1, --rate and "
            "--concurrency count sessions.",
            default=1,
            metavar="N",
        ),
    ] = None
    context_growth: Annotated[
        Literal["accumulate", "none"] | None,
        _option(
            WHEN,
            "With --rounds. accumulate: a prompt holds the whole conversation, answers included, and --prompt-tokens "
            "new tokens. none: only the new tokens.",
            default="accumulate",
        ),
    ] = None
    batch: Annotated[
        int | None,
        _option(
            WHEN,
            "Send N requests at once; send the next N when all are answered (waves).",
            metavar="N",
        ),
    ] = None
    waves: Annotated[
        int | None, _option(WHEN, "With --batch: how many waves.", default=DEFAULT_NUM_WAVES, metavar="K")
    ] = None

    speed: Annotated[
        float | None,
        _option(
            WHEN,
            "With --trace: send its requests X times as fast; 0.5 takes twice the time.",
            default="1",
            metavar="X",
        ),
    ] = None

    prompt_scale: Annotated[
        float | None,
        _option(
            LENGTHS,
            "With --trace or --like: multiply prompt lengths by this, before clipping.",
            default="1",
            metavar="X",
        ),
    ] = None
    output_scale: Annotated[
        float | None,
        _option(
            LENGTHS,
            "With --trace or --like: multiply output lengths by this, before clipping.",
            default="1",
            metavar="X",
        ),
    ] = None

    prompt_tokens: Mean = None
    prompt_tokens_stdev: Stdev = None
    prompt_tokens_min: Least = None
    prompt_tokens_max: Most = None
    output_tokens: Annotated[
        Tokens, _length("", "Mean length of answers; pinned per request where the server allows it.")
    ] = None
    output_tokens_stdev: Stdev = None
    output_tokens_min: Least = None
    output_tokens_max: Most = None
    output_shape: Annotated[
        Literal["normal", "lognormal"] | None,
        _option(
            LENGTHS,
            "What outputs are drawn from; lognormal: the same mean and standard deviation, with a long tail.",
            default="normal; lognormal with --samples",
        ),
    ] = None
    total_tokens_max: Annotated[
        Tokens,
        _option(
            LENGTHS,
            "Maximum of prompt and answer together, drawn or recorded. Longer requests have their prompt cut, and the "
            "answer, too, where it alone fills the limit. A session whose prompts grow ends before it. The output says "
            "how many.",
            metavar="TOKENS",
        ),
    ] = None
    prefix_tokens: Annotated[
        int | None,
        _option(LENGTHS, "Prefix tokens shared by all prompts.", default=0, metavar="TOKENS"),
    ] = None

    num_requests: Annotated[
        int | None,
        _option(
            EXTENT,
            "Stop after this many requests; with --workload, its num_requests and horizon no longer count.",
            default=f"{DEFAULT_NUM_REQUESTS}, without --duration",
            metavar="N",
        ),
    ] = None
    duration: Annotated[
        Seconds,
        _option(
            EXTENT,
            "Send the requests scheduled within this time (60, 500ms, 2m).",
            metavar="S",
            parser=parse_seconds,
        ),
    ] = None
    seed: Annotated[
        int | None,
        _option(
            EXTENT,
            "Same seed, same requests.",
            default=f"{DEFAULT_SEED}, or the specification's",
            metavar="N",
        ),
    ] = None
    api: Annotated[
        Api,
        typer.Option(help="Endpoint that requests are sent to, where any are sent.", rich_help_panel=EXTENT),
    ] = "completions"

    def __post_init__(self) -> None:
        """Accept texts as paths, as Python users write them."""
        for name in ("workload", "trace", "like"):
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, Path(value))


# ── contradictions

_DRAWN = (*LENGTH_NAMES, "output_shape", "prefix_tokens")
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


def flag(name: str) -> str:
    """Return the option's spelling: ``prompt_tokens`` is ``--prompt-tokens``."""
    return "--" + name.replace("_", "-")


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
_NOT_NEGATIVE = ("prefix_tokens", "seed", "think_time", "prompt_tokens_stdev", "output_tokens_stdev")
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
