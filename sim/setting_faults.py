"""Which engine settings are refused, alone and in combination: the first that an engine cannot run with is named."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import get_args

from sim.engine_settings import EngineSettings, said_of
from sim.features.core_engine import check_core
from sim.features.kv_groups import check_groups, check_retention
from sim.features.offloading import check_offloading, check_tier, in_the_way_of_offloading
from sim.features.other_schedulers import check_batching, check_blis
from sim.features.pipeline_stage_settings import check_stages
from sim.features.ranks_in_step import check_cadence_alone
from sim.features.session_pins import check_session_kv
from sim.features.setting import InvalidConfig
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
"""Of a time that is added to a step, or to a token in it."""


def check_each(config: EngineSettings) -> None:
    """Raise InvalidConfig on a setting that is not valid, whatever the others are."""
    for field in fields(config):
        if field.type == "bool" and not isinstance(getattr(config, field.name), bool):
            raise InvalidConfig(f"{field.name}: got {getattr(config, field.name)!r}, expected true or false")
        if field.type == "int":
            _check_integer(field.name, getattr(config, field.name))
        if field.type == "float" and field.name.endswith("_us"):
            _check_time(field.name, getattr(config, field.name))
    check_core(config)
    for field in fields(config):
        choices = get_args(said_of(field.name).choices)
        value = getattr(config, field.name)
        if choices and value not in choices:
            raise InvalidConfig(f"{field.name}: got {value!r}, expected one of {', '.join(choices)}")


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


def _check_integer(name: str, value: object) -> None:
    """Raise InvalidConfig on a value that is no integer, or too small or too large."""
    said = said_of(name)
    low = said.least or 0
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InvalidConfig(f"{name}: got {value!r}, expected an integer >= {low}")
    if value > said.most:
        raise InvalidConfig(f"{name}: got {value!r}, expected an integer of at most {said.most:,}")


def _check_time(name: str, value: object) -> None:
    """Raise InvalidConfig on a time that is too long."""
    if isinstance(value, int | float) and value > MOST_ADDED_US:
        raise InvalidConfig(f"{name}: got {value!r}, expected at most {MOST_ADDED_US:,} µs")


def _check_version(config: EngineSettings) -> None:
    """Raise InvalidConfig on a version that is not known, or a setting that it does not know."""
    version = config.vllm_version
    if not is_known(version):
        raise InvalidConfig(f"vllm_version: got {version!r}, expected {KNOWN_VERSIONS}")
    rules = rules_of(version)
    for field in fields(config):
        value, rule = getattr(config, field.name), said_of(field.name).known_by
        if rule and value and not getattr(rules, rule):
            shown, off = str(value).lower(), "false" if field.type == "bool" else "0"
            raise InvalidConfig(f"{field.name}: got {shown}, expected {off}: vLLM {version} does not have it")


def _check_added_time(config: EngineSettings) -> None:
    """Raise InvalidConfig on times that are not valid, or a factor that makes steps shorter."""
    bounds = {each.name: said_of(each.name).least for each in fields(config) if each.type == "float"}
    for name, least in bounds.items():
        value = getattr(config, name)
        if least is not None and (not isinstance(value, int | float) or not least <= value < math.inf):
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
