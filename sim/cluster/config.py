"""What a cluster is configured with; ``cluster:`` of TWIN.yaml, read and resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sim.cluster.checks import check_choice, check_integer
from sim.cluster.gateway.admission import AdmissionPolicy, AlwaysAdmit
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.routing.policies import OwnPolicy, RoundRobin, RoutingPolicy
from sim.cluster.slo import check_priorities
from sim.cluster.transfer.config import Disaggregation
from sim.config import Compatibility, EngineConfig, InvalidConfig
from sim.latency.model import LatencyModel

Role = Literal["shared", "prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """``instances`` engines that are alike.

    ``role``: a shared pool's instances serve requests whole. A decode pool's do, too, where no prefill instance
    computes the prompt; a prefill pool's compute prompts and nothing else.
    """

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
    their steps together (``sim/cluster/run/lockstep.py``). ``prefill_routing``: which prefill instance gets a prompt,
    None: by the policy of ``routing``. ``disaggregation`` None: prompts are computed where their answers are.
    ``flow_control`` None: no gateway queue. ``slo_priorities`` override those of ``sim.cluster.slo``. Under
    ``compatibility`` blis loads are counted as the peer documents them. ``seed``: of every draw of the gateway.
    Raises InvalidConfig on what cannot be.
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

    def __post_init__(self) -> None:
        """Check the settings; the first that cannot be is named."""
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
        check_choice("compatibility", self.compatibility, Compatibility)
        check_integer("seed", self.seed, least=0)
        check_priorities(self.slo_priorities)
        if self.lockstep:
            check_lockstep(self)

    @property
    def moves_kv(self) -> bool:
        """Whether any request's KV can be moved between instances."""
        return self.disaggregation is not None and self.disaggregation.moves_kv

    @property
    def role_of(self) -> tuple[Role, ...]:
        """Each engine's role."""
        return tuple(pool.role for pool in self.pools for _ in range(pool.instances))

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
        is_plain = engine.pipeline_parallel_size == 1 and engine.compatibility == engine.batching == "vllm"
        if not is_plain or pool.role != "shared":
            raise InvalidConfig(
                "lockstep: got true with pipeline stages, compatibility blis, another batching than vLLM's or prefill "
                "and decode pools, expected false: they are not simulated together"
            )


def check_roles(pools: tuple[Pool, ...]) -> None:
    """Raise InvalidConfig where prefill and decode do not stand together."""
    roles = {pool.role for pool in pools}
    for role, other in (("prefill", "decode"), ("decode", "prefill")):
        if role in roles and other not in roles:
            raise InvalidConfig(f"pools: got role {role} without {other}, expected both or neither")


def check_disaggregation(config: ClusterConfig) -> None:
    """Raise InvalidConfig where pools and the way prompts are handed on do not go together."""
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
    """Raise InvalidConfig on what no engine does beside handing KV on yet."""
    if pool.role == "shared":
        return
    if pool.engine.batching != "vllm":
        raise InvalidConfig(
            f"engine.batching: got {pool.engine.batching} in a {pool.role} pool, expected vllm: not simulated together "
            "with transfers of KV yet"
        )
    for name, is_on in (
        ("num_speculative_tokens", pool.engine.num_speculative_tokens > 0),
        ("num_cpu_blocks", pool.engine.num_cpu_blocks > 0),
        ("pipeline_parallel_size", pool.engine.pipeline_parallel_size > 1),
    ):
        if is_on:
            least = 1 if name == "pipeline_parallel_size" else 0
            raise InvalidConfig(
                f"engine.{name}: got {getattr(pool.engine, name)} in a {pool.role} pool, expected {least}: not "
                "simulated together with transfers of KV yet"
            )
