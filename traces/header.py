"""A trace's header: every key that TraceV2 knows, typed, to and from YAML."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, field, replace
from pathlib import Path

from traces.errors import with_cut_pieces
from traces.strict.arguments import Count, check_fields
from traces.strict.dataclass_yaml import dump_dataclass, load_dataclass, place_of
from traces.strict.limits import MOST_REQUESTS, MOST_TOKENS, MOST_US

VERSION = "0.2.0"
"""Of vtwin: the one place that says it. pyproject.toml reads it here, as asking what is installed takes 10 ms."""
MODES = ("real", "generated", "replayed")
USERS = Count(1, MOST_REQUESTS)
"""How many users a closed loop may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What is known of the server; ``sources`` names where each value was read from, by field name.

    ``model``: the served name; ``model_root``: what it was loaded from (``root`` of ``/v1/models``), where that is
    another. A source is ``/metrics``, ``/version``, ``/v1/models``, ``given by the user``, a file, a TWIN.yaml. Names
    are vLLM's, but for those that BLIS had named before (``type``, ``tensor_parallel``) and their like.
    ``num_instances``: the servers behind the address of a router, ``instance_names`` their names in its metrics.
    ``data_parallel``: the engines of one server.
    """

    type: str | None = None
    model: str | None = None
    model_root: str | None = None
    version: str | None = None
    url: str | None = None
    max_model_len: int | None = None
    num_gpu_blocks: int | None = None
    block_size: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    long_prefill_token_threshold: int | None = None
    scheduler_reserve_full_isl: bool | None = None
    scheduling_policy: str | None = None
    async_scheduling: bool | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    enable_expert_parallel: bool | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    gpu: str | None = None
    num_gpus: int | None = None
    system_fingerprint: str | None = None
    num_instances: int | None = None
    instance_names: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def num_engines(self) -> int:
        """How many engines answer, as far as it is known; 1 where nothing is."""
        return (self.num_instances or 1) * (self.data_parallel or 1)

    def learn(self, source: str, **values: str | float | bool | tuple[str, ...] | None) -> ServerInfo:
        """Return a copy that also has ``values``, each read from ``source``; None is skipped."""
        known = {name: value for name, value in values.items() if value is not None}
        sources = {**self.sources, **dict.fromkeys(known, source)}
        return replace(self, **known, sources=sources)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """The result of one of the load generator's processes; as in ``ClientInfo``. ``outcome``: how it ended.

    ``scheduling``: how the system ran it, None as any other.
    Lags that a killed process had not yet reported (less than a second's worth) are missing. ``machine``: where it ran,
    None here. ``clock_offset_us``: that machine's CLOCK_MONOTONIC less the client's before the run, right to
    ``clock_error_us``; its times have it subtracted. ``clock_drift_us``: by how much more the offset was after the run.
    """

    num_planned: int | None = None
    num_sent: int | None = None
    own_lag_us: Mapping[str, float] = field(default_factory=dict)
    loop_lag_us: Mapping[str, float] = field(default_factory=dict)
    cpu_frac: float | None = None
    limited: bool | None = None
    reason: str | None = None
    outcome: str | None = None
    scheduling: str | None = None
    machine: str | None = None
    clock_offset_us: float | None = None
    clock_error_us: float | None = None
    clock_drift_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientInfo:
    """How the load generator worked, and how well it did its own work.

    Lags are quantiles by name (p50, p90, p99, max). ``dispatch_lag_us``: from due to sent. ``own_lag_us``: the part of
    it that is the client's fault: without the cap on concurrency, the opening of connections, and the first round of a
    closed loop. ``loop_lag_us``: how late the event loop woke up. ``cpu_frac``: CPU seconds of the client's busiest
    process per second of the run, ``processes`` each of them where there are several. ``limited``: whether the client,
    not the server, set the pace, by ``bounds``, and ``reason`` why; ``late``: it kept the pace, but did its own work
    late, beyond the bounds on lags. ``class_priority``: vLLM's priority sent for each service class. ``ignore_eos``:
    whether answers were held to their length. ``num_without_usage``: whole answers whose tokens the server did not
    count. ``guided_schema``: name of the JSON schema that the guided requests were sent with, and its digest.
    ``scheduling``: how the system ran the thread that sent, None as any other; of several, each process has its own.
    ``num_inputs``: of each request that generates nothing; ``num_choices``: answers to each prompt, None one;
    ``tools``: the file of those that answers may call.
    ``finished`` is false during the run, and if it was cut short: by a user (``interrupted``) or a killed client.
    ``over_saturated``: whether the client ended it because the server fell behind; None: it did not look.
    """

    clock: str | None = None
    library: str | None = None
    num_processes: int | None = None
    scheduling: str | None = None
    api: str | None = None
    prompt_source: str | None = None
    ignore_eos: bool | None = None
    prompt_salt: int | None = None
    num_inputs: int | None = None
    num_choices: int | None = None
    tools: str | None = None
    tokens_per_word: float | None = None
    token_counts: str | None = None
    num_without_usage: int | None = None
    timeout_s: float | None = None
    stall_timeout_s: float | None = None
    max_concurrency: int | None = None
    prefill_concurrency: int | None = None
    num_held_back: int | None = None
    max_retries: int | None = None
    max_retry_wait_s: float | None = None
    num_retried: int | None = None
    num_warmup_requests: int | None = None
    warmup_s: float | None = None
    num_planned: int | None = None
    num_sent: int | None = None
    num_connections: int | None = None
    peak_in_flight: int | None = None
    in_flight_asked: int | None = None
    in_flight_mean: float | None = None
    rate_asked_per_s: float | None = None
    rate_achieved_per_s: float | None = None
    gap_cv_asked: float | None = None
    gap_cv_achieved: float | None = None
    dispatch_lag_us: Mapping[str, float] = field(default_factory=dict)
    own_lag_us: Mapping[str, float] = field(default_factory=dict)
    loop_lag_us: Mapping[str, float] = field(default_factory=dict)
    cpu_frac: float | None = None
    processes: tuple[ProcessInfo, ...] = ()
    bounds: Mapping[str, float] = field(default_factory=dict)
    class_priority: Mapping[str, int] = field(default_factory=dict)
    guided_schema: str | None = None
    guided_schema_sha256: str | None = None
    limited: bool | None = None
    late: bool | None = None
    reason: str | None = None
    finished: bool | None = None
    interrupted: bool | None = None
    over_saturated: bool | None = None
    notes: tuple[str, ...] = ()

    @property
    def several(self) -> str | None:
        """What of a request a simulation has only one of: its answers, its inputs; None where there is one."""
        if (self.num_choices or 1) > 1:
            return f"{self.num_choices} answers a prompt"
        return f"{self.num_inputs} inputs a request" if (self.num_inputs or 1) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinding:
    """A finding on whether a run's numbers are the server's: its ``kind``, in how many requests of how many, in words.

    Kinds are those of ``traces.findings.run_findings``.
    """

    kind: str
    num: int
    of: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The client's measurements of the network to the server."""

    measured_rtt_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """A load of ``concurrency`` users, each of whom waits ``think_time_us`` after an answer.

    ``in_waves``: users wait until all have their answers, then all send at once; None is no. ``is_probe``: it was sent
    to learn what a step takes, and is no load that users have; None is no.
    """

    concurrency: int
    think_time_us: int = 0
    in_waves: bool | None = None
    is_probe: bool | None = None

    def __post_init__(self) -> None:
        """Check the numbers. Raises ConfigError."""
        check_fields(self, concurrency=USERS, think_time_us=Count(0, MOST_US))


def loop_of(users: object) -> ClosedLoop | None:
    """Return the closed loop of as many users as another tool's file says; None where that is no number of users."""
    return ClosedLoop(concurrency=users) if isinstance(users, int) and USERS.allows(users) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterReading:
    """A server's counter before and after the run."""

    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpread:
    """By how much figures differ from one run of the same requests to the next, measured over ``num_runs`` of them.

    ``spread``: by a figure's name in the JSON of a run (``ttft_us.mean``), the standard deviation of one run's figure
    as a share of the mean.
    """

    num_runs: int = 0
    spread: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecDecode:
    """Speculative decoding during the run, by vLLM's counters ``vllm:spec_decode_*``.

    ``accepted_frac_per_position``: of the drafts, how many were accepted up to and including each position, which is
    what the engine's ``synthetic_acceptance_rates`` are. ``mean_accepted_length``: tokens per step, the model's own
    included: 1 + accepted tokens / drafts.
    """

    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    mean_accepted_length: float
    accepted_frac_per_position: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeInfo:
    """Light requests beside the load, of one token each way: ``num_failed`` of ``num_probes`` had no whole answer.

    ``latency_us``: from sending to the whole answer, of the others: mean, p50, p90, p99, max.
    """

    rate_per_s: float
    num_probes: int
    num_failed: int = 0
    latency_us: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerInfo:
    """Power of the GPUs that an exporter showed during the run, all of them together, by its readings.

    ``energy_j`` and what follows of it is None where the readings do not cover the run. ``output_tokens_per_j``: of all
    that came, those of cut and failed answers included.
    """

    num_gpus: int
    covered_frac: float
    energy_j: float | None = None
    mean_w: float | None = None
    output_tokens_per_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebased:
    """How the times of a file with two origins were brought to one.

    The run's start is taken so that the smallest send time falls on the arrival of the same row.
    """

    smallest_send_unix_us: int
    arrival_of_that_row_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source of an imported trace.

    ``part``: which of several runs in the file, from 1. ``load_unknown``: why the rows do not show the load that was
    sent, None where they do: the file does not say when requests were sent, or has only some of them. Latencies hold
    then; rates, and a simulation of these rows, do not. ``left_out``: how many requests were left out, by reason, which
    goes on a sentence: "without a response".
    """

    format: str
    file: str
    part: int | None = None
    load_unknown: str | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """Return all that a reader of these rows should know, a line each."""
        part = () if self.part is None else (f"part {self.part} of the file",)
        load = () if self.load_unknown is None else (f"the load is not known: {self.load_unknown}",)
        gone = tuple(
            f"{number:,} request{'' if number == 1 else 's'} {reason} left out"
            for reason, number in self.left_out.items()
        )
        return tuple(map(with_cut_pieces, (*part, *load, *gone, *self.notes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SLOTarget:
    """BLIS's goodput targets of one service class."""

    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondaryTier:
    """One storage tier below the CPU's of BLIS's KV offload."""

    type: str | None = None
    root_dir: str | None = None
    n_read_threads: int | None = None
    n_write_threads: int | None = None
    locality: str | None = None
    enable_kv_events: bool | None = None
    direct_io: bool | None = None
    device_class: str | None = None
    read_bandwidth: float | None = None
    write_bandwidth: float | None = None
    base_latency: float | None = None
    saturation_queue_depth: int | None = None
    single_transfer_fraction: float | None = None
    latency_jitter_stddev: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KVOffload:
    """BLIS's description of the server's KV offload; bandwidths in bytes/µs, latencies in µs."""

    cpu_bytes_to_use: int | None = None
    per_block_bytes: int | None = None
    block_size: int | None = None
    blocks_per_chunk: int | None = None
    tokens_per_hash: int | None = None
    eviction_policy: str | None = None
    offload_prompt_only: bool | None = None
    self_describing_kv_events: bool | None = None
    secondary_tiers: tuple[SecondaryTier, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedKVMetrics:
    """BLIS's reading of the server's cache counters."""

    source: str | None = None
    hit_rate: float | None = None
    block_hits: float | None = None
    block_queries: float | None = None
    read_time_total: float | None = None
    write_time_total: float | None = None
    vllm_commit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """All of a trace's metadata; a key that is absent is None or empty.

    ``tool`` distinguishes the dialects: a header without it was written by BLIS.
    ``rate_per_s``: the requested requests per second; the drawn requests have a rate of their own.
    ``start_unix_us``: Unix time of the run's start, from which every time in the table counts.
    ``noise_floor``: what `observe --repeat` measured over this run and those that repeat it.
    ``findings``: what the run shows that makes its numbers others than the server's.
    """

    trace_version: int | None = None
    time_unit: str | None = None
    created_at: str | None = None
    mode: str | None = None
    warm_up_requests: int | None = None
    workload_seed: int | None = None
    workload_spec: str | None = None
    session_context_growth: str | None = None
    server: ServerInfo = field(default_factory=ServerInfo)
    network: Network = field(default_factory=Network)
    goodput_slo_targets: Mapping[str, SLOTarget] = field(default_factory=dict)
    kv_offload: KVOffload | None = None
    observed_kv_metrics: ObservedKVMetrics | None = None
    tool: str | None = None
    tool_version: str | None = None
    command: str | None = None
    seed: int | None = None
    rate_per_s: float | None = None
    config_digest: str | None = None
    start_unix_us: int | None = None
    closed_loop: ClosedLoop | None = None
    hash_block_size: int | None = None
    client: ClientInfo | None = None
    metrics_delta: Mapping[str, CounterReading] = field(default_factory=dict)
    spec_decode: SpecDecode | None = None
    probes: ProbeInfo | None = None
    power: PowerInfo | None = None
    noise_floor: RunSpread | None = None
    rebased: Rebased | None = None
    source: Source | None = None
    findings: tuple[RunFinding, ...] = ()

    @property
    def is_blis(self) -> bool:
        """Whether the file was written by BLIS, or for it."""
        return self.tool is None


BLIS_KEYS = (
    "trace_version",
    "time_unit",
    "created_at",
    "mode",
    "warm_up_requests",
    "workload_seed",
    "workload_spec",
    "session_context_growth",
    "server",
    "network",
    "goodput_slo_targets",
    "kv_offload",
    "observed_kv_metrics",
)
BLIS_SERVER_KEYS = (
    "type",
    "model",
    "tensor_parallel",
    "max_num_seqs",
    "block_size",
    "gpu_memory_utilization",
    "max_model_len",
)


def parse_header(text: str, file: str | Path) -> Header:
    """Return the header in ``text``.

    Raises TraceError that names key and line for an unknown key (with the nearest known one) or a wrong type.
    """
    header = load_dataclass(text, Header, file=Path(file).name, what="a TraceV2 header")
    _check_values(header, text, Path(file).name)
    return header


def header_yaml(header: Header) -> str:
    """Return the header as YAML, keys in the order of the class, absent ones left out."""
    return dump_dataclass(header)


def _check_values(header: Header, text: str, file: str) -> None:
    from traces.errors import TraceError

    if header.mode is not None and header.mode not in MODES:
        where = place_of(text, "mode", file=file)
        raise TraceError(f"mode: got {header.mode!r}, expected one of {', '.join(MODES)} ({where})")
    if header.hash_block_size is not None and not 1 <= header.hash_block_size <= MOST_TOKENS:
        where = place_of(text, "hash_block_size", file=file)
        raise TraceError(
            f"hash_block_size: got {header.hash_block_size}, expected an integer >= 1, at most {MOST_TOKENS} ({where})"
        )


def tool_version() -> str:
    """Return the version of vtwin."""
    return VERSION
