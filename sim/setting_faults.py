"""Which engine settings are refused, alone and in combination: the first that an engine cannot run with is named."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from typing import get_args

from sim.engine_settings import (
    Batching,
    Compatibility,
    EngineSettings,
    Frontend,
    KVOffloading,
    PriorityScoring,
    SchedulingPolicy,
)
from sim.kv_cache_groups import (
    MOST_TOKENS,
    WITH_ONE_GROUP_ONLY,
    alignment_of,
    fault_of_drafts,
    faults_of,
    sizes_of,
)
from sim.version_groups import Beside, fault_of_version
from sim.versions import KNOWN_VERSIONS, has_native_offloading, is_known, rules_of

MOST_INTEGER = 2**31 - 1
MOST = {
    "max_num_seqs": 1_000_000,
    "max_num_batched_tokens": 2**28,
    "num_gpu_blocks": 100_000_000,
    "num_cpu_blocks": 100_000_000,
    "block_size": 2**20,
    "max_model_len": 2**30,
    "max_loras": 1_000_000,
    "num_speculative_tokens": 1024,
    "num_lookahead_tokens": 1024,
    "num_prefill_lookahead_tokens": 1024,
    "pipeline_parallel_size": 1024,
    "encoder_data_parallel_size": 1024,
    "seed": 2**64 - 1,
    "lora_load_us": 10**9,
    "guided_compile_us": 10**9,
    "session_kv_ttl_us": 10**12,
    "max_num_encoder_input_tokens": 2**30,
    "encoder_cache_size": 2**30,
    "kv_transfer_base_latency": 10**9,
}
"""The largest that an integer may be: the engine has arrays of some, and counts tokens in 32 bits in places."""
MOST_BLOCK_US = 1_000_000
"""Of a block's way between the GPU and host memory: the engine counts 10⁻⁶ µs in 64 bits."""
MOST_ADDED_US = 1_000_000_000
"""Of a time that is added to a step, or to a token in it."""


class InvalidConfig(ValueError):  # noqa: N818 - callers translate it; the name says what it is
    """A value the engine cannot run with; the message names the field, what it got and what it expected."""


def check_each(config: EngineSettings) -> None:
    """Raise InvalidConfig on a setting that is not valid, whatever the others are."""
    _check_types(config)
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
    for name, choices in (
        ("scheduling_policy", SchedulingPolicy),
        ("priority_scoring", PriorityScoring),
        ("frontend", Frontend),
        ("batching", Batching),
        ("kv_offloading", KVOffloading),
        ("compatibility", Compatibility),
    ):
        value = getattr(config, name)
        if value not in get_args(choices):
            raise InvalidConfig(f"{name}: got {value!r}, expected one of {', '.join(get_args(choices))}")


def check_drafts_and_stages(config: EngineSettings) -> None:
    """Raise InvalidConfig on a setting that the version does not have, or on drafts and stages that are not valid."""
    _check_version(config)
    _check_pipeline(config)
    _check_speculation(config)


def check_together(config: EngineSettings) -> None:
    """Raise InvalidConfig on settings that cannot be combined; KV cache groups must be given where they are needed."""
    _check_tiers(config)
    _check_offloading(config)
    _check_added_time(config)
    _check_session_kv(config)
    _check_batching(config)
    _check_groups(config)
    if config.compatibility == "blis":
        _check_blis(config)


def _check_types(config: EngineSettings) -> None:
    """Raise InvalidConfig on a flag that is not a boolean, or a number that is not an integer or is too small."""
    at_least_one = ("max_num_seqs", "max_num_batched_tokens", "block_size", "max_model_len")
    least = dict.fromkeys((*at_least_one, "pipeline_parallel_size", "prefill_schedule_interval"), 1)
    least["encoder_data_parallel_size"] = 1
    for field in fields(config):
        value = getattr(config, field.name)
        if field.type == "bool" and not isinstance(value, bool):
            raise InvalidConfig(f"{field.name}: got {value!r}, expected true or false")
        if field.type == "int":
            low = least.get(field.name, 0)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise InvalidConfig(f"{field.name}: got {value!r}, expected an integer >= {low}")
            most = MOST.get(field.name, MOST_INTEGER)
            if value > most:
                raise InvalidConfig(f"{field.name}: got {value!r}, expected an integer of at most {most:,}")
        is_time = field.type == "float" and field.name.endswith("_us")
        if is_time and isinstance(value, int | float) and value > MOST_ADDED_US:
            raise InvalidConfig(f"{field.name}: got {value!r}, expected at most {MOST_ADDED_US:,} µs")


