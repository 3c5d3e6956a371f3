"""Settings of scaling, nodes, start-up and failures of a cluster's instances, and of clients that retry."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, field
from typing import Literal

from sim.cluster.setting_checks import check_choice, check_integer, check_number, is_number
from sim.config import InvalidConfig

ScalingPolicy = Literal["saturation", "target", "schedule"]
Metric = Literal["in-flight", "waiting", "running", "kv"]
Drain = Literal["wait", "requeue"]
Placement = Literal["pack", "spread"]
RETRYABLE = (
    "rejected",
    "queue_full",
    "shed",
    "expired",
    "evicted",
    "dropped",
    "timed_out",
    "lost",
)
"""Ways out after which a client may try again; one that was refused for its length would be refused again."""

HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """The time from getting its GPUs to an instance's first request, µs: to load the model, and to warm up.

    Warm-up is what vLLM does before it is ready: profiling, compiling, capturing graphs.
    """

    loading_us: int = 0
    warm_up_us: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        for name in ("loading_us", "warm_up_us"):
            check_integer(f"startup.{name}", getattr(self, name), least=0)

    @property
    def total_us(self) -> int:
        """Both together."""
        return self.loading_us + self.warm_up_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """From ``at_us`` on the pool should have ``instances`` instances."""

    at_us: int
    instances: int

    def __post_init__(self) -> None:
        """Check the settings."""
        check_integer("schedule.at_us", self.at_us, least=0)
        check_integer("schedule.instances", self.instances, least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """How many instances a pool has as time goes by (``sim.cluster.infrastructure.autoscaling`` has the rules).

    ``policy``: ``saturation`` keeps spare KV and queue, ``target`` holds a mean per instance, ``schedule`` follows the
    clock; it repeats itself every ``repeat_us`` if that is not 0. It checks the load every ``interval_us``, and acts
    ``actuation_us`` after a decision. ``up_window_us``, ``down_window_us``: the smallest, or largest, number that was
    wanted within this time counts. ``up_cooldown_us``, ``down_cooldown_us``: the least time between two changes in that
    direction. ``max_up``, ``max_down``: instances at once, 0 without limit. ``idle_us``: where ``min_instances`` is 0,
    the last one is removed after this time without a request.

    ``drain`` of an instance that is to be removed: it gets no new requests and finishes those it has; with ``requeue``
    only those it has begun, and the others go back to the router. After ``drain_timeout_us``, if that is not 0, its
    remaining requests are lost.
    """

    policy: ScalingPolicy = "saturation"
    min_instances: int = 1
    max_instances: int | None = None
    interval_us: int = 15_000_000
    actuation_us: int = 0
    up_window_us: int = 0
    down_window_us: int = 300_000_000
    up_cooldown_us: int = 0
    down_cooldown_us: int = 0
    max_up: int = 0
    max_down: int = 0
    idle_us: int = 300_000_000
    drain: Drain = "wait"
    drain_timeout_us: int = 0
    kv_threshold: float = 0.8
    queue_threshold: float = 5.0
    kv_spare: float = 0.1
    queue_spare: float = 3.0
    metric: Metric = "in-flight"
    target: float | None = None
    tolerance: float = 0.1
    schedule: Sequence[Size] = ()
    repeat_us: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        check_choice("autoscaler.policy", self.policy, ScalingPolicy)
        check_choice("autoscaler.metric", self.metric, Metric)
        check_choice("autoscaler.drain", self.drain, Drain)
        for name in (
            *("min_instances", "actuation_us", "up_window_us", "down_window_us", "up_cooldown_us"),
            *("down_cooldown_us", "max_up", "max_down", "idle_us", "drain_timeout_us", "repeat_us"),
        ):
            check_integer(f"autoscaler.{name}", getattr(self, name), least=0)
        check_integer("autoscaler.interval_us", self.interval_us, least=1)
        check_number("autoscaler.kv_threshold", self.kv_threshold, least=0, most=1)
        for name in ("queue_threshold", "kv_spare", "queue_spare", "tolerance"):
            check_number(f"autoscaler.{name}", getattr(self, name), least=0)
        self._check_policy()
        if self.max_instances is not None:
            check_integer("autoscaler.max_instances", self.max_instances, least=max(1, self.min_instances))

    def _check_policy(self) -> None:
        """Check the settings that one policy needs and the others do not have."""
        if (self.policy == "target") != (self.target is not None):
            raise InvalidConfig(
                f"autoscaler.target: got {self.target!r} with policy {self.policy}, expected a number with policy "
                "target and none with another"
            )
        if self.target is not None and not (is_number(self.target) and self.target > 0):
            check_number("autoscaler.target", self.target, least=1e-9)
        if (self.policy == "schedule") != bool(self.schedule):
            raise InvalidConfig(
                f"autoscaler.schedule: got {len(self.schedule)} entries with policy {self.policy}, expected some with "
                "policy schedule and none with another"
            )
        if self.policy != "schedule":
            if self.max_instances is None:
                raise InvalidConfig("autoscaler.max_instances: got nothing, expected an integer >= 1")
            return
        times = [size.at_us for size in self.schedule]
        if times != sorted(set(times)):
            raise InvalidConfig(
                "autoscaler.schedule: got times out of order, expected each later than the one before"
            )
        if self.repeat_us and times[-1] >= self.repeat_us:
            raise InvalidConfig(
                f"autoscaler.repeat_us: got {self.repeat_us}, expected more than the last time of the schedule"
            )
        if max(size.instances for size in self.schedule) < 1:
            raise InvalidConfig(
                "autoscaler.schedule: got no instance at any time, expected at least one at some"
            )

    @property
    def reaches_zero(self) -> bool:
        """Whether the pool may be without an instance at some time."""
        if self.policy == "schedule":
            return any(size.instances == 0 for size in self.schedule)
        return self.min_instances == 0


def sizes_of(instances: int, scaler: Autoscaler | None) -> tuple[int, int]:
    """Return how many instances a pool has at the beginning, and at most."""
    if scaler is None:
        return instances, instances
    if scaler.policy == "schedule":
        first = scaler.schedule[0]
        at_first = first.instances if first.at_us == 0 else instances
        return at_first, max(at_first, *(size.instances for size in scaler.schedule))
    assert scaler.max_instances is not None  # noqa: S101 - checked
    return min(max(instances, scaler.min_instances), scaler.max_instances), scaler.max_instances


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Equal nodes that instances are placed on.

    There are always at least ``min_nodes``, and up to ``max_nodes`` where instances need them: each is ready
    ``provisioning_us`` after it was ordered. A node without instances is removed after ``idle_us``. ``cost_per_hour``:
    of a node, from the order on. ``placement``: an instance goes to the node with the fewest free GPUs that suffice, or
    with ``spread`` to the one with the most.
    """

    name: str
    gpus_per_node: int = 8
    min_nodes: int = 0
    max_nodes: int = 1
    provisioning_us: int = 0
    idle_us: int = 600_000_000
    cost_per_hour: float = 0.0
    placement: Placement = "pack"

    def __post_init__(self) -> None:
        """Check the settings."""
        if not isinstance(self.name, str) or not self.name:
            raise InvalidConfig(f"node_pools.name: got {self.name!r}, expected a name")
        check_integer("node_pools.gpus_per_node", self.gpus_per_node, least=1)
        for name in ("min_nodes", "provisioning_us", "idle_us"):
            check_integer(f"node_pools.{name}", getattr(self, name), least=0)
        check_integer("node_pools.max_nodes", self.max_nodes, least=max(1, self.min_nodes))
        check_number("node_pools.cost_per_hour", self.cost_per_hour, least=0)
        check_choice("node_pools.placement", self.placement, Placement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The instance of this number fails at ``at_us`` and begins to start again ``down_us`` later."""

    at_us: int
    instance: int
    down_us: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        for name in ("at_us", "instance", "down_us"):
            check_integer(f"failures.schedule.{name}", getattr(self, name), least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """When instances fail: by a schedule, by chance, or both. The requests and the KV of a failed instance are lost.

    ``mtbf_us``: mean time from being ready to a failure, exponential; 0: none by chance. ``mttr_us``: mean time until
    it begins to start again, exponential; it then loads and warms up as any other.
    """

    mtbf_us: int = 0
    mttr_us: int = 60_000_000
    schedule: Sequence[Failure] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        """Check the settings."""
        check_integer("failures.mtbf_us", self.mtbf_us, least=0)
        check_integer("failures.mttr_us", self.mttr_us, least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Clients that send a request again: up to ``max_attempts`` in all, after the ways out in ``on``.

    The pause before the second attempt is ``backoff_us``, before each further one ``backoff_factor`` times the one
    before, at most ``max_backoff_us``; a random part of it, at most ``jitter_frac``, is left out.
    ``timeout_us``: after which the client of a request without a deadline gives up an attempt, 0 never. Each attempt
    has as much time as the first.
    """

    max_attempts: int = 3
    on: Sequence[str] = ("rejected", "queue_full", "shed", "dropped", "lost", "timed_out")
    backoff_us: int = 500_000
    backoff_factor: float = 2.0
    max_backoff_us: int = 30_000_000
    jitter_frac: float = 0.0
    timeout_us: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        check_integer("retries.max_attempts", self.max_attempts, least=2)
        for way in self.on:
            if way not in RETRYABLE:
                raise InvalidConfig(f"retries.on: got {way!r}, expected some of {', '.join(RETRYABLE)}")
        if not self.on:
            raise InvalidConfig(f"retries.on: got none, expected some of {', '.join(RETRYABLE)}")
        for name in ("backoff_us", "max_backoff_us", "timeout_us"):
            check_integer(f"retries.{name}", getattr(self, name), least=0)
        check_number("retries.backoff_factor", self.backoff_factor, least=1)
        check_number("retries.jitter_frac", self.jitter_frac, least=0, most=1)
