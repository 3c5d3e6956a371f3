"""``cluster:`` of TWIN.yaml: pools as servers of their own, and the gateway in front of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from replay.twin.keys.cluster_keys import CLUSTER
from replay.twin.keys.cluster_settings import (
    built,
    flow_text,
    lines_of,
    listed,
    parts_of,
    plain_of,
    plain_section,
    translated,
)
from replay.twin.keys.key import Key, keys_held_by, names_under
from replay.twin.keys.read_keys import refuse_missing, values_of
from replay.twin.own.custom_model import load_function, place_of_function
from sim import Compatibility, EngineConfig, InvalidConfig
from sim.latency import LatencyModel
from traces import ConfigError
from traces.strict.section import Section, section_of

if TYPE_CHECKING:
    from sim.cluster import (
        AdmissionPolicy,
        ClusterConfig,
        Disaggregation,
        Pool,
        RoutingPolicy,
        SnapshotIntervals,
    )


PER_POOL = ("engine", "latency", "hardware")
"""Sections of the top level for which a pool may have its own keys."""

OF_ALL_POOLS = ("cost_per_gpu_hour",)
"""Values of ``cluster`` that pools have without saying it."""

OF_A_POOL = ("name", "role")
"""Keys that ``cluster`` does not have itself."""

OWN_WAY = ("disaggregation", "snapshot_interval_us")
"""Sections of ``cluster`` that are more than the settings of one dataclass."""

OF_A_MODEL = ("coefficients", "defaults", "table", "peak", "fitted_range")
"""Keys of ``latency`` that belong to the model named beside them."""


# -- pools ----------------------------------------------------------------------------------------------------


def server_roots(root: Section) -> list[Section]:
    """Return the file as each pool reads it: the pool's own keys replace the top level's; one file without pools."""
    section = root.section("cluster")
    if section is None:
        return [root]
    section.refuse_unknown(names_under("", CLUSTER))
    pools = list(section.sections("pools"))
    if "pools" not in section:
        return [root]
    if not pools:
        section.fail("pools", got="none", expected="a list of at least one")
    if "instances" in section:
        section.refuse_together("instances", "pools")
    for pool in pools:
        pool.refuse_unknown(names_under("pools", CLUSTER))
    return [_overlaid(root, pool) for pool in pools]


def _overlaid(root: Section, pool: Section) -> Section:
    """Return the top level with a pool's keys in place of its own."""
    nodes = dict(root.nodes)
    for name in PER_POOL:
        if name in pool:
            own = pool.nodes[name]
            if not isinstance(_as_mapping(own, name), yaml.MappingNode):
                pool.section(name)
            nodes[name] = _merged(nodes.get(name), own, name, file=root.file)
    lines = {**root.key_lines, **{name: pool.key_lines[name] for name in PER_POOL if name in pool}}
    return replace(root, nodes=nodes, key_lines=lines)


def _as_mapping(node: yaml.Node, name: str) -> yaml.Node:
    """Return ``hardware: H100`` as ``{gpu: H100}``, anything else as it is."""
    if name != "hardware" or not isinstance(node, yaml.ScalarNode):
        return node
    key = yaml.ScalarNode("tag:yaml.org,2002:str", "gpu", node.start_mark, node.end_mark)
    return yaml.MappingNode("tag:yaml.org,2002:map", [(key, node)], node.start_mark, node.end_mark)


def _merged(below: yaml.Node | None, above: yaml.Node, name: str, *, file: str) -> yaml.Node:
    """Return one mapping over another, mappings in them likewise; a model brings its own numbers.

    Raises ConfigError for a key that is given twice or is no text.
    """
    above = _as_mapping(above, name)
    below = None if below is None else _as_mapping(below, name)
    if not isinstance(below, yaml.MappingNode) or not isinstance(above, yaml.MappingNode):
        return above
    for node in (below, above):
        section_of(node, where=name, file=file)
    own = {key.value: (key, value) for key, value in above.value}
    kept = {key.value: (key, value) for key, value in below.value}
    if name == "latency":
        is_other = "model" in own and "model" in kept and own["model"][1].value != kept["model"][1].value
        gone = OF_A_MODEL if is_other else [each for each in ("coefficients", "defaults") if each in own]
        kept = {key: pair for key, pair in kept.items() if key not in gone or (key in own and not is_other)}
    for key, (node, value) in own.items():
        inherited = kept[key][1] if key in kept else None
        kept[key] = (node, _merged(inherited, value, f"{name}.{key}", file=file))
    pairs = list(kept.values())
    return yaml.MappingNode(above.tag, pairs, above.start_mark, above.end_mark)


