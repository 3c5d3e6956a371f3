"""The options of ``vtwin observe``: tables, each of related options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from observe.kind_options import KindOptions
from observe.settings import (
    CONCURRENCY,
    GPUS,
    PRECISION,
    PROBE_RATE,
    PROCESSES,
    REPEATS,
    RETRIES,
    TIMEOUT,
    WarmUp,
)
from observe.text_options import TextOptions
from traces import ConfigError, quoted
from traces.console.options import FormatOption
from traces.console.slo_gate import SloGate
from traces.strict.limits import MOST_REQUESTS
from traces.strict.option_table import option_table
from traces.strict.secrets import redact_url
from traces.workload import CancelOptions

SERVER = "Server"
LIMITS = "Timeouts, retries, limits"
LIST = "Several runs"
MACHINES = "Many machines"


def _seconds(text: str) -> float:
    """Return seconds > 0; 0, none and off mean never: infinity."""
    from traces import parse_seconds

    if text.strip().lower() in ("none", "off", "0"):
        return float("inf")
    seconds = parse_seconds(text)
    if not (TIMEOUT.allows(seconds) or seconds == float("inf")):
        raise typer.BadParameter(f"got {text!r}, expected a time > 0, or none (at most {TIMEOUT.most:.3g} s)")
    return seconds


def scrapes_of(values: Sequence[str]) -> tuple[float | None, tuple[str, ...]]:
    """Return the interval, s, of ``--scrape``, inf for never and None where none is given, and the URLs.

    Raises ConfigError.
    """
    urls = tuple(value for value in values if "://" in value)
    for url in urls:
        if not re.fullmatch(r"https?://[^/\s?#]+[^\s#]*", url):
            raise ConfigError(f"--scrape: got {quoted(redact_url(url))}, expected http://HOST:PORT/metrics")
    times = [value for value in values if "://" not in value]
    if len(times) > 1:
        raise ConfigError(f"--scrape: got {len(times)} intervals, expected one")
    try:
        return (_seconds(times[0]) if times else None), urls
    except typer.BadParameter as fault:
        raise ConfigError(f"--scrape: {fault.message}, or a URL") from fault


def _finite_seconds(text: str) -> float:
    """Return seconds > 0 that are not infinite."""
    seconds = _seconds(text)
    if seconds == float("inf"):
        raise typer.BadParameter(f"got {text!r}, expected a time > 0")
    return seconds


def _name(text: str) -> str:
    """Return a name, which is not empty: a variable of the shell that is not set would make one."""
    if not text:
        raise typer.BadParameter("got '', expected a name; leave the option out where there is none to give")
    return text


def _warmup(text: str) -> WarmUp:
    """Return the warm-up of the text: a number of requests, or a time with its unit."""
    from traces import parse_seconds

    if text.strip().isdecimal():
        if len(text) > len(str(MOST_REQUESTS)) or int(text) > MOST_REQUESTS:
            raise typer.BadParameter(f"got {quoted(text)}, expected at most {MOST_REQUESTS:,} requests")
        return WarmUp(num_requests=int(text))
    seconds = parse_seconds(text)
    if not 0 < seconds < float("inf"):
        raise typer.BadParameter(f"got {text!r}, expected requests (10) or a time (30s)")
    return WarmUp(seconds=seconds)


@option_table
class ServerOptions:
    """The server, the client's key, and where the trace is written."""

    url: Annotated[
        str,
        typer.Option(help="Server address: http://HOST:PORT, with or without /v1.", rich_help_panel=SERVER),
    ]
    output: Annotated[
        Path,
        typer.Option(
            metavar="STEM",
            help="Output trace: Parquet if it ends in .parquet, else CSV. With --plan, --sweep, --repeat, "
            "--find-capacity: a folder.",
        ),
    ]
    model: Annotated[
        str | None,
        typer.Option(
            parser=_name,
            metavar="TEXT",
            help="Name of the served model. Default: the first one the server lists.",
            rich_help_panel=SERVER,
        ),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(
            parser=_name,
            metavar="TEXT",
            help="The server's GPU (H100, A100-80 …), for the header: `vtwin calibrate` takes it from there.",
            rich_help_panel=SERVER,
        ),
    ] = None
    tp: Annotated[
        int | None,
        typer.Option(
            min=GPUS.least,
            max=GPUS.most,
            help="How many GPUs share each layer (tensor parallelism), for the header.",
            rich_help_panel=SERVER,
        ),
    ] = None
    api_key: Annotated[
        str | None,
        typer.Option(
            help="Bearer token. Default: OPENAI_API_KEY or VLLM_API_KEY from the environment.",
            rich_help_panel=SERVER,
        ),
    ] = None
    api_key_env: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Environment variable that has the bearer token.", rich_help_panel=SERVER
        ),
    ] = None
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File that has the bearer token, on one line.", rich_help_panel=SERVER
        ),
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME: VALUE'", help="Header to send with every request.", rich_help_panel=SERVER
        ),
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Accept any TLS certificate.", rich_help_panel=SERVER)
    ] = False


