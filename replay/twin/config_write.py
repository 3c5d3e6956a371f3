"""A configuration written as TWIN.yaml, every key filled in: what a fit saves and ``config show`` prints."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import TYPE_CHECKING

from replay.twin.cluster_section import cluster_lines
from replay.twin.config_keys import engine_fields
from replay.twin.defaults import COEFFICIENTS, USUALLY_ZERO
from replay.twin.defaults_write import number, quoted
from replay.twin.drafts import TIME
from replay.twin.fitted.fitted_tiles import tiles_lines
from replay.twin.hardware import peak_lines
from replay.twin.kv_cache.groups import GROUPS, groups_text
from replay.twin.kv_cache.match_unit import UNIT
from replay.twin.kv_cache.retention_interval import ALL, INTERVAL
from replay.twin.own.custom_model import place_of
from sim import UNBOUNDED, EngineConfig
from sim.latency import LATENCY_CLASSES, VIDURS, Fitting, LatencyModel

if TYPE_CHECKING:
    from collections.abc import Collection

    from replay.twin.twin_config import TwinConfig


def dump_config(config: TwinConfig, *, assumed: Collection[str] = ()) -> str:
    """Return a configuration as TWIN.yaml text, every key that counts written out; loading it gives an equal one.

    ``assumed``: keys of ``engine`` that become comments, so that an assumption does not come back as a setting.
    """
    lines = [
        f"vllm_version: {quoted(config.vllm_version)}",
        f"compatibility: {config.compatibility}",
        *_server_lines(config.engine, config.latency, assumed=assumed),
        *(config.fitted.lines() if config.fitted is not None and not config.fitted.is_empty() else ()),
        *(config.pace.lines() if config.pace is not None else ()),
        *(config.held_out.lines() if config.held_out is not None else ()),
        *(config.fitted_on.lines() if config.fitted_on is not None else ()),
        *(() if config.is_plain_server else cluster_lines(config.cluster, _server_lines)),
        f"seed: {config.seed}",
    ]
    return "\n".join(lines) + "\n"


def _server_lines(engine: EngineConfig, latency: LatencyModel, *, assumed: Collection[str] = ()) -> list[str]:
    """Return one server's ``engine`` and ``latency``."""
    names = [item.name for item in engine_fields() if not _is_open(item.name, engine)]
    given = {name: f"{name}: {_scalar(getattr(engine, name))}" for name in names}
    settings = [f"  # {line}  (assumed)" if name in assumed else f"  {line}" for name, line in given.items()]
    settings.append(f"  {GROUPS}: {groups_text(engine.kv_cache_groups)}")
    if engine.kv_cache_groups:
        interval = engine.prefix_cache_retention_interval
        settings.append(f"  {INTERVAL}: {ALL if interval is None else interval}")
        if engine.prefix_match_unit is not None:
            settings.append(f"  {UNIT}: {engine.prefix_match_unit}")
    return ["engine:", *settings, "latency:", f"  model: {name_of(latency)}", *_latency_lines(latency)]


def _is_open(name: str, engine: EngineConfig) -> bool:
    """Return whether a key is left out: a cache without a limit, and a draft's time without drafts.

    Otherwise drafts that are switched on later would be free, as if that had been measured.
    """
    if name == TIME:
        return engine.num_speculative_tokens == 0 and engine.draft_us == 0
    return name == "num_gpu_blocks" and engine.num_gpu_blocks == UNBOUNDED


def name_of(latency: LatencyModel) -> str:
    """Return the name that TWIN.yaml gives a latency model."""
    names = {model: name for name, model in LATENCY_CLASSES.items()}
    return names.get(type(latency)) or quoted(place_of(type(latency)))


def _latency_lines(latency: LatencyModel) -> list[str]:
    """Return the latency section's keys other than the model's name."""
    table, peak = latency.table_file, getattr(latency, "peak", None)
    own = {name: getattr(latency, name) for name in latency.coefficient_names() if name not in COEFFICIENTS}
    if latency.fitting is Fitting.FREELY:
        own = {name: float(value) for name, value in own.items()}
    return [
        *(() if table is None else (f"  table: {quoted(table)}",)),
        "  coefficients:",
        *(f"    {name}: {number(value)}" for name, value in coefficients_of(latency).items()),
        *(f"    {name}: {value!r}" for name, value in own.items() if value or name not in VIDURS),
        *tiles_lines(latency.tile_factors),
        *(() if peak is None else peak_lines(peak)),
    ]


def config_digest(config: TwinConfig) -> str:
    """Return a digest of a configuration, the same for every way of writing its file."""
    digest = hashlib.sha256(dump_config(config).encode())
    if config.latency.table_file is not None:  # its file may change under the same name
        digest.update(config.latency.engine_terms().tobytes())
    return digest.hexdigest()[:16]


def coefficients_of(latency: LatencyModel) -> dict[str, Decimal]:
    """Return a blackbox's coefficients in µs, exact, less what is usually 0 and is; of another model what it has."""
    values = {name: getattr(latency, name) for name in COEFFICIENTS if hasattr(latency, name)}
    exact = {name: Decimal(repr(v) if isinstance(v, float) else v) for name, v in values.items()}
    return {name: value for name, value in exact.items() if value or name not in USUALLY_ZERO}


def _scalar(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(repr, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
