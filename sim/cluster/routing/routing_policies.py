"""The routing policies and their settings, by the names that TWIN.yaml gives them: a class each, and a row.

Nothing here is compiled, so that a configuration is read without numba. What a policy does is in its ``module``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from lazy_dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from sim.cluster.setting_checks import built_in, check_choice, check_integer, check_number
from sim.config import InvalidConfig

TieBreak = Literal["first", "random"]
ServiceMode = Literal["iptables", "ipvs"]
Owner = Literal["creator", "least-loaded"]

SCORERS = (
    "prefix-affinity",
    "precise-prefix-cache",
    "no-hit-lru",
    "queue-depth",
    "kv-utilization",
    "load-balance",
    "active-requests",
    "running-requests",
    "load-aware",
    "vllm-dp",
    "lora-affinity",
)
"""The scorers, in the order in which their scores are added up, whatever order the configuration has."""

REPORTS = {
    "queues": ("queue-depth", "running-requests", "load-aware", "vllm-dp"),
    "kv": ("kv-utilization", "load-balance"),
    "caches": ("precise-prefix-cache",),
}
"""What instances report, and the scorers that read it: how many requests run and wait, the share of KV blocks in use,
and how much of a prompt is cached."""

DEFAULT_SCORERS = {"prefix-affinity": 2.0, "active-requests": 3.0, "kv-utilization": 1.0}
"""A request whose prompt is cached to a share p on the busiest instance goes to an idle one: 2p against at least 3.