@option_table
class LimitOptions:
    """Timeouts, retries and limits, which requests are cut, and what precedes the run."""

    cancel: CancelOptions = CancelOptions()
    timeout: Annotated[
        float,
        typer.Option(
            metavar="S",
            parser=_seconds,
            help="Longest time for a complete answer; none: no limit.",
            rich_help_panel=LIMITS,
        ),
    ] = "none"  # type: ignore[assignment]  # typer parses the default as it would an argument
    stall_timeout: Annotated[
        float,
        typer.Option(
            metavar="S",
            parser=_seconds,
            help="Longest time without receiving a byte; none: no limit.",
            rich_help_panel=LIMITS,
        ),
    ] = "600"  # type: ignore[assignment]
    max_concurrency: Annotated[
        int | None,
        typer.Option(
            min=CONCURRENCY.least,
            max=CONCURRENCY.most,
            metavar="N",
            help="Most requests in flight. A request that is due waits for a free place; the trace says how many did.",
            rich_help_panel=LIMITS,
        ),
    ] = None
    prefill_concurrency: Annotated[
        int | None,
        typer.Option(
            min=CONCURRENCY.least,
            max=CONCURRENCY.most,
            metavar="N",
            help="Most requests in prefill: sent, and without a first token. One that is due waits as for "
            "--max-concurrency.",
            rich_help_panel=LIMITS,
        ),
    ] = None
    retries: Annotated[
        int,
        typer.Option(
            min=RETRIES.least,
            max=RETRIES.most,
            metavar="N",
            help="How often to resend a request that failed (429, 5xx, no connection) before its answer began. "
            "Waits as Retry-After says. Retried requests are marked in the trace.",
            rich_help_panel=LIMITS,
        ),
    ] = 0
    max_retry_wait: Annotated[
        float,
        typer.Option(
            metavar="S",
            parser=_finite_seconds,
            help="Longest wait before a retry, whatever Retry-After says.",
            rich_help_panel=LIMITS,
        ),
    ] = "60"  # type: ignore[assignment]
    warmup: Annotated[
        WarmUp | None,
        typer.Option(
            "--warmup",
            "--warmup-requests",
            metavar="N|S",
            parser=_warmup,
            help="Warm up with N requests (10) or for a time (30s) before the run; not recorded.",
            rich_help_panel=LIMITS,
        ),
    ] = None
    keep_warmup: Annotated[
        bool,
        typer.Option(
            "--keep-warmup",
            help="Treat the first requests of the load as warm-up: recorded and flagged, excluded from latencies.",
            rich_help_panel=LIMITS,
        ),
    ] = False
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The model's tokenizer.json, for chat prompts of exact length when the server has no /tokenize "
            "(extra: tokenizer).",
            rich_help_panel=SERVER,
        ),
    ] = None
    processes: Annotated[
        int,
        typer.Option(
            min=PROCESSES.least,
            max=PROCESSES.most,
            metavar="N",
            help="Number of sending processes, one core each. Requests are divided among them before the run.",
            rich_help_panel=LIMITS,
        ),
    ] = 1
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            parser=_name,
            help="Send from the workers of this Dask cluster (tcp://HOST:8786), one sender on each, all from one "
            "moment (extra: dask).",
            rich_help_panel=MACHINES,
        ),
    ] = None
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            parser=_name,
            help="The same on a Ray cluster (ray://HOST:10001, HOST:6379 or auto), one sender on each node (extra: "
            "ray).",
            rich_help_panel=MACHINES,
        ),
    ] = None
    no_probe: Annotated[
        bool,
        typer.Option(
            "--no-probe",
            help="Do not send a one-token test request to a server that is not known to be vLLM.",
            rich_help_panel=LIMITS,
        ),
    ] = False