# -- the whole ------------------------------------------------------------------------------------------------


def read_cluster(
    root: Section,
    servers: Sequence[tuple[EngineConfig, LatencyModel]],
    *,
    seed: int,
    compatibility: Compatibility,
    vllm_version: str,
    folder: Path,
    kv_bytes_per_token: Sequence[int | None] = (),
    gpus: Sequence[int] = (),
) -> ClusterConfig | None:
    """Return the ``cluster`` section, None without one; ``servers``: each pool's engine and latency model.

    ``kv_bytes_per_token``: of each pool's model, None where that is not known. ``gpus``: of one server of each pool.
    Raises ConfigError, one line with file and line number.
    """
    section = root.section("cluster")
    if section is None:
        return None
    from sim.cluster import ClusterConfig, NodePool, RoundRobin

    pools = list(section.sections("pools")) or [section]
    nodes = listed(NodePool, section, "node_pools")
    only_nodes = nodes[0].name if len(nodes) == 1 else None
    priorities = section.section("slo_priorities")

    def build() -> ClusterConfig:
        return ClusterConfig(
            pools=tuple(
                _read_pool(pool, section, server, {"gpus_per_instance": num_gpus, "node_pool": only_nodes})
                for pool, server, num_gpus in zip(pools, servers, gpus or [1] * len(servers), strict=True)
            ),
            routing=_read_routing(section, folder=folder, vllm_version=vllm_version) or RoundRobin(),
            disaggregation=_read_disaggregation(section, pools, kv_bytes_per_token),
            prefill_routing=_read_prefill_routing(section, folder=folder, vllm_version=vllm_version),
            admission=_read_admission(section),
            snapshot_interval_us=_read_intervals(section),
            slo_priorities={} if priorities is None else plain_section(priorities),
            compatibility=compatibility,
            seed=seed,
            node_pools=nodes,
            **values_of(section, keys_held_by("cluster", CLUSTER, ClusterConfig)),
            **parts_of(ClusterConfig, section, other_than=OWN_WAY),
        )

    return translated(build, section)


def _read_pool(
    pool: Section, section: Section, server: tuple[EngineConfig, LatencyModel], usual: Mapping[str, object]
) -> Pool:
    """Return a pool of servers like this one; what it does not say itself is as ``section``, the cluster's, says.

    ``usual``: what else it has without saying it.
    """
    from sim.cluster import Pool

    keys = _pool_keys()
    given: dict[str, Any] = {
        **usual,
        **values_of(section, [key for key in keys if key.name in OF_ALL_POOLS]),
        **values_of(pool, [key for key in keys if pool is not section or key.name not in OF_A_POOL]),
        **parts_of(Pool, section, other_than=PER_POOL),
        **parts_of(Pool, pool, other_than=PER_POOL),
    }
    return Pool(engine=server[0], latency=server[1], **given)


@lru_cache(maxsize=1)
def _pool_keys() -> tuple[Key, ...]:
    from sim.cluster import Pool

    return keys_held_by("cluster", CLUSTER, Pool, "pools")


