"""What limits a capacity: each resource is doubled, each time that is added to steps or waits is halved."""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from replay.search.highest import highest_above
from replay.simulation.pace_band import paced
from replay.twin.twin_config import with_pools
from sim import UNBOUNDED, EngineConfig, InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.twin.twin_config import TwinConfig
    from traces import RunLimit, Trace

RESOURCES: dict[str, tuple[str, ...]] = {
    "seats": ("max_num_seqs",),
    "kv_blocks": ("num_gpu_blocks",),
    "token_budget": ("max_num_batched_tokens",),
    "adapters": ("max_loras",),
    "encoder": ("max_num_encoder_input_tokens", "encoder_cache_size"),
    "host_memory": ("num_cpu_blocks",),
    "long_prefills": ("long_prefill_token_threshold",),
    "kv_links": ("kv_bandwidth_gbps",),
}
"""Settings that bound how much an engine, or a link between two, does at a time; 0: without a bound."""
ADDED_TIMES: dict[str, tuple[str, ...]] = {
    "grammars": ("guided_compile_us", "guided_mask_us"),
    "adapter_loads": ("lora_load_us",),
    "encoder_time": ("encoder_step_us", "encoder_token_us", "encoder_token_pair_us"),
    "drafting": ("draft_us",),
    "host_time": ("host_step_us", "host_prefill_us"),
}
"""Settings that lengthen steps or waits, beside the latency model; 0: they do not."""
LINK_SETTING = "kv_bandwidth_gbps"
"""The one among them that is no engine's."""
STEP_TIME, NOTHING, ALL = "step_time", "nothing", "all"
GAIN = 0.02
"""A resource binds only if doubling it raises the rate by at least this share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What limits the capacity: the resource whose doubling, or the added time whose halving, gives most.

    ``resource``: that one, "all" where only all resources together help, ``step_time`` where only faster steps do,
    ``nothing`` where they do not either. ``with_twice``: the capacity with twice as much of each, requests/s; what the
    twin does not have, is unbounded or cannot grow alone is left out, ``step_time`` where something else binds.
    """

    resource: str
    with_twice: dict[str, float]
    base_per_s: float


def binding_of(trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit]) -> Binding:
    """Return what limits the capacity, by simulating the same requests with twice as much of each resource."""
    base = _of_one(trace, twin, limits, around=None)
    changes = {name: _changed(twin, settings, doubles=True) for name, settings in RESOURCES.items()}
    changes[ALL] = _changed(twin, tuple(each for names in RESOURCES.values() for each in names), doubles=True)
    changes.update({name: _changed(twin, settings, doubles=False) for name, settings in ADDED_TIMES.items()})
    with_twice = {
        name: _of_one(trace, more, limits, around=base) for name, more in changes.items() if more is not None
    }
    gains = {name: rate / base - 1 if base > 0 else 0.0 for name, rate in with_twice.items()}
    alone = {name: gain for name, gain in gains.items() if name != ALL}
    best = max(alone, key=lambda name: alone[name], default=ALL)
    bound = next((name for name in (best, ALL) if gains.get(name, 0.0) > GAIN), None)
    if bound is None:
        with_twice[STEP_TIME] = _of_one(trace, paced(twin, 0.5), limits, around=base)
        bound = STEP_TIME if with_twice[STEP_TIME] > base * (1 + GAIN) else NOTHING
    return Binding(resource=bound, with_twice=with_twice, base_per_s=base)


def _of_one(trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit], *, around: float | None) -> float:
    """Return the capacity for one draw, requests/s, 0 where there is none; ``around``: what it is at least."""
    if around is None:
        return highest_above(trace, twin, limits, least=0.0).rate_per_s or 0.0
    return highest_above(trace, twin, limits, least=around * (1 + GAIN / 2)).rate_per_s or around


def _changed(twin: TwinConfig, settings: tuple[str, ...], *, doubles: bool) -> TwinConfig | None:
    """Return the twin with twice, or half, as much of some settings on every server; None: that changes nothing."""
    try:
        pools = tuple(
            replace(pool, engine=_scaled(pool.engine, settings, doubles=doubles))
            for pool in twin.cluster.pools
        )
        changed = twin if pools == twin.cluster.pools else with_pools(twin, pools)
        if LINK_SETTING in settings:
            changed = _with_twice_the_bandwidth(changed)
    except InvalidConfig:
        return None
    return None if changed is twin else changed


def _with_twice_the_bandwidth(twin: TwinConfig) -> TwinConfig:
    """Return the twin with faster links between prefill and decode servers; itself where no KV moves."""
    cluster = twin.asked_cluster
    if cluster is None or cluster.disaggregation is None or not cluster.moves_kv:
        return twin
    faster = replace(cluster.disaggregation, kv_bandwidth_gbps=2 * cluster.disaggregation.kv_bandwidth_gbps)
    return replace(twin, asked_cluster=replace(cluster, disaggregation=faster))


def _scaled(engine: EngineConfig, settings: tuple[str, ...], *, doubles: bool) -> EngineConfig:
    """Return an engine with twice or half as much of these; what has no bound keeps none, 0 stays 0."""
    values = {
        name: getattr(engine, name) for name in settings if name not in ("num_gpu_blocks", LINK_SETTING)
    }
    if "num_gpu_blocks" in settings and engine.num_gpu_blocks != UNBOUNDED:
        values["num_gpu_blocks"] = engine.num_gpu_blocks
    scaled = {name: 2 * each if doubles else type(each)(each / 2) for name, each in values.items()}
    return replace(engine, **scaled)
