"""What the keys of ``cluster:`` mean; all else of them follows from the simulator's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from replay.numbers.argument_ranges import GPUS
from replay.twin.keys.key import Key, KeyText, Sayings, holders_of, keys_of, said_of

_GPUS = (GPUS.least, GPUS.most)
OWN_FUNCTION = "module:attribute"
"""A routing policy of the user's own."""

CLUSTER: Sayings = {
    "": "Several servers behind a router. Absent: one server.",
    "instances": "Number of servers, all with the settings of the top level.",
    "lockstep": "The servers of each pool are the data-parallel ranks of one server of a model with experts "
    "(`--data-parallel-size`): they start their steps together, and a rank without requests runs a dummy step while "
    "another has some. Use it with routing `vllm-dp`. It cannot be combined with `flow_control`, `autoscaler`, "
    "`failures`, or clients that wait for answers.",
    "pools": KeyText(
        "In place of `instances`: a list of pools, each `{name, instances, engine, latency, hardware}`. A pool has "
        "the top level's `engine`, `latency` and `hardware`, except for the keys that it gives itself. Where the top "
        "level gives `engine.num_gpu_blocks`, a pool of other hardware has to give its own.",
        default="none",
    ),
    "pools.name": KeyText(
        "Its instances are then called `name/0`, `name/1`, and so on, in the column `instance`.",
        default="none",
    ),
    "pools.instances": "How many servers the pool has.",
    "pools.role": "`shared`: its instances serve requests whole. `prefill`: they compute prompts for others, and "
    "nothing else. `decode`: they answer requests whose prompts may have been computed elsewhere. The last two come "
    "together.",
    "pools.engine": KeyText("Keys of `engine` that differ in this pool.", default="none"),
    "pools.latency": KeyText(
        "Keys of `latency` that differ in this pool. One with a `model` of its own inherits no numbers of another "
        "model.",
        default="none",
    ),
    "pools.gpus_per_instance": KeyText(
        "GPUs of one server, for placement, GPU-hours and cost. Without pools `cluster.gpus_per_instance`.",
        "of `hardware`: tp x pp x dp, else the pipeline stages",
        within=_GPUS,
    ),
    "pools.cost_per_gpu_hour": KeyText(
        "As `cluster.cost_per_gpu_hour`, of this pool.", default="of the cluster", within=(0, 1e9)
    ),
    "pools.startup": KeyText("As `cluster.startup`, of this pool.", default="of the cluster"),
    "pools.autoscaler": KeyText(
        "As `cluster.autoscaler`, of this pool: all of it, or none.", default="of the cluster"
    ),
    "pools.node_pool": KeyText(
        "Which of `cluster.node_pools` its instances are placed on. Without pools `cluster.node_pool`.",
        default="the only one",
    ),
    "pools.hardware": "Keys of `hardware` that differ in this pool, or a GPU's name.",
    "routing": KeyText(
        "Which instance gets a request: `policy`, and that policy's settings next to it.",
        default="round-robin",
    ),
    "routing.policy": "`module:attribute` is a function of yours, `FILE.py:function` one in a file next to TWIN.yaml "
    "(`sim.cluster.routing.own`); it needs `--allow-code`.",
    "routing.mode": "`kube-proxy` only. Its mode: any instance for a new connection, or the next in turn.",
    "routing.keep_alive_us": "`kube-proxy` only. How long an idle connection is kept; 5 s in OpenAI's client and in "
    "vLLM's server.",
    "routing.ties": "`least-loaded` only. Which of equally loaded instances gets the request.",
    "routing.scorers": KeyText(
        "`weighted` only. Scorers and their weights: prefix-affinity, precise-prefix-cache, no-hit-lru, queue-depth, "
        "kv-utilization, load-balance, active-requests, running-requests, load-aware, vllm-dp, lora-affinity. Only "
        "the weights' ratios count.",
        default="prefix-affinity 2, active-requests 3, kv-utilization 1",
    ),
    "routing.prefix_capacity_blocks": KeyText(
        "`weighted` only. Blocks per instance that the router remembers having sent there.", within=(1, 1e9)
    ),
    "routing.vllm_version": KeyText(
        "`vllm-dp` only. The vLLM version whose balancer is used: its rule changed with 0.25 and 0.27.",
        default="of the top level",
    ),
    "routing.clients": KeyText("`vllm-dp` only. API servers in front.", within=(1, 100_000)),
    "routing.client": "`vllm-dp` only. The number of this API server, from 0.",
    "routing.cache_threshold": "`cache-aware` only. Share of the prompt that an instance must know for the request to "
    "follow it; at most 1.",
    "routing.balance_abs_threshold": "`cache-aware` only. If loads differ by more than this many requests and also by "
    "more than the factor `balance_rel_threshold`, the least loaded instance gets the request.",
    "routing.balance_rel_threshold": "`cache-aware` only. The factor; see `balance_abs_threshold`.",
    "routing.owner": "`cache-aware` only. Which instance gets a known prefix: the one that had it first "
    "(sglang-router), or the least loaded of those that were sent it (vllm-router).",
    "routing.max_tree_size": "`cache-aware` only. Tokens remembered per instance.",
    "routing.eviction_interval_us": "`cache-aware` only. How often entries beyond `max_tree_size` are forgotten, µs.",
    "routing.prefill_load_scale": "`kv-cost` only. Weight of the blocks still to be prefilled.",
    "routing.overlap_score_credit": "`kv-cost` only. Credit per cached block.",
    "routing.overlap_score_credit_decay": "`kv-cost` only. How the credit falls with the load.",
    "routing.host_cache_hit_weight": "`kv-cost` only. Credit of a block in host memory.",
    "routing.decode_active_request_weight": "`kv-cost` only. Cost per active request, blocks.",
    "routing.temperature": "`kv-cost` only. 0: the least cost; above: a draw that favours low costs.",
    "snapshot_interval_us": KeyText(
        "How often the router reads what instances report, µs; 0: at every decision. A number for all signals, or one "
        "for each. The requests that it has in flight it always knows.",
        default="0",
    ),
    "snapshot_interval_us.queue": "Of waiting and running requests.",
    "snapshot_interval_us.kv": "Of KV cache usage.",
    "snapshot_interval_us.cache": "Of which blocks are cached.",
    "admission": KeyText(
        "Which requests the gateway admits: `policy`, and its settings next to it.", default="always"
    ),
    "admission.policy": "Which requests are admitted; a rejected one reaches no queue and no instance.",
    "admission.capacity": "`token-bucket` only. Prompt tokens the bucket holds.",
    "admission.refill_per_s": "`token-bucket` only. Tokens per second that come back.",
    "admission.max_load": "`tier-shed` only. Requests in flight on an instance above which less important classes are "
    "rejected.",
    "admission.min_priority": KeyText(
        "`tier-shed` only. Classes below this priority are then rejected.", least=-100
    ),
    "admission.queue_threshold": "`utilization` only. Waiting requests of an instance that count as full.",
    "admission.kv_threshold": "`utilization` only. KV cache usage that counts as full; at most 1.",
    "admission.budgets": "`tenant-budget` only. Tenants, each with the share of all seats (instances x "
    "`max_num_seqs`) that it may have in flight.",
    "admission.rejects_all": "`tenant-budget` only. Also for classes that may not be shed.",
    "latency": "Fixed times that a request spends on its way, apart from queues.",
    "latency.admission_us": "µs to be admitted.",
    "latency.routing_us": "µs to be routed.",
    "flow_control": "A queue in front of the instances, which hands requests over only while they are not saturated. "
    "`{}`: with all its defaults.",
    "flow_control.order": "Which request goes first: the highest service class and in it the earliest; the earliest; "
    "the highest class and in it the earliest deadline.",
    "flow_control.fairness": "`round-robin`: within a service class, tenants take turns.",
    "flow_control.detector": "What saturated means: mean of waiting requests and KV usage against their thresholds; "
    "requests in flight; never.",
    "flow_control.queue_threshold": "Waiting requests of an instance that count as full.",
    "flow_control.kv_threshold": "KV cache usage that counts as full.",
    "flow_control.max_concurrency": "With detector `concurrency`: requests in flight per instance that count as full.",
    "flow_control.lowest_ceiling": "Saturation at which the lowest service class has to wait; those above it in equal "
    "steps up to 1.",
    "flow_control.capacity": "Requests the queue holds; 0: no limit.",
    "flow_control.band_capacity": "Requests of one service class it holds; 0: no limit.",
    "flow_control.sheds": "Where the queue is full, a more important request takes the place of one that may be shed.",
    "flow_control.evicts": "While saturated, a running request that may be shed is ended for a more important one "
    "that waits.",
    "flow_control.ttl_us": "How long a request may wait in the queue, µs; 0: no limit.",
    "flow_control.slo_targets_us": "With order `slo-deadline`: targets of service classes, µs, for requests without "
    "one of their own.",
    "disaggregation": KeyText(
        "Which prompts a prefill instance computes, and how their KV gets to the decode instance. The decode instance "
        "is chosen first, by `routing`. A shared instance serves its requests whole.",
        default="with prefill and decode pools `{}`: all its defaults; else none",
    ),
    "disaggregation.decider": "Which prompts go to a prefill instance: all; none; or those of which more than "
    "`prefix_threshold` tokens are not in the prefix cache of the decode instance.",
    "disaggregation.prefix_threshold": "With decider `prefix-threshold`: tokens.",
    "disaggregation.kv_bandwidth_gbps": KeyText(
        "Bandwidth of each instance's link in each direction: gigabytes (10^9 bytes) per second.",
        default="25",
        within=(0.001, 1e6),
    ),
    "disaggregation.kv_base_latency_us": "Before a transfer's first byte moves, µs.",
    "disaggregation.contention": "Whether transfers share their links, max-min fairly: the tightest link sets the "
    "rate of those on it, what they leave elsewhere goes to others. false: each transfer has the whole bandwidth.",
    "disaggregation.kv_bytes_per_token": KeyText(
        "KV of one token in all layers. Whole blocks are moved.",
        default="of `latency.model_config`",
        within=(1, 1e8),
    ),
    "disaggregation.prefill_routing": KeyText(
        "Which prefill instance computes a prompt: `policy` and its settings, as `routing`.",
        default="as `routing`",
    ),
    "slo_priorities": KeyText(
        "Priorities of service classes, -100 to 100; below 0 a class may be shed.",
        default="critical 4, standard 3, batch -1, sheddable -2, background -3",
    ),
    "gpus_per_instance": KeyText(
        "GPUs of one server, for placement, GPU-hours and cost.",
        "of `hardware`: tp x pp x dp, else the pipeline stages",
        within=_GPUS,
    ),
    "cost_per_gpu_hour": KeyText(
        "What a GPU costs while an instance has it, where no node pool has a price.",
        default="0",
        within=(0, 1e9),
    ),
    "node_pool": KeyText(
        "Which of `cluster.node_pools` the instances are placed on.", default="the only one"
    ),
    "startup": "Time from an instance's getting its GPUs to its first request.",
    "startup.loading_us": "To load the model, µs.",
    "startup.warm_up_us": "To profile, compile and capture graphs, µs.",
    "autoscaler": "How many instances there are as time goes by, in each pool by itself. `instances` is the number at "
    "the beginning, within the limits. Not with `lockstep`.",
    "autoscaler.policy": "`saturation`: one more where too little KV and queue is left, one fewer where the rest "
    "could take it all (llm-d's workload-variant-autoscaler). `target`: as many as bring a metric's mean to its "
    "target (Kubernetes HPA, KEDA). `schedule`: by the clock.",
    "autoscaler.min_instances": "Smallest number of instances; 0 needs `flow_control`, whose queue holds requests.",
    "autoscaler.max_instances": KeyText(
        "Largest number of instances. Not for a schedule.", default="required", within=(1, 100_000)
    ),
    "autoscaler.interval_us": KeyText("How often it looks, µs.", within=(1000, 1e15)),
    "autoscaler.actuation_us": "From a decision until it is acted on, µs.",
    "autoscaler.up_window_us": "It grows to the smallest number that was wanted in this time, µs.",
    "autoscaler.down_window_us": "It shrinks to the largest number that was wanted in this time, µs.",
    "autoscaler.up_cooldown_us": "It grows no sooner than this long after it last grew, µs.",
    "autoscaler.down_cooldown_us": "It shrinks no sooner than this long after it last shrank, µs.",
    "autoscaler.max_up": "Instances that it adds at once; 0: no limit.",
    "autoscaler.max_down": "Instances that it takes away at once; 0: no limit.",
    "autoscaler.idle_us": "With `min_instances` 0: the last instance goes when none has had a request for this long, "
    "µs.",
    "autoscaler.drain": "What an instance that is being removed does with its requests (it gets no new ones). `wait`: "
    "it finishes all. `requeue`: those that it has not begun go back to the router, or the gateway's queue.",
    "autoscaler.drain_timeout_us": "A drain may take this long, µs; requests that the instance still has are then "
    "lost. 0: no limit.",
    "autoscaler.kv_threshold": "`saturation` only. KV usage from which an instance is saturated.",
    "autoscaler.queue_threshold": KeyText(
        "`saturation` only. Waiting requests from which it is.", default="5"
    ),
    "autoscaler.kv_spare": "`saturation` only. KV usage that should be left below the threshold, on average.",
    "autoscaler.queue_spare": KeyText("`saturation` only. Waiting requests, likewise.", default="3"),
    "autoscaler.metric": "`target` only. Requests in flight, waiting or running, or KV usage, of an instance. A "
    "request in the gateway's queue counts as in flight and as waiting.",
    "autoscaler.target": KeyText(
        "`target` only. Target of the metric's mean over instances.", default="required", within=(1e-9, 1e12)
    ),
    "autoscaler.tolerance": "`target` only. How far off it may be, as a fraction, before anything is done.",
    "autoscaler.schedule": "`schedule` only. A list of `{at_us, instances}`, the earliest first.",
    "autoscaler.schedule.at_us": "From this time on, µs; 0: from the beginning.",
    "autoscaler.schedule.instances": "Number of instances from then on.",
    "autoscaler.repeat_us": KeyText(
        "`schedule` only. Period after which it repeats, µs (a day is 86400000000); 0: never.",
        within=(1000, 1e15),
    ),
    "node_pools": "A list of kinds of nodes that instances are placed on. Without it the number of GPUs is unlimited. "
    "An instance has to fit on a node.",
    "node_pools.name": "Its name, as in `node_pool`.",
    "node_pools.gpus_per_node": "GPUs of a node.",
    "node_pools.min_nodes": "Nodes that are always there.",
    "node_pools.max_nodes": KeyText("Largest number of nodes.", within=(1, 100_000)),
    "node_pools.provisioning_us": "From ordering a node until it is there, µs.",
    "node_pools.idle_us": "A node that has been empty for this long is released, µs.",
    "node_pools.cost_per_hour": KeyText("What a node costs, from its order until it is gone.", default="0"),
    "node_pools.placement": "An instance goes to the node with the fewest free GPUs that suffice, or the most.",
    "failures": "Instances that fail. What they have is lost, their KV cache is gone, and they start again. With "
    "`disaggregation` also what waits for a failed instance's KV.",
    "failures.mtbf_us": KeyText(
        "Mean time from being ready to a random failure, µs (exponential); 0: no random failures.",
        within=(1000, 1e15),
    ),
    "failures.mttr_us": "Mean time from a random failure until the instance starts again, µs (exponential).",
    "failures.schedule": "A list of `{at_us, instance, down_us}`.",
    "failures.schedule.at_us": "When it fails, µs; nothing happens if it is not up.",
    "failures.schedule.instance": "The instance's number, from 0, over all pools.",
    "failures.schedule.down_us": "Time until the instance starts again, µs.",
    "retries": "Clients that send a failed request again.",
    "retries.max_attempts": KeyText("Attempts of a request in all.", within=(2, 1000)),
    "retries.on": KeyText(
        "A list of the outcomes after which clients try again. expired and evicted are also possible.",
        default="rejected, queue_full, shed, dropped, lost, timed_out",
    ),
    "retries.backoff_us": "The pause before the second attempt, µs.",
    "retries.backoff_factor": KeyText("How much longer each further pause is.", default="2"),
    "retries.max_backoff_us": "The longest pause, µs.",
    "retries.jitter_frac": KeyText("Share of a pause that is random, at most 1.", default="0"),
    "retries.timeout_us": "Time after which a client gives up an attempt, µs, if the trace gives its request no "
    "deadline; 0: never.",
}
"""What each key means, by its path below ``cluster``. Light: who reads it compiles nothing."""


def cluster_keys() -> tuple[Key, ...]:
    """Return the keys of ``cluster`` as the simulator's settings have them; it also speaks for its only pool."""
    from sim.cluster import ADMISSION_POLICIES, ROUTING_POLICIES, ClusterConfig, Pool

    choices: Mapping[str, tuple[str, ...]] = {
        "routing.policy": (*ROUTING_POLICIES, OWN_FUNCTION),
        "admission.policy": tuple(ADMISSION_POLICIES),
    }
    said = CLUSTER | {name: replace(said_of(CLUSTER[name]), choices=each) for name, each in choices.items()}
    return keys_of(
        "cluster", said, {**holders_of(Pool), **holders_of(ClusterConfig), "": (ClusterConfig, Pool)}
    )