llm-d's well-known 3 : 2 : 2 of prefix-affinity, queue-depth and kv-utilization has no such limit: while no request
waits, queue-depth is the same everywhere, and one instance can get all the traffic while the others idle.
"""


class RoutedFleet(NamedTuple):
    """What a router's numbers depend on beside its policy's settings; ``is_blis``: it counts loads as BLIS does."""

    num_instances: int
    block_size: int
    is_blis: bool


class Policy:
    """What a policy says of itself; its own class is a dataclass of its settings.

    ``name``: in TWIN.yaml. ``module``: the module of this room with its compiled functions, in ``FUNCTIONS``.
    ``looks_at``: of how many candidates a decision reads the state. ``floats``, ``integers``: the numbers that compiled
    code reads of it in ``Router.settings``, and those that it keeps there.
    """

    __slots__ = ()
    name: ClassVar[str]
    module: ClassVar[str]
    looks_at: ClassVar[Literal["none", "two", "all"]] = "all"
    floats: ClassVar[tuple[str, ...]] = ()
    integers: ClassVar[tuple[str, ...]] = ()

    @property
    def reports(self) -> frozenset[str]:
        """Which of ``REPORTS`` it reads."""
        return frozenset()

    def numbers(self, fleet: RoutedFleet) -> dict[str, float]:  # noqa: ARG002 - for those that depend on it
        """Return those numbers that do not begin as 0: settings and properties of the same name."""
        return {name: getattr(self, name) for name in self.floats + self.integers if hasattr(self, name)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobin(Policy):
    """Every candidate in turn."""

    name: ClassVar[str] = "round-robin"
    module = "simple"
    looks_at = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomChoice(Policy):
    """Any candidate, each equally likely."""

    name: ClassVar[str] = "random"
    module = "simple"
    looks_at = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOfTwo(Policy):
    """The less loaded of two different candidates drawn at random; the first drawn if they tie.

    Mitzenmacher, "The power of two choices in randomized load balancing", 2001; vllm-router's rule.
    """

    name: ClassVar[str] = "power-of-two"
    module = "simple"
    looks_at = "two"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Policy):
    """Where the session went before; a new session, or a request without one, goes anywhere at random."""

    name: ClassVar[str] = "session"
    module = "simple"
    looks_at = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeProxy(Policy):
    """A Kubernetes service: chooses for a new connection; a connection that is kept stays with its instance.

    One client sends all requests. It takes the idle connection that was opened first, and closes one that has been idle
    for longer than ``keep_alive_us`` (``sim.cluster.routing.connections``). ``mode``: kube-proxy's; ``iptables``
    chooses any candidate for a new connection, ``ipvs`` the next in turn.
    """

    name: ClassVar[str] = "kube-proxy"
    module = "connections"
    integers = ("keep_alive_us", "takes_turns", "num_connections", "num_opened")
    mode: ServiceMode = "iptables"
    keep_alive_us: int = 5_000_000

    def __post_init__(self) -> None:
        """Check the settings."""
        check_choice("mode", self.mode, ServiceMode)
        check_integer("keep_alive_us", self.keep_alive_us, least=0)

    @property
    def takes_turns(self) -> bool:
        """Whether a new connection goes to the next candidate."""
        return self.mode == "ipvs"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastLoaded(Policy):
    """The fewest requests in flight. Ties: the ``first`` candidate, as in vllm-router, or one at ``random``."""

    name: ClassVar[str] = "least-loaded"
    module = "simple"
    integers = ("has_random_ties",)
    ties: TieBreak = "first"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_choice("ties", self.ties, TieBreak)

    def numbers(self, fleet: RoutedFleet) -> dict[str, float]:
        """Return whether ties are drawn for: always, as BLIS does."""
        return {"has_random_ties": fleet.is_blis or self.ties == "random"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlwaysBusiest(Policy):
    """The most requests in flight, the first candidate in ties: the worst choice, for tests."""

    name: ClassVar[str] = "always-busiest"
    module = "simple"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted(Policy):
    """The highest weighted sum of scores in [0, 1]; ties at random. Weights are normalised: their ratios count.

    ``prefix_capacity_blocks``: how many blocks per instance the router remembers having sent there.
    """

    name: ClassVar[str] = "weighted"
    module = "weighted"
    integers = (
        "keeps_prefixes",
        "asks_caches",
        "prefix_capacity_blocks",
        "is_cold",
    )  # is_cold: the request in hand hits nothing
    scorers: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_SCORERS))
    prefix_capacity_blocks: int = 10_000

    def __post_init__(self) -> None:
        """Check the settings."""
        if not isinstance(self.scorers, Mapping) or not self.scorers:
            raise InvalidConfig(
                f"scorers: got {self.scorers!r}, expected scorers with their weights ("
                "{queue-depth: 2, kv-utilization: 1})"
            )
        for scorer, weight in self.scorers.items():
            if scorer not in SCORERS:
                raise InvalidConfig(f"scorers: got {scorer!r}, expected one of {', '.join(SCORERS)}")
            check_number(f"scorers.{scorer}", weight, least=0)
        if not sum(self.scorers.values()) > 0:
            raise InvalidConfig(f"scorers: got {dict(self.scorers)!r}, expected one weight above 0")
        check_integer("prefix_capacity_blocks", self.prefix_capacity_blocks, least=1)

    def has(self, *scorers: str) -> bool:
        """Return whether one of these scorers counts."""
        return any(self.scorers.get(scorer, 0) > 0 for scorer in scorers)

    @property
    def keeps_prefixes(self) -> bool:
        """Whether a scorer reads what the router sent to each instance."""
        return self.has("prefix-affinity") or (self.has("no-hit-lru") and not self.asks_caches)

    @property
    def asks_caches(self) -> bool:
        """Whether a scorer reads what each instance has cached."""
        return self.has("precise-prefix-cache")

    @property
    def reports(self) -> frozenset[str]:
        """Which of ``REPORTS`` its scorers read."""
        return frozenset(report for report, scorers in REPORTS.items() if self.has(*scorers))


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmDp(Policy):
    """vLLM's own data-parallel balancer, as of ``vllm_version``.

    From 0.27: the larger of the front end's own requests and the last counts of all, plus a penalty for those
    that wait while KV runs short. From 0.25: 4 * waiting + running, scanned from another rank each time. Before:
    the same, always scanned from one rank. (vllm/v1/engine/core_client.py:get_core_engine_for_request of 0.12.0,
    0.24.0, 0.25.0, 0.26.0, 0.27.0 and 0.32.0.) ``clients``: front ends; ``client``: which of them this one is.
    """

    name: ClassVar[str] = "vllm-dp"
    module = "vllm_dp"
    integers = ("dp_rule", "num_clients")
    vllm_version: str = "0.32.0"
    clients: int = 1
    client: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        check_integer("clients", self.clients, least=1)
        check_integer("client", self.client, least=0)
        if self.client >= self.clients:
            raise InvalidConfig(f"client: got {self.client}, expected a number below clients, {self.clients}")
        version_of(self.vllm_version)

    @property
    def reports(self) -> frozenset[str]:
        """The last counts of all, and for the penalty their KV."""
        return frozenset(("queues", "kv"))

    def numbers(self, fleet: RoutedFleet) -> dict[str, float]:
        """Return which of the three rules it is, from the oldest, 0; its front ends; where its first scan begins."""
        version = version_of(self.vllm_version)
        return {
            "dp_rule": int(version >= (0, 25)) + int(version >= (0, 27)),
            "num_clients": self.clients,
            "next_place": fleet.num_instances * self.client // self.clients,
        }


def version_of(text: object) -> tuple[int, int]:
    """Return (major, minor) of a version. Raises InvalidConfig on a text that is not one."""
    parts = text.split(".") if isinstance(text, str) else []
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        raise InvalidConfig(f"vllm_version: got {text!r}, expected a version such as '0.32.0'")
    return int(parts[0]), int(parts[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAware(Policy):
    """Where most of the prompt was sent before, unless loads differ too much: sglang-router's and vllm-router's.

    Loads differ too much when max - min > ``balance_abs_threshold`` and max > ``balance_rel_threshold`` * min: then,
    and where at most ``cache_threshold`` of the prompt is known, the least loaded instance gets it. ``owner``: the
    instance that a known prefix belongs to: the ``creator`` of the deepest node (sglang-router 0.3.2), or the
    ``least-loaded`` of those that were sent it (vllm-router 0.1.17). Every ``eviction_interval_us`` the least recently
    used leaves of an instance go while it holds more than ``max_tree_size`` tokens.
    """

    name: ClassVar[str] = "cache-aware"
    module = "cache_aware"
    floats = ("cache_threshold", "balance_abs_threshold", "balance_rel_threshold")
    integers = ("takes_least_loaded_owner", "max_tree_ids", "eviction_interval_us", "next_eviction_us")
    cache_threshold: float = 0.3
    balance_abs_threshold: float = 64
    balance_rel_threshold: float = 1.5
    owner: Owner = "creator"
    max_tree_size: int = 1 << 26
    eviction_interval_us: int = 60_000_000

    def __post_init__(self) -> None:
        """Check the settings."""
        check_number("cache_threshold", self.cache_threshold, least=0, most=1)
        check_number("balance_abs_threshold", self.balance_abs_threshold, least=0)
        check_number("balance_rel_threshold", self.balance_rel_threshold, least=0)
        check_choice("owner", self.owner, Owner)
        check_integer("max_tree_size", self.max_tree_size, least=0)
        check_integer("eviction_interval_us", self.eviction_interval_us, least=1)

    def numbers(self, fleet: RoutedFleet) -> dict[str, float]:
        """Return the settings, the tree's size in blocks, and when it is first cut."""
        return {
            **Policy.numbers(self, fleet),
            "takes_least_loaded_owner": self.owner == "least-loaded",
            "max_tree_ids": self.max_tree_size // fleet.block_size,
            "next_eviction_us": self.eviction_interval_us,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCost(Policy):
    """Dynamo's KV router: the least cost in blocks of prefill to do and of decode held, credit for cached ones.

    cost = ``prefill_load_scale`` * max(0, prefill - credit) + decode + ``decode_active_request_weight`` * active
    requests. Names, terms and defaults are Dynamo 1.4.2's, less the credit of blocks on disk, a tier that no engine
    here has; ``temperature`` 0 takes the least cost, ties at random, above 0 it draws by softmax over the costs,
    normalised by their range.
    """

    name: ClassVar[str] = "kv-cost"
    module = "kv_cost"
    floats = (
        *("prefill_load_scale", "overlap_score_credit", "overlap_score_credit_decay"),
        *("host_cache_hit_weight", "decode_active_request_weight", "temperature"),
    )
    integers = ("num_active_pairs",)
    prefill_load_scale: float = 1.0
    overlap_score_credit: float = 1.0
    overlap_score_credit_decay: float = 0.0
    host_cache_hit_weight: float = 0.75
    decode_active_request_weight: float = 0.0
    temperature: float = 0.0

    def __post_init__(self) -> None:
        """Check the settings."""
        for name in self.floats:
            check_number(name, getattr(self, name), least=0)

    @property
    def reports(self) -> frozenset[str]:
        """What is cached, for the credit."""
        return frozenset(("caches",))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPolicy(Policy):
    """A user's function: (fleet, request, time_us) to an instance number. It must change nothing it is given.

    ``fleet`` and ``request`` are a ``FleetView`` and a ``RequestView`` (``sim.cluster.routing.own``).
    """

    name: ClassVar[str] = "module:attribute"
    choose: Callable[..., int]

    def __post_init__(self) -> None:
        """Check the settings."""
        if not callable(self.choose):
            raise InvalidConfig(f"policy: got {self.choose!r}, expected a function")


RoutingPolicy = (
    RoundRobin
    | RandomChoice
    | PowerOfTwo
    | Session
    | KubeProxy
    | LeastLoaded
    | AlwaysBusiest
    | Weighted
    | VllmDp
    | CacheAware
    | KvCost
    | OwnPolicy
)
POLICIES: tuple[type[Policy], ...] = tuple(each for each in get_args(RoutingPolicy) if each is not OwnPolicy)
"""The compiled ones."""

ROUTING_POLICIES: dict[str, Callable[..., RoutingPolicy]] = {each.name: each for each in POLICIES}  # type: ignore[misc] # the classes of the union
"""The policies by their names in TWIN.yaml."""


def routing_policy(settings: Mapping[str, Any]) -> RoutingPolicy:
    """Return the policy that ``routing:`` of TWIN.yaml asks for. Raises InvalidConfig."""
    return built_in(ROUTING_POLICIES, settings, section="routing")
