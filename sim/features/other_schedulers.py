"""Which scheduler is followed: vLLM's, or for comparison another's (``batching.py``, ``blis.py``)."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Literal

from sim.features.setting import AllSettings, InvalidConfig, setting

Batching = Literal["vllm", "orca", "sarathi", "static", "vllm-v0"]
Compatibility = Literal["vllm", "blis"]


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class BatchingSettings:
    """Which requests are put into a batch."""

    __slots__ = ()

    batching: Batching = setting(
        "vllm",
        "Which requests are put into a batch: by vLLM's rule, or for comparison by that of Orca, "
        "Sarathi-Serve or static batching (docs/explanation/batching.md), which have no async scheduling and no prefix "
        "cache; `vllm-v0`: vLLM's first engine without chunked prefill.",
        choices=Batching,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class CompatibilitySettings:
    """Whether the peer's deviations are taken on."""

    __slots__ = ()

    compatibility: Compatibility = setting("vllm", choices=Compatibility)


def check_batching(config: AllSettings) -> None:
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


def check_blis(config: AllSettings) -> None:
    """Raise InvalidConfig on settings that the peer does not have."""
    if config.compatibility != "blis":
        return
    if config.async_scheduling:
        raise InvalidConfig("async_scheduling: got true with compatibility blis, expected false: it has none")
