"""Which parts read each key of TWIN.yaml: run, sweep, tune, capacity and ``--set`` say "no answer" by this table."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, fields

from replay.model.gpus import Gpu
from replay.model.layout import Layout
from replay.twin.fitted.fitted_on import FittedOn
from replay.twin.fitted.held_out import ERRORS, OF_RUNS
from replay.twin.keys.hardware_keys import hardware_keys
from sim.latency import LATENCY_CLASSES

ON_RECORD = "on record"
"""Coefficients that are looked up by ``latency.model_config`` and ``hardware``."""
BY_DEFAULTS = "defaults"
"""Coefficients that are looked up by ``latency.defaults``."""
OWN, OWN_AT_PEAK = "own", "own at peak"
"""A model of the user's own, without and with a field ``peak``."""


def _with_field(name: str) -> tuple[str, ...]:
    """Return the latency models that have a field."""
    return tuple(
        model for model, cls in LATENCY_CLASSES.items() if name in {each.name for each in fields(cls)}
    )


ANALYTIC = _with_field("peak")
WITH_TABLE = _with_field("origin")
AT_PEAK = (*ANALYTIC, OWN_AT_PEAK)
LOOKED_UP = (ON_RECORD, BY_DEFAULTS)
TOWER_TP_MODE = "hardware.mm_encoder_tp_mode"
"""The engine uses it if there is a known vision tower that can share images out."""
KINDS = (*LATENCY_CLASSES, *LOOKED_UP, OWN, OWN_AT_PEAK)
"""Sources of step times: a latency model, and how its coefficients were found."""


@dataclass(frozen=True, slots=True)
class Readers:
    """What reads a key. ``kinds``: latency models whose step times depend on it; ``engine``: the engine does, too.

    ``through_peak``: the step times depend on it through the peak times alone, which ``latency.peak`` replaces.
    """

    kinds: frozenset[str]
    engine: bool = False
    through_peak: bool = False


def _peak(*also: str, engine: bool = False) -> Readers:
    return Readers(frozenset((*AT_PEAK, *also)), engine=engine, through_peak=True)


def _only(*kinds: str) -> Readers:
    return Readers(frozenset(kinds))


_ENGINE = Readers(frozenset(), engine=True)
_ALL = Readers(frozenset(KINDS))
_NO_STEP_TIME = Readers(frozenset())

_OF_STEPS = {each.name for each in (*fields(Layout), *fields(Gpu))}
"""Keys of the hardware that steps depend on: peak times follow from layout and GPU, all else is the engine's."""

READ_BY: Mapping[str, Readers] = {
    **{key.path: _peak() if key.name in _OF_STEPS else _ENGINE for key in hardware_keys()[1:]},
    "hardware.gpu": _peak(ON_RECORD, engine=True),
    "hardware.tp": _peak(ON_RECORD, engine=True),
    "hardware.pp": _peak(engine=True),
    "hardware.dp": _peak(engine=True),
    "hardware.nccl_launch_us": _only(*ANALYTIC),
    "hardware.memory_gib": _ENGINE,
    "latency.model": _ALL,
    "latency.model_config": _peak(ON_RECORD, engine=True),
    "latency.dtype": _peak(engine=True),
    "latency.kv_cache_dtype": _peak(engine=True),
    "latency.mamba_ssm_cache_dtype": _peak(engine=True),
    "latency.quantization": _peak(engine=True),
    "latency.peak": _only(*AT_PEAK),
    "latency.coefficients": _only(*LATENCY_CLASSES, OWN, OWN_AT_PEAK),
    **{
        f"latency.coefficients.{name}": _only(*_with_field(name), OWN, OWN_AT_PEAK)
        for cls in LATENCY_CLASSES.values()
        for name, said in cls.coefficients().items()
        if said.meaning
    },
    "latency.table": _only(*WITH_TABLE),
    "latency.tiles": _only(*_with_field("tiles")),
    **dict.fromkeys((f"latency.pace{name}" for name in ("", ".within", ".beyond")), _NO_STEP_TIME),
    **dict.fromkeys(
        (
            "latency.held_out",
            *(f"latency.held_out.{name}" for name in ("date", "far", *ERRORS, *OF_RUNS)),
        ),
        _NO_STEP_TIME,
    ),
    **dict.fromkeys(
        ("latency.fitted_on", *(f"latency.fitted_on.{each.name}" for each in fields(FittedOn))), _NO_STEP_TIME
    ),
    **dict.fromkeys(
        (
            f"latency.fitted_range{name}"
            for name in ("", ".rate_per_s", ".prompt_tokens", ".output_tokens", ".concurrency")
        ),
        _NO_STEP_TIME,
    ),
    **dict.fromkeys(
        (f"latency.defaults{name}" for name in ("", ".model", ".gpu", ".tp", ".vllm_version")),
        _only(BY_DEFAULTS),
    ),
    "latency.defaults_file": _only(*LOOKED_UP),
    "engine.pipeline_parallel_size": _peak(engine=True),
}
"""The readers of each key that affects step times or memory; every other key is read by the engine or the cluster with
any latency model."""

NEEDS: Mapping[str, str] = {
    "engine.draft_us": "num_speculative_tokens",
    **dict.fromkeys(
        ("engine.kv_offload_threshold", "engine.kv_transfer_bandwidth", "engine.kv_transfer_base_latency"),
        "num_cpu_blocks",
    ),
    "engine.kv_offloading": "num_cpu_blocks",
    **dict.fromkeys(
        ("engine.kv_load_us_per_block", "engine.kv_store_us_per_block", "engine.kv_store_threshold"),
        "kv_offloading",
    ),
    "engine.priority_age_weight": "priority_scoring",
    "engine.priority_scoring": "priority_age_weight",
    "engine.enforce_eager": "launch_us",
    "engine.max_cudagraph_capture_size": "launch_us",
}
"""Keys of the engine that do nothing while another one is at its default."""


def readers_of(path: str) -> Readers | None:
    """Return what reads a key; None: the engine or the cluster, whatever the latency model.

    Keys below a key, such as the parts of ``latency.peak``, have its readers; a coefficient that is not in the table
    belongs to an analytic model, or to the user's own model.
    """
    if path in READ_BY:
        return READ_BY[path]
    if path.startswith("latency.coefficients."):
        return _only(*ANALYTIC, OWN, OWN_AT_PEAK)
    above = path.rpartition(".")[0]
    return readers_of(above) if above else None
