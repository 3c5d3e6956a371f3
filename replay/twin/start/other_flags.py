"""Flags of other tools that vtwin does not have: the equal key of TWIN.yaml, or the equal option, and whose it is."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from replay.twin.peers.fleet_simulator import of_fleet_simulator, own_command
from replay.twin.peers.vidur_flags import OF_VIDUR, of_vidur
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
    "--token-bucket-capacity": "cluster.admission.capacity",
    "--token-bucket-refill-rate": "cluster.admission.refill_per_s",
    "--flow-control": "cluster.flow_control",
    "--priority-policy": "engine.priority_scoring",
    "--roofline": "latency.model",
    "--hardware-config": "hardware",
    "--vllm-version": "vllm_version",
    "--model": "latency.model_config",
}
"""The key of TWIN.yaml by flag. Where a flag has several values, it is the first one's; the others stand beside it."""

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
}
"""vtwin's option for a flag."""


_LENGTHS: Final = "--prompt-tokens and --output-tokens"
_DATA: Final = "--trace or --like for a recorded load, --preset for a typical one"
_NOT_NEEDED: Final = "not needed here"
PEERS: Final[Mapping[str, tuple[str, ...]]] = {
    # vllm bench, and sglang's benchmark
    "--input-len": ("vllm bench's", "--prompt-tokens"),
    "--random-input-len": ("vllm bench's", "--prompt-tokens"),
    "--random-input": ("sglang's", "--prompt-tokens"),
    "--output-len": ("vllm bench's", "--output-tokens"),
    "--random-output-len": ("vllm bench's", "--output-tokens"),
    "--random-output": ("sglang's", "--output-tokens"),
    "--random-prefix-len": ("vllm bench's", "--prefix-tokens"),
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
    "--detect-saturation": ("guidellm's", "--stop-over-saturated"),
    "--over-saturation": ("guidellm's", "--stop-over-saturated"),
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
    "--record-itl": (
        "BLIS's",
        "--no-itl, where gaps are not wanted: they are recorded otherwise",
        "--itl, for the gaps in a file of their own",
    ),
    "--itl-output": ("BLIS's", "--output STEM, which also writes STEM.itl.csv"),
    "--scrape-kv-metrics": ("BLIS's", "--scrape 1s"),
    "--kv-metrics-url": ("BLIS's", "--scrape 1s, from the server at --url"),
    "--vllm-commit": ("BLIS's", f"{_NOT_NEEDED}: the server says its version"),
    "--slo-ttft": ("BLIS's", "--slo ttft=500ms"),
    "--slo-itl": ("BLIS's", "--slo itl=50ms"),
    "--slo-e2e": ("BLIS's", "--slo e2e=10s"),
    "--trace-level": ("BLIS's", "--decisions FILE.jsonl"),
    "--summarize-trace": ("BLIS's", "--decisions FILE.jsonl"),
    "--log": ("BLIS's", f"{_NOT_NEEDED}: what is told besides the answer is on stderr"),
    "--workload-traces-filepath": ("BLIS's", "--trace"),
    # vLLM's own
    "--api-key": (
        "vLLM's",
        "--api-key-env, the name of a variable that holds the key",
        f"{_NOT_NEEDED}: nothing is sent to a server",
    ),
}
"""Whose a flag is, and what stands for it here: the first of these texts whose options the command has."""


LENGTHS = (
    "--prompt-tokens",
    "--prompt-tokens-stdev",
    "--output-tokens",
    "--output-tokens-stdev",
    "--num-requests",
)
"""Options of a drawn load, which commands on a load's lengths lack."""


def own_way(flag: str, options: Collection[str]) -> str | None:
    """Return vtwin's equivalent of another tool's flag, None if it is not one; ``options``: of the command.

    ``flag``: or the name of a command.
    """
    if not flag.startswith("-"):
        return own_command(flag)
    if OPTIONS.get(flag) in options:
        return f"use {OPTIONS[flag]}"
    if (key := KEYS.get(flag)) is not None:
        return _in_file(key, options)
    if flag in LENGTHS and "--workload" in options:
        return f"lengths are those of --workload: vtwin trace synth {flag} N --output mix makes one"
    if flag in PEERS:
        return _of_a_peer(*PEERS[flag], options=options)
    return None if flag in OPTIONS else _of_a_planner(flag, options)


def _of_a_planner(flag: str, options: Collection[str]) -> str | None:
    """Return what stands for a flag of Vidur or the fleet simulator, None if it is of neither."""
    if "_config_" in flag or flag in OF_VIDUR:
        whose, found = "Vidur's", of_vidur(flag)
    elif (words := of_fleet_simulator(flag, options)) is not None:
        whose, found = "the vLLM fleet simulator's", words
    else:
        return None
    if re.fullmatch(r"[a-z_]+(\.[a-z0-9_]+)+", found):
        return f"it is {whose}; here {_in_file(found, options)}"
    return _of_a_peer(whose, found, options=options)


def _in_file(key: str, options: Collection[str]) -> str:
    return f"{key} in TWIN.yaml" + (f", or --set {key}=…" if "--set" in options else "")


def _of_a_peer(whose: str, *texts: str, options: Collection[str]) -> str:
    """Return what to write in place of a peer's flag, or that other commands have it."""
    for text in texts:
        if set(re.findall(r"--[a-z][a-z-]*", text)) <= set(options):
            return f"it is {whose}; {'here ' if text.startswith('--') else ''}{text}"
    return f"it is {whose}; {'other commands have ' if texts[0].startswith('--') else ''}{texts[0]}"
