"""Flags of vLLM, BLIS and Vidur that vtwin does not have: the equal key of TWIN.yaml, or the equal option."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from replay.twin.start.flag_table import FLAGS

KEYS: Final[Mapping[str, str]] = {
    **{f"--{name}": flag.key for name, flag in FLAGS.items() if flag.key},
    # BLIS, its older names included
    "--max-num-running-reqs": "engine.max_num_seqs",
    "--max-num-scheduled-tokens": "engine.max_num_batched_tokens",
    "--total-kv-blocks": "engine.num_gpu_blocks",
    "--block-size-in-tokens": "engine.block_size",
    "--scheduler": "engine.scheduling_policy",
    "--kv-cpu-blocks": "engine.num_cpu_blocks",
    "--kv-offload-threshold": "engine.kv_offload_threshold",
    "--kv-transfer-bandwidth": "engine.kv_transfer_bandwidth",
    "--kv-transfer-base-latency": "engine.kv_transfer_base_latency",
    "--alpha-coeffs": "latency.coefficients.alpha0",
    "--beta-coeffs": "latency.coefficients.beta0",
    "--latency-model": "latency.model",
    "--model-config-folder": "latency.model_config",
    "--hardware": "hardware.gpu",
    "--tp": "hardware.tp",
    "--gpu-memory-utilization": "hardware.gpu_memory_utilization",
    "--admission-policy": "cluster.admission.policy",
    "--admission-latency": "cluster.latency.admission_us",
    "--routing-latency": "cluster.latency.routing_us",
    "--routing-scorers": "cluster.routing.scorers",
    "--snapshot-refresh-interval": "cluster.snapshot_interval_us",
    "--prefill-instances": "cluster.pools",
    "--decode-instances": "cluster.pools",
    "--pd-decider": "cluster.disaggregation.decider",
    "--pd-prefix-threshold": "cluster.disaggregation.prefix_threshold",
    "--pd-transfer-bandwidth": "cluster.disaggregation.kv_bandwidth_gbps",
    "--pd-transfer-contention": "cluster.disaggregation.contention",
    # Vidur
    "--replica_config_device": "hardware.gpu",
    "--replica_config_model_name": "latency.model_config",
    "--replica_config_tensor_parallel_size": "hardware.tp",
    "--replica_config_num_pipeline_stages": "engine.pipeline_parallel_size",
    "--replica_scheduler_config_type": "engine.batching",
    "--global_scheduler_config_type": "cluster.routing.policy",
}
"""By flag, the key of TWIN.yaml. Of flags with several values the first one's; the others stand beside it."""

OPTIONS: Final[Mapping[str, str]] = {
    # BLIS
    "--num-instances": "--instances",
    "--routing-policy": "--routing",
    "--workload-spec": "--workload",
    "--defaults-filepath": "--defaults",
    "--policy-config": "--config",
    "--think-time-ms": "--think-time",
    "--results-path": "--json",
    "--metrics-path": "--json",
    "--trace-output": "--output",
    "--counterfactual-k": "--counterfactual",
    "--server-url": "--url",
    "--warmup-requests": "--warmup",
    # Vidur
    "--cluster_config_num_replicas": "--instances",
    "--synthetic_request_generator_config_num_requests": "--num-requests",
    "--poisson_request_interval_generator_config_qps": "--rate",
    "--trace_request_length_generator_config_trace_file": "--lengths-from",
}
"""By flag, vtwin's option."""


def own_way(flag: str, options: Collection[str]) -> str | None:
    """Return vtwin's equivalent of another tool's flag, None if it is not one; ``options``: of the command."""
    if OPTIONS.get(flag) in options:
        return f"use {OPTIONS[flag]}"
    key = KEYS.get(flag)
    if key is None:
        return None
    return f"{key} in TWIN.yaml" + (f", or --set {key}=…" if "--set" in options else "")
