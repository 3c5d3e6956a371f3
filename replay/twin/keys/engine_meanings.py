"""Defaults of ``engine:`` that follow what the file says elsewhere; part of ``replay.twin.config_keys``."""

from __future__ import annotations

from collections.abc import Mapping

FOLLOWING: Mapping[str, str] = {
    "num_gpu_blocks": "unbounded",
    "max_num_seqs": "vLLM's for the GPU, else 256",
    "max_num_batched_tokens": "vLLM's for the GPU, else 2048",
    "max_model_len": "the model's, else 32768",
    "pipeline_parallel_size": "the hardware's, else 1",
    **dict.fromkeys(
        ("encoder_step_us", "encoder_token_us", "encoder_token_pair_us"),
        "the vision tower's with roofline, physics and profiled, else 0",
    ),
    "draft_us": "the drafting layers' with roofline, physics and profiled, else 0",
    "launch_us": "700 for each layer of a dense model, or with `enforce_eager`, with roofline, physics and profiled, "
    "else 0",
    "encoder_data_parallel_size": "`hardware.tp` where its GPUs share images out, else 1",
    "disable_chunked_mm_input": "the model's, else false",
    "kv_offloading": "native where it can be simulated and no key of blis is set, else blis",
}
"""Defaults that follow what the file says elsewhere: ``hardware``, ``latency.model_config``, ``latency.defaults``."""
