"""The keys of ``cluster:``, part of the table in ``replay.twin.config_keys``. Light: reading it compiles nothing."""

from __future__ import annotations

from replay.twin.keys.cluster_key import choice, flag, integer, mapping, number
from replay.twin.keys.infrastructure_keys import INFRASTRUCTURE_KEYS
from replay.twin.keys.key import Key

ROUTING_NAMES = (
    "round-robin",
    "random",
    "power-of-two",
    "session",
    "kube-proxy",
    "least-loaded",
    "always-busiest",
    "weighted",
    "vllm-dp",
    "cache-aware",
    "kv-cost",
)
"""The values of ``cluster.routing.policy`` besides ``module:attribute``."""

ADMISSION_NAMES = ("always", "reject-all", "token-bucket", "tier-shed", "utilization", "tenant-budget")
"""The values of ``cluster.admission.policy``."""

CLUSTER_KEYS: tuple[Key, ...] = (
    Key(
        path="cluster",
        kind="mapping",
        default="none",
        meaning="Several servers behind a router. Absent: one server.",
    ),
    integer("instances", 1, "Number of servers, all with the settings of the top level.", least=1),
    flag(
        "lockstep",
        "The servers of each pool are the data-parallel ranks of one server of a model with experts "
        "(`--data-parallel-size`): they start their steps together, and a rank without requests runs a dummy step "
        "while another has some. Use it with routing `vllm-dp`. It cannot be combined with `flow_control`, "
        "`autoscaler`, `failures`, or clients that wait for answers.",
    ),
    Key(
        path="cluster.pools",
        kind="mapping",
        default="none",
        meaning="In place of `instances`: a list of pools, each `{name, instances, engine, latency, hardware}`. A pool "
        "has the top level's `engine`, `latency` and `hardware`, except for the keys that it gives itself. Where the "
        "top level gives `engine.num_gpu_blocks`, a pool of other hardware has to give its own.",
    ),
    Key(
        path="cluster.pools.name",
        kind="text",
        default="none",
        meaning="Its instances are then called `name/0`, `name/1`, and so on, in the column `instance`.",
    ),
    integer("pools.instances", 1, "How many servers the pool has.", least=1),
    Key(
        path="cluster.pools.role",
        kind="choice",
        default="shared",
        choices=("shared", "prefill", "decode"),
        meaning="`shared`: its instances serve requests whole. `prefill`: they compute prompts for others, and nothing "
        "else. `decode`: they answer requests whose prompts may have been computed elsewhere. The last two come "
        "together.",
    ),
    mapping("pools.engine", "none", "Keys of `engine` that differ in this pool."),
    mapping(
        "pools.latency",
        "none",
        "Keys of `latency` that differ in this pool. One with a `model` of its own inherits no numbers of another "
        "model.",
    ),
    integer(
        "pools.gpus_per_instance",
        "of `hardware`: tp x pp x dp, else the pipeline stages",
        "GPUs of one server, for placement, GPU-hours and cost. Without pools `cluster.gpus_per_instance`.",
        least=1,
    ),
    number("pools.cost_per_gpu_hour", "of the cluster", "As `cluster.cost_per_gpu_hour`, of this pool."),
    mapping("pools.startup", "of the cluster", "As `cluster.startup`, of this pool."),
    mapping(
        "pools.autoscaler", "of the cluster", "As `cluster.autoscaler`, of this pool: all of it, or none."
    ),
    Key(
        path="cluster.pools.node_pool",
        kind="text",
        default="the only one",
        meaning="Which of `cluster.node_pools` its instances are placed on. Without pools `cluster.node_pool`.",
    ),
    mapping("pools.hardware", "none", "Keys of `hardware` that differ in this pool, or a GPU's name."),
    mapping(
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
        "(`sim.cluster.routing.own`); it needs `--allow-code`.",
    ),
    choice(
        "routing.mode",
        ("iptables", "ipvs"),
        "`kube-proxy` only. Its mode: any instance for a new connection, or the next in turn.",
    ),
    integer(
        "routing.keep_alive_us",
        5_000_000,
        "`kube-proxy` only. How long an idle connection is kept; 5 s in OpenAI's client and in vLLM's server.",
    ),
    choice(
        "routing.ties",
        ("first", "random"),
        "`least-loaded` only. Which of equally loaded instances gets the request.",
    ),
    mapping(
        "routing.scorers",
        "prefix-affinity 2, active-requests 3, kv-utilization 1",
        "`weighted` only. Scorers and their weights: prefix-affinity, precise-prefix-cache, no-hit-lru, queue-depth, "
        "kv-utilization, load-balance, active-requests, running-requests, load-aware, vllm-dp, lora-affinity. Only "
        "the weights' ratios count.",
    ),
    integer(
        "routing.prefix_capacity_blocks",
        10000,
        "`weighted` only. Blocks per instance that the router remembers having sent there.",
        least=1,
    ),
    Key(
        path="cluster.routing.vllm_version",
        kind="text",
        default="of the top level",
        meaning="`vllm-dp` only. The vLLM version whose balancer is used: its rule changed with 0.25 and 0.27.",
    ),
    integer("routing.clients", 1, "`vllm-dp` only. API servers in front.", least=1),
    integer("routing.client", 0, "`vllm-dp` only. The number of this API server, from 0."),
    number(
        "routing.cache_threshold",
        0.3,
        "`cache-aware` only. Share of the prompt that an instance must know for the request to follow it; at most 1.",
    ),
    number(
        "routing.balance_abs_threshold",
        64,
        "`cache-aware` only. If loads differ by more than this many requests and also by more than the factor "
        "`balance_rel_threshold`, the least loaded instance gets the request.",
    ),
    number(
        "routing.balance_rel_threshold",
        1.5,
        "`cache-aware` only. The factor; see `balance_abs_threshold`.",
    ),
    choice(
        "routing.owner",
        ("creator", "least-loaded"),
        "`cache-aware` only. Which instance gets a known prefix: the one that had it first (sglang-router), or the "
        "least loaded of those that were sent it (vllm-router).",
    ),
    integer("routing.max_tree_size", 1 << 26, "`cache-aware` only. Tokens remembered per instance."),
    integer(
        "routing.eviction_interval_us",
        60_000_000,
        "`cache-aware` only. How often entries beyond `max_tree_size` are forgotten, µs.",
        least=1,
    ),
    number("routing.prefill_load_scale", 1.0, "`kv-cost` only. Weight of the blocks still to be prefilled."),
    number("routing.overlap_score_credit", 1.0, "`kv-cost` only. Credit per cached block."),
    number("routing.overlap_score_credit_decay", 0.0, "`kv-cost` only. How the credit falls with the load."),
    number("routing.host_cache_hit_weight", 0.75, "`kv-cost` only. Credit of a block in host memory."),
    number("routing.decode_active_request_weight", 0.0, "`kv-cost` only. Cost per active request, blocks."),
    number(
        "routing.temperature", 0.0, "`kv-cost` only. 0: the least cost; above: a draw that favours low costs."
    ),
    Key(
        path="cluster.snapshot_interval_us",
        kind="mapping",
        default="0",
        meaning="How often the router reads what instances report, µs; 0: at every decision. A number for all "
        "signals, or one for each. The requests that it has in flight it always knows.",
    ),
    integer("snapshot_interval_us.queue", 0, "Of waiting and running requests."),
    integer("snapshot_interval_us.kv", 0, "Of KV cache usage."),
    integer("snapshot_interval_us.cache", 0, "Of which blocks are cached."),
    mapping(
        "admission", "always", "Which requests the gateway admits: `policy`, and its settings next to it."
    ),
    choice(
        "admission.policy",
        ADMISSION_NAMES,
        "Which requests are admitted; a rejected one reaches no queue and no instance.",
    ),
    integer("admission.capacity", "required", "`token-bucket` only. Prompt tokens the bucket holds."),
    number("admission.refill_per_s", "required", "`token-bucket` only. Tokens per second that come back."),
    integer(
        "admission.max_load",
        0,
        "`tier-shed` only. Requests in flight on an instance above which less important classes are rejected.",
    ),
    integer(
        "admission.min_priority",
        3,
        "`tier-shed` only. Classes below this priority are then rejected.",
        least=-100,
    ),
    number(
        "admission.queue_threshold",
        5,
        "`utilization` only. Waiting requests of an instance that count as full.",
    ),
    number(
        "admission.kv_threshold", 0.8, "`utilization` only. KV cache usage that counts as full; at most 1."
    ),
    mapping(
        "admission.budgets",
        "required",
        "`tenant-budget` only. Tenants, each with the share of all seats (instances x `max_num_seqs`) that it may "
        "have in flight.",
    ),
    flag("admission.rejects_all", "`tenant-budget` only. Also for classes that may not be shed."),
    mapping("latency", "none", "Fixed times that a request spends on its way, apart from queues."),
    integer("latency.admission_us", 0, "µs to be admitted."),
    integer("latency.routing_us", 0, "µs to be routed."),
    mapping(
        "flow_control",
        "none",
        "A queue in front of the instances, which hands requests over only while they are not saturated. `{}`: with "
        "all its defaults.",
    ),
    choice(
        "flow_control.order",
        ("priority", "fifo", "slo-deadline"),
        "Which request goes first: the highest service class and in it the earliest; the earliest; the highest "
        "class and in it the earliest deadline.",
    ),
    choice(
        "flow_control.fairness",
        ("global-strict", "round-robin"),
        "`round-robin`: within a service class, tenants take turns.",
    ),
    choice(
        "flow_control.detector",
        ("utilization", "concurrency", "never"),
        "What saturated means: mean of waiting requests and KV usage against their thresholds; requests in flight; "
        "never.",
    ),
    number("flow_control.queue_threshold", 5, "Waiting requests of an instance that count as full."),
    number("flow_control.kv_threshold", 0.8, "KV cache usage that counts as full."),
    integer(
        "flow_control.max_concurrency",
        100,
        "With detector `concurrency`: requests in flight per instance that count as full.",
        least=1,
    ),
    number(
        "flow_control.lowest_ceiling",
        1.0,
        "Saturation at which the lowest service class has to wait; those above it in equal steps up to 1.",
    ),
    integer("flow_control.capacity", 0, "Requests the queue holds; 0: no limit."),
    integer("flow_control.band_capacity", 0, "Requests of one service class it holds; 0: no limit."),
    flag(
        "flow_control.sheds",
        "Where the queue is full, a more important request takes the place of one that may be shed.",
    ),
    flag(
        "flow_control.evicts",
        "While saturated, a running request that may be shed is ended for a more important one that waits.",
    ),
    integer("flow_control.ttl_us", 0, "How long a request may wait in the queue, µs; 0: no limit."),
    mapping(
        "flow_control.slo_targets_us",
        "none",
        "With order `slo-deadline`: targets of service classes, µs, for requests without one of their own.",
    ),
    mapping(
        "disaggregation",
        "with prefill and decode pools `{}`: all its defaults; else none",
        "Which prompts a prefill instance computes, and how their KV gets to the decode instance. The decode instance "
        "is chosen first, by `routing`. A shared instance serves its requests whole.",
    ),
    choice(
        "disaggregation.decider",
        ("always", "never", "prefix-threshold"),
        "Which prompts go to a prefill instance: all; none; or those of which more than `prefix_threshold` tokens "
        "are not in the prefix cache of the decode instance.",
    ),
    integer("disaggregation.prefix_threshold", 16, "With decider `prefix-threshold`: tokens."),
    number(
        "disaggregation.kv_bandwidth_gbps",
        25,
        "Bandwidth of each instance's link in each direction: gigabytes (10^9 bytes) per second.",
    ),
    integer("disaggregation.kv_base_latency_us", 50, "Before a transfer's first byte moves, µs."),
    Key(
        path="cluster.disaggregation.contention",
        kind="boolean",
        default="true",
        meaning="Whether transfers share their links, max-min fairly: the tightest link sets the rate of those on it, "
        "what they leave elsewhere goes to others. false: each transfer has the whole bandwidth.",
    ),
    Key(
        path="cluster.disaggregation.kv_bytes_per_token",
        kind="integer",
        default="of `latency.model_config`",
        meaning="KV of one token in all layers. Whole blocks are moved.",
        least=0,
    ),
    mapping(
        "disaggregation.prefill_routing",
        "as `routing`",
        "Which prefill instance computes a prompt: `policy` and its settings, as `routing`.",
    ),
    mapping(
        "slo_priorities",
        "critical 4, standard 3, batch -1, sheddable -2, background -3",
        "Priorities of service classes, -100 to 100; below 0 a class may be shed.",
    ),
    integer(
        "gpus_per_instance",
        "of `hardware`: tp x pp x dp, else the pipeline stages",
        "GPUs of one server, for placement, GPU-hours and cost.",
        least=1,
    ),
    number(
        "cost_per_gpu_hour", 0, "What a GPU costs while an instance has it, where no node pool has a price."
    ),
    Key(
        path="cluster.node_pool",
        kind="text",
        default="the only one",
        meaning="Which of `cluster.node_pools` the instances are placed on.",
    ),
    *INFRASTRUCTURE_KEYS,
)
