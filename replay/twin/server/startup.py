"""What vLLM checks before it starts: a configuration that fails here would not serve a single request."""

from __future__ import annotations

from collections.abc import Sequence

from sim import UNBOUNDED, EngineConfig, EngineSettings, HeldBlocks, minor_version
from traces import ConfigError

FROM_STATES = 20
"""The first minor version that refuses more sequences than blocks for states."""


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
    return (*faults, *_state_faults(engine), *flag_faults(engine))


def lowered_limits(engine: EngineConfig, faults: Sequence[str]) -> dict[str, int]:
    """Return the limits with which an engine starts that does not, by their names; nothing where it does.

    ``faults``: why it does not. Raises ConfigError with the first of them where no limits would help.
    """
    if not faults:
        return {}
    blocks, found = engine.num_gpu_blocks, {}
    if any(fault.startswith("engine.max_num_seqs") for fault in faults):
        found["max_num_seqs"] = blocks
    held = HeldBlocks.of(engine).longest(blocks - 1)
    if held < engine.max_model_len:
        found["max_model_len"] = held
    if not found or held < engine.block_size:
        raise ConfigError(faults[0])
    return found


def _state_faults(engine: EngineConfig) -> tuple[str, ...]:
    """Return why vLLM would refuse more sequences than it has blocks for their states; a line, or nothing.

    vllm 0.32.0 config/compilation.py:resolve_cudagraph_mode_and_sizes, with CUDA graphs of whole decodes, which are the
    default; up to 0.19 it captures fewer graphs instead.
    """
    minor, seqs, blocks = minor_version(engine.vllm_version), engine.max_num_seqs, engine.num_gpu_blocks
    keeps_states = any(group.kind == "state" for group in engine.kv_cache_groups)
    if not keeps_states or minor is None or minor < FROM_STATES or blocks == UNBOUNDED or seqs <= blocks:
        return ()
    return (
        f"engine.max_num_seqs {seqs}: more than the {blocks} blocks, and each sequence needs one for its state; "
        "vLLM would refuse to start (with --enforce-eager it starts)",
    )


def flag_faults(engine: EngineSettings) -> tuple[str, ...]:
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
