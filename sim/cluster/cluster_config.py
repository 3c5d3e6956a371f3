"""A cluster's configuration: ``cluster:`` of TWIN.yaml, read and resolved."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sim.cluster.gateway.admission import AdmissionPolicy, AlwaysAdmit
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.infrastructure.infrastructure_config import (
    Autoscaler,
    Failures,
    NodePool,
    Retries,
    Startup,
    sizes_of,
)
from sim.cluster.routing.routing_policies import OwnPolicy, RoundRobin, RoutingPolicy
from sim.cluster.setting_checks import check_choice, check_integer, check_number
from sim.cluster.slo_classes import check_priorities
from sim.cluster.transfer.disaggregation_config import Disaggregation
from sim.config import Compatibility, EngineConfig, InvalidConfig
from sim.latency.latency_model import LatencyModel
from sim.setting_faults import check_cadence

Role = Literal["shared", "prefill", "decode"]
MOST_INSTANCES = 100_000
"""More engines than any cluster has; each takes memory before the simulation starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """``instances`` equal engines; with an ``autoscaler`` their number at the beginning.

    ``role``: a shared pool's instances serve requests whole. A decode pool's do, too, where no prefill instance
    computes the prompt; a prefill pool's compute prompts and nothing else. ``gpus_per_instance``: tensor times pipeline
    parallel size. ``cost_per_gpu_hour``: used where no node pool gives the cost of its nodes. ``startup``: the time
    from getting its GPUs to the first request. ``node_pool`` None: unlimited GPUs.
    """

    engine: EngineConfig
    latency: LatencyModel
    instances: int = 1
    name: str = ""
    role: Role = "shared"
    gpus_per_instance: int = 1
    cost_per_gpu_hour: float = 0.0
    startup: Startup = field(default_factory=Startup)
    autoscaler: Autoscaler | None = None
    node_pool: str | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        check_integer("instances", self.instances, least=1)
        if self.instances > MOST_INSTANCES:
            raise InvalidConfig(f"instances: got {self.instances}, expected at most {MOST_INSTANCES:,}")
        check_choice("role", self.role, Role)
        check_integer("gpus_per_instance", self.gpus_per_instance, least=1)
        check_number("cost_per_gpu_hour", self.cost_per_gpu_hour, least=0)

    @property
    def num_slots(self) -> int:
        """The largest number of instances at one time."""
        return sizes_of(self.instances, self.autoscaler)[1]

    @property
    def num_at_first(self) -> int:
        """How many instances it has at the beginning."""
        return sizes_of(self.instances, self.autoscaler)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLatency:
    """The time of a request in the gateway outside its queue: µs to be admitted, and to be routed."""

    admission_us: int = 0
    routing_us: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        check_integer("admission_us", self.admission_us, least=0)
        check_integer("routing_us", self.routing_us, least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotIntervals:
    """The interval at which instances' reports are read, per signal, in µs; 0: at every decision.

    ``queue``: waiting and running requests. ``kv``: KV usage. ``cache``: which blocks are cached. The number in flight
    is counted by the gateway itself and always exact.
    """

    queue: int = 0
    kv: int = 0
    cache: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        for name in ("queue", "kv", "cache"):
            check_integer(f"snapshot_interval_us.{name}", getattr(self, name), least=0)

    @classmethod
    def every(cls, interval_us: int) -> SnapshotIntervals:
        """Return the same interval for every signal."""
        return cls(queue=interval_us, kv=interval_us, cache=interval_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """A fleet of engines behind a gateway.

    ``lockstep``: each pool's instances are the data-parallel ranks of one server of a model with experts; they start
    their steps together (``sim/cluster/run/lockstep.py``). ``prefill_routing``: which prefill instance gets a prompt,
    None: by the policy of ``routing``. ``disaggregation`` None: prompts are computed where their answers are.
    ``flow_control`` None: no gateway queue. ``slo_priorities`` override those of ``sim.cluster.slo_classes``. With
    ``compatibility`` blis loads are counted as the peer documents them. ``seed``: of every draw of the gateway.
    ``node_pools``: the nodes that instances are placed on. ``failures`` None: no instance fails. ``retries`` None:
    every client tries once. Raises InvalidConfig on settings that are not valid.
    """

    pools: tuple[Pool, ...]
    routing: RoutingPolicy = field(default_factory=RoundRobin)
    prefill_routing: RoutingPolicy | None = None
    disaggregation: Disaggregation | None = None
    admission: AdmissionPolicy = field(default_factory=AlwaysAdmit)
    flow_control: FlowControl | None = None
    snapshot_interval_us: SnapshotIntervals = field(default_factory=SnapshotIntervals)
    latency: PipelineLatency = field(default_factory=PipelineLatency)
    slo_priorities: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    compatibility: Compatibility = "vllm"
    seed: int = 42
    lockstep: bool = False
    node_pools: tuple[NodePool, ...] = ()
    failures: Failures | None = None
    retries: Retries | None = None

    def __post_init__(self) -> None:
        """Check the settings; the error names the first that is not valid."""
        if not self.pools:
            raise InvalidConfig("pools: got none, expected at least one")
        names = [pool.name for pool in self.pools]
        for name in names:
            if names.count(name) > 1:
                raise InvalidConfig(f"pools: got {name!r} twice, expected different names")
        check_roles(self.pools)
        check_disaggregation(self)
        if len({pool.engine.block_size for pool in self.pools}) > 1:
            raise InvalidConfig(
                "pools: got different block_size, expected one: prefixes are compared by block"
            )
        if len({pool.engine.prefix_match_unit for pool in self.pools}) > 1:
            raise InvalidConfig(
                "pools: got different prefix_match_unit, expected one: prefixes are compared by it"
            )
        check_choice("compatibility", self.compatibility, Compatibility)
        check_integer("seed", self.seed, least=0)
        check_priorities(self.slo_priorities)
        check_shared_store(self)
        check_session_kv(self)
        if self.lockstep:
            check_lockstep(self)
        for pool in () if self.lockstep else self.pools:
            check_cadence(pool.engine)
        check_infrastructure(self)

    @property
    def moves_kv(self) -> bool:
        """Whether any request's KV can be moved between instances."""
        return self.disaggregation is not None and self.disaggregation.moves_kv

    @property
    def role_of(self) -> tuple[Role, ...]:
        """Each engine's role."""
        return tuple(pool.role for pool in self.pools for _ in range(pool.num_slots))

    @property
    def num_instances(self) -> int:
        """The largest number of engines at one time."""
        return sum(pool.num_slots for pool in self.pools)

    @property
    def changes(self) -> bool:
        """Whether instances come and go."""
        return self.failures is not None or any(pool.autoscaler is not None for pool in self.pools)

    @property
    def instance_names(self) -> tuple[str, ...]:
        """Each engine's name: its number, or ``pool/number`` where pools have names."""
        return tuple(
            f"{pool.name}/{number}" if pool.name else str(number)
            for pool in self.pools
            for number in range(pool.num_slots)
        )


def check_lockstep(config: ClusterConfig) -> None:
    """Raise InvalidConfig on settings that ranks in lockstep are not simulated with."""
    if config.flow_control is not None:
        raise InvalidConfig("lockstep: cannot be combined with flow_control, expected false")
    for pool in config.pools:
        engine = pool.engine
        is_plain = engine.pipeline_parallel_size == 1 and engine.compatibility == engine.batching == "vllm"
        if not is_plain or pool.role != "shared" or engine.has_native_offloading:
            raise InvalidConfig(
                "lockstep: cannot be combined with pipeline stages, compatibility blis, another batching than vLLM's, "
                "native KV offloading or prefill and decode pools, expected false"
            )


def check_shared_store(config: ClusterConfig) -> None:
    """Raise InvalidConfig where a shared store's instances differ in its size or in their blocks, or come and go."""
    sharing = [pool.engine for pool in config.pools if pool.engine.has_shared_store]
    sizes = {engine.num_cpu_blocks for engine in sharing}
    if len({(engine.block_size, engine.kv_cache_groups) for engine in sharing}) > 1:
        raise InvalidConfig(
            "kv_offloading: got shared with blocks or kv_cache_groups that differ, expected pools with the same: they "
            "could not read what the others store"
        )
    if len(sizes) > 1:
        shown = ", ".join(f"{size:,}" for size in sorted(sizes))
        raise InvalidConfig(
            f"kv_offloading: got shared with num_cpu_blocks {shown}, expected one store of one size"
        )
    if sizes and config.changes:
        raise InvalidConfig(
            "kv_offloading: got shared with autoscaler or failures, expected native: what an instance leaves half "
            "stored is not simulated"
        )


def check_session_kv(config: ClusterConfig) -> None:
    """Raise InvalidConfig where KV is pinned on instances that hand it on, or that come and go."""
    pins = any(pool.engine.session_kv_ttl_us for pool in config.pools)
    if pins and any(pool.role != "shared" for pool in config.pools):
        raise InvalidConfig("session_kv_ttl_us: cannot be combined with prefill and decode pools, expected 0")
    if pins and config.changes:
        raise InvalidConfig("session_kv_ttl_us: cannot be combined with autoscaler or failures, expected 0")


def check_infrastructure(config: ClusterConfig) -> None:
    """Raise InvalidConfig on instances that come and go where that is not simulated."""
    if config.lockstep and config.changes:
        raise InvalidConfig(
            "lockstep: cannot be combined with autoscaler or failures, expected false: a server's ranks are fixed"
        )
    check_failures(config)
    check_nodes(config)
    for pool in config.pools:
        scaler = pool.autoscaler
        if scaler is None:
            continue
        if scaler.drain == "requeue" and config.moves_kv:
            raise InvalidConfig(
                "autoscaler.drain: requeue cannot be combined with disaggregation, expected wait: KV may be on its way"
            )
        if scaler.reaches_zero and config.flow_control is None:
            raise InvalidConfig(
                "autoscaler.min_instances: got 0 without flow_control, expected 1, or flow_control: its queue holds "
                "the requests that come while no instance is there"
            )


def check_failures(config: ClusterConfig) -> None:
    """Raise InvalidConfig where the schedule names an instance that does not exist."""
    for failure in () if config.failures is None else config.failures.schedule:
        if failure.instance >= config.num_instances:
            raise InvalidConfig(
                f"failures.schedule.instance: got {failure.instance}, expected a number below {config.num_instances}"
            )


def check_nodes(config: ClusterConfig) -> None:
    """Raise InvalidConfig where an instance has no node that could hold it."""
    nodes = {pool.name: pool for pool in config.node_pools}
    if len(nodes) < len(config.node_pools):
        raise InvalidConfig("node_pools: got a name twice, expected different names")
    for pool in config.pools:
        if pool.node_pool is None:
            continue
        if pool.node_pool not in nodes:
            raise InvalidConfig(
                f"node_pool: got {pool.node_pool!r}, expected one of {', '.join(nodes) or 'node_pools'}"
            )
        most = nodes[pool.node_pool].gpus_per_node
        if pool.gpus_per_instance > most:
            raise InvalidConfig(
                f"gpus_per_instance: got {pool.gpus_per_instance}, expected at most the {most} GPUs of a node of "
                f"{pool.node_pool}: instances over several nodes are not simulated"
            )


def check_roles(pools: tuple[Pool, ...]) -> None:
    """Raise InvalidConfig where there is a prefill pool without a decode pool, or the reverse."""
    roles = {pool.role for pool in pools}
    for role, other in (("prefill", "decode"), ("decode", "prefill")):
        if role in roles and other not in roles:
            raise InvalidConfig(f"pools: got role {role} without {other}, expected both or neither")


def check_disaggregation(config: ClusterConfig) -> None:
    """Raise InvalidConfig where the pools and the disaggregation settings do not match."""
    roles = {pool.role for pool in config.pools}
    settings = config.disaggregation
    if settings is None:
        if "prefill" in roles:
            raise InvalidConfig("disaggregation: got none with prefill and decode pools, expected it")
        if config.prefill_routing is not None:
            raise InvalidConfig("prefill_routing: got it without disaggregation, expected none")
        return
    if "prefill" not in roles:
        raise InvalidConfig("disaggregation: got it without prefill and decode pools, expected none")
    if not settings.moves_kv:
        return
    if settings.kv_bytes_per_token is None:
        raise InvalidConfig("disaggregation.kv_bytes_per_token: got nothing, expected an integer >= 0")
    for policy in (config.routing, config.prefill_routing):
        if isinstance(policy, OwnPolicy):
            raise InvalidConfig(
                "routing.policy: got a function, expected a built-in policy with disaggregation"
            )
    for pool in config.pools:
        check_engine(pool)


def check_engine(pool: Pool) -> None:
    """Raise InvalidConfig on engine settings that cannot be combined with KV transfer yet."""
    if pool.role == "shared":
        return
    if pool.engine.batching != "vllm":
        raise InvalidConfig(
            f"engine.batching: {pool.engine.batching} cannot be combined with a {pool.role} pool yet, expected vllm"
        )
    for name, is_on in (
        ("num_speculative_tokens", pool.engine.tokens_per_decode > 1),
        ("num_cpu_blocks", pool.engine.num_cpu_blocks > 0),
        ("pipeline_parallel_size", pool.engine.pipeline_parallel_size > 1),
    ):
        if is_on:
            least = 1 if name == "pipeline_parallel_size" else 0
            raise InvalidConfig(
                f"engine.{name}: {getattr(pool.engine, name)} cannot be combined with a {pool.role} pool yet, expected "
                f"{least}"
            )
    if pool.engine.matches_inside_blocks:
        raise InvalidConfig(
            f"engine.prefix_match_unit: {pool.engine.prefix_match_unit} cannot be combined with a {pool.role} pool "
            "yet, expected none"
        )
