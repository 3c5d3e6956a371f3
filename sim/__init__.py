"""The simulator: requests in, outcomes out. Pure: no files, no wall clock in its results, no logging.

>>> from sim import Blackbox, EngineConfig, simulate          # doctest: +SKIP
>>> simulate(requests, EngineConfig(), Blackbox(beta0=6000, beta1=20, beta2=30))

``EngineConfig`` names vLLM's settings, ``Requests`` and ``Outcomes`` are columns, ``simulate`` runs to the end,
``Engine`` can be paused and inspected.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.config import (
        UNBOUNDED,
        Compatibility,
        EngineConfig,
        InvalidConfig,
        Record,
    )
    from sim.engine.run_variants import RUN_VARIANTS, RunVariant
    from sim.engine.state import State, rows_taken
    from sim.engine_ready import compile_engine, is_compiled, needed_variant, when_compiled
    from sim.engine_settings import EngineSettings, KVOffloading
    from sim.held_blocks import HeldBlocks
    from sim.kv_cache_groups import (
        WITH_ONE_GROUP_ONLY,
        GroupKind,
        KVCacheGroup,
        StateMode,
        faults_of,
        without_checkpoints,
        without_eagle_marks,
    )
    from sim.latency import (
        Blackbox,
        Extended,
        LatencyModel,
        PeakTimes,
        Physics,
        Profiled,
        Roofline,
        StepBatch,
    )
    from sim.latency.latency_model import TABULATED
    from sim.latency.tabulated import StepTable
    from sim.records.histograms import Histogram
    from sim.records.itl import InterTokenLatencies
    from sim.records.run_results import EngineRecord, Totals, View, step_times_of
    from sim.records.stack_distances import count_distances
    from sim.records.steps import Step, batch_of_steps
    from sim.requests import UNKNOWN_LIMIT, Images, Int64s, Outcomes, Requests, Status
    from sim.resumable import Engine
    from sim.setting_faults import in_the_way_of_offloading
    from sim.simulation import Simulation, Simulator, simulate
    from sim.versions import (
        DEFAULT_VERSION,
        KNOWN_VERSIONS,
        VersionRules,
        engine_defaults,
        has_known_drafts,
        has_native_offloading,
        is_known,
        minor_version,
        nearest_rules,
        rules_of,
        values_by_version,
    )

__all__ = [
    "DEFAULT_VERSION",
    "KNOWN_VERSIONS",
    "RUN_VARIANTS",
    "TABULATED",
    "UNBOUNDED",
    "UNKNOWN_LIMIT",
    "WITH_ONE_GROUP_ONLY",
    "Blackbox",
    "Compatibility",
    "Engine",
    "EngineConfig",
    "EngineRecord",
    "EngineSettings",
    "Extended",
    "GroupKind",
    "HeldBlocks",
    "Histogram",
    "Images",
    "Int64s",
    "InterTokenLatencies",
    "InvalidConfig",
    "KVCacheGroup",
    "KVOffloading",
    "LatencyModel",
    "Outcomes",
    "PeakTimes",
    "Physics",
    "Profiled",
    "Record",
    "Requests",
    "Roofline",
    "RunVariant",
    "Simulation",
    "Simulator",
    "State",
    "StateMode",
    "Status",
    "Step",
    "StepBatch",
    "StepTable",
    "Totals",
    "VersionRules",
    "View",
    "batch_of_steps",
    "compile_engine",
    "count_distances",
    "engine_defaults",
    "faults_of",
    "has_known_drafts",
    "has_native_offloading",
    "in_the_way_of_offloading",
    "is_compiled",
    "is_known",
    "minor_version",
    "nearest_rules",
    "needed_variant",
    "rows_taken",
    "rules_of",
    "simulate",
    "step_times_of",
    "values_by_version",
    "when_compiled",
    "without_checkpoints",
    "without_eagle_marks",
]

_HOMES = {
    "StepTable": "sim.latency.tabulated",
    "TABULATED": "sim.latency.latency_model",
    "Blackbox": "sim.latency",
    "Compatibility": "sim.config",
    "DEFAULT_VERSION": "sim.versions",
    "Engine": "sim.resumable",
    "EngineConfig": "sim.config",
    "EngineSettings": "sim.engine_settings",
    "EngineRecord": "sim.records.run_results",
    "Extended": "sim.latency",
    "GroupKind": "sim.kv_cache_groups",
    "HeldBlocks": "sim.held_blocks",
    "Histogram": "sim.records.histograms",
    "Images": "sim.requests",
    "Int64s": "sim.requests",
    "InterTokenLatencies": "sim.records.itl",
    "InvalidConfig": "sim.config",
    "KNOWN_VERSIONS": "sim.versions",
    "KVCacheGroup": "sim.kv_cache_groups",
    "KVOffloading": "sim.engine_settings",
    "LatencyModel": "sim.latency",
    "Outcomes": "sim.requests",
    "PeakTimes": "sim.latency",
    "Physics": "sim.latency",
    "Profiled": "sim.latency",
    "Record": "sim.config",
    "Requests": "sim.requests",
    "Roofline": "sim.latency",
    "Simulation": "sim.simulation",
    "Simulator": "sim.simulation",
    "State": "sim.engine.state",
    "StateMode": "sim.kv_cache_groups",
    "Status": "sim.requests",
    "Step": "sim.records.steps",
    "batch_of_steps": "sim.records.steps",
    "StepBatch": "sim.latency",
    "Totals": "sim.records.run_results",
    "UNBOUNDED": "sim.config",
    "UNKNOWN_LIMIT": "sim.requests",
    "View": "sim.records.run_results",
    "compile_engine": "sim.engine_ready",
    "engine_defaults": "sim.versions",
    "faults_of": "sim.kv_cache_groups",
    "without_checkpoints": "sim.kv_cache_groups",
    "without_eagle_marks": "sim.kv_cache_groups",
    "VersionRules": "sim.versions",
    "WITH_ONE_GROUP_ONLY": "sim.kv_cache_groups",
    "is_compiled": "sim.engine_ready",
    "needed_variant": "sim.engine_ready",
    "when_compiled": "sim.engine_ready",
    "RUN_VARIANTS": "sim.engine.run_variants",
    "RunVariant": "sim.engine.run_variants",
    "has_known_drafts": "sim.versions",
    "has_native_offloading": "sim.versions",
    "in_the_way_of_offloading": "sim.setting_faults",
    "is_known": "sim.versions",
    "minor_version": "sim.versions",
    "nearest_rules": "sim.versions",
    "rows_taken": "sim.engine.state",
    "rules_of": "sim.versions",
    "count_distances": "sim.records.stack_distances",
    "simulate": "sim.simulation",
    "step_times_of": "sim.records.run_results",
    "values_by_version": "sim.versions",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'sim' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
