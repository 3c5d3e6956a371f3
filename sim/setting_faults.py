"""Which engine settings are refused, alone and in combination: the first that an engine cannot run with is named."""

from __future__ import annotations

import math
from typing import get_args

from sim.engine_settings import KINDS, SAID, EngineSettings
from sim.features.core_engine import check_core
from sim.features.kv_groups import check_groups, check_retention
from sim.features.offloading import check_offloading, check_tier, in_the_way_of_offloading
from sim.features.other_schedulers import check_batching, check_blis
from sim.features.pipeline_stage_settings import check_stages
from sim.features.ranks_in_step import check_cadence_alone
from sim.features.session_pins import check_session_kv
from sim.features.setting import InvalidConfig, Said
from sim.features.speculative_decoding import (
    check_drafts,
    check_drafts_beside_blis,
    check_drafts_beside_stages,
    check_drafts_beside_store,
)
from sim.version_groups import Beside, fault_of_version
from sim.versions import KNOWN_VERSIONS, has_native_offloading, is_known, rules_of

__all__ = ["InvalidConfig", "in_the_way_of_offloading"]

MOST_ADDED_US = 1_000_000_000
"""The longest time that may be added to a step, or to a token in it."""


_FLAGS = tuple(name for name, kind in KINDS.items() if kind == "bool")

_INTEGERS = tuple((name, SAID[name]) for name, kind in KINDS.items() if kind == "int")

_TIMES = tuple(name for name, kind in KINDS.items() if kind == "float" and name.endswith("_us"))

_LEAST = tuple(
    (name, said.least) for name, said in SAID.items() if KINDS[name] == "float" and said.least is not None
)

_WORDS = tuple((name, get_args(said.choices)) for name, said in SAID.items() if said.choices is not None)

_KNOWN_BY = tuple((name, said.known_by) for name, said in SAID.items() if said.known_by)


def check_each(config: EngineSettings) -> None:
    """Raise InvalidConfig on a setting that is not valid, whatever the others are."""
    for name in _FLAGS:
        if not isinstance(getattr(config, name), bool):
            raise InvalidConfig(f"{name}: got {getattr(config, name)!r}, expected true or false")
    for name, said in _INTEGERS:
        _check_integer(name, getattr(config, name), said)
    for name in _TIMES:
        value = getattr(config, name)
        if isinstance(value, int | float) and value > MOST_ADDED_US:
            raise InvalidConfig(f"{name}: got {value!r}, expected at most {MOST_ADDED_US:,} µs")
    check_core(config)
    for name, choices in _WORDS:
        if getattr(config, name) not in choices:
            raise InvalidConfig(
                f"{name}: got {getattr(config, name)!r}, expected one of {', '.join(choices)}"
            )


def check_by_version(config: EngineSettings) -> None:
    """Raise InvalidConfig on a setting that the version does not have, or on drafts and stages that are not valid."""
    _check_version(config)
    check_drafts_beside_stages(config)
    check_stages(config, rules_of(config.vllm_version))
    check_drafts(config)


def check_together(config: EngineSettings) -> None:
    """Raise InvalidConfig on settings that cannot be combined; KV cache groups must be given where they are needed."""
    check_tier(config)
    check_drafts_beside_store(config)
    check_offloading(config, is_known=has_native_offloading(config.vllm_version))
    _check_added_time(config)
    check_session_kv(config)
    check_batching(config)
    check_retention(config)
    _check_groups_of_version(config)
    check_groups(config, rules_of(config.vllm_version))
    check_blis(config)
    check_drafts_beside_blis(config)


def check_cadence(config: EngineSettings) -> None:
    """Raise InvalidConfig where an engine that is no rank in step would hold prompts back, which is not simulated."""
    check_cadence_alone(config, rules_of(config.vllm_version))


def _check_integer(name: str, value: object, said: Said) -> None:
    """Raise InvalidConfig on a value that is no integer, or too small or too large."""
    low = said.least or 0
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InvalidConfig(f"{name}: got {value!r}, expected an integer >= {low}")
    if value > said.most:
        raise InvalidConfig(f"{name}: got {value!r}, expected an integer of at most {said.most:,}")


def _check_version(config: EngineSettings) -> None:
    """Raise InvalidConfig on a version that is not known, or a setting that it does not know."""
    version = config.vllm_version
    if not is_known(version):
        raise InvalidConfig(f"vllm_version: got {version!r}, expected {KNOWN_VERSIONS}")
    rules = rules_of(version)
    for name, rule in _KNOWN_BY:
        value = getattr(config, name)
        if value and not getattr(rules, rule):
            shown, off = str(value).lower(), "false" if KINDS[name] == "bool" else "0"
            raise InvalidConfig(f"{name}: got {shown}, expected {off}: vLLM {version} does not have it")


def _check_added_time(config: EngineSettings) -> None:
    """Raise InvalidConfig on times that are not valid, or a factor that makes steps shorter."""
    for name, least in _LEAST:
        value = getattr(config, name)
        if not isinstance(value, int | float) or not least <= value < math.inf:
            raise InvalidConfig(f"{name}: got {value!r}, expected a number >= {least}")


def _check_groups_of_version(config: EngineSettings) -> None:
    """Raise InvalidConfig on groups that the version of vLLM would refuse."""
    fault = fault_of_version(
        config.vllm_version,
        config.kv_cache_groups,
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
