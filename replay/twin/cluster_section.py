"""``cluster:`` of TWIN.yaml: pools as servers of their own, and the gateway in front of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import yaml

from replay.twin.infrastructure.infrastructure_read import (
    read_autoscaler,
    read_failures,
    read_node_pools,
    read_retries,
    read_startup,
)
from replay.twin.infrastructure.infrastructure_write import infrastructure_lines, pool_lines_of
from replay.twin.keys.cluster_settings import (
    built,
    flow_text,
    names_under,
    plain_section,
    settings_of,
    translated,
)
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
        NodePool,
        Pool,
        Role,
        RoutingPolicy,
        SnapshotIntervals,
    )


PER_POOL = ("engine", "latency", "hardware")
"""Sections of the top level for which a pool may have its own keys."""

OF_A_MODEL = ("coefficients", "defaults", "table", "peak", "fitted_range")
"""Keys of ``latency`` that belong to the model named beside them."""


# -- pools ----------------------------------------------------------------------------------------------------


def server_roots(root: Section) -> list[Section]:
    """Return the file as each pool reads it: the pool's own keys replace the top level's; one file without pools."""
    section = root.section("cluster")
    if section is None:
        return [root]
    section.refuse_unknown(names_under("cluster"))
    pools = list(section.sections("pools"))
    if "pools" not in section:
        return [root]
    if not pools:
        section.fail("pools", got="none", expected="a list of at least one")
    if "instances" in section:
        section.refuse_together("instances", "pools")
    for pool in pools:
        pool.refuse_unknown(names_under("cluster.pools"))
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
    from sim.cluster import ClusterConfig, PipelineLatency, RoundRobin

    pools = list(section.sections("pools")) or [section]
    latency = section.section("latency")
    priorities = section.section("slo_priorities")
    nodes = read_node_pools(section)

    def build() -> ClusterConfig:
        return ClusterConfig(
            pools=tuple(
                _read_pool(pool, section, server, num_gpus=num_gpus, nodes=nodes)
                for pool, server, num_gpus in zip(pools, servers, gpus or [1] * len(servers), strict=True)
            ),
            routing=_read_routing(section, folder=folder, vllm_version=vllm_version) or RoundRobin(),
            disaggregation=_read_disaggregation(section, pools, kv_bytes_per_token),
            prefill_routing=_read_prefill_routing(section, folder=folder, vllm_version=vllm_version),
            admission=_read_admission(section),
            flow_control=_read_flow_control(section),
            snapshot_interval_us=_read_intervals(section),
            latency=PipelineLatency() if latency is None else built(PipelineLatency, latency),
            slo_priorities={} if priorities is None else plain_section(priorities),
            compatibility=compatibility,
            seed=seed,
            lockstep=section.boolean("lockstep") or False,
            node_pools=nodes,
            failures=read_failures(section),
            retries=read_retries(section),
        )

    return translated(build, section)


def _read_pool(
    pool: Section,
    section: Section,
    server: tuple[EngineConfig, LatencyModel],
    *,
    num_gpus: int,
    nodes: Sequence[NodePool],
) -> Pool:
    """Return a pool of servers like this one; what it does not say itself is as ``section``, the cluster's, says."""
    from sim.cluster import Pool, Startup

    return Pool(
        engine=server[0],
        latency=server[1],
        instances=pool.integer("instances", least=1) or 1,
        name=(pool.text("name") or "") if pool is not section else "",
        role=_read_role(pool) if pool is not section else "shared",
        gpus_per_instance=pool.integer("gpus_per_instance", least=1) or num_gpus,
        cost_per_gpu_hour=_read_cost(pool, section),
        startup=read_startup(pool) or read_startup(section) or Startup(),
        autoscaler=read_autoscaler(pool) or read_autoscaler(section),
        node_pool=pool.text("node_pool") or (nodes[0].name if len(nodes) == 1 else None),
    )


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


def _read_cost(pool: Section, section: Section) -> float:
    """Return what a GPU of a pool costs per hour, by the pool, or the cluster; None without a price."""
    for part in (pool, section):
        if "cost_per_gpu_hour" in part:
            return float(part.decimal("cost_per_gpu_hour", expected="a number >= 0") or 0)
    return 0.0


def _read_role(pool: Section) -> Role:
    from sim.cluster import Role

    return cast(Role, pool.text("role", choices=get_args(Role)) or "shared")


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
        part.refuse_unknown(names_under("cluster.disaggregation"))
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
    _refuse_unknown(routing, "cluster.routing")
    settings = plain_section(routing)
    _check_required(routing, settings, ROUTING_POLICIES)
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
    _refuse_unknown(admission, "cluster.admission")
    settings = plain_section(admission)
    _check_required(admission, settings, ADMISSION_POLICIES)
    return translated(lambda: admission_policy(settings), admission)


