"""What vLLM checks before it starts: a configuration that fails here would not serve a single request."""

from __future__ import annotations

from sim import UNBOUNDED, EngineConfig, HeldBlocks


def startup_faults(engine: EngineConfig) -> tuple[str, ...]:
    """Return why vLLM would refuse to start an engine, a line each; nothing if it would start.

    As vLLM 0.32 has them: a KV cache holds one sequence of ``max_model_len``; without chunked prefill, so does a step;
    a step has room for a token of every sequence.
    """
    faults = []
    if engine.num_gpu_blocks != UNBOUNDED:
        usable, needed = engine.num_gpu_blocks - 1, HeldBlocks.of(engine).fullest(engine.max_model_len)
        if usable < needed:
            held = (
                f"has {usable} blocks, fewer than the {needed} in {engine.num_kv_cache_groups} groups of"
                if engine.kv_cache_groups
                else f"holds {usable * engine.block_size} tokens, less than"
            )
            faults.append(
                f"engine.num_gpu_blocks {engine.num_gpu_blocks}: the KV cache {held} one sequence of max_model_len "
                f"{engine.max_model_len}; vLLM would refuse to start"
            )
    return (*faults, *flag_faults(engine))


def flag_faults(engine: EngineConfig) -> tuple[str, ...]:
    """Return why vLLM would refuse a combination of flags on any machine; a line each.

    vllm 0.32.0 config/scheduler.py:SchedulerConfig.verify_max_model_len, and model_executor/models/config.py:
    MambaModelConfig. Of another engine than vLLM's: nothing.
    """
    if engine.batching != "vllm" or engine.compatibility != "vllm":
        return ()
    faults = []
    if not engine.enable_chunked_prefill and engine.max_num_batched_tokens < engine.max_model_len:
        faults.append(
            f"engine.max_num_batched_tokens {engine.max_num_batched_tokens}: without chunked prefill less than one "
            f"sequence of max_model_len {engine.max_model_len}; vLLM would refuse to start"
        )
    if engine.max_num_batched_tokens < engine.max_num_seqs:
        faults.append(
            f"engine.max_num_batched_tokens {engine.max_num_batched_tokens}: less than max_num_seqs "
            f"{engine.max_num_seqs}; vLLM would refuse to start"
        )
    if not engine.enable_chunked_prefill and any(group.mode == "align" for group in engine.kv_cache_groups):
        faults.append(
            "engine.enable_chunked_prefill false: states in mode align need chunked prefill; vLLM would refuse to start"
        )
    return tuple(faults)
