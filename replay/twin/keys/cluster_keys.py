"""The keys of ``cluster:``, part of the table in ``replay.twin.config_keys``. Light: reading it compiles nothing."""

from __future__ import annotations

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

SCALING_NAMES = ("saturation", "target", "schedule")
"""What ``cluster.autoscaler.policy`` may say."""


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


def _list(path: str, meaning: str) -> Key:
    return Key(path=f"cluster.{path}", kind="mapping", default="none", meaning=meaning)


CLUSTER_KEYS: tuple[Key, ...] = (
    Key(
        path="cluster",
        kind="mapping",
        default="none",
        meaning="Several servers behind a router. Absent: one server.",
    ),
    _integer("instances", 1, "How many servers there are, all as the top level says.", least=1),
    _flag(
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
    _integer(
        "pools.gpus_per_instance",
        "of `hardware`: tp x pp x dp, else the pipeline stages",
        "GPUs of one server, for placement, GPU-hours and cost. Without pools `cluster.gpus_per_instance`.",
        least=1,
    ),
    _number("pools.cost_per_gpu_hour", "of the cluster", "As `cluster.cost_per_gpu_hour`, of this pool."),
    _mapping("pools.startup", "of the cluster", "As `cluster.startup`, of this pool."),
    _mapping(
        "pools.autoscaler", "of the cluster", "As `cluster.autoscaler`, of this pool: all of it, or none."
    ),
    Key(
        path="cluster.pools.node_pool",
        kind="text",
        default="the only one",
        meaning="Which of `cluster.node_pools` its instances are placed on. Without pools `cluster.node_pool`.",
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
        "(`sim.cluster.routing.own`); it needs `--allow-code`.",
    ),
    _choice(
        "routing.ties",
        ("first", "random"),
        "`least-loaded` only. Which of equally loaded instances gets the request.",
    ),
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
        meaning="`vllm-dp` only. The vLLM version whose balancer is used: its rule changed with 0.25 and 0.27.",
    ),
    _integer("routing.clients", 1, "`vllm-dp` only. API servers in front.", least=1),
    _integer("routing.client", 0, "`vllm-dp` only. The number of this API server, from 0."),
    _number(
        "routing.cache_threshold",
        0.3,
        "`cache-aware` only. Share of the prompt that an instance must know for the request to follow it; at most 1.",
    ),
    _number(
        "routing.balance_abs_threshold",
        64,
        "`cache-aware` only. If loads differ by more than this many requests and also by more than the factor "
        "`balance_rel_threshold`, the least loaded instance gets the request.",
    ),
    _number(
        "routing.balance_rel_threshold",
        1.5,
        "`cache-aware` only. The factor; see `balance_abs_threshold`.",
    ),
    _choice(
        "routing.owner",
        ("creator", "least-loaded"),
        "`cache-aware` only. Which instance gets a known prefix: the one that had it first (sglang-router), or the "
        "least loaded of those that were sent it (vllm-router).",
    ),
    _integer("routing.max_tree_size", 1 << 26, "`cache-aware` only. Tokens remembered per instance."),
    _integer(
        "routing.eviction_interval_us",
        60_000_000,
        "`cache-aware` only. How often entries beyond `max_tree_size` are forgotten, µs.",
        least=1,
    ),
    _number("routing.prefill_load_scale", 1.0, "`kv-cost` only. Weight of the blocks still to be prefilled."),
    _number("routing.overlap_score_credit", 1.0, "`kv-cost` only. Credit per cached block."),
    _number("routing.overlap_score_credit_decay", 0.0, "`kv-cost` only. How the credit falls with the load."),
    _number("routing.host_cache_hit_weight", 0.75, "`kv-cost` only. Credit of a block in host memory."),
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
        "admission", "always", "Which requests the gateway admits: `policy`, and its settings next to it."
    ),
    _choice(
        "admission.policy",
        ADMISSION_NAMES,
        "Which requests are admitted; a rejected one reaches no queue and no instance.",
    ),
    _integer("admission.capacity", "required", "`token-bucket` only. Prompt tokens the bucket holds."),
    _number("admission.refill_per_s", "required", "`token-bucket` only. Tokens per second that come back."),
    _integer(
        "admission.max_load",
        0,
        "`tier-shed` only. Requests in flight on an instance above which less important classes are rejected.",
    ),
    _integer(
        "admission.min_priority",
        3,
        "`tier-shed` only. Classes below this priority are then rejected.",
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
    _mapping("latency", "none", "Fixed times that a request spends on its way, apart from queues."),
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
        "Which request goes first: the highest service class and in it the earliest; the earliest; the highest "
        "class and in it the earliest deadline.",
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
        "Which prompts a prefill instance computes, and how their KV gets to the decode instance. The decode instance "
        "is chosen first, by `routing`. A shared instance serves its requests whole.",
    ),
    _choice(
        "disaggregation.decider",
        ("always", "never", "prefix-threshold"),
        "Which prompts go to a prefill instance: all; none; or those of which more than `prefix_threshold` tokens "
        "are not in the prefix cache of the decode instance.",
    ),
    _integer("disaggregation.prefix_threshold", 16, "With decider `prefix-threshold`: tokens."),
    _number(
        "disaggregation.kv_bandwidth_gbps",
        25,
        "Bandwidth of each instance's link in each direction: gigabytes (10^9 bytes) per second.",
    ),
    _integer("disaggregation.kv_base_latency_us", 50, "Before a transfer's first byte moves, µs."),
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
    _integer(
        "gpus_per_instance",
        "of `hardware`: tp x pp x dp, else the pipeline stages",
        "GPUs of one server, for placement, GPU-hours and cost.",
        least=1,
    ),
    _number(
        "cost_per_gpu_hour", 0, "What a GPU costs while an instance has it, where no node pool has a price."
    ),
    Key(
        path="cluster.node_pool",
        kind="text",
        default="the only one",
        meaning="Which of `cluster.node_pools` the instances are placed on.",
    ),
    _mapping("startup", "none", "What an instance takes from having its GPUs to its first request."),
    _integer("startup.loading_us", 0, "To load the model, µs."),
    _integer("startup.warm_up_us", 0, "To profile, compile and capture graphs, µs."),
    _mapping(
        "autoscaler",
        "none",
        "How many instances there are as time goes by, in each pool by itself. `instances` is the number at the "
        "beginning, within the limits. Not with `lockstep`.",
    ),
    _choice(
        "autoscaler.policy",
        SCALING_NAMES,
        "`saturation`: one more where too little KV and queue is left, one fewer where the rest could take it all "
        "(llm-d's workload-variant-autoscaler). `target`: as many as bring a metric's mean to its target (Kubernetes "
        "HPA, KEDA). `schedule`: by the clock.",
    ),
    _integer(
        "autoscaler.min_instances",
        1,
        "Smallest number of instances; 0 needs `flow_control`, whose queue holds requests.",
    ),
    _integer(
        "autoscaler.max_instances", "required", "Largest number of instances. Not for a schedule.", least=1
    ),
    _integer("autoscaler.interval_us", 15_000_000, "How often it looks, µs.", least=1),
    _integer("autoscaler.actuation_us", 0, "From a decision until it is acted on, µs."),
    _integer(
        "autoscaler.up_window_us", 0, "It grows to the smallest number that was wanted in this time, µs."
    ),
    _integer(
        "autoscaler.down_window_us",
        300_000_000,
        "It shrinks to the largest number that was wanted in this time, µs.",
    ),
    _integer("autoscaler.up_cooldown_us", 0, "It grows no sooner than this long after it last grew, µs."),
    _integer(
        "autoscaler.down_cooldown_us", 0, "It shrinks no sooner than this long after it last shrank, µs."
    ),
    _integer("autoscaler.max_up", 0, "Instances that it adds at once; 0: no limit."),
    _integer("autoscaler.max_down", 0, "Instances that it takes away at once; 0: no limit."),
    _integer(
        "autoscaler.idle_us",
        300_000_000,
        "With `min_instances` 0: the last instance goes when none has had a request for this long, µs.",
    ),
    _choice(
        "autoscaler.drain",
        ("wait", "requeue"),
        "What an instance that is being removed does with its requests (it gets no new ones). `wait`: it finishes "
        "all. `requeue`: those that it has not begun go back to the router, or the gateway's queue.",
    ),
    _integer(
        "autoscaler.drain_timeout_us",
        0,
        "A drain may take this long, µs; requests that the instance still has are then lost. 0: no limit.",
    ),
    _number(
        "autoscaler.kv_threshold", 0.8, "`saturation` only. KV usage from which an instance is saturated."
    ),
    _number("autoscaler.queue_threshold", 5, "`saturation` only. Waiting requests from which it is."),
    _number(
        "autoscaler.kv_spare",
        0.1,
        "`saturation` only. KV usage below the threshold that shall be left, on average.",
    ),
    _number("autoscaler.queue_spare", 3, "`saturation` only. Requests below the threshold, likewise."),
    _choice(
        "autoscaler.metric",
        ("in-flight", "waiting", "running", "kv"),
        "`target` only. Requests in flight, waiting or running, or KV usage, of an instance. A request in the "
        "gateway's queue counts as in flight and as waiting.",
    ),
    _number(
        "autoscaler.target", "required", "`target` only. What the metric's mean over instances shall be."
    ),
    _number(
        "autoscaler.tolerance",
        0.1,
        "`target` only. How far off it may be, as a fraction, before anything is done.",
    ),
    _list("autoscaler.schedule", "`schedule` only. A list of `{at_us, instances}`, the earliest first."),
    _integer("autoscaler.schedule.at_us", "required", "From this time on, µs; 0: from the beginning."),
    _integer("autoscaler.schedule.instances", "required", "Number of instances from then on."),
    _integer(
        "autoscaler.repeat_us",
        0,
        "`schedule` only. Period after which it repeats, µs (a day is 86400000000); 0: never.",
    ),
    _list(
        "node_pools",
        "A list of kinds of nodes that instances are placed on. Without it the number of GPUs is unlimited. An "
        "instance has to fit on a node.",
    ),
    Key(
        path="cluster.node_pools.name",
        kind="text",
        default="required",
        meaning="Its name, as in `node_pool`.",
    ),
    _integer("node_pools.gpus_per_node", 8, "GPUs of a node.", least=1),
    _integer("node_pools.min_nodes", 0, "Nodes that are always there."),
    _integer("node_pools.max_nodes", 1, "Largest number of nodes.", least=1),
    _integer("node_pools.provisioning_us", 0, "From ordering a node until it is there, µs."),
    _integer("node_pools.idle_us", 600_000_000, "A node that has been empty for this long is released, µs."),
    _number("node_pools.cost_per_hour", 0, "What a node costs, from its order until it is gone."),
    _choice(
        "node_pools.placement",
        ("pack", "spread"),
        "An instance goes to the node with the fewest free GPUs that suffice, or the most.",
    ),
    _mapping(
        "failures",
        "none",
        "Instances that fail. What they have is lost, their KV cache is gone, and they start again. With "
        "`disaggregation` also what waits for a failed instance's KV.",
    ),
    _integer(
        "failures.mtbf_us",
        0,
        "Mean time from being ready to a random failure, µs (exponential); 0: no random failures.",
    ),
    _integer(
        "failures.mttr_us",
        60_000_000,
        "Mean time from a random failure until the instance starts again, µs (exponential).",
    ),
    _list("failures.schedule", "A list of `{at_us, instance, down_us}`."),
    _integer("failures.schedule.at_us", "required", "When it fails, µs; nothing happens if it is not up."),
    _integer("failures.schedule.instance", "required", "The instance's number, from 0, over all pools."),
    _integer("failures.schedule.down_us", 0, "Time until the instance starts again, µs."),
    _mapping("retries", "none", "Clients that send a failed request again."),
    _integer("retries.max_attempts", 3, "Attempts of a request in all.", least=2),
    Key(
        path="cluster.retries.on",
        kind="mapping",
        default="rejected, queue_full, shed, dropped, lost, timed_out",
        meaning="A list of the outcomes after which clients try again. expired and evicted are also possible.",
    ),
    _integer("retries.backoff_us", 500_000, "The pause before the second attempt, µs."),
    _number("retries.backoff_factor", 2, "How much longer each further pause is."),
    _integer("retries.max_backoff_us", 30_000_000, "The longest pause, µs."),
    _number("retries.jitter_frac", 0, "Share of a pause that is random, at most 1."),
    _integer(
        "retries.timeout_us",
        0,
        "Time after which a client gives up an attempt, µs, if the trace gives its request no deadline; 0: never.",
    ),
)