def _check_version(config: EngineSettings) -> None:
    """Raise InvalidConfig on a version that is not known, or a setting that it does not know."""
    version = config.vllm_version
    if not is_known(version):
        raise InvalidConfig(f"vllm_version: got {version!r}, expected {KNOWN_VERSIONS}")
    rules = rules_of(version)
    for name, is_there, off in (
        ("long_prefill_token_threshold_adaptive", rules.has_adaptive_threshold, "false"),
        ("watermark", rules.has_watermark, "0"),
        ("scheduler_reserve_full_isl", rules.has_full_isl_gate, "false"),
    ):
        value = getattr(config, name)
        if value and not is_there:
            shown = str(value).lower()
            raise InvalidConfig(f"{name}: got {shown}, expected {off}: vLLM {version} does not have it")


def _check_pipeline(config: EngineSettings) -> None:
    """Raise InvalidConfig on settings that cannot be combined with stages, in the twin or in the version."""
    if config.pipeline_parallel_size == 1:
        return
    got = f"pipeline_parallel_size: got {config.pipeline_parallel_size}"
    if config.num_speculative_tokens:
        raise InvalidConfig(
            "pipeline_parallel_size: cannot be combined with num_speculative_tokens, expected 1 or no drafts"
        )
    if config.compatibility == "blis":
        raise InvalidConfig(f"{got} with compatibility blis, expected 1: it has no stages")
    if config.async_scheduling and rules_of(config.vllm_version).async_pipeline == "none":
        raise InvalidConfig(
            f"async_scheduling: got true with pipeline_parallel_size {config.pipeline_parallel_size}, expected "
            f"false: vLLM {config.vllm_version} cannot do both"
        )


def _check_speculation(config: EngineSettings) -> None:
    """Raise InvalidConfig on acceptance rates that are not valid, or lookahead slots without drafts."""
    rates, k = config.synthetic_acceptance_rates, config.num_speculative_tokens
    if k == 0:
        for name in (
            "synthetic_acceptance_rates",
            "num_lookahead_tokens",
            "use_eagle",
            "num_prefill_lookahead_tokens",
        ):
            if getattr(config, name):
                raise InvalidConfig(
                    f"{name}: got {getattr(config, name)!r} with num_speculative_tokens 0, expected none"
                )
        return
    if config.num_prefill_lookahead_tokens > k:
        raise InvalidConfig(
            f"num_prefill_lookahead_tokens: got {config.num_prefill_lookahead_tokens} with num_speculative_tokens "
            f"{k}, expected at most {k}: each module reads one token further ahead"
        )
    falls = all(later <= earlier for earlier, later in pairwise(rates))
    if len(rates) not in (1, k) or not falls or not all(0 <= rate <= 1 for rate in rates):
        raise InvalidConfig(
            f"synthetic_acceptance_rates: got {list(rates)}, expected {k} non-increasing numbers in [0, 1], or one"
        )


def _check_tiers(config: EngineSettings) -> None:
    """Raise InvalidConfig on a threshold that is not a share, or a bandwidth that is not above 0."""
    if not 0 <= config.kv_offload_threshold <= 1:
        raise InvalidConfig(
            f"kv_offload_threshold: got {config.kv_offload_threshold!r}, expected a fraction in [0, 1]"
        )
    if not (config.kv_transfer_bandwidth > 0 and math.isfinite(config.kv_transfer_bandwidth)):
        raise InvalidConfig(
            f"kv_transfer_bandwidth: got {config.kv_transfer_bandwidth!r}, expected a number > 0"
        )


