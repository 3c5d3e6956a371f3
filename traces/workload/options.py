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

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from traces.strict.option_table import option_table
from traces.units import parse_seconds
from traces.workload.basics import (
    DEFAULT_NUM_REQUESTS,
    DEFAULT_NUM_WAVES,
    DEFAULT_SEED,
    Api,
    ArrivalProcess,
)

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

    shares: Annotated[
        str | None,
        _option(
            WHEN,
            "With --workload: rate_fraction of each service class named (or tenant, or client) as a whole, in place of "
            "its own: critical=0.7,batch=0.3. In proportion to each other; others stay.",
            metavar="NAME=SHARE,…",
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
            default="normal; lognormal of rollouts",
        ),
    ] = None
    random_range_ratio: Annotated[
        float | None,
        _option(
            LENGTHS,
            "Lengths uniform from (1-R)n to (1+R)n, n the mean, as vllm bench draws them since 0.8.4. Older versions, "
            "sglang's and InferenceMAX's draw from r*n to n: that is a mean of (1+r)n/2 and R = (1-r)/(1+r).",
            metavar="R",
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


def flag(name: str) -> str:
    """Return the option's spelling: ``prompt_tokens`` is ``--prompt-tokens``."""
    return "--" + name.replace("_", "-")
