# ruff: noqa: ARG002 - rules share a shape and need not look at everything
"""The routing policies once more, in lists, dicts and sets, slow and plain: what the compiled ones must equal."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Protocol

from sim.cluster.routing.routing_policies import (
    SCORERS,
    AlwaysBusiest,
    CacheAware,
    KubeProxy,
    KvCost,
    LeastLoaded,
    PowerOfTwo,
    RandomChoice,
    RoundRobin,
    RoutingPolicy,
    Session,
    VllmDp,
    Weighted,
)

Policy = Any  # each rule knows which

WORD = (1 << 64) - 1


def draw(seed: int, request: int, number: int) -> float:
    """Splitmix64 of (seed, the request's own stretch of indices), in integers that do not overflow."""
    index = (request + 1) * (1 << 32) + (1 << 31) + number
    z = (seed * 0x9E3779B97F4A7C15 + index * 0xD1B54A32D192ED03) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    z ^= z >> 31
    return (float(z >> 11) + 0.5) / 2**53


def pick(choices: list[int], seed: int, request: int, number: int = 0) -> int:
    return choices[min(int(draw(seed, request, number) * len(choices)), len(choices) - 1)]


@dataclass(kw_only=True)
class Prompt:
    """A request as a router sees it; ``ids`` are those of its prompt's full blocks only."""

    number: int
    tokens: int
    ids: list[int]
    num_blocks: int
    session: int = -1
    adapter: int = -1


@dataclass(kw_only=True)
class Instance:
    """An instance as a router sees it."""

    in_flight: list[int] = field(default_factory=list)
    waiting: int = 0
    running: int = 0
    kv_usage: float = 0.0
    cached: int = 0
    host: int = 0
    adapters: dict[int, int] = field(default_factory=dict)  # 1 waiting, 2 active
    max_adapters: int = 0


@dataclass(kw_only=True)
class World:
    """The fleet, and what the policies share."""

    instances: list[Instance]
    order: list[int]
    block_size: int
    seed: int
    is_blis: bool = False

    def load(self, i: int) -> int:
        at = self.instances[i]
        return len(at.in_flight) + (at.waiting + at.running if self.is_blis else 0)

    def least_loaded(self) -> int:
        return min(self.order, key=self.load)


class Rule(Protocol):
    def choose(self, prompt: Prompt, time_us: int) -> int: ...
    def routed(self, prompt: Prompt, to: int) -> None: ...
    def first_token(self, prompt: Prompt, at: int) -> None: ...
    def finished(self, prompt: Prompt, at: int) -> None: ...
    def snapshot(self) -> None: ...


class Plain:
    """What most policies make of what happens: nothing."""

    def __init__(self, world: World, policy: Policy) -> None:
        self.world, self.policy = world, policy
        self.begin()

    def begin(self) -> None: ...
    def routed(self, prompt: Prompt, to: int) -> None: ...
    def first_token(self, prompt: Prompt, at: int) -> None: ...
    def finished(self, prompt: Prompt, at: int) -> None: ...
    def snapshot(self) -> None: ...


class InTurn(Plain):
    def begin(self) -> None:
        self.decisions = 0

    def choose(self, prompt: Prompt, time_us: int) -> int:
        return self.world.order[self.decisions % len(self.world.order)]

    def routed(self, prompt: Prompt, to: int) -> None:
        self.decisions += 1


class Anywhere(Plain):
    def choose(self, prompt: Prompt, time_us: int) -> int:
        return pick(self.world.order, self.world.seed, prompt.number)


class OfTwo(Plain):
    def choose(self, prompt: Prompt, time_us: int) -> int:
        first = pick(self.world.order, self.world.seed, prompt.number)
        others = [i for i in self.world.order if i != first]
        if not others:
            return first
        second = pick(others, self.world.seed, prompt.number, 1)
        return min(first, second, key=self.world.load)


class BySession(Plain):
    def begin(self) -> None:
        self.home: dict[int, int] = {}

    def choose(self, prompt: Prompt, time_us: int) -> int:
        home = self.home.get(prompt.session)
        if home in self.world.order:
            return home
        return pick(self.world.order, self.world.seed, prompt.number)

    def routed(self, prompt: Prompt, to: int) -> None:
        if prompt.session >= 0:
            self.home[prompt.session] = to


class ByConnection(Plain):
    """Connections are [instance, number of the request that uses it or None, idle since]."""

    def begin(self) -> None:
        self.pool: list[list[Any]] = []
        self.taken: list[Any] | None = None
        self.num_opened = self.now = 0

    def choose(self, prompt: Prompt, time_us: int) -> int:
        self.now = time_us
        oldest = time_us - self.policy.keep_alive_us
        self.pool = [c for c in self.pool if c[1] is not None or c[2] >= oldest]
        self.taken = next((c for c in self.pool if c[1] is None and c[0] in self.world.order), None)
        if self.taken is not None:
            return int(self.taken[0])
        if self.policy.mode == "ipvs":
            return self.world.order[self.num_opened % len(self.world.order)]
        return pick(self.world.order, self.world.seed, prompt.number)

    def routed(self, prompt: Prompt, to: int) -> None:
        if self.taken is None or self.taken[0] != to:
            self.taken = [to, None, 0]
            self.pool.append(self.taken)
            self.num_opened += 1
        self.taken[1] = prompt.number

    def finished(self, prompt: Prompt, at: int) -> None:
        for c in self.pool:
            if c[1] == prompt.number:
                c[1:] = [None, self.now]


class Least(Plain):
    def choose(self, prompt: Prompt, time_us: int) -> int:
        least = min(map(self.world.load, self.world.order))
        tied = [i for i in self.world.order if self.world.load(i) == least]
        if self.policy.ties == "random" or self.world.is_blis:
            return pick(tied, self.world.seed, prompt.number)
        return tied[0]


class Busiest(Plain):
    def choose(self, prompt: Prompt, time_us: int) -> int:
        return max(self.world.order, key=self.world.load)


class Dp(Plain):
    def begin(self) -> None:
        self.start = len(self.world.instances) * self.policy.client // self.policy.clients
        self.version = tuple(map(int, self.policy.vllm_version.split(".")))
        self.sent = [0] * len(self.world.instances)

    def score(self, i: int) -> float:
        at = self.world.instances[i]
        waiting = at.waiting + self.sent[i]
        if self.version < (0, 27):
            return waiting * 4 + at.running
        score = float(max(self.policy.clients * len(at.in_flight), waiting + at.running))
        return score + (waiting * 6.0 * max(0.0, at.kv_usage - 0.5) if waiting else 0.0)

    def choose(self, prompt: Prompt, time_us: int) -> int:
        order = self.world.order
        scan = [order[(self.start + i) % len(order)] for i in range(len(order))]
        return min(scan, key=self.score)

    def routed(self, prompt: Prompt, to: int) -> None:
        self.sent[to] += self.policy.clients
        if self.version >= (0, 25):
            self.start = (self.start + 1) % len(self.world.order)

    def snapshot(self) -> None:
        self.sent = [0] * len(self.sent)


# -- cache-aware ------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Node:
    run: list[int]
    creator: int
    touched: dict[int, int]  # by instance: when
    children: dict[int, Node] = field(default_factory=dict)


class ByTree(Plain):
    def begin(self) -> None:
        self.root, self.now, self.evicted = Node([], -1, {}), 0, 0

    def match(self, ids: list[int]) -> tuple[Node, int]:
        node, done = self.root, 0
        while done < len(ids) and ids[done] in node.children:
            node = node.children[ids[done]]
            shared = common(node.run, ids[done:])
            done += shared
            if shared < len(node.run):
                break
        return node, done

    def choose(self, prompt: Prompt, time_us: int) -> int:
        if time_us // self.policy.eviction_interval_us > self.evicted:
            self.evicted = time_us // self.policy.eviction_interval_us
            self.evict()
        world, policy = self.world, self.policy
        loads = [world.load(i) for i in world.order]
        is_apart = max(loads) - min(loads) > policy.balance_abs_threshold
        if is_apart and max(loads) > policy.balance_rel_threshold * min(loads):
            return world.least_loaded()
        node, done = self.match(prompt.ids)
        known = done * world.block_size / prompt.tokens if prompt.tokens else 0.0
        if known <= policy.cache_threshold or node is self.root:
            return world.least_loaded()
        owners = [i for i in world.order if i in node.touched]
        if policy.owner == "creator" and node.creator in owners:
            return node.creator
        if policy.owner == "least-loaded":
            owners.sort(key=world.load)
        return owners[0] if owners else world.least_loaded()

    def routed(self, prompt: Prompt, to: int) -> None:
        self.now += 1
        node, rest = self.root, prompt.ids
        while rest:
            child = node.children.get(rest[0])
            if child is None:
                child = node.children[rest[0]] = Node(rest, to, {})
            shared = common(child.run, rest)
            if shared < len(child.run):
                upper = Node(child.run[:shared], child.creator, dict(child.touched))
                child.run = child.run[shared:]
                upper.children[child.run[0]] = child
                child = node.children[rest[0]] = upper
            child.touched[to] = self.now
            node, rest = child, rest[shared:]

    def nodes(self, node: Node) -> list[Node]:
        return [found for child in node.children.values() for found in [child, *self.nodes(child)]]

    def evict(self) -> None:
        most = self.policy.max_tree_size // self.world.block_size
        for i in range(len(self.world.instances)):
            mine = [node for node in self.nodes(self.root) if i in node.touched]
            while sum(len(node.run) for node in mine) > most:
                leaves = [n for n in mine if not any(i in c.touched for c in n.children.values())]
                oldest = min(leaves, key=lambda node: node.touched[i])
                del oldest.touched[i]
                mine.remove(oldest)
        self.prune(self.root)

    def prune(self, node: Node) -> None:
        for child in node.children.values():
            self.prune(child)
        node.children = {key: child for key, child in node.children.items() if child.touched}


def common(left: list[int], right: list[int]) -> int:
    return next(
        (k for k, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )


# -- weighted ---------------------------------------------------------------------------------------------------


class ByScores(Plain):
    def begin(self) -> None:
        self.sent: list[OrderedDict[object, None]] = [OrderedDict() for _ in self.world.instances]
        self.num_own = 0
        self.turns = list(range(len(self.world.instances)))
        weights = [float(self.policy.scorers.get(name, 0)) for name in SCORERS]
        self.weights = {n: w / sum(weights) for n, w in zip(SCORERS, weights, strict=True) if w}

    def hits(self, prompt: Prompt, i: int) -> int:
        return next((k for k, block in enumerate(prompt.ids) if block not in self.sent[i]), len(prompt.ids))

    def is_cold(self, prompt: Prompt) -> bool:
        if "precise-prefix-cache" in self.weights:
            return not any(self.world.instances[i].cached for i in self.world.order)
        return not any(self.hits(prompt, i) for i in self.world.order)

    def min_max(self, values: dict[int, int], *, more_is_better: bool) -> dict[int, float]:
        low, high = min(values.values()), max(values.values())
        if low == high:
            return dict.fromkeys(values, 1.0)
        return {i: ((v - low) if more_is_better else (high - v)) / (high - low) for i, v in values.items()}

    def scores_of(self, scorer: str, prompt: Prompt) -> dict[int, float]:  # noqa: PLR0911 - a case per scorer
        world, order = self.world, self.world.order
        at = {i: world.instances[i] for i in order}
        match scorer:
            case "prefix-affinity":
                return {i: self.hits(prompt, i) / max(1, prompt.num_blocks) for i in order}
            case "precise-prefix-cache":
                return self.min_max({i: at[i].cached for i in order}, more_is_better=True)
            case "no-hit-lru":
                turns = [i for i in self.turns if i in order]
                last = max(1, len(turns) - 1)
                cold = self.is_cold(prompt)
                return {i: 1.0 - turns.index(i) / last if cold else 0.5 for i in order}
            case "queue-depth":
                depth = {i: world.load(i) if world.is_blis else at[i].waiting for i in order}
                return self.min_max(depth, more_is_better=False)
            case "kv-utilization":
                return {i: 1.0 - at[i].kv_usage for i in order}
            case "load-balance":
                return {i: 1.0 / (1.0 + world.load(i)) for i in order}
            case "active-requests":
                most = max(len(at[i].in_flight) for i in order)
                return {i: (most - len(at[i].in_flight)) / most if most else 1.0 for i in order}
            case "running-requests":
                return self.min_max({i: at[i].running for i in order}, more_is_better=False)
            case "load-aware":
                return {i: 0.5 * (1.0 - min(at[i].waiting, 128) / 128) for i in order}
            case "vllm-dp":
                return self.min_max(
                    {i: 4 * at[i].waiting + at[i].running for i in order}, more_is_better=False
                )
            case _:
                return {i: self.adapter_score(at[i], prompt.adapter) for i in order}

    def adapter_score(self, at: Instance, adapter: int) -> float:
        if adapter < 0 or at.adapters.get(adapter) == 2:
            return 1.0
        if len(at.adapters) < at.max_adapters:
            return 0.8
        return 0.6 if adapter in at.adapters else 0.0

    def choose(self, prompt: Prompt, time_us: int) -> int:
        totals = dict.fromkeys(self.world.order, 0.0)
        for scorer, weight in self.weights.items():
            for i, score in self.scores_of(scorer, prompt).items():
                totals[i] += weight * score
        best = max(totals.values())
        return pick([i for i in self.world.order if totals[i] == best], self.world.seed, prompt.number)

    def routed(self, prompt: Prompt, to: int) -> None:
        if self.is_cold(prompt):
            self.turns.remove(to)
            self.turns.append(to)
        for block in prompt.ids:
            self.sent[to][block] = None
            self.sent[to].move_to_end(block)
        for _ in range(prompt.num_blocks - len(prompt.ids)):  # which no other request has
            self.num_own += 1
            self.sent[to][f"own {self.num_own}"] = None
        while len(self.sent[to]) > self.policy.prefix_capacity_blocks:
            self.sent[to].popitem(last=False)


# -- kv-cost ----------------------------------------------------------------------------------------------------


class ByCost(Plain):
    def begin(self) -> None:
        self.prompts: dict[int, Prompt] = {}
        self.prefilling: set[int] = set()

    def cost(self, prompt: Prompt, i: int, todo: dict[int, int]) -> float:
        world, policy, at = self.world, self.policy, self.world.instances[i]
        credit = policy.overlap_score_credit * at.cached
        if policy.overlap_score_credit_decay > 0 and prompt.tokens:
            excess = (todo[i] - min(todo.values())) / prompt.tokens
            credit /= 1.0 + policy.overlap_score_credit_decay * excess
        credit += policy.host_cache_hit_weight * at.host
        active = [self.prompts[r] for r in at.in_flight]
        shared = {block for other in [*active, prompt] for block in other.ids}
        own = sum(other.num_blocks - len(other.ids) for other in [*active, prompt])
        prefill = max(0.0, (todo[i] + prompt.tokens) / world.block_size - credit)
        return (
            policy.prefill_load_scale * prefill
            + (len(shared) + own)
            + policy.decode_active_request_weight * len(at.in_flight)
        )

    def choose(self, prompt: Prompt, time_us: int) -> int:
        world, policy = self.world, self.policy
        todo = {
            j: sum(self.prompts[r].tokens for r in world.instances[j].in_flight if r in self.prefilling)
            for j in world.order
        }
        costs = {i: self.cost(prompt, i, todo) for i in world.order}
        least, most = min(costs.values()), max(costs.values())
        if policy.temperature == 0:
            return pick([i for i in world.order if costs[i] == least], world.seed, prompt.number)
        spread = most - least or 1.0
        weights = {i: math.exp((least - c) / spread / policy.temperature) for i, c in costs.items()}
        left = draw(world.seed, prompt.number, 0) * sum(weights.values())
        for i, weight in weights.items():
            left -= weight
            if left <= 0:
                return i
        return world.order[-1]

    def routed(self, prompt: Prompt, to: int) -> None:
        self.prompts[prompt.number] = prompt
        self.prefilling.add(prompt.number)

    def first_token(self, prompt: Prompt, at: int) -> None:
        self.prefilling.discard(prompt.number)


RULES: dict[type[Any], Any] = {
    RoundRobin: InTurn,
    RandomChoice: Anywhere,
    PowerOfTwo: OfTwo,
    Session: BySession,
    KubeProxy: ByConnection,
    LeastLoaded: Least,
    AlwaysBusiest: Busiest,
    VllmDp: Dp,
    CacheAware: ByTree,
    Weighted: ByScores,
    KvCost: ByCost,
}


def rule_of(world: World, policy: RoutingPolicy) -> Rule:
    """Return the plain form of a policy."""
    rule: Rule = RULES[type(policy)](world, policy)
    return rule