WITHOUT_NATIVE_OFFLOADING: tuple[tuple[str, str | int | bool], ...] = (
    ("enable_prefix_caching", True),
    ("pipeline_parallel_size", 1),
    ("batching", "vllm"),
    ("compatibility", "vllm"),
)
"""Settings that native offloading is simulated with at one value only, and that value."""


def in_the_way_of_offloading(settings: Callable[[str], object]) -> tuple[str, object, object] | None:
    """Return the first setting that native offloading is not simulated with, its value and the required one.

    ``settings``: the value of each by name.
    """
    for name, needed in WITHOUT_NATIVE_OFFLOADING:
        value = settings(name)
        if value != needed and (name, value) != ("batching", "vllm-v0"):
            return name, value, needed
    return None


def check_cadence(config: EngineSettings) -> None:
    """Raise InvalidConfig where an engine that is no rank in step would hold prompts back, which is not simulated."""
    interval, version = config.prefill_schedule_interval, config.vllm_version
    if interval > 1 and rules_of(version).holds_prefills_alone:
        raise InvalidConfig(
            f"prefill_schedule_interval: got {interval} with vllm_version {version}, expected 1, or ranks in step "
            "(lockstep): from 0.33 on vLLM holds prompts back in an engine alone, which is not simulated"
        )


def _check_offloading(config: EngineSettings) -> None:
    """Raise InvalidConfig on times that are not valid, or settings that native offloading is not simulated with."""
    for name in ("kv_load_us_per_block", "kv_store_us_per_block"):
        value = getattr(config, name)
        if not isinstance(value, int | float) or not 0 <= value <= MOST_BLOCK_US:
            raise InvalidConfig(f"{name}: got {value!r}, expected a number in [0, {MOST_BLOCK_US:,}] µs")
    if config.kv_offloading == "blis" or config.num_cpu_blocks == 0:
        return
    if config.kv_offloading == "shared" and config.kv_store_threshold > 1:
        raise InvalidConfig(
            f"kv_store_threshold: got {config.kv_store_threshold} with kv_offloading shared, expected 0: offers are "
            "not counted across instances"
        )
    if config.kv_offloading == "shared" and config.num_speculative_tokens:
        raise InvalidConfig(
            "kv_offloading: shared cannot be combined with num_speculative_tokens "
            f"{config.num_speculative_tokens}, expected 0"
        )
    if not has_native_offloading(config.vllm_version):
        raise InvalidConfig(
            f"kv_offloading: got {config.kv_offloading} with vllm_version {config.vllm_version}, expected blis: the "
            "rules of its offloading are not known"
        )
    found = in_the_way_of_offloading(lambda name: getattr(config, name))
    if found is not None:
        name, shown, expected = (str(each).lower() for each in found)
        raise InvalidConfig(
            f"kv_offloading: {config.kv_offloading} cannot be combined with {name} {shown}, expected {expected}"
        )


