"""The keys of ``cluster:``, part of the table in ``replay.twin.config_keys``. Light: reading it compiles nothing."""

from __future__ import annotations

from collections.abc import Mapping

from replay.twin.keys.key import Key

ROUTING_NAMES = (
    "round-robin",
    "random",
    "power-of-two",
    "session",
    "least-loaded",
    "always-busiest",
    "weighted",
    "vllm-dp",
    "cache-aware",
    "kv-cost",
)
"""What ``cluster.routing.policy`` may say beside ``module:attribute``."""

ADMISSION_NAMES = ("always", "reject-all", "token-bucket", "tier-shed", "utilization", "tenant-budget")
"""What ``cluster.admission.policy`` may say."""

NOT_YET: Mapping[str, str] = {
    "autoscaler": "a number of instances that changes is not simulated yet",
}
"""Keys of ``cluster:`` with a meaning to come: refused in words that say so."""


def _number(path: str, default: object, meaning: str) -> Key:
    return Key(path=f"cluster.{path}", kind="number", default=str(default), meaning=meaning)


def _integer(path: str, default: object, meaning: str, *, least: int = 0) -> Key:
    return Key(path=f"cluster.{path}", kind="integer", default=str(default), meaning=meaning, least=least)


def _flag(path: str, meaning: str) -> Key:
    return Key(path=f"cluster.{path}", kind="boolean", default="false", meaning=meaning)


def _mapping(path: str, default: str, meaning: str) -> Key:
    return Key(path=f"cluster.{path}", kind="mapping", default=default, meaning=meaning)


def _choice(path: str, choices: tuple[str, ...], meaning: str) -> Key:
    return Key(path=f"cluster.{path}", kind="choice", default=choices[0], meaning=meaning, choices=choices)


