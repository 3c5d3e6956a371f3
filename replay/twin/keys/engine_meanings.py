"""What the keys of ``engine:`` mean, part of the table in ``replay.twin.config_keys``."""

from __future__ import annotations

from collections.abc import Mapping

ENGINE_MEANINGS: Mapping[str, str] = {
    "max_num_seqs": "Requests that may run at once, partial prefills included. Absent: what vLLM's API server takes on "
    "the GPU of `hardware` or `latency.defaults`, for this version; vtwin says which.",
    "max_num_batched_tokens": "Tokens that one step may compute, prefill and decode together. Absent: likewise.",
    "num_gpu_blocks": "KV cache blocks as vLLM counts them, the null block included. Absent: with "
    "`latency.defaults`, the entry's, where its block size is the same and `hardware` gives no share or size of "
    "memory; else what `hardware` leaves room for next to `latency.model_config`; else unbounded; vtwin says which.",
    "block_size": "Tokens per KV cache block.",
    "max_model_len": "Prompt and output together; a longer prompt is rejected, a longer output is cut. Absent: as "
    "long as the config.json of `latency.model_config` says; vtwin says how long.",
    "enable_prefix_caching": "Reuse the KV blocks of equal prefixes.",
    "enable_chunked_prefill": "Let a prompt be computed over several steps.",
    "long_prefill_token_threshold": "Most prefill tokens of a request per step, unless alone; 0: no limit.",
    "prefill_schedule_interval": "Of ranks in step (cluster.lockstep): prompts are computed in every N-th step only.",
    "long_prefill_token_threshold_adaptive": "Raise that threshold to an equal share of the step's tokens.",
    "scheduler_reserve_full_isl": "Admit a request only when all of its prompt's blocks are free now.",
    "watermark": "Share of the blocks kept free when a request is admitted next to running ones.",
    "scheduling_policy": "Order of the waiting queue: arrival, or the requests' priority (lower is first). "
    "Beyond vLLM: sjf, shortest prompt first; reverse-priority.",
    "priority_scoring": "Beyond vLLM: how a waiting request's priority changes with its age; slo-based makes "
    "it more urgent, inverted-slo less.",
    "priority_age_weight": "Priority gained or lost per second of waiting.",
    "async_scheduling": "Schedule the next step while one runs: vLLM's default on GPUs; false on CPUs.",
    "pipeline_parallel_size": "Pipeline stages: as many batches in flight, with async scheduling as the version has "
    "it. Absent: `hardware.pp`.",
    "num_speculative_tokens": "Speculative decoding: tokens drafted per step and decoding request; 0: none. See "
    "docs/explanation/policies.md.",
    "synthetic_acceptance_rates": "For each i the chance that the first i drafts are all accepted, not increasing; or "
    "one number, the chance of each draft whose predecessors were.",
    "num_lookahead_tokens": "KV slots kept for the drafting model: as many as drafts for EAGLE, MTP and draft models, "
    "0 for n-grams.",
    "use_eagle": "The drafting model reads hidden states (EAGLE, MTP): a prefix hit's last block is computed again; "
    "with `vllm_version` 0.33 a block is found if the token behind it is the same as well.",
    "num_prefill_lookahead_tokens": "Several MTP modules draft: how many tokens of a prompt they read ahead, as many "
    "as drafts; a chunk leaves so many or none. Up to 1 nothing follows from it; with "
    "`speculative_method` mtp the model's config.json says it.",
    "num_cpu_blocks": "KV cache blocks of a second tier in host memory; 0: none. `hardware.kv_offloading_size` says "
    "it in GiB.",
    "kv_offloading": "Whose rules that tier follows. `native`: vLLM's `--kv-offloading-size`: blocks of prompts are "
    "copied there once computed (from 0.31 on, without stages). `shared`: likewise, to "
    "one store of all instances. `blis`: blocks go there when the GPU's cache evicts them.",
    "kv_load_us_per_block": "Native: µs that a block takes from host memory to the GPU; `hardware.kv_offload_gb_per_s` "
    "says it in GB/s.",
    "kv_store_us_per_block": "Native: µs that a block takes from the GPU to host memory; likewise.",
    "kv_store_threshold": "Native: how often a block must be offered before it is stored, as vLLM's "
    "`store_threshold`; 0 and 1: at once.",
    "kv_offload_threshold": "blis: share of the GPU's blocks in use above which evicted contents go to that tier.",
    "kv_transfer_bandwidth": "blis: tokens per µs that come back; `hardware.kv_offload_gb_per_s` says it in GB/s.",
    "kv_transfer_base_latency": "blis: µs that each block's way back takes in addition.",
    "max_loras": "LoRA adapters that a step may hold, and places for them on the GPU: a request whose adapter would be "
    "one too many waits, those behind it go by. 0: any number; vLLM's own default is 1.",
    "lora_load_us": "µs that a step waits for each adapter that has no place on the GPU yet.",
    "lora_step_factor": "Factor on the time of steps that hold any request with an adapter, at least 1.",
    "guided_compile_us": "µs that the grammar of a guided request (structured outputs) takes to compile. The request "
    "waits that long, others do not.",
    "guided_mask_us": "µs per guided request and step, for its bitmask.",
    "draft_us": "µs per drafted token and step: speculative decoding with k drafts adds k times as much to each step.",
    "encoder_step_us": "µs of a step in which an encoder makes any tokens, once.",
    "encoder_token_us": "µs per image, audio or video token, in the step in which its request is first scheduled; of a "
    "trace's `images` in the step that encodes them.",
    "encoder_token_pair_us": "µs per pair of tokens of one of a trace's `images`, n² of n, in that step.",
    "encoder_data_parallel_size": "GPUs that share the images of a step out: it waits for the largest one, or for "
    "an equal share of all, whichever takes longer.",
    "enforce_eager": "No step runs as a CUDA graph: each takes `launch_us` at least, and the KV cache has the "
    "graphs' memory.",
    "max_cudagraph_capture_size": "A step of up to this many tokens runs as a CUDA graph. 0: vLLM's default, twice "
    "`max_num_seqs`, 512 at most.",
    "launch_us": "A step of more tokens than that takes at least this many µs: the CPU starts its kernels one by one. "
    "Some 700 for each layer of the model.",
    "host_step_us": "µs that the CPU needs between two steps. Added to every step without `async_scheduling`, hidden "
    "with it. 2,300 on an H100 machine with 16 cores.",
    "host_prefill_us": "The same, in addition, of a step with prompts. 3,800 on that machine.",
    "session_kv_ttl_us": "Beyond vLLM: µs for which the KV of a session's round stays pinned until the next round "
    "comes (docs/how-to/size-for-agents.md); 0: not at all, as vLLM. A running request that needs blocks removes "
    "pins, and so does the head of the queue when no request runs.",
    "max_num_encoder_input_tokens": "Tokens of images (`images` of a trace) that a step encodes; 0: "
    "`max_num_batched_tokens`, as vLLM. It is at least the largest image.",
    "encoder_cache_size": "Tokens of encoded images that are kept, shared by requests with one image; 0: as above.",
    "disable_chunked_mm_input": "No step computes a part of an image: a prompt is cut before it. vLLM sets it for "
    "models whose images see themselves in both directions (Gemma 3 and 4).",
    "language_model_only": "No encoder: a trace's images are tokens that can be cut anywhere, as text.",
    "batching": "Which requests are put into a batch: by vLLM's rule, or for comparison by that of Orca, "
    "Sarathi-Serve or static batching (docs/explanation/batching.md), which have no async scheduling and no prefix "
    "cache; `vllm-v0`: vLLM's first engine without chunked prefill.",
    "frontend": "The API server's checks and clamps of prompt and output length; `none`: the engine alone.",
}
"""What each field of sim.EngineConfig means; its name, default and type are taken from the dataclass."""

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
