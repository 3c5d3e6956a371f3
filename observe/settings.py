"""How to observe: everything that a run depends on besides the workload itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from lazy_dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from observe.senders.endpoint import Endpoint
from observe.senders.request_kinds import API, KINDS, RequestKind
from traces import ConfigError
from traces.console.cluster_library import ClusterName
from traces.strict.arguments import ANY_TEXT, PATH, SEED, TEXT, Count, Number, OfClass, check_fields
from traces.strict.limits import MOST_REQUESTS, MOST_S
from traces.workload import Api

CONCURRENCY: Final = Count(1, MOST_REQUESTS)
RETRIES: Final = Count(0, 1_000_000)
PROCESSES: Final = Count(1, 256)
REPEATS: Final = Count(2, 1000)
GPUS: Final = Count(1, 65_536)
IMAGE_SIDE: Final = Count(1, 1024)
"""Pixels."""
AUDIO_SECONDS: Final = Number(0.001, 1)
"""Of one token."""
VIDEO_FRAMES: Final = Count(2, 1024)
INPUTS: Final = Count(1, 10_000)
CHOICES: Final = Count(1, 128)
PROBE_RATE: Final = Number(0.001, 100)
"""Per second."""
PRECISION: Final = Number(0.001, 0.5)
FRACTION: Final = Number(0, 1)
SECONDS: Final = Number(0, MOST_S)
TIMEOUT: Final = Number(1e-6, MOST_S)
"""Seconds of what cannot be at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When the client gives up or holds back; None: never. ``drain_s``: how long an interrupted run waits.

    ``max_retries``: how often a request that failed before its answer began is sent again. ``max_retry_wait_s``: the
    longest wait before that, whatever Retry-After says. ``max_concurrency``: the most requests in flight,
    ``prefill_concurrency``: of those that have no first token yet.
    """

    timeout_s: float | None = None
    stall_timeout_s: float | None = 600.0
    max_concurrency: int | None = None
    prefill_concurrency: int | None = None
    drain_s: float = 30.0
    max_retries: int = 0
    max_retry_wait_s: float = 60.0

    def __post_init__(self) -> None:
        """Check the numbers. Raises ConfigError."""
        if self.stall_timeout_s is not None:
            check_fields(self, stall_timeout_s=TIMEOUT)
        check_fields(self, timeout_s=TIMEOUT, drain_s=SECONDS, max_retry_wait_s=SECONDS)
        check_fields(self, max_concurrency=CONCURRENCY, prefill_concurrency=CONCURRENCY, max_retries=RETRIES)

    @property
    def has_cap(self) -> bool:
        """Whether a request that is due may have to wait for others."""
        return self.max_concurrency is not None or self.prefill_concurrency is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """The warm-up: this many requests, or for this long; none by default.

    ``is_recorded``: it is the beginning of the run itself, and marked in the trace; else it precedes the run, with
    other prompts, and is not recorded.
    """

    num_requests: int = 0
    seconds: float = 0.0
    is_recorded: bool = False

    def __post_init__(self) -> None:
        """Check the numbers. Raises ConfigError."""
        check_fields(self, num_requests=Count(0, MOST_REQUESTS), seconds=SECONDS)

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return self.num_requests > 0 or self.seconds > 0


NO_WARM_UP = WarmUp()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedDecoding:
    """A JSON schema and the fraction of requests that it constrains; None: as the trace's ``guided`` says, else all."""

    name: str
    schema: Mapping[str, object] = field(repr=False)
    frac: float | None = None

    @property
    def sha256(self) -> str:
        """The digest of the schema, keys sorted."""
        return hashlib.sha256(json.dumps(self.schema, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """The tools that an answer may call, as the chat API has them, and which it has to; ``name``: the file's."""

    name: str
    tools: tuple[Mapping[str, object], ...] = field(repr=False)
    choice: str = "auto"

    @property
    def fields(self) -> dict[str, object]:
        """The fields of a request; a choice that is no word of the API names a tool."""
        named = {"type": "function", "function": {"name": self.choice}}
        is_word = self.choice in ("auto", "required", "none")
        return {"tools": list(self.tools), "tool_choice": self.choice if is_word else named}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCluster:
    """A running cluster whose workers send: ``tcp://HOST:PORT`` of Dask, ``ray://HOST:PORT`` or ``auto`` of Ray."""

    library: ClusterName
    address: str

    @property
    def option(self) -> str:
        """The option that names it."""
        return f"--{self.library}"


@dataclass(frozen=True, slots=True)
class TextColumns:
    """Names of the columns of prompts and answers, in place of the usual ones; None: the usual."""

    prompt: str | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSource:
    """Where a run's texts come from. Lengths in tokens; those of ``prompt``, ``output`` and ``total`` are bounds.

    ``seed``: texts are taken in an order drawn by it, those of earlier loads (``num_before``) left out.
    ``drawn_outputs``: answers are as long as the workload says, not as long as the data set's.
    """

    path: Path
    columns: TextColumns | None = None
    seed: int
    num_before: int = 0
    drawn_outputs: bool = False
    prompt: tuple[int, int | None] = (1, None)
    output: tuple[int, int | None] = (1, None)
    total: int | None = None

    def takes(self, prompt: int, output: int | None) -> bool:
        """Return whether a text of these lengths is within the bounds; None: the answer's is not known."""
        sizes = [(prompt, self.prompt)] + ([] if output is None else [(output, self.output)])
        if any(size < least or (most is not None and size > most) for size, (least, most) in sizes):
            return False
        return self.total is None or prompt + (output or 0) <= self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to observe. ``model`` None: the one the server lists first. ``salt`` None: a new random one.

    ``probe``: send a one-token request before the run to a server that is not known to be vLLM, or to a chat API that
    does not show a vLLM's metrics, to learn what it accepts. ``probe_rate``: light requests a second beside the load.
    ``events``: record every event's time. ``class_priority``: vLLM's ``priority`` by service class, None: only what the
    trace says. ``guided``: which requests a schema
    constrains. ``max_error_frac``: stop when more than this share of the last answers failed, ``stop_over_saturated``:
    when the server surely falls behind requests that come at one rate. ``scrape_s``: how often
    the server's gauges are recorded; ``scrapes_vllm``: once a second if that is None and ``/metrics`` is vLLM's.
    ``scrape_urls``: further Prometheus endpoints, of which the series that match ``scrape_keep`` are kept.
    ``engine_log``: file that the server logs its steps to. ``tokenizer``:
    tokenizer.json of the served model, for a server that has no ``/tokenize``. ``texts``: what is sent in place of
    drawn prompts. ``num_inputs``: of each request that generates nothing. ``num_choices``: answers to each prompt.
    ``tools``: what answers may call. ``image_side``: pixels of the square that is a token of an image;
    ``audio_seconds``: of sound that are one of audio; ``video_frames``: of each video, beside ``image_side``; None:
    sent as text. ``processes``: how many send; the requests are divided among them before the run. ``machines``: whose
    workers send in their place, one each. ``gpu``, ``tp``: the server's hardware, for the header; no server reports it.
    ``command``: for the header, its secrets removed.
    """

    endpoint: Endpoint
    api: Api = "completions"
    model: str | None = None
    limits: Limits = field(default_factory=Limits)
    warmup: WarmUp = NO_WARM_UP
    events: bool = True
    probe: bool = True
    probe_rate: float | None = None
    salt: int | None = None
    streaming: bool = True
    class_priority: Mapping[str, int] | None = None
    guided: GuidedDecoding | None = None
    max_error_frac: float | None = None
    stop_over_saturated: bool = False
    scrape_s: float | None = None
    scrapes_vllm: bool = False
    scrape_urls: tuple[str, ...] = ()
    scrape_keep: tuple[str, ...] = ()
    engine_log: Path | None = None
    tokenizer: Path | None = None
    texts: TextSource | None = None
    image_side: int | None = None
    audio_seconds: float | None = None
    video_frames: int | None = None
    num_inputs: int = 1
    num_choices: int = 1
    tools: ToolUse | None = None
    processes: int = 1
    machines: MachineCluster | None = None
    gpu: str | None = None
    tp: int | None = None
    command: str | None = None

    @property
    def records_events(self) -> bool:
        """Whether every event's time is recorded; an answer that generates nothing has one, which is its end."""
        return self.events and self.kind.generates

    @property
    def kind(self) -> RequestKind:
        """What requests are."""
        return KINDS[self.api]

    def __post_init__(self) -> None:
        """Check the values. Raises ConfigError."""
        check_fields(self, endpoint=OfClass(("Endpoint",), "an endpoint, of parse_endpoint"), api=API)
        check_fields(self, limits=OfClass(("Limits",), "Limits"), warmup=OfClass(("WarmUp",), "a WarmUp"))
        check_fields(self, model=TEXT, gpu=TEXT, command=ANY_TEXT, engine_log=PATH, tokenizer=PATH)
        check_fields(self, salt=SEED, max_error_frac=FRACTION, scrape_s=TIMEOUT, processes=PROCESSES, tp=GPUS)
        check_fields(self, image_side=IMAGE_SIDE, audio_seconds=AUDIO_SECONDS, video_frames=VIDEO_FRAMES)
        check_fields(self, probe_rate=PROBE_RATE, num_inputs=INPUTS, num_choices=CHOICES)
        if self.stop_over_saturated and (self.processes > 1 or self.machines is not None):
            raise ConfigError("--stop-over-saturated: cannot be combined with --processes, --dask, --ray")
        if self.limits.prefill_concurrency is not None and not (self.streaming and self.kind.generates):
            raise ConfigError(
                "--prefill-concurrency: got answers in one piece, expected streamed ones, whose first token is seen"
            )
