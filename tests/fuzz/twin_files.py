"""Whole TWIN.yaml files and command lines of servers, small; what is damaged begins as one of them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from replay.twin.config_read import load_config
from replay.twin.config_write import dump_config
from tests.fuzz.mutate import Files
from tests.fuzz.reader_files import TWIN, defaults, shipped_config_json, step_tables

DRAFTED = """\
engine: {max_num_seqs: 64, num_speculative_tokens: 2, num_lookahead_tokens: 2, synthetic_acceptance_rates: [0.7],
  speculative_method: draft_model, speculative_model: config.json}
latency: {model: physics, model_config: config.json}
hardware: {gpu: H100, tp: 1}
"""
PHYSICS = """\
engine: {max_num_seqs: 64}
latency: {model: physics, model_config: config.json}
hardware: {gpu: H100, tp: 1}
"""
CLUSTER = """\
engine: {max_num_seqs: 64}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 10, beta2: 20}}
cluster:
  pools:
    - {name: prefill, role: prefill, instances: 2, engine: {max_num_seqs: 64}}
    - {name: decode, role: decode, instances: 2}
  routing: {policy: weighted, scorers: {prefix-affinity: 3, queue-depth: 2, kv-utilization: 2}}
  snapshot_interval_us: {queue: 10, kv: 50000, cache: 20}
  admission: {policy: token-bucket, refill_per_s: 100, capacity: 100}
  latency: {admission_us: 10, routing_us: 5}
  disaggregation: {decider: always, kv_bandwidth_gbps: 25, kv_base_latency_us: 50, kv_bytes_per_token: 100000}
"""
SCALED = """\
engine: {max_num_seqs: 64}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 10, beta2: 20}}
cluster:
  instances: 2
  routing: {policy: cache-aware, cache_threshold: 0.5, balance_abs_threshold: 32, balance_rel_threshold: 1.0001}
  autoscaler: {policy: target, interval_us: 1000000, metric: waiting, target: 4, max_instances: 4}
  failures: {mtbf_us: 100000000, mttr_us: 1000000, schedule: [{at_us: 5, instance: 0, down_us: 9}]}
  retries: {max_attempts: 3, on: [rejected], backoff_us: 500000, jitter_frac: 0.5}
"""


FITTED = """\
engine: {max_num_seqs: 4, max_num_batched_tokens: 64, num_gpu_blocks: 50}
latency:
  model: extended
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, alpha3: 90, beta0: 1000, beta1: 30, beta2: 20, floor: 9000}
  tiles: [[1, 1.0], [1024, 0.95], [1025, 1.2], [2048, 1.0]]
  fitted_range: {rate_per_s: [1, 4], prompt_tokens: [10, 900]}
  pace: {within: 0.01, beyond: 0.02}
  held_out: {date: 2026-11-22, ttft: 0.05, tpot: 0.02, e2e: 0.03, ttft_mean: 0.04, ttft_p99: 0.2, tpot_mean: 0.01,
    tpot_p99: 0.06, e2e_mean: 0.02, e2e_p99: 0.04, far: [ttft], far_p99: [e2e]}
  fitted_on:
    model: meta-llama/Llama-3.1-8B
    gpu: H100
    num_gpus: 2
    tp: 2
    vllm_version: "0.24.0"
    flags: {max_num_seqs: 4, async_scheduling: true, scheduling_policy: fcfs}
    noise: {ttft: 0.1, tpot: 0.03, e2e: 0.03}
    loads:
      - {name: low, role: fitted, num_requests: 300, rate_per_s: 1.5, concurrency: 3.2, prompt_tokens: 100,
        output_tokens: 50, ttft: 0.04, tpot: 0.02, e2e: 0.03}
    carried_from: another server
"""


GROUPS = """\
engine:
  max_num_seqs: 8
  num_gpu_blocks: 900
  block_size: 16
  disable_hybrid_kv_cache_manager: false
  kv_cache_groups:
    - {kind: full, block_size: 32}
    - {kind: sliding, window: 128, block_size: 16}
    - {kind: sliding, window: 128, block_size: 16}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 20, beta2: 100}}
"""
STATES = """\
engine:
  num_gpu_blocks: 900
  enable_prefix_caching: true
  kv_cache_groups: [{kind: full}, {kind: state, mode: align}, {kind: chunked, chunk: 64}]
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 20, beta2: 100}}
"""
UNITS = """\
engine:
  num_gpu_blocks: 900
  block_size: 64
  prefix_match_unit: 16
  kv_cache_groups:
    - {kind: full}
    - {kind: state, mode: align, num_prefill_checkpoint_blocks: 1, prefill_checkpoint_alignment: 1}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 20, beta2: 100}}
