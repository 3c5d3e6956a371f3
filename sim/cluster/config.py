"""What a cluster is configured with; ``cluster:`` of TWIN.yaml, read and resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sim.cluster.checks import check_choice, check_integer
from sim.cluster.gateway.admission import AdmissionPolicy, AlwaysAdmit
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.routing.policies import RoundRobin, RoutingPolicy
from sim.cluster.slo import check_priorities
from sim.config import Compatibility, EngineConfig, InvalidConfig
from sim.latency.model import LatencyModel

Role = Literal["shared", "prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """``instances`` engines that are alike. A shared pool prefills and decodes; the other roles come in pairs."""

    engine: EngineConfig
    latency: LatencyModel
    instances: int = 1
    name: str = ""
    role: Role = "shared"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_integer("instances", self.instances, least=1)
        check_choice("role", self.role, Role)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLatency:
    """What a request spends in the gateway beside its queue: µs to be admitted, and to be routed."""

    admission_us: int = 0
    routing_us: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        check_integer("admission_us", self.admission_us, least=0)
        check_integer("routing_us", self.routing_us, least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotIntervals:
    """How often what instances report is read, per signal, in µs; 0: whenever somebody looks.

    ``queue``: waiting and running requests. ``kv``: KV usage. ``cache``: which blocks are cached. What is in flight
    is the gateway's own knowledge and always exact.
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
    their steps together (``sim/cluster/run/lockstep.py``). ``flow_control`` None: no gateway queue. ``slo_priorities``
    override those of ``sim.cluster.slo``. Under ``compatibility`` blis loads are counted as the peer documents them.
    ``seed``: of every draw of the gateway.
    Raises InvalidConfig on what cannot be.
    """

    pools: tuple[Pool, ...]
    routing: RoutingPolicy = field(default_factory=RoundRobin)
    admission: AdmissionPolicy = field(default_factory=AlwaysAdmit)
    flow_control: FlowControl | None = None
    snapshot_interval_us: SnapshotIntervals = field(default_factory=SnapshotIntervals)
    latency: PipelineLatency = field(default_factory=PipelineLatency)
    slo_priorities: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    compatibility: Compatibility = "vllm"
    seed: int = 42
    lockstep: bool = False

    def __post_init__(self) -> None:
        """Check the settings; the first that cannot be is named."""
        if not self.pools:
            raise InvalidConfig("pools: got none, expected at least one")
        names = [pool.name for pool in self.pools]
        for name in names:
            if names.count(name) > 1:
                raise InvalidConfig(f"pools: got {name!r} twice, expected different names")
        check_roles(self.pools)
        if len({pool.engine.block_size for pool in self.pools}) > 1:
            raise InvalidConfig(
                "pools: got different block_size, expected one: prefixes are compared by block"
            )
        check_choice("compatibility", self.compatibility, Compatibility)
        check_integer("seed", self.seed, least=0)
        check_priorities(self.slo_priorities)
        if self.lockstep:
            check_lockstep(self)

    @property
    def num_instances(self) -> int:
        """How many engines there are."""
        return sum(pool.instances for pool in self.pools)

    @property
    def instance_names(self) -> tuple[str, ...]:
        """Each engine's name: its number, or ``pool/number`` where pools have names."""
        return tuple(
            f"{pool.name}/{number}" if pool.name else str(number)
            for pool in self.pools
            for number in range(pool.instances)
        )


def check_lockstep(config: ClusterConfig) -> None:
    """Raise InvalidConfig on what ranks in step are not simulated with."""
    if config.flow_control is not None:
        raise InvalidConfig(
            "lockstep: got true with flow_control, expected false: the two are not simulated together"
        )
    for pool in config.pools:
        engine = pool.engine
        if engine.pipeline_parallel_size > 1 or engine.compatibility == "blis" or pool.role != "shared":
            raise InvalidConfig(
                "lockstep: got true with pipeline stages, compatibility blis or prefill and decode pools, expected "
                "false: they are not simulated together"
            )


def check_roles(pools: tuple[Pool, ...]) -> None:
    """Raise InvalidConfig where prefill and decode do not stand together."""
    roles = {pool.role for pool in pools}
    for role, other in (("prefill", "decode"), ("decode", "prefill")):
        if role in roles and other not in roles:
            raise InvalidConfig(f"pools: got role {role} without {other}, expected both or neither")