def with_overrides(
    cluster: ClusterConfig,
    *,
    vllm_version: str,
    instances: int | None,
    routing: str | None,
    folder: Path,
) -> ClusterConfig:
    """Return the cluster with ``--instances`` and ``--routing`` in place of the file's. Raises ConfigError."""
    if instances is not None:
        if len(cluster.pools) > 1:
            raise ConfigError(f"--instances: got a file with {len(cluster.pools)} pools, expected one pool")
        cluster = replace(cluster, pools=(replace(cluster.pools[0], instances=instances),))
    if routing is not None and routing != routing_name(cluster.routing):
        settings = _with_version({"policy": routing}, vllm_version)
        try:
            cluster = replace(cluster, routing=_routing_of(settings, folder=folder))
        except InvalidConfig as error:
            cure = f"; several side by side: --set cluster.routing.policy={routing}" if "," in routing else ""
            raise ConfigError(f"--routing: {str(error).removeprefix('routing.policy: ')}{cure}") from error
    return cluster


def _read_disaggregation(
    section: Section, pools: Sequence[Section], kv_bytes_per_token: Sequence[int | None]
) -> Disaggregation | None:
    """Return how KV is moved: with defaults for what the file leaves open, if pools have roles."""
    from sim.cluster import Disaggregation

    roles = [pool.text("role") if pool is not section else None for pool in pools]
    part = section.section("disaggregation")
    if part is None and "prefill" not in roles:
        return None
    if part is not None:
        part.refuse_unknown(names_under("disaggregation", CLUSTER))
    given = {} if part is None else plain_section(part)
    given.pop("prefill_routing", None)
    if "kv_bytes_per_token" not in given and "decode" in roles:
        of_model = dict(zip(roles, kv_bytes_per_token, strict=False)).get("decode")
        if of_model is None and given.get("decider") != "never":
            (part or section).fail(
                "kv_bytes_per_token" if part is not None else "disaggregation",
                got="nothing",
                expected="kv_bytes_per_token, an integer, or a latency.model_config to take it from",
            )
        given["kv_bytes_per_token"] = of_model
    return translated(lambda: Disaggregation(**given), part or section)


def _read_prefill_routing(section: Section, *, folder: Path, vllm_version: str) -> RoutingPolicy | None:
    part = section.section("disaggregation")
    if part is None:
        return None
    return _read_routing(part, folder=folder, vllm_version=vllm_version, key="prefill_routing")


def _read_routing(
    section: Section, *, folder: Path, vllm_version: str, key: str = "routing"
) -> RoutingPolicy | None:
    from sim.cluster import ROUTING_POLICIES

    routing = section.section(key, expected="a mapping with a policy, {policy: round-robin}")
    if routing is None:
        return None
    settings = _policy_settings(routing, "routing", ROUTING_POLICIES)
    return translated(lambda: _routing_of(_with_version(settings, vllm_version), folder=folder), routing)


def _with_version(settings: Mapping[str, Any], vllm_version: str) -> dict[str, Any]:
    """Return the settings with the server's version, where vLLM's own balancer has none of its own."""
    given = {"vllm_version": vllm_version} if settings.get("policy") == "vllm-dp" else {}
    return {**given, **settings}


def _routing_of(settings: dict[str, Any], *, folder: Path) -> RoutingPolicy:
    """Return the policy of some settings. Raises InvalidConfig."""
    from sim.cluster import OwnPolicy, routing_policy

    name = settings.get("policy")
    if not isinstance(name, str) or ":" not in name:
        return routing_policy(settings)
    if len(settings) > 1:
        other = next(key for key in settings if key != "policy")
        raise InvalidConfig(f"routing.{other}: unknown with policy {name}, expected no setting")
    return OwnPolicy(choose=load_function(name, folder=folder))


def _read_admission(section: Section) -> AdmissionPolicy:
    from sim.cluster import ADMISSION_POLICIES, AlwaysAdmit, admission_policy

    admission = section.section("admission")
    if admission is None:
        return AlwaysAdmit()
    settings = _policy_settings(admission, "admission", ADMISSION_POLICIES)
    return translated(lambda: admission_policy(settings), admission)


def _read_intervals(section: Section) -> SnapshotIntervals:
    from sim.cluster import SnapshotIntervals

    node = section.nodes.get("snapshot_interval_us")
    if isinstance(node, yaml.MappingNode):
        intervals = section.section("snapshot_interval_us")
        assert intervals is not None  # noqa: S101 - it is there
        return built(SnapshotIntervals, intervals)
    return SnapshotIntervals.every(section.integer("snapshot_interval_us", least=0) or 0)