"""
ENGINE = """\
vllm_version: "0.32.0"
compatibility: vllm
engine:
  max_num_seqs: 64
  num_gpu_blocks: 2588
  max_model_len: 4096
  enable_chunked_prefill: true
  long_prefill_token_threshold: 1024
  long_prefill_token_threshold_adaptive: false
  scheduler_reserve_full_isl: true
  prefill_schedule_interval: 1
  scheduling_policy: priority
  priority_scoring: slo-based
  priority_age_weight: 0.5
  async_scheduling: true
  pipeline_parallel_size: 1
  frontend: none
  num_speculative_tokens: 2
  num_lookahead_tokens: 2
  num_prefill_lookahead_tokens: 0
  synthetic_acceptance_rates: [0.8, 0.5]
  use_eagle: true
  speculative_method: none
  draft_us: 300
  max_loras: 2
  lora_load_us: 20000
  lora_step_factor: 1.1
  guided_compile_us: 5000
  guided_mask_us: 40.5
  launch_us: 12
  host_step_us: 250.5
  host_prefill_us: 3
  enforce_eager: false
  max_cudagraph_capture_size: 512
  session_kv_ttl_us: 2000000
latency:
  model: extended
  coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 10, beta2: 20, beta3: 0.01, beta4: 0, beta5: 0,
    kappa: 0.1, u0: 0.5, tau_s: 2, concavity: 0.1, sigma: 0.01}
  fitted_range: {rate_per_s: [1, 4], prompt_tokens: [10, 900], output_tokens: [1, 300], concurrency: [1, 20],
    lasting: [1, 3]}
"""
BLIS = """\
compatibility: blis
engine: {num_gpu_blocks: 900, batching: vllm, num_cpu_blocks: 100, kv_offloading: blis, kv_offload_threshold: 0.8,
  kv_transfer_bandwidth: 50, kv_transfer_base_latency: 10}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 20, beta2: 100}}
"""
OFFLOADED = """\
engine:
  num_gpu_blocks: 900
  num_cpu_blocks: 4000
  kv_offloading: native
  kv_load_us_per_block: 12.5
  kv_store_us_per_block: 14
  kv_store_threshold: 2
  kv_cache_groups: [{kind: full, is_eagle_group: false}, {kind: sliding, window: 128}]
  prefix_cache_retention_interval: 256
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 20, beta2: 100}}
"""
IMAGES = """\
engine: {max_num_seqs: 16, encoder_step_us: 900, encoder_token_us: 3.5, encoder_token_pair_us: 0.001,
  encoder_data_parallel_size: 1, max_num_encoder_input_tokens: 16384, encoder_cache_size: 16384,
  disable_chunked_mm_input: true, language_model_only: false}
latency: {model: roofline, model_config: config.json, dtype: auto, kv_cache_dtype: fp8, mamba_ssm_cache_dtype: auto,
  quantization: auto, coefficients: {sigma: 0.1}}
hardware: {gpu: H100, tp: 2, pp: 1, dp: 1, enable_expert_parallel: false, all2all_backend: naive, gpus_per_node: 8,
  mm_encoder_tp_mode: weights, network_gb_per_s: 44, network_us: 11, nccl_launch_us: 8, nccl_skew_us: 0,
  gpu_memory_utilization: 0.9, kv_cache_memory_bytes: 40000000000, kv_offloading_size: 16, kv_offload_gb_per_s: 25}
"""
OWN_GPU = """\
engine: {max_num_seqs: 16, num_gpu_blocks: 4000}
latency: {model: profiled, model_config: config.json, table: table.json,
  coefficients: {step: 100, scale: 1.1, decode_batching: 0, prefill_batching: 0, nccl_launch: 0, nccl_skew: 0}}
hardware: {gpu: H100, memory_gib: 80, bandwidth_gb_per_s: 3350, tflops_16bit: 989, tflops_fp8: 1979, tflops_fp4: 1979,
  tops_int8: 1979, link_gb_per_s: 450}
"""
ON_RECORD = """\
latency: {model: blackbox, defaults: {model: "codellama/codellama-34b-instruct-hf", gpu: H100, tp: 1},
  defaults_file: defaults.yaml}
