"""Flags of other tools that vtwin does not have: the equal key of TWIN.yaml, or the equal option, and whose it is."""

from __future__ import annotations

import re
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
    "--replica_config_network_device": "hardware.gpu",
    "--vllm_scheduler_config_batch_size_cap": "engine.max_num_seqs",
    "--vllm_scheduler_config_max_tokens_in_batch": "engine.max_num_batched_tokens",
    "--vllm_scheduler_config_block_size": "engine.block_size",
    "--vllm_scheduler_config_num_blocks": "engine.num_gpu_blocks",
    "--sarathi_scheduler_config_batch_size_cap": "engine.max_num_seqs",
    "--sarathi_scheduler_config_chunk_size": "engine.max_num_batched_tokens",
    "--sarathi_scheduler_config_block_size": "engine.block_size",
    "--sarathi_scheduler_config_num_blocks": "engine.num_gpu_blocks",
    "--execution_time_predictor_config_type": "latency.model",
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
    "--trace_request_length_generator_config_trace_file": "--like",
    "--trace_request_length_generator_config_max_tokens": "--total-tokens-max",
}
"""By flag, vtwin's option."""


_LENGTHS: Final = "--prompt-tokens and --output-tokens"
_DATA: Final = "--trace or --like for a recorded load, --preset for a typical one"
_NOT_NEEDED: Final = "nothing here"
PEERS: Final[Mapping[str, tuple[str, ...]]] = {
    # vllm bench, and sglang's benchmark
    "--input-len": ("vllm bench's", "--prompt-tokens"),
    "--random-input-len": ("vllm bench's", "--prompt-tokens"),
    "--random-input": ("sglang's", "--prompt-tokens"),
    "--output-len": ("vllm bench's", "--output-tokens"),
    "--random-output-len": ("vllm bench's", "--output-tokens"),
    "--random-output": ("sglang's", "--output-tokens"),
    "--random-prefix-len": ("vllm bench's", "--prefix-tokens"),
    "--random-range-ratio": (
        "vllm bench's",
        "--prompt-tokens-stdev, --prompt-tokens-min and --prompt-tokens-max",
    ),
    "--num-prompts": ("vllm bench's", "--num-requests"),
    "--num-prompt": ("vllm bench's", "--num-requests"),
    "--request-rate": ("vllm bench's", "--rate"),
    "--base-url": ("vllm bench's", "--url"),
    "--dataset-name": ("vllm bench's", _DATA),
    "--dataset-path": ("vllm bench's", "--trace or --like", "--trace"),
    "--dataset": ("vllm bench's", _DATA),
    "--goodput": ("vllm bench's", "--slo (ttft=500ms,tpot=30ms)"),
    "--save-result": ("vllm bench's", "--output"),
    "--result-dir": ("vllm bench's", "--output"),
    "--result-filename": ("vllm bench's", "--output"),
    "--num-warmups": ("vllm bench's", "--warmup"),
    "--percentile-metrics": ("vllm bench's", "--json, which has p50 to p99 of each metric"),
    "--metric-percentiles": ("vllm bench's", "--json, which has p50 to p99 of each metric"),
    "--ramp-up-strategy": ("vllm bench's", "--stages (5-20:2m)"),
    # guidellm
    "--target": ("guidellm's", "--url"),
    "--max-seconds": ("guidellm's", "--duration"),
    "--max-requests": ("guidellm's", "--num-requests"),
    "--max-error": ("guidellm's", "--max-error-rate"),
    "--rate-type": (
        "guidellm's",
        "--rate or --concurrency; --sweep takes several",
        "--rate or --concurrency",
    ),
    "--data": ("guidellm's", _LENGTHS),
    "--output-path": ("guidellm's", "--output"),
    "--random-seed": ("guidellm's", "--seed"),
    "--warmup-percent": ("guidellm's", "--warmup"),
    # aiperf, genai-perf and their like
    "--isl": ("aiperf's", "--prompt-tokens"),
    "--osl": ("aiperf's", "--output-tokens"),
    "--isl-stddev": ("aiperf's", "--prompt-tokens-stdev"),
    "--osl-stddev": ("aiperf's", "--output-tokens-stdev"),
    "--synthetic-input-tokens-mean": ("aiperf's", "--prompt-tokens"),
    "--synthetic-input-tokens-stddev": ("aiperf's", "--prompt-tokens-stdev"),
    "--output-tokens-mean": ("aiperf's", "--output-tokens"),
    "--output-tokens-stddev": ("aiperf's", "--output-tokens-stdev"),
    "--prompt-input-tokens-mean": ("aiperf's", "--prompt-tokens"),
    "--prompt-output-tokens-mean": ("aiperf's", "--output-tokens"),
    "--request-count": ("aiperf's", "--num-requests"),
    "--benchmark-duration": ("aiperf's", "--duration"),
    "--warmup-request-count": ("aiperf's", "--warmup"),
    "--concurrency-levels": (
        "another tool's",
        "--sweep concurrency=1,2,4",
        "--concurrency, one run for each",
    ),
    "--concurrencies": ("another tool's", "--sweep concurrency=1,2,4", "--concurrency, one run for each"),
    "--input-file": ("aiperf's", "--trace"),
    "--fixed-schedule": ("aiperf's", "--trace, which keeps the times of the file"),
    "--random-seeds": ("aiperf's", "--seed"),
    "--qps": ("another tool's", "--rate"),
    "--rps": ("another tool's", "--rate"),
    "--max-num-completed-requests": ("llmperf's", "--num-requests"),
    "--num-concurrent-requests": ("llmperf's", "--concurrency"),
    "--mean-input-tokens": ("llmperf's", "--prompt-tokens"),
    "--mean-output-tokens": ("llmperf's", "--output-tokens"),
    "--stddev-input-tokens": ("llmperf's", "--prompt-tokens-stdev"),
    "--stddev-output-tokens": ("llmperf's", "--output-tokens-stdev"),
    # BLIS observe
    "--trace-header": ("BLIS's", "--output STEM, which names STEM.yaml and STEM.csv"),
    "--trace-data": ("BLIS's", "--output STEM, which names STEM.yaml and STEM.csv"),
    "--server-type": ("BLIS's", f"{_NOT_NEEDED}: it was a label, and the server says itself what it is"),
    "--prewarm-duration": ("BLIS's", "--warmup 10s"),
    "--horizon": ("BLIS's", "--duration"),
    "--lazy-generation": ("BLIS's", f"{_NOT_NEEDED}: prompts are made while the load is sent"),
    "--think-time-dist": ("BLIS's", "--think-time"),
    "--api-format": ("BLIS's", "--api"),
    "--unconstrained-output": (
        "BLIS's",
        f"{_NOT_NEEDED}: a server that cannot pin an answer's length ends it itself",
    ),
    "--rtt-ms": ("BLIS's", "--network rtt=2ms", f"{_NOT_NEEDED}: the round trip is measured"),
    "--record-itl": ("BLIS's", "done always; --no-itl leaves it out"),
    "--itl-output": ("BLIS's", "--output STEM, which also writes STEM.itl.csv"),
    "--scrape-kv-metrics": ("BLIS's", "--scrape 1s"),
    "--kv-metrics-url": ("BLIS's", "--scrape 1s, from the server at --url"),
    "--vllm-commit": ("BLIS's", f"{_NOT_NEEDED}: the server says its version"),
    "--slo-ttft": ("BLIS's", "--slo ttft=500ms"),
    "--slo-itl": ("BLIS's", "--slo itl=50ms"),
    "--slo-e2e": ("BLIS's", "--slo e2e=10s"),
    # Vidur
    "--replica_config_memory_margin_fraction": (
        "Vidur's",
        "--set hardware.gpu_memory_utilization=X, which is one minus that margin",
    ),
    "--fixed_request_length_generator_config_prefill_tokens": ("Vidur's", "--prompt-tokens"),
    "--fixed_request_length_generator_config_decode_tokens": ("Vidur's", "--output-tokens"),
    "--uniform_request_length_generator_config_min_tokens": ("Vidur's", "--prompt-tokens-min"),
    "--uniform_request_length_generator_config_max_tokens": ("Vidur's", "--prompt-tokens-max"),
    "--gamma_request_interval_generator_config_qps": ("Vidur's", "--rate"),
    "--gamma_request_interval_generator_config_cv": (
        "Vidur's",
        "--arrival gamma with --burstiness, 1 / cv squared",
    ),
    "--trace_request_generator_config_trace_file": ("Vidur's", "--trace"),
    "--interval_generator_config_type": ("Vidur's", "--arrival"),
    "--length_generator_config_type": ("Vidur's", _LENGTHS),
    "--request_generator_config_type": ("Vidur's", "--rate or --trace"),
    "--metrics_config_output_dir": ("Vidur's", "--output"),
    "--time_limit": ("Vidur's", "--duration"),
}
"""By flag, whose it is, and what stands for it here: the first of these texts whose options the command has."""

_VIDUR: Final = re.compile(r"--[a-z_]+_config_[a-z_]+")


def own_way(flag: str, options: Collection[str]) -> str | None:
    """Return vtwin's equivalent of another tool's flag, None if it is not one; ``options``: of the command."""
    if OPTIONS.get(flag) in options:
        return f"use {OPTIONS[flag]}"
    if (key := KEYS.get(flag)) is not None:
        return f"{key} in TWIN.yaml" + (f", or --set {key}=…" if "--set" in options else "")
    if flag in PEERS:
        return _of_a_peer(*PEERS[flag], options=options)
    if flag not in OPTIONS and _VIDUR.fullmatch(flag):
        return "it is Vidur's, and vtwin has no such setting; docs/reference/config.md lists those it has"
    return None


def _of_a_peer(whose: str, *texts: str, options: Collection[str]) -> str:
    """Return what to write in place of a peer's flag, or that other commands have it."""
    for text in texts:
        if set(re.findall(r"--[a-z][a-z-]*", text)) <= set(options):
            return f"it is {whose}; here {text}"
    return f"it is {whose}; other commands have {texts[0]}"
