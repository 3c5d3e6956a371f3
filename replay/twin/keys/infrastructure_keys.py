"""The keys of ``cluster:`` about instances that come, go and fail, and clients that try again."""

from __future__ import annotations

from replay.twin.keys.cluster_key import choice, integer, listed, mapping, number
from replay.twin.keys.key import Key

SCALING_NAMES = ("saturation", "target", "schedule")
"""The values of ``cluster.autoscaler.policy``."""


INFRASTRUCTURE_KEYS: tuple[Key, ...] = (
    mapping("startup", "none", "Time from an instance's getting its GPUs to its first request."),
    integer("startup.loading_us", 0, "To load the model, µs."),
    integer("startup.warm_up_us", 0, "To profile, compile and capture graphs, µs."),
    mapping(
        "autoscaler",
        "none",
        "How many instances there are as time goes by, in each pool by itself. `instances` is the number at the "
        "beginning, within the limits. Not with `lockstep`.",
    ),
    choice(
        "autoscaler.policy",
        SCALING_NAMES,
        "`saturation`: one more where too little KV and queue is left, one fewer where the rest could take it all "
        "(llm-d's workload-variant-autoscaler). `target`: as many as bring a metric's mean to its target (Kubernetes "
        "HPA, KEDA). `schedule`: by the clock.",
    ),
    integer(
        "autoscaler.min_instances",
        1,
        "Smallest number of instances; 0 needs `flow_control`, whose queue holds requests.",
    ),
    integer(
        "autoscaler.max_instances", "required", "Largest number of instances. Not for a schedule.", least=1
    ),
    integer("autoscaler.interval_us", 15_000_000, "How often it looks, µs.", least=1),
    integer("autoscaler.actuation_us", 0, "From a decision until it is acted on, µs."),
    integer(
        "autoscaler.up_window_us", 0, "It grows to the smallest number that was wanted in this time, µs."
    ),
    integer(
        "autoscaler.down_window_us",
        300_000_000,
        "It shrinks to the largest number that was wanted in this time, µs.",
    ),
    integer("autoscaler.up_cooldown_us", 0, "It grows no sooner than this long after it last grew, µs."),
    integer(
        "autoscaler.down_cooldown_us", 0, "It shrinks no sooner than this long after it last shrank, µs."
    ),
    integer("autoscaler.max_up", 0, "Instances that it adds at once; 0: no limit."),
    integer("autoscaler.max_down", 0, "Instances that it takes away at once; 0: no limit."),
    integer(
        "autoscaler.idle_us",
        300_000_000,
        "With `min_instances` 0: the last instance goes when none has had a request for this long, µs.",
    ),
    choice(
        "autoscaler.drain",
        ("wait", "requeue"),
        "What an instance that is being removed does with its requests (it gets no new ones). `wait`: it finishes "
        "all. `requeue`: those that it has not begun go back to the router, or the gateway's queue.",
    ),
    integer(
        "autoscaler.drain_timeout_us",
        0,
        "A drain may take this long, µs; requests that the instance still has are then lost. 0: no limit.",
    ),
    number(
        "autoscaler.kv_threshold", 0.8, "`saturation` only. KV usage from which an instance is saturated."
    ),
    number("autoscaler.queue_threshold", 5, "`saturation` only. Waiting requests from which it is."),
    number(
        "autoscaler.kv_spare",
        0.1,
        "`saturation` only. KV usage that should be left below the threshold, on average.",
    ),
    number("autoscaler.queue_spare", 3, "`saturation` only. Waiting requests, likewise."),
    choice(
        "autoscaler.metric",
        ("in-flight", "waiting", "running", "kv"),
        "`target` only. Requests in flight, waiting or running, or KV usage, of an instance. A request in the "
        "gateway's queue counts as in flight and as waiting.",
    ),
    number("autoscaler.target", "required", "`target` only. Target of the metric's mean over instances."),
    number(
        "autoscaler.tolerance",
        0.1,
        "`target` only. How far off it may be, as a fraction, before anything is done.",
    ),
    listed("autoscaler.schedule", "`schedule` only. A list of `{at_us, instances}`, the earliest first."),
    integer("autoscaler.schedule.at_us", "required", "From this time on, µs; 0: from the beginning."),
    integer("autoscaler.schedule.instances", "required", "Number of instances from then on."),
    integer(
        "autoscaler.repeat_us",
        0,
        "`schedule` only. Period after which it repeats, µs (a day is 86400000000); 0: never.",
    ),
    listed(
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
    integer("node_pools.gpus_per_node", 8, "GPUs of a node.", least=1),
    integer("node_pools.min_nodes", 0, "Nodes that are always there."),
    integer("node_pools.max_nodes", 1, "Largest number of nodes.", least=1),
    integer("node_pools.provisioning_us", 0, "From ordering a node until it is there, µs."),
    integer("node_pools.idle_us", 600_000_000, "A node that has been empty for this long is released, µs."),
    number("node_pools.cost_per_hour", 0, "What a node costs, from its order until it is gone."),
    choice(
        "node_pools.placement",
        ("pack", "spread"),
        "An instance goes to the node with the fewest free GPUs that suffice, or the most.",
    ),
    mapping(
        "failures",
        "none",
        "Instances that fail. What they have is lost, their KV cache is gone, and they start again. With "
        "`disaggregation` also what waits for a failed instance's KV.",
    ),
    integer(
        "failures.mtbf_us",
        0,
        "Mean time from being ready to a random failure, µs (exponential); 0: no random failures.",
    ),
    integer(
        "failures.mttr_us",
        60_000_000,
        "Mean time from a random failure until the instance starts again, µs (exponential).",
    ),
    listed("failures.schedule", "A list of `{at_us, instance, down_us}`."),
    integer("failures.schedule.at_us", "required", "When it fails, µs; nothing happens if it is not up."),
    integer("failures.schedule.instance", "required", "The instance's number, from 0, over all pools."),
    integer("failures.schedule.down_us", 0, "Time until the instance starts again, µs."),
    mapping("retries", "none", "Clients that send a failed request again."),
    integer("retries.max_attempts", 3, "Attempts of a request in all.", least=2),
    Key(
        path="cluster.retries.on",
        kind="mapping",
        default="rejected, queue_full, shed, dropped, lost, timed_out",
        meaning="A list of the outcomes after which clients try again. expired and evicted are also possible.",
    ),
    integer("retries.backoff_us", 500_000, "The pause before the second attempt, µs."),
    number("retries.backoff_factor", 2, "How much longer each further pause is."),
    integer("retries.max_backoff_us", 30_000_000, "The longest pause, µs."),
    number("retries.jitter_frac", 0, "Share of a pause that is random, at most 1."),
    integer(
        "retries.timeout_us",
        0,
        "Time after which a client gives up an attempt, µs, if the trace gives its request no deadline; 0: never.",
    ),
)
