"""The settings and rules of every engine: batches, the queue, blocks of one group."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Literal

from sim.features.setting import AllSettings, InvalidConfig, changing, setting, since

SchedulingPolicy = Literal["fcfs", "priority", "sjf", "reverse-priority"]
PriorityScoring = Literal["constant", "slo-based", "inverted-slo"]
Frontend = Literal["openai", "none"]

DEFAULT_VERSION = "0.32.0"

UNBOUNDED = 0
"""``num_gpu_blocks`` of a KV cache that never binds."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class BatchSettings:
    """What a step holds, and the KV cache."""

    __slots__ = ()

    max_num_seqs: int = setting(
        256,
        "Requests that may run at once, partial prefills included. Absent: what vLLM's API server takes on "
        "the GPU of `hardware` or `latency.defaults`, for this version; vtwin says which.",
        least=1,
        most=1_000_000,
        flag="max-num-seqs",
        taken=True,
    )
    max_num_batched_tokens: int = setting(
        2048,
        "Tokens that one step may compute, prefill and decode together. Absent: likewise.",
        least=1,
        most=2**28,
        flag="max-num-batched-tokens",
        taken=True,
    )
    num_gpu_blocks: int = setting(
        UNBOUNDED,
        "KV cache blocks as vLLM counts them, the null block included. Absent: with "
        "`latency.defaults`, the entry's, where its block size is the same and `hardware` gives no share or size of "
        "memory; else what `hardware` leaves room for next to `latency.model_config`; else unbounded; "
        "vtwin says which.",
        most=100_000_000,
        flag="num-gpu-blocks-override",
    )
    block_size: int = setting(
        16, "Tokens per KV cache block.", least=1, most=2**20, flag="block-size", taken=True
    )
    max_model_len: int = setting(
        32768,
        "Prompt and output together; a longer prompt is rejected, a longer output is cut. Absent: as "
        "long as the config.json of `latency.model_config` says; vtwin says how long.",
        least=1,
        most=2**30,
        flag="max-model-len",
        taken=True,
    )
    enable_prefix_caching: bool = setting(
        True, "Reuse the KV blocks of equal prefixes.", flag="enable-prefix-caching", taken=True
    )
    enable_chunked_prefill: bool = setting(
        True, "Let a prompt be computed over several steps.", flag="enable-chunked-prefill", taken=True
    )
    long_prefill_token_threshold: int = setting(
        0,
        "Most prefill tokens of a request per step, unless alone; 0: no limit.",
        flag="long-prefill-token-threshold",
        taken=True,
    )
    long_prefill_token_threshold_adaptive: bool = setting(
        False,
        "Raise that threshold to an equal share of the step's tokens.",
        flag="long-prefill-token-threshold-adaptive",
        known_by="has_adaptive_threshold",
        taken=True,
    )
    scheduler_reserve_full_isl: bool = setting(
        True,
        "Admit a request only when all of its prompt's blocks are free now.",
        flag="scheduler-reserve-full-isl",
        known_by="has_full_isl_gate",
        taken=True,
    )
    watermark: float = setting(
        0.0,
        "Share of the blocks kept free when a request is admitted next to running ones.",
        flag="watermark",
        known_by="has_watermark",
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class QueueSettings:
    """The order of the queue."""

    __slots__ = ()

    scheduling_policy: SchedulingPolicy = setting(
        "fcfs",
        "Order of the waiting queue: arrival, or the requests' priority (lower is first). "
        "Beyond vLLM: sjf, shortest prompt first; reverse-priority.",
        choices=SchedulingPolicy,
        flag="scheduling-policy",
    )
    priority_scoring: PriorityScoring = setting(
        "constant",
        "Beyond vLLM: how a waiting request's priority changes with its age; slo-based makes "
        "it more urgent, inverted-slo less.",
        choices=PriorityScoring,
    )
    priority_age_weight: float = setting(0.0, "Priority gained or lost per second of waiting.")
    async_scheduling: bool = setting(
        True,
        "Schedule the next step while one runs: vLLM's default on GPUs; false on CPUs.",
        flag="async-scheduling",
        taken=True,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class VersionSettings:
    """Whose scheduling rules hold (``sim/versions.py``)."""

    __slots__ = ()

    vllm_version: str = setting(DEFAULT_VERSION)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class FrontendSettings:
    """The API server before the engine."""

    __slots__ = ()

    frontend: Frontend = setting(
        "openai",
        "The API server's checks and clamps of prompt and output length; `none`: the engine alone.",
        choices=Frontend,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class CoreRules:
    """What every engine's scheduler does.

    - ``continues_after_self_preemption``: under a policy other than fcfs, a running request that is its own victim
      does not end the loop over the running ones (sched/scheduler.py:schedule, from 0.33.0).
    - ``lifts_threshold_for_lone_request``: the long-prefill threshold does not hold while at most one request runs
      or waits (sched/scheduler.py:schedule, from 0.31.0).
    - ``moves_cursor_for_every_victim``: a victim that stood before the request being scheduled moves the loop's
      place back, whether or not it was scheduled in this step; before, the next request was skipped for a step
      (sched/scheduler.py:schedule, from 0.28.0).
    - ``frees_unhashed_blocks_first``: freed blocks without a hash are handed out before all others; before, every
      freed block went to the back of the queue (block_pool.py:free_blocks, from 0.24.0).
    - ``queues_freed_without_cache``: without a prefix cache they go to the back all the same (0.27 alone).
    """

    __slots__ = ()

    continues_after_self_preemption: bool = since(33)
    lifts_threshold_for_lone_request: bool = since(31)
    moves_cursor_for_every_victim: bool = since(28)
    frees_unhashed_blocks_first: bool = since(24)
    queues_freed_without_cache: bool = since(27, until=28, asked=False)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class CoreDefaults:
    """Which settings a version knows, and what vLLM assumes where a flag is absent.

    ``has_adaptive_threshold``, ``has_watermark``; ``has_full_isl_gate``: ``scheduler_reserve_full_isl``, on by default.
    ``async_scheduling`` on GPUs; ``gpu_memory_utilization``; ``counts_cuda_graphs`` when the KV cache is sized;
    ``batched_tokens_by_gib``: of the API server, max_num_batched_tokens by the least GPU memory in GiB.
    """

    __slots__ = ()

    has_adaptive_threshold: bool = since(31, asked=False)
    has_watermark: bool = since(24, asked=False)
    has_full_isl_gate: bool = since(19, asked=False)
    async_scheduling: bool = since(14, asked=False)
    gpu_memory_utilization: float = changing(0.9, {20: 0.92})
    counts_cuda_graphs: bool = since(21, asked=False)
    batched_tokens_by_gib: tuple[tuple[int, int], ...] = changing(
        ((70, 8192),), {28: ((160, 16384), (70, 8192))}
    )


def check_core(config: AllSettings) -> None:
    """Raise InvalidConfig on a number of blocks, a watermark or a weight that is not valid."""
    if config.num_gpu_blocks == 1:
        raise InvalidConfig(
            "num_gpu_blocks: got 1, expected >= 2 (block 0 is the null block), or 0: unbounded"
        )
    if not isinstance(config.watermark, int | float) or not 0 <= config.watermark < 1:
        raise InvalidConfig(f"watermark: got {config.watermark!r}, expected a fraction in [0, 1)")
    if not isinstance(config.priority_age_weight, int | float) or not 0 <= config.priority_age_weight < 1e9:
        raise InvalidConfig(
            f"priority_age_weight: got {config.priority_age_weight!r}, expected a number >= 0"
        )