"""
GATEWAY = """\
engine: {max_num_seqs: 64}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 10, beta2: 20}}
cluster:
  lockstep: false
  gpus_per_instance: 2
  cost_per_gpu_hour: 2.5
  slo_priorities: {critical: 4, standard: 3, batch: -1}
  startup: {loading_us: 20000000, warm_up_us: 5000000}
  pools:
    - {name: a, instances: 2, gpus_per_instance: 1, cost_per_gpu_hour: 2, node_pool: big, startup: {loading_us: 10}}
    - name: b
      instances: 1
      autoscaler: {policy: saturation, min_instances: 1, max_instances: 4, actuation_us: 5, up_window_us: 0,
        down_window_us: 9, up_cooldown_us: 1, down_cooldown_us: 1, max_up: 2, max_down: 1, drain: requeue,
        drain_timeout_us: 10, kv_threshold: 0.8, queue_threshold: 5, kv_spare: 0.1, queue_spare: 3,
        interval_us: 1000000}
  node_pool: big
  node_pools: [{name: big, gpus_per_node: 8, min_nodes: 0, max_nodes: 4, provisioning_us: 100, idle_us: 9,
    cost_per_hour: 20, placement: spread}]
  routing: {policy: kv-cost, prefill_load_scale: 1, overlap_score_credit: 1,
    overlap_score_credit_decay: 0.1, host_cache_hit_weight: 0.75, decode_active_request_weight: 0, temperature: 0.1}
  admission: {policy: utilization, queue_threshold: 5, kv_threshold: 0.8}
  flow_control: {order: slo-deadline, fairness: round-robin, detector: concurrency, queue_threshold: 5,
    kv_threshold: 0.8, max_concurrency: 100, lowest_ceiling: 1, band_capacity: 10,
    sheds: true, evicts: false, ttl_us: 900,
    slo_targets_us: {critical: 100}}
  retries: {max_attempts: 3, on: [rejected, timed_out], backoff_us: 5, backoff_factor: 2, max_backoff_us: 50,
    timeout_us: 900}
"""
ROUTED = """\
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 10, beta2: 20}}
cluster:
  pools:
    - name: prefill
      role: prefill
      instances: 2
      autoscaler: {policy: target, metric: waiting, target: 4, max_instances: 4, idle_us: 9, tolerance: 0.2}
    - name: decode
      role: decode
      instances: 2
      autoscaler: {policy: schedule, max_instances: 4, repeat_us: 86400000000, schedule: [{at_us: 5, instances: 3}]}
  routing: {policy: cache-aware, owner: least-loaded, max_tree_size: 4096,
    eviction_interval_us: 9000}
  disaggregation: {decider: prefix-threshold, prefix_threshold: 16, contention: false, kv_bandwidth_gbps: 25,
    kv_bytes_per_token: 9000,    prefill_routing: {policy: least-loaded}}
"""


POLICIES = (
    "routing: {policy: least-loaded, ties: random},"
    " admission: {policy: tenant-budget, budgets: {acme: 0.5}, rejects_all: true}",
    "routing: {policy: weighted, scorers: {prefix-affinity: 3}, prefix_capacity_blocks: 900}",
    "routing: {policy: kube-proxy, mode: ipvs, keep_alive_us: 90}",
    "routing: {policy: vllm-dp, clients: 2, client: 1}, admission: {policy: tier-shed, max_load: 10, min_priority: 3}",
)
"""Each has keys of its own."""


def _with_policies(text: str) -> str:
    latency = "{model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 10, beta2: 20}}"
    return f"latency: {latency}\ncluster: {{instances: 2, {text}}}\n"


def twins() -> list[Files]:
    """Return whole twins; together they have every key (tests/fuzz/test_fuzz.py)."""
    plain = (TWIN, CLUSTER, SCALED, FITTED, GROUPS, STATES, UNITS, ENGINE, BLIS, OFFLOADED, GATEWAY, ROUTED)
    beside = {
        "config.json": shipped_config_json("Qwen--Qwen2.5-7B-Instruct.json"),
        "defaults.yaml": defaults()[0]["defaults.yaml"],
        "table.json": step_tables()[0]["table.json"],
    }
    with_files = {
        PHYSICS: ["config.json"],
        DRAFTED: ["config.json"],
        IMAGES: ["config.json"],
        OWN_GPU: ["config.json", "table.json"],
        ON_RECORD: ["defaults.yaml"],
    }
    return [
        *({"twin.yaml": text.encode()} for text in (*plain, *map(_with_policies, POLICIES))),
        {"twin.yaml": _written_out(beside).encode()},
        *(
            {"twin.yaml": text.encode(), **{name: beside[name] for name in names}}
            for text, names in with_files.items()
        ),
    ]


def _written_out(beside: Files) -> str:
    """Return what ``vtwin config show`` prints of a twin: every key, the model at its GPU's peak among them."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_bytes(beside["config.json"])
        (folder / "twin.yaml").write_text(PHYSICS)
        return dump_config(load_config(folder / "twin.yaml"))