CLUSTER_KEYS: tuple[Key, ...] = (
    Key(
        path="cluster",
        kind="mapping",
        default="none",
        meaning="Several servers behind a router, for `run` and `replay`. Absent: one server.",
    ),
    _integer("instances", 1, "How many servers there are, all as the top level says.", least=1),
    _flag(
        "lockstep",
        "The servers, of each pool those of the pool, are the data-parallel ranks of one server of a model with "
        "experts (`--data-parallel-size`): they start their steps together, and a rank without requests runs a dummy "
        "step while another has some. With routing `vllm-dp`. Not with `flow_control`, nor with clients that wait for "
        "answers.",
    ),
    Key(
        path="cluster.pools",
        kind="mapping",
        default="none",
        meaning="In place of `instances`: a list of pools, each `{name, instances, engine, latency, hardware}`. A pool "
        "has the top level's `engine`, `latency` and `hardware` but for the keys that it gives itself. Where the top "
        "level gives `engine.num_gpu_blocks`, a pool of other hardware has to give its own.",
    ),
    Key(
        path="cluster.pools.name",
        kind="text",
        default="none",
        meaning="Its instances are then called `name/0`, `name/1`, and so on, in the column `instance`.",
    ),
    _integer("pools.instances", 1, "How many servers the pool has.", least=1),
    Key(
        path="cluster.pools.role",
        kind="choice",
        default="shared",
        choices=("shared", "prefill", "decode"),
        meaning="`shared`: its instances serve requests whole. `prefill`: they compute prompts for others, and nothing "
        "else. `decode`: they answer requests whose prompts may have been computed elsewhere. The last two come "
        "together.",
    ),
    _mapping("pools.engine", "none", "Keys of `engine` that differ in this pool."),
    _mapping(
        "pools.latency",
        "none",
        "Keys of `latency` that differ in this pool. One with a `model` of its own inherits no numbers of another "
        "model.",
    ),
    _mapping("pools.hardware", "none", "Keys of `hardware` that differ in this pool, or a GPU's name."),
    _mapping(
        "routing",
        "round-robin",
        "Which instance gets a request: `policy`, and that policy's settings next to it.",
    ),
    Key(
        path="cluster.routing.policy",
        kind="choice",
        default="round-robin",
        choices=(*ROUTING_NAMES, "module:attribute"),
        meaning="`module:attribute` is a function of yours, `FILE.py:function` one in a file next to TWIN.yaml "
        "(`sim.cluster.routing.own`).",
    ),
    _choice("routing.ties", ("first", "random"), "`least-loaded` only. Which of the equally loaded gets it."),
    _mapping(
        "routing.scorers",
        "prefix-affinity 2, active-requests 3, kv-utilization 1",
        "`weighted` only. Scorers and their weights: prefix-affinity, precise-prefix-cache, no-hit-lru, queue-depth, "
        "kv-utilization, load-balance, active-requests, running-requests, load-aware, vllm-dp, lora-affinity. Only "
        "the weights' ratios count.",
    ),
    _integer(
        "routing.prefix_capacity_blocks",
        10000,
        "`weighted` only. Blocks per instance that the router remembers having sent there.",
        least=1,
    ),
    Key(
        path="cluster.routing.vllm_version",
        kind="text",
        default="of the top level",
        meaning="`vllm-dp` only. Whose balancer: the rule changed with 0.25 and 0.27.",
    ),
    _integer("routing.clients", 1, "`vllm-dp` only. API servers in front.", least=1),
    _integer("routing.client", 0, "`vllm-dp` only. Which of them this one is, from 0."),
    _number(
        "routing.cache_threshold",
        0.3,
        "`cache-aware` only. Share of the prompt that must be known for it to follow its prefix; at most 1.",
    ),
    _number(
        "routing.balance_abs_threshold",
        64,
        "`cache-aware` only. Loads that differ by more than this, and",
    ),
    _number(
        "routing.balance_rel_threshold",
        1.5,
        "`cache-aware` only. by more than this factor: the least loaded instance gets the request.",
    ),
    _choice(
        "routing.owner",
        ("creator", "least-loaded"),
        "`cache-aware` only. Who gets a known prefix: whoever had it first (sglang-router), or the least loaded of "
        "those that were sent it (vllm-router).",
    ),
    _integer("routing.max_tree_size", 1 << 26, "`cache-aware` only. Tokens remembered per instance."),
    _integer(
        "routing.eviction_interval_us",
        60_000_000,
        "`cache-aware` only. How often what is too much is forgotten, µs.",
        least=1,
    ),
    _number("routing.prefill_load_scale", 1.0, "`kv-cost` only. Weight of the blocks still to be prefilled."),
    _number("routing.overlap_score_credit", 1.0, "`kv-cost` only. Credit per cached block."),
    _number("routing.overlap_score_credit_decay", 0.0, "`kv-cost` only. How the credit falls with the load."),
    _number("routing.host_cache_hit_weight", 0.75, "`kv-cost` only. Credit of a block in host memory."),
    _number("routing.disk_cache_hit_weight", 0.25, "`kv-cost` only. Credit of a block on disk."),
    _number("routing.decode_active_request_weight", 0.0, "`kv-cost` only. Cost per active request, blocks."),
    _number(
        "routing.temperature", 0.0, "`kv-cost` only. 0: the least cost; above: a draw that favours low costs."
    ),
    Key(
        path="cluster.snapshot_interval_us",
        kind="mapping",
        default="0",
        meaning="How often the router reads what instances report, µs; 0: whenever it looks. A number for all "
        "signals, or one for each. What it has sent and not seen answered it always knows.",
    ),
    _integer("snapshot_interval_us.queue", 0, "Of waiting and running requests."),
    _integer("snapshot_interval_us.kv", 0, "Of KV cache usage."),
    _integer("snapshot_interval_us.cache", 0, "Of which blocks are cached."),
    _mapping(
        "admission", "always", "Which requests are taken at all: `policy`, and its settings next to it."
    ),
    _choice("admission.policy", ADMISSION_NAMES, "The others are turned away before anything is simulated."),
    _integer("admission.capacity", "required", "`token-bucket` only. Prompt tokens the bucket holds."),
    _number("admission.refill_per_s", "required", "`token-bucket` only. Tokens per second that come back."),
    _integer(
        "admission.max_load", 0, "`tier-shed` only. While an instance has more requests than this in flight,"
    ),
    _integer(
        "admission.min_priority",
        3,
        "`tier-shed` only. service classes below this priority are turned away.",
        least=-100,
    ),
    _number(
        "admission.queue_threshold",
        5,
        "`utilization` only. Waiting requests of an instance that count as full.",
    ),
    _number(
        "admission.kv_threshold", 0.8, "`utilization` only. KV cache usage that counts as full; at most 1."
    ),
    _mapping(
        "admission.budgets",
        "required",
        "`tenant-budget` only. Tenants, each with the share of all seats (instances x `max_num_seqs`) that it may "
        "have in flight.",
    ),
    _flag("admission.rejects_all", "`tenant-budget` only. Also for classes that may not be shed."),
    _mapping("latency", "none", "What a request spends on its way beside any queue."),
    _integer("latency.admission_us", 0, "µs to be admitted."),
    _integer("latency.routing_us", 0, "µs to be routed."),
    _mapping(
        "flow_control",
        "none",
        "A queue in front of the instances, which hands requests over only while they are not saturated. `{}`: with "
        "all its defaults.",
    ),
    _choice(
        "flow_control.order",
        ("priority", "fifo", "slo-deadline"),
        "Who goes first: the highest service class and in it the earliest; the earliest; the highest class and in it "
        "the earliest deadline.",
    ),
    _choice(
        "flow_control.fairness",
        ("global-strict", "round-robin"),
        "`round-robin`: within a service class, tenants take turns.",
    ),
    _choice(
        "flow_control.detector",
        ("utilization", "concurrency", "never"),
        "What saturated means: mean of waiting requests and KV usage against their thresholds; requests in flight; "
        "never.",
    ),
    _number("flow_control.queue_threshold", 5, "Waiting requests of an instance that count as full."),
    _number("flow_control.kv_threshold", 0.8, "KV cache usage that counts as full."),
    _integer(
        "flow_control.max_concurrency",
        100,
        "With detector `concurrency`: requests in flight per instance that count as full.",
        least=1,
    ),
    _number(
        "flow_control.lowest_ceiling",
        1.0,
        "Saturation at which the lowest service class has to wait; those above it in equal steps up to 1.",
    ),
    _integer("flow_control.capacity", 0, "Requests the queue holds; 0: no limit."),
    _integer("flow_control.band_capacity", 0, "Requests of one service class it holds; 0: no limit."),
    _flag(
        "flow_control.sheds",
        "Where the queue is full, a more important request takes the place of one that may be shed.",
    ),
    _flag(
        "flow_control.evicts",
        "While saturated, a running request that may be shed is ended for a more important one that waits.",
    ),
    _integer("flow_control.ttl_us", 0, "How long a request may wait in the queue, µs; 0: for ever."),
    _mapping(
        "flow_control.slo_targets_us",
        "none",
        "With order `slo-deadline`: targets of service classes, µs, for requests without one of their own.",
    ),
    _mapping(
        "disaggregation",
        "with prefill and decode pools `{}`: all its defaults; else none",
        "Whose prompts a prefill instance computes, and how their KV gets to the decode instance. The decode instance "
        "is chosen first, by `routing`. What a shared instance is given it serves whole.",
    ),
    _choice(
        "disaggregation.decider",
        ("always", "never", "prefix-threshold"),
        "Whose prompts go to a prefill instance: everybody's; nobody's; or where more than `prefix_threshold` tokens "
        "of the prompt are not in the prefix cache of the decode instance.",
    ),
    _integer("disaggregation.prefix_threshold", 16, "With decider `prefix-threshold`: tokens."),
    _number(
        "disaggregation.kv_bandwidth_gbps",
        25,
        "Of each instance's link, in and out apart: gigabytes (10^9 bytes) per second.",
    ),
    _integer("disaggregation.kv_base_latency_us", 50, "Before a transfer's first byte moves, µs."),
    Key(
        path="cluster.disaggregation.contention",
        kind="boolean",
        default="true",
        meaning="Whether transfers share their links. A transfer moves at the smaller of its two shares: the sender's "
        "link over all that leave it, the receiver's over all that come in. false: each has the whole bandwidth.",
    ),
    Key(
        path="cluster.disaggregation.kv_bytes_per_token",
        kind="integer",
        default="of `latency.model_config`",
        meaning="KV of one token in all layers. Whole blocks are moved.",
        least=0,
    ),
    _mapping(
        "disaggregation.prefill_routing",
        "as `routing`",
        "Which prefill instance computes a prompt: `policy` and its settings, as `routing`.",
    ),
    _mapping(
        "slo_priorities",
        "critical 4, standard 3, batch -1, sheddable -2, background -3",
        "Priorities of service classes, -100 to 100; below 0 a class may be shed.",
    ),
)