@option_table
class AnswerOptions:
    """What requests say, and how they ask for their answers."""

    texts: TextOptions = TextOptions()
    kinds: KindOptions = KindOptions()
    no_streaming: Annotated[
        bool,
        typer.Option(
            "--no-streaming",
            help="Request answers in one piece; the time of the first token is then unknown.",
            rich_help_panel=SERVER,
        ),
    ] = False
    class_priority: Annotated[
        bool,
        typer.Option(
            "--class-priority",
            help="Send vLLM's priority by SLO class: critical 0, standard 1, batch 5, sheddable 6, background 7 "
            "(server: --scheduling-policy priority).",
            rich_help_panel=SERVER,
        ),
    ] = False
    class_priorities: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS=N,…",
            help="As --class-priority, with these priorities: critical=0,batch=5. Lower is more urgent.",
            rich_help_panel=SERVER,
        ),
    ] = None
    guided: Annotated[
        Path | None,
        typer.Option(
            metavar="SCHEMA.json",
            help="Constrain outputs by this JSON schema (guided decoding): of the requests that the trace marks, "
            "else of all.",
            rich_help_panel=SERVER,
        ),
    ] = None
    guided_frac: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="FRAC",
            help="Constrain only this fraction of the requests, chosen by request_id.",
            rich_help_panel=SERVER,
        ),
    ] = None


@option_table
class RecordOptions:
    """When a run has failed, and what else is recorded."""

    max_error_rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="FRAC",
            help="Exit code 1 if more than this fraction of the requests failed; default: 0.01. If given, the run "
            "also stops as soon as more of the last 50 failed. 1: never.",
            rich_help_panel=LIMITS,
        ),
    ] = None
    stop_over_saturated: Annotated[
        bool,
        typer.Option(
            "--stop-over-saturated",
            help="End a run whose server surely falls behind its rate, with exit code 1; of a --sweep, leave out the "
            "higher rates.",
            rich_help_panel=LIMITS,
        ),
    ] = False
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS",
            help="Latency limits per request (ttft=500ms,tpot=30ms; also itl, e2e, ttft_from_due). "
            "Counts the requests that meet all of them (goodput).",
        ),
    ] = None
    scrape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="S|URL",
            help="Record the server's gauges at this interval (1s) in STEM.gauges.csv. Default: once a second where "
            "/metrics is vLLM's. A URL: also the gauges of that Prometheus endpoint (DCGM exporter, node exporter); "
            "may be given again.",
            rich_help_panel=SERVER,
        ),
    ] = None
    scrape_keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Of the endpoints of --scrape URL, record the series of these names alone, gauges or not "
            "(DCGM_FI_DEV_*,node_load1).",
            rich_help_panel=SERVER,
        ),
    ] = None
    probe_rate: Annotated[
        float | None,
        typer.Option(
            min=PROBE_RATE.least,
            max=PROBE_RATE.most,
            metavar="R",
            help="Send R light requests a second beside the load, one token each way, into STEM.probes.csv. They "
            "do not count as load.",
            rich_help_panel=SERVER,
        ),
    ] = None
    no_scrape: Annotated[
        bool,
        typer.Option("--no-scrape", help="Do not record the server's gauges.", rich_help_panel=SERVER),
    ] = False
    engine_log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The server's log file. The engine steps in it go to STEM.steps.csv "
            "(vllm: --enable-logging-iteration-details).",
            rich_help_panel=SERVER,
        ),
    ] = None


def _precision(text: str) -> float:
    """Return the share of ``3%`` or ``0.03``."""
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not PRECISION.allows(share):
        raise typer.BadParameter(f"got {text!r}, expected a share of the rate from 0.1% to 50%")
    return share


