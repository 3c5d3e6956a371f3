"""Vidur's flags: their names are a part of its configuration and a setting of that part."""

from __future__ import annotations

import re
from typing import Final

_ABSENT: Final = "nothing here does the same"
OF_VIDUR: Final = ("--log_level", "--time_limit", "--config_time_limit")
"""Flags of Vidur that name no part."""
_RULES: Final = (
    (r"--(config_)?time_limit", "--horizon"),
    (r"--log_level", "not needed here: what is told besides the answer is on stderr"),
    (r".*_scheduler_config_batch_size_cap", "engine.max_num_seqs"),
    (r".*_scheduler_config_block_size", "engine.block_size"),
    (r".*_scheduler_config_num_blocks", "engine.num_gpu_blocks"),
    (r".*_scheduler_config_watermark_blocks_fraction", "engine.watermark"),
    (r".*_scheduler_config_(max_tokens_in_batch|chunk_size)", "engine.max_num_batched_tokens"),
    (r"--lightllm_scheduler_config_max_waiting_iters", f"{_ABSENT}: LightLLM's scheduler is not simulated"),
    (r"--replica_scheduler_config_type", "engine.batching"),
    (r"--global_scheduler_config_type", "cluster.routing.policy"),
    (r"--cluster_config_num_replicas", "--instances"),
    (r"--replica_config_(device|network_device|node_device)", "hardware.gpu"),
    (r"--replica_config_model_name", "latency.model_config"),
    (r"--replica_config_tensor_parallel_size", "hardware.tp"),
    (r"--replica_config_num_pipeline_stages", "engine.pipeline_parallel_size"),
    (
        r"--replica_config_memory_margin_fraction",
        "--set hardware.gpu_memory_utilization=X, which is one minus that margin",
    ),
    (r"--execution_time_predictor_config_type", "latency.model"),
    (r".*_config_attention_decode_batching_overhead_fraction", "latency.coefficients.decode_batching"),
    (r".*_config_attention_prefill_batching_overhead_fraction", "latency.coefficients.prefill_batching"),
    (r".*_config_nccl_cpu_launch_overhead_ms", "latency.coefficients.nccl_launch"),
    (r".*_config_nccl_cpu_skew_overhead_per_device_ms", "latency.coefficients.nccl_skew"),
    (r".*_config_skip_cpu_overhead_modeling", "--step-overhead-us 0 of vtwin predictor train"),
    (r".*_config_(compute|attention|all_reduce|send_recv|cpu_overhead)_input_file", "--profile"),
    (r".*_predictor_config_no_cache", "--no-cache"),
    (
        r".*_predictor_config_.*",
        "vtwin predictor train chooses this itself: its --estimator says which kind of model learns",
    ),
    (r".*_config_seed", "--seed"),
    (r".*_request_interval_generator_config_qps", "--rate"),
    (r"--gamma_request_interval_generator_config_cv", "--arrival gamma with --burstiness, 1 / cv squared"),
    (r".*_config_time_scale_factor", "--speed, which is one over that factor"),
    (r".*_config_prefill_scale_factor", "--prompt-scale"),
    (r".*_config_decode_scale_factor", "--output-scale"),
    (r"--trace_request_(interval_)?generator_config_trace_file", "--trace"),
    (r"--trace_request_length_generator_config_trace_file", "--like"),
    (r"--trace_.*_config_(start|end)_time", "--start and --duration of vtwin trace convert"),
    (r"--synthetic_request_generator_config_num_requests", "--num-requests"),
    (r"--synthetic_request_generator_config_duration", "--duration"),
    (r"--fixed_.*_config_prefill_tokens", "--prompt-tokens"),
    (r"--fixed_.*_config_decode_tokens", "--output-tokens"),
    (r"--uniform_.*_config_min_tokens", "--prompt-tokens-min"),
    (r"--uniform_.*_config_max_tokens", "--prompt-tokens-max"),
    (r"--zipf_.*_config_scramble", f"{_ABSENT}: lengths by Zipf's law are not scrambled"),
    (
        r".*_config_prefill_to_decode_ratio",
        f"{_ABSENT}: prompts and answers have lengths of their own (--prompt-tokens, --output-tokens)",
    ),
    (r"--zipf_.*", "--workload SPEC.yaml, whose lengths may follow Zipf's law (type: zipf; theta, min, max)"),
    (r".*_config_max_tokens", "--total-tokens-max"),
    (r"--interval_generator_config_type", "--arrival"),
    (r"--length_generator_config_type", "--prompt-tokens and --output-tokens"),
    (r"--request_generator_config_type", "--rate or --trace"),
    (r"--metrics_config_enable_chrome_trace", "--trace-events"),
    (r"--metrics_config_write_json_trace", "--steps"),
    (r"--metrics_config_store_plots", "--report"),
    (r"--metrics_config_store_operation_metrics", "--operator-times"),
    (r"--metrics_config_(store_batch_metrics|keep_individual_batch_metrics)", "--steps"),
    (r"--metrics_config_store_token_completion_metrics", "--itl"),
    (r"--metrics_config_store_request_metrics", "--output"),
    (r"--metrics_config_store_utilization_metrics", "--series"),
    (r"--metrics_config_output_dir", "--output"),
    (r"--metrics_config_write_metrics", "not needed here: figures are worked out always"),
    (r"--metrics_config_.*(wandb).*", f"{_ABSENT}: results are files and pages, sent nowhere"),
)
"""A key of TWIN.yaml or a sentence with our options, by flag (a pattern)."""


def of_vidur(flag: str) -> str:
    """Return the key or the options that stand for a flag of Vidur's; of one that no rule knows, where ours are."""
    plain = re.sub(r"^--no-", "--", flag)
    found = next((own for pattern, own in _RULES if re.fullmatch(pattern, plain)), None)
    return found or "the settings that vtwin has are in docs/reference/config.md"