def _check_groups(config: EngineSettings) -> None:
    """Raise InvalidConfig on groups that vLLM would refuse, or that are not simulated with the other settings."""
    groups = config.kv_cache_groups
    _check_retention(config)
    fault = fault_of_version(
        config.vllm_version,
        groups,
        Beside(
            caches_prefixes=config.enable_prefix_caching,
            use_eagle=config.use_eagle,
            num_speculative_tokens=config.num_speculative_tokens,
            ahead=config.num_prefill_lookahead_tokens,
            interval=config.prefix_cache_retention_interval,
            block_size=config.block_size,
        ),
    )
    if fault is not None:
        raise InvalidConfig(f"{fault[0]}: {fault[1]}")
    if config.prefix_match_unit is not None:
        _check_match_unit(config)
    if not groups:
        return
    fault = faults_of(groups, block_size=config.block_size, caches_prefixes=config.enable_prefix_caching)
    fault = fault or fault_of_drafts(
        groups,
        sizes_of(groups, block_size=config.block_size, max_model_len=config.max_model_len),
        use_eagle=config.use_eagle,
        caches_prefixes=config.enable_prefix_caching,
        ahead=config.num_prefill_lookahead_tokens,
    )
    if fault is not None:
        raise InvalidConfig(f"{fault[0]}: {fault[1]}")
    if config.disable_chunked_mm_input and any(group.mode == "align" for group in groups):
        raise InvalidConfig(
            "disable_chunked_mm_input: got true with states in mode align, expected false: vLLM cannot do both"
        )
    for name, off in WITH_ONE_GROUP_ONLY:
        value = getattr(config, name)
        if value != off:
            raise InvalidConfig(
                f"kv_cache_groups: groups cannot be combined with {name} {value}, expected {off}"
            )
    if config.has_blis_tier:
        raise InvalidConfig(
            f"kv_cache_groups: groups cannot be combined with num_cpu_blocks {config.num_cpu_blocks} and "
            "kv_offloading blis, expected native"
        )


def _check_retention(config: EngineSettings) -> None:
    """Raise InvalidConfig on an interval that vLLM would refuse (v1/core/kv_cache_coordinator.py)."""
    interval = config.prefix_cache_retention_interval
    is_number = isinstance(interval, int) and not isinstance(interval, bool)
    if interval is not None and not (is_number and 0 <= interval <= MOST_TOKENS):
        raise InvalidConfig(
            f"prefix_cache_retention_interval: got {interval!r}, expected an integer from 0 to {MOST_TOKENS:,}, or none"
        )
    if not interval or not config.kv_cache_groups:
        return
    sizes = sizes_of(config.kv_cache_groups, block_size=config.block_size, max_model_len=config.max_model_len)
    alignment, _ = alignment_of(sizes)
    if interval % alignment != 0:
        raise InvalidConfig(
            f"prefix_cache_retention_interval: got {interval}, expected a multiple of {alignment} tokens, where "
            "prefix hits of all KV cache groups end"
        )
    if all(group.kind in ("full", "chunked") for group in config.kv_cache_groups):
        raise InvalidConfig(
            f"prefix_cache_retention_interval: got {interval} without a sliding or state group, expected 0: it is of "
            "these alone"
        )


def _check_match_unit(config: EngineSettings) -> None:
    """Raise InvalidConfig on a unit that vLLM would refuse, or that is not simulated with what stands beside it.

    vllm 0.32.0 v1/core/kv_cache_utils.py:resolve_kv_cache_block_sizes. Without prefix caching vLLM takes no notice.
    """
    unit = config.prefix_match_unit
    if isinstance(unit, bool) or not isinstance(unit, int) or not 1 <= unit <= MOST_TOKENS:
        raise InvalidConfig(
            f"prefix_match_unit: got {unit!r}, expected an integer from 1 to {MOST_TOKENS:,}, or none"
        )
    if not config.enable_prefix_caching:
        return
    sizes = config.group_block_sizes or [config.block_size]
    if len(sizes) == 1 and unit != sizes[0]:
        raise InvalidConfig(
            f"prefix_match_unit: got {unit} with one KV cache group, expected {sizes[0]}, or none: its prefix hits end "
            "where blocks end"
        )
    if any(size % unit != 0 for size in sizes):
        raise InvalidConfig(
            f"prefix_match_unit: got {unit} with KV cache groups of {sizes} tokens per block, expected a divisor of all"
        )
    if unit == alignment_of(sizes)[1]:  # as if nothing were said
        return
    if not rules_of(config.vllm_version).has_known_match_units:
        raise InvalidConfig(
            f"prefix_match_unit: got {unit} with vllm_version {config.vllm_version}, expected none: its rules of hits "
            "inside blocks are not simulated"
        )
    aligns_states = any(group.mode == "align" for group in config.kv_cache_groups)
    if config.num_prefill_lookahead_tokens > 1:
        raise InvalidConfig(
            f"prefix_match_unit: got {unit} with num_prefill_lookahead_tokens {config.num_prefill_lookahead_tokens}, "
            "expected 0 or 1: hits inside blocks are not simulated with several MTP modules"
        )
    if config.drops_blocks_for_drafts and aligns_states and not config.matches_inside_blocks:
        raise InvalidConfig(
            f"prefix_match_unit: got {unit} with use_eagle true and a window or a chunk beside states, expected none: "
            "not simulated"
        )
    if config.has_native_offloading:
        raise InvalidConfig(
            f"prefix_match_unit: got {unit} with kv_offloading {config.kv_offloading}, expected none: what host memory "
            "has inside blocks is not simulated"
        )