@option_table
class FindOptions:
    """A search for the highest rate within an SLO."""

    find_capacity: Annotated[
        bool,
        typer.Option(
            "--find-capacity",
            help="Find the highest rate within --slo (ttft_p99=500ms; ttft=500ms: of 99 % of the requests), step by "
            "step, into the folder --output. --rate: where to begin; --num-requests, --duration: the most of a step.",
            rich_help_panel=LIST,
        ),
    ] = False
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="TWIN.yaml",
            help="With --find-capacity: begin at this twin's capacity.",
            rich_help_panel=LIST,
        ),
    ] = None
    precision: Annotated[
        float,
        typer.Option(
            metavar="FRAC",
            parser=_precision,
            help="With --find-capacity: how near the rate must be known, with 99 %.",
            rich_help_panel=LIST,
        ),
    ] = "3%"  # type: ignore[assignment]


@option_table
class ListOptions:
    """Several loads; ``yes``: do not ask for consent."""

    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="VALUES",
            help="One run per value, into the folder --output: rates (1,2,4), numbers of users (concurrency=8,16), "
            "or auto: 8 rates (auto:N: N) up to the most that the server answers.",
            rich_help_panel=LIST,
        ),
    ] = None
    repeat: Annotated[
        int | None,
        typer.Option(
            min=REPEATS.least,
            max=REPEATS.most,
            metavar="N",
            help="Observe each load N times, into the folder --output. Each time with new prompts: means with 95 % "
            "intervals, and how far one run lies off. Alone or with --sweep.",
            rich_help_panel=LIST,
        ),
    ] = None
    plan: Annotated[
        Literal["calibrate"] | None,
        typer.Option(
            help="The runs that a fit needs, up to --rate, into the folder --output.", rich_help_panel=LIST
        ),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", help="Run the plan without asking.", rich_help_panel=LIST)] = (
        False
    )
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Skip what is already complete.", rich_help_panel=LIST),
    ] = False

    find: FindOptions = FindOptions()

    @property
    def sweep_alone(self) -> str | None:
        """The rates that are observed once each; None: there are no such, or users are swept."""
        from observe.plan.auto_sweep import num_rates

        several = "concurrency" in (self.sweep or "") or num_rates(self.sweep) is not None
        return None if self.repeat is not None or several else self.sweep

    @property
    def is_asked_for(self) -> bool:
        """Whether there is a list. Raises ConfigError for options that cannot be combined."""
        from observe.plan.auto_sweep import num_rates

        if self.find.find_capacity:
            if self.sweep is not None or self.plan is not None or self.repeat is not None or self.yes:
                raise ConfigError("--sweep, --plan, --repeat, --yes: cannot be combined with --find-capacity")
            return True
        if self.find.config is not None:
            raise ConfigError("--config: needs --find-capacity, which begins at the twin's capacity")
        if self.sweep is not None and self.plan is not None:
            raise ConfigError("--plan: cannot be combined with --sweep")
        if self.repeat is not None and num_rates(self.sweep) is not None:
            raise ConfigError(
                "--sweep auto: cannot be combined with --repeat, expected the rates that it found"
            )
        if self.plan is not None and self.repeat is not None:
            raise ConfigError("--plan: cannot be combined with --repeat: it has a repeated load of its own")
        some = self.sweep is not None or self.plan is not None or self.repeat is not None
        if not some and (self.yes or self.resume):
            raise ConfigError(
                "--yes, --resume: need --plan, --sweep or --repeat (--resume: or --find-capacity)"
            )
        return some


@option_table
class TraceFileOptions:
    """What is written, replaced and printed."""

    prompt_salt: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Repeat the prompts of an earlier run: the prompt_salt in its header. Default: new prompts, "
            "which the server's prefix cache has not seen.",
            rich_help_panel=LIMITS,
        ),
    ] = None
    no_itl: Annotated[
        bool, typer.Option("--no-itl", help="Do not record the time of every event (STEM.itl.csv).")
    ] = False
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if the client, not the server, limited the load.")
    ] = False
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the trace at --output even if it was measured.")
    ] = False
    gate: SloGate = SloGate()
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON document on stdout.")
    ] = False
    form: FormatOption = None