CONTAINER = (
    "export HF_TOKEN=x; sudo docker run --gpus all -v ~/.cache:/root -e M=Qwen/Qwen3-8B --name a "
    'registry:5000/vllm/vllm-openai:v0.12.0 sh -c "vllm serve $M --max-num-seqs 8 --enable-prefix-caching False 2>&1"'
)
DEPLOYMENT = """kind: List
items:
- kind: Deployment
  metadata: {name: a}
  spec:
    replicas: 2
    template:
      spec:
        containers:
        - name: b
          image: vllm/vllm-openai:v0.12.0
          env: [{name: MODEL, value: Qwen/Qwen3-8B}]
          args: [--model, $(MODEL), --max-num-seqs=64, "--max-model-len 8k", --enforce-eager]
          resources: {limits: {nvidia.com/gpu: "2"}}
---
kind: Pod
spec:
  containers:
  - {image: other, command: [bash, -c], args: ["exec vllm serve org/mine -tp 2 && echo done"]}
"""
COMPOSE = """x-shared: &shared
  image: vllm/vllm-openai:latest
  environment: [HF_TOKEN=x]
services:
  a:
    <<: *shared
    command: --model ${MODEL:-org/mine} --max-num-seqs 64 --api-key a b
    deploy: {replicas: 2, resources: {reservations: {devices: [{count: 1}]}}}
"""
CHART = """servingEngineSpec:
  modelSpec:
  - name: a
    repository: vllm/vllm-openai
    tag: v0.12.0
    modelURL: Qwen/Qwen3-8B
    replicaCount: 2
    requestGPU: 1
    vllmConfig: {enableChunkedPrefill: false, maxModelLen: 4096, tensorParallelSize: 2, extraArgs: [--max-num-seqs, 64]}
"""


def commands() -> list[Files]:
    """Return what starts servers, with the GPU and the version that a user names in lines of their own."""
    lines = (
        "vllm serve Qwen/Qwen3-8B --max-num-seqs 64 --max-num-batched-tokens=4096 --max_model_len 8K --block-size 32 "
        "--no-enable-prefix-caching --long-prefill-token-threshold 512 --watermark 0.01",
        "VLLM_USE_V1=1 python -m vllm.entrypoints.openai.api_server --model org/mine -tp 2 -pp=2 -dp 4 -ep "
        "--gpu-memory-utilization 0.85 --kv-cache-dtype fp8 --dtype auto --runner generate --max-loras 4 --enable-lora",
        "vllm serve openai/gpt-oss-20b --kv-offloading-size 16 --async-scheduling --prefix-cache-retention-interval 512"
        ' --speculative-config \'{"method": "eagle3", "num_speculative_tokens": 3, "model": "x"}\' --port 8000',
        "vllm serve google/gemma-3-12b-it --disable-hybrid-kv-cache-manager --spec-method mtp --spec-tokens 2 "
        "--mm-encoder-tp-mode data --limit-mm-per-prompt.image 4 --api-key secret --no-such-flag 5",
        'vllm serve Qwen/Qwen3-8B --kv-transfer-config \'{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", '
        '"kv_connector_extra_config": {"cpu_bytes_to_use": 17179869184}}\' --speculative-config.method ngram '
        "--speculative-config.num_speculative_tokens 4 --max-model-len auto --prefix-match-unit 16",
    )
    asked = ("H100\n0.30.0\n", "", "L40S\n\n", "\n0.12\n", "H100\n0.99.1\n")
    given = [
        *zip(lines, asked, strict=True),
        *((text, "") for text in (CONTAINER, DEPLOYMENT, COMPOSE, CHART)),
    ]
    return [{"command.txt": line.encode(), "asked.txt": beside.encode()} for line, beside in given]