def _check_added_time(config: EngineSettings) -> None:
    """Raise InvalidConfig on times that are not valid, or a factor that makes steps shorter."""
    for name, least in (
        ("guided_mask_us", 0),
        ("draft_us", 0),
        ("encoder_step_us", 0),
        ("encoder_token_us", 0),
        ("encoder_token_pair_us", 0),
        ("launch_us", 0),
        ("host_step_us", 0),
        ("host_prefill_us", 0),
        ("lora_step_factor", 1),
    ):
        value = getattr(config, name)
        if not isinstance(value, int | float) or not least <= value < math.inf:
            raise InvalidConfig(f"{name}: got {value!r}, expected a number >= {least}")


WITHOUT_SESSION_KV: tuple[tuple[str, object], ...] = (
    ("enable_prefix_caching", True),
    ("kv_cache_groups", ()),
    ("num_cpu_blocks", 0),
    ("batching", "vllm"),
    ("compatibility", "vllm"),
)
"""Settings that pinned KV is simulated with, each at one value only."""


def _check_session_kv(config: EngineSettings) -> None:
    """Raise InvalidConfig on settings that pinned KV is not simulated with."""
    if config.session_kv_ttl_us == 0:
        return
    for name, needed in WITHOUT_SESSION_KV:
        value = getattr(config, name)
        if value != needed:
            shown, expected = (
                f"{len(each)} groups" if isinstance(each, tuple) else str(each).lower()
                for each in (value, needed)
            )
            raise InvalidConfig(
                f"session_kv_ttl_us: cannot be combined with {name} {shown}, expected {expected}"
            )


def _check_blis(config: EngineSettings) -> None:
    """Raise InvalidConfig on settings that the peer does not have."""
    if config.async_scheduling:
        raise InvalidConfig("async_scheduling: got true with compatibility blis, expected false: it has none")
    if config.num_speculative_tokens:
        raise InvalidConfig(
            f"num_speculative_tokens: got {config.num_speculative_tokens} with compatibility blis, expected 0: "
            "it has no speculative decoding"
        )


def _check_batching(config: EngineSettings) -> None:
    """Raise InvalidConfig on settings that a scheduler other than vLLM's does not have, or is not simulated with."""
    if config.batching == "vllm":
        return
    is_v0 = config.batching == "vllm-v0"
    for name, off in (
        ("async_scheduling", False),
        ("enable_prefix_caching", False),
        ("pipeline_parallel_size", 1),
        ("num_speculative_tokens", 0),
        ("long_prefill_token_threshold", 0),
        ("num_cpu_blocks", 0),
        ("max_loras", 0),
        ("scheduling_policy", "fcfs"),
        ("compatibility", "vllm"),
        *((("enable_chunked_prefill", False), ("scheduler_reserve_full_isl", True)) if is_v0 else ()),
    ):
        value = getattr(config, name)
        has = name == "enable_prefix_caching" or (name, config.kv_offloading) == ("num_cpu_blocks", "native")
        if value != off and not (is_v0 and has):
            shown, expected = (str(each).lower() for each in (value, off))
            raise InvalidConfig(f"{name}: got {shown} with batching {config.batching}, expected {expected}")
    if config.batching == "sarathi" and not config.enable_chunked_prefill:
        raise InvalidConfig("enable_chunked_prefill: got false with batching sarathi, expected true")
