"""Every key of TWIN.yaml, once: the reader and the writer use this table, and the reference page is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from functools import lru_cache
from typing import get_args, get_type_hints

from replay.twin.fitted.fitted_on import FittedOn
from replay.twin.fitted.fitted_range import FittedRange
from replay.twin.fitted.held_out import HeldOut
from replay.twin.fitted.pace import Pace
from replay.twin.hardware import Checkpoint
from replay.twin.keys.cluster_keys import cluster_keys
from replay.twin.keys.engine_meanings import FOLLOWING
from replay.twin.keys.hardware_keys import hardware_keys
from replay.twin.keys.key import Holders, Key, Kind, keys_of
from replay.twin.keys.latency_keys import LATENCY
from replay.twin.kv_cache.groups import GROUP_KEYS
from replay.twin.kv_cache.match_unit import UNIT, UNIT_KEY
from replay.twin.kv_cache.retention_interval import INTERVAL, RETENTION_KEY
from replay.twin.recorded_coefficients import Wanted
from sim import DEFAULT_VERSION, KNOWN_VERSIONS, EngineConfig
from sim.latency import LATENCY_CLASSES

RULES_VERSION = DEFAULT_VERSION
"""The vLLM version whose scheduling rules the engine follows if a file names none."""

DEFAULT_SEED = 42
VERSION = "vllm_version"


_TYPES: Mapping[str, Kind] = {
    "int": "integer",
    "bool": "boolean",
    "float": "number",
    "tuple[float, ...]": "numbers",
}


@lru_cache(maxsize=1)
def engine_keys() -> tuple[Key, ...]:
    """Return the keys of the ``engine`` section, in the order of sim.EngineConfig."""
    hints = get_type_hints(EngineConfig)
    return tuple(_engine_key(field, hints[field.name]) for field in engine_fields())


OUTSIDE_ENGINE = ("seed", "compatibility", "vllm_version", "kv_cache_groups", INTERVAL, UNIT)
"""Fields of sim.EngineConfig that stand at the top, or have keys of their own: those of groups."""


def engine_fields() -> tuple[Field[object], ...]:
    """Return the fields of sim.EngineConfig that the ``engine`` section has, each as one scalar or list of numbers."""
    return tuple(field for field in fields(EngineConfig) if field.name not in OUTSIDE_ENGINE)


def _engine_key(field: Field[object], hint: object) -> Key:
    said = field.metadata["said"]
    default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    default = "none" if field.default == () else default
    least = 2 if field.name == "num_gpu_blocks" else said.least or 0  # 0, "unbounded", is for absence only
    return Key(
        path=f"engine.{field.name}",
        kind="fraction" if field.name == "watermark" else _TYPES.get(str(field.type), "choice"),
        default=FOLLOWING.get(field.name, default),
        meaning=said.meaning,
        choices=() if str(field.type).startswith("tuple") else get_args(hint),
        least=least if field.type == "int" else 0,
    )


def latency_keys() -> tuple[Key, ...]:
    """Return the keys of ``latency``, as what holds their values has them."""
    holders: Holders = {
        "": (Checkpoint,),
        "coefficients": tuple(LATENCY_CLASSES.values()),
        "fitted_range": (FittedRange,),
        "pace": (Pace,),
        "held_out": (HeldOut,),
        "fitted_on": (FittedOn,),
        "defaults": (Wanted,),
    }
    return keys_of("latency", LATENCY, holders)


TOP_KEYS: tuple[Key, ...] = (
    Key(
        path="vllm_version",
        kind="text",
        default=RULES_VERSION,
        meaning=f"The server's version, {KNOWN_VERSIONS}: its scheduling rules and defaults hold.",
    ),
    Key(
        path="compatibility",
        kind="choice",
        default="vllm",
        meaning="Whose scheduler to follow where the two differ; docs/explanation/policies.md lists where. `blis` has "
        "no async scheduling.",
        choices=("vllm", "blis"),
    ),
    Key(path="seed", kind="integer", default=str(DEFAULT_SEED), meaning="Seed of everything that is random."),
)

FOREIGN_NAMES: Mapping[str, str] = {
    "total_kv_blocks": "engine.num_gpu_blocks",
    "num_gpu_blocks_override": "engine.num_gpu_blocks",
    "block_size_in_tokens": "engine.block_size",
    "max_num_running_reqs": "engine.max_num_seqs",
    "max_num_scheduled_tokens": "engine.max_num_batched_tokens",
    "policy": "engine.scheduling_policy",
    "scheduler": "engine.scheduling_policy",
    "coefficients": "latency.coefficients",
    "alpha_coeffs": "latency.coefficients",
    "beta_coeffs": "latency.coefficients",
}
"""Other tools' names of these keys, for the hint of an unknown key."""


@lru_cache(maxsize=1)
def all_keys() -> tuple[Key, ...]:
    """Return every key in the order of the file."""
    top = {key.path: key for key in TOP_KEYS}
    return (
        top["vllm_version"],
        top["compatibility"],
        *engine_keys(),
        *GROUP_KEYS,
        RETENTION_KEY,
        UNIT_KEY,
        *latency_keys(),
        *hardware_keys(),
        *cluster_keys(),
        top["seed"],
    )