def _policy_settings(
    section: Section, path: str, registry: Mapping[str, Callable[..., object]]
) -> dict[str, Any]:
    """Return a policy's settings, its name among them.

    Raises ConfigError on a key that no policy has (the simulator itself refuses those of another policy), on a missing
    policy, and on one without a setting that it needs.
    """
    section.refuse_unknown(names_under(path, CLUSTER))
    settings = plain_section(section)
    name = settings.get("policy")
    if not isinstance(name, str):
        section.fail(
            "policy",
            got=repr(name) if "policy" in settings else "nothing",
            expected=f"one of {', '.join(registry)}",
        )
    if name in registry:
        refuse_missing(section, registry[name], expected=f"it with policy {name}")
    return settings


def routing_name(policy: RoutingPolicy) -> str:
    """Return a policy's name in ``routing.policy``."""
    from sim.cluster import OwnPolicy

    return place_of_function(policy.choose) if isinstance(policy, OwnPolicy) else policy.name


# -- written back ---------------------------------------------------------------------------------------------

ORDER = (
    *("lockstep", "routing", "disaggregation", "snapshot_interval_us", "admission"),
    *("latency", "flow_control", "slo_priorities", "node_pools"),
)
"""The order of the keys in a written file; the others follow."""
WITHOUT_A_DEFAULT = ("instances", "routing", "snapshot_interval_us", "admission")
"""Keys that are always written."""
NOT_WRITTEN = ("engine", "pools", "prefill_routing", "compatibility", "seed")
"""Fields whose values stand elsewhere in the file."""


def cluster_lines(
    cluster: ClusterConfig, pool_lines: Callable[[EngineConfig, LatencyModel], Iterable[str]]
) -> list[str]:
    """Return ``cluster`` as lines of TWIN.yaml; ``pool_lines``: a pool's engine and latency where pools differ."""
    first, *others = cluster.pools
    if not others and not first.name:
        lines = [f"  {line}" for line in _pool_lines(first)]
    else:
        lines = ["  pools:"]
        for pool in cluster.pools:
            own = _pool_lines(pool)
            if (pool.engine, pool.latency) != (first.engine, first.latency):
                own += pool_lines(pool.engine, pool.latency)
            lines += [f"    - {own[0]}", *(f"      {line}" for line in own[1:])]
    names = sorted((each.name for each in fields(cluster)), key=lambda name: (*ORDER, name).index(name))
    for name in (each for each in names if each not in NOT_WRITTEN):
        lines += [f"  {line}" for line in _lines_of_part(cluster, name)]
    return ["cluster:", *lines]


def _pool_lines(pool: Pool) -> list[str]:
    """Return what a pool says of its instances, one key a line."""
    names = [each.name for each in fields(pool) if each.name not in (*PER_POOL, *NOT_WRITTEN)]
    return lines_of(pool, names, always=WITHOUT_A_DEFAULT)


def _lines_of_part(cluster: ClusterConfig, name: str) -> list[str]:
    """Return a key of the cluster with its value as lines of YAML, none where it has its default."""
    value = getattr(cluster, name)
    if name == "node_pools" and value:
        return ["node_pools:", *(f"  - {flow_text(plain_of(each))}" for each in value)]
    if name == "routing":
        return [f"routing: {flow_text(_routing_settings(value))}"]
    if name == "disaggregation" and cluster.prefill_routing is not None:
        given = plain_of(value) | {"prefill_routing": _routing_settings(cluster.prefill_routing)}
        return [f"disaggregation: {flow_text(given)}"]
    return lines_of(cluster, [name], always=WITHOUT_A_DEFAULT)


def _routing_settings(policy: RoutingPolicy) -> dict[str, Any]:
    """Return a routing policy as the file has it."""
    from sim.cluster import OwnPolicy

    settings: dict[str, Any] = plain_of(policy)
    return {"policy": routing_name(policy)} if isinstance(policy, OwnPolicy) else settings