def _read_flow_control(section: Section) -> Any:  # noqa: ANN401 - FlowControl | None, whose import compiles
    from sim.cluster import FlowControl

    flow = section.section("flow_control")
    return None if flow is None else built(FlowControl, flow)


def _read_intervals(section: Section) -> SnapshotIntervals:
    from sim.cluster import SnapshotIntervals

    node = section.nodes.get("snapshot_interval_us")
    if isinstance(node, yaml.MappingNode):
        intervals = section.section("snapshot_interval_us")
        assert intervals is not None  # noqa: S101 - it is there
        return built(SnapshotIntervals, intervals)
    return SnapshotIntervals.every(section.integer("snapshot_interval_us", least=0) or 0)


def _refuse_unknown(section: Section, path: str) -> None:
    """Refuse keys that no policy has; the simulator itself refuses those of another policy."""
    section.refuse_unknown(names_under(path))


def _check_required(
    section: Section, settings: Mapping[str, Any], registry: Mapping[str, Callable[..., object]]
) -> None:
    """Refuse a policy without a setting that it needs, or a missing policy."""
    if "policy" not in settings:
        section.fail("policy", got="nothing", expected=f"one of {', '.join(registry)}")
    if not isinstance(settings["policy"], str):
        section.fail("policy", got=repr(settings["policy"]), expected=f"one of {', '.join(registry)}")
    policy = registry.get(settings["policy"])
    for item in fields(policy) if policy is not None else ():  # type: ignore[arg-type] # all are dataclasses
        has_default = item.default is not MISSING or item.default_factory is not MISSING
        if not has_default and item.name not in settings:
            section.fail(item.name, got="nothing", expected=f"it with policy {settings['policy']}")


def routing_name(policy: RoutingPolicy) -> str:
    """Return a policy's name in ``routing.policy``."""
    from sim.cluster import OwnPolicy

    return place_of_function(policy.choose) if isinstance(policy, OwnPolicy) else policy.name


# -- written back ---------------------------------------------------------------------------------------------


def cluster_lines(
    cluster: ClusterConfig, pool_lines: Callable[[EngineConfig, LatencyModel], Iterable[str]]
) -> list[str]:
    """Return ``cluster`` as lines of TWIN.yaml; ``pool_lines``: a pool's engine and latency where pools differ."""
    from sim.cluster import PipelineLatency

    first, *others = cluster.pools
    lines = ["cluster:"]
    if not others and not first.name:
        lines.append(f"  instances: {first.instances}")
        lines += [f"  {line}" for line in pool_lines_of(first)]
    else:
        lines.append("  pools:")
        for pool in cluster.pools:
            lines.append(f"    - instances: {pool.instances}")
            lines += [f"      name: {flow_text(pool.name)}"] if pool.name else []
            lines += [f"      role: {pool.role}"] if pool.role != "shared" else []
            lines += [f"      {line}" for line in pool_lines_of(pool)]
            if (pool.engine, pool.latency) != (first.engine, first.latency):
                lines += [f"      {line}" for line in pool_lines(pool.engine, pool.latency)]
    lines.append(f"  routing: {flow_text(_routing_settings(cluster.routing))}")
    if cluster.disaggregation is not None:
        given = {
            name: value for name, value in settings_of(cluster.disaggregation).items() if value is not None
        }
        if cluster.prefill_routing is not None:
            given["prefill_routing"] = _routing_settings(cluster.prefill_routing)
        lines.append(f"  disaggregation: {flow_text(given)}")
    lines.append(f"  snapshot_interval_us: {flow_text(settings_of(cluster.snapshot_interval_us))}")
    lines.append(
        f"  admission: {flow_text({'policy': cluster.admission.name} | settings_of(cluster.admission))}"
    )
    if cluster.latency != PipelineLatency():
        lines.append(f"  latency: {flow_text(settings_of(cluster.latency))}")
    if cluster.flow_control is not None:
        lines.append(f"  flow_control: {flow_text(settings_of(cluster.flow_control))}")
    if cluster.slo_priorities:
        lines.append(f"  slo_priorities: {flow_text(dict(cluster.slo_priorities))}")
    return lines + infrastructure_lines(cluster)


def _routing_settings(policy: RoutingPolicy) -> dict[str, Any]:
    """Return a routing policy as the file has it."""
    from sim.cluster import OwnPolicy

    return {
        "policy": routing_name(policy),
        **({} if isinstance(policy, OwnPolicy) else settings_of(policy)),
    }
