"""A second tier of the KV cache in host memory: vLLM's own, a store of all instances, or the peer's."""

from __future__ import annotations

import math
from collections.abc import Callable
from lazy_dataclasses import dataclass
from typing import Literal

from sim.features.setting import AllSettings, InvalidConfig, setting, since

KVOffloading = Literal["native", "shared", "blis"]

FIRST_WITH_KNOWN_OFFLOADING = 31
"""From 0.N on ``--kv-offloading-size`` is simulated by a version's own rules, as recorded. Before, requests that wait
for what they load stand in one queue with those that are asked again, and a content counts as used when a request that
has it is asked about (sched/scheduler.py: skipped_waiting, distributed/kv_transfer/kv_connector/v1/offloading)."""

MOST_BLOCK_US = 1_000_000
"""The longest that a block may take between GPU and host memory: the engine counts 10⁻⁶ µs in 64 bits."""


WITHOUT_NATIVE_OFFLOADING: tuple[tuple[str, str | int | bool], ...] = (
    ("enable_prefix_caching", True),
    ("pipeline_parallel_size", 1),
    ("batching", "vllm"),
    ("compatibility", "vllm"),
)
"""Settings that native offloading is simulated with at one value only, and that value."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class TierSize:
    """It stays empty where nothing can be evicted: unbounded, or without caching."""

    __slots__ = ()

    num_cpu_blocks: int = setting(
        0,
        "KV cache blocks of a second tier in host memory; 0: none. `hardware.kv_offloading_size` says "
        "it in GiB.",
        most=100_000_000,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class TierSettings:
    """How blocks go to the second tier, and come back.

    Native: ``sim/engine/kv_offload``; blis: ``sim/engine/kv_cache/cpu_tier.py``.
    """

    __slots__ = ()

    kv_offloading: KVOffloading = setting(
        "blis",
        "Whose rules that tier follows. `native`: vLLM's `--kv-offloading-size`: blocks of prompts are "
        "copied there once computed (from 0.31 on, without stages). `shared`: likewise, to "
        "one store of all instances. `blis`: blocks go there when the GPU's cache evicts them.",
        choices=KVOffloading,
    )
    kv_load_us_per_block: float = setting(
        0.0,
        "Native: µs that a block takes from host memory to the GPU; `hardware.kv_offload_gb_per_s` "
        "says it in GB/s.",
    )
    kv_store_us_per_block: float = setting(
        0.0, "Native: µs that a block takes from the GPU to host memory; likewise."
    )
    kv_store_threshold: int = setting(
        0,
        "Native: how often a block must be offered before it is stored, as vLLM's "
        "`store_threshold`; 0 and 1: at once.",
    )
    kv_offload_threshold: float = setting(
        0.9, "blis: share of the GPU's blocks in use above which evicted contents go to that tier."
    )
    kv_transfer_bandwidth: float = setting(
        100.0, "blis: tokens per µs that come back; `hardware.kv_offload_gb_per_s` says it in GB/s."
    )
    kv_transfer_base_latency: int = setting(
        0, "blis: µs that each block's way back takes in addition.", most=10**9
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class OffloadRules:
    """What versions do with host memory (v1/kv_offload/cpu/policies/lru.py, kv_connector/v1/offloading).

    - ``gives_up_by_place``: what a request uses of host memory while it runs counts as one use, at its first one, and
      its last block goes first; before, each content counted by when it was stored (from 0.33.0).
    - ``offers_again``: what a request has is offered anew each time that host memory is asked for it (from 0.33.0).
    """

    __slots__ = ()

    gives_up_by_place: bool = since(33)
    offers_again: bool = since(33)


def check_tier(config: AllSettings) -> None:
    """Raise InvalidConfig on a threshold that is not a share, or a bandwidth that is not above 0."""
    if not 0 <= config.kv_offload_threshold <= 1:
        raise InvalidConfig(
            f"kv_offload_threshold: got {config.kv_offload_threshold!r}, expected a fraction in [0, 1]"
        )
    if not (config.kv_transfer_bandwidth > 0 and math.isfinite(config.kv_transfer_bandwidth)):
        raise InvalidConfig(
            f"kv_transfer_bandwidth: got {config.kv_transfer_bandwidth!r}, expected a number > 0"
        )


def in_the_way_of_offloading(settings: Callable[[str], object]) -> tuple[str, object, object] | None:
    """Return the first setting that native offloading is not simulated with, its value and the required one.

    ``settings``: the value of each by name.
    """
    for name, needed in WITHOUT_NATIVE_OFFLOADING:
        value = settings(name)
        if value != needed and (name, value) != ("batching", "vllm-v0"):
            return name, value, needed
    return None


def check_offloading(config: AllSettings, *, is_known: bool) -> None:
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
    if not is_known:
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
