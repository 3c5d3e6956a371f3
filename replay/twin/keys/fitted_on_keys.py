"""The keys of ``latency.fitted_on``, and the flags of a server that it keeps."""

from __future__ import annotations

from replay.twin.keys.key import Key

WHOLE = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "num_gpu_blocks",
    "max_model_len",
    "pipeline_parallel_size",
    "num_speculative_tokens",
)
SWITCHES = ("enable_prefix_caching", "enable_chunked_prefill", "async_scheduling", "enforce_eager")
WORDS = ("scheduling_policy", "dtype", "quantization", "kv_cache_dtype")
FLAGS = (*WHOLE, *SWITCHES, *WORDS)
"""The server's flags that a profile keeps, under vLLM's names."""

FITTED_ON_KEYS: tuple[Key, ...] = (
    Key(
        path="latency.fitted_on",
        kind="mapping",
        default="none",
        meaning="The server and the loads that the twin was fitted on; `vtwin calibrate --write-config` writes it, "
        "`vtwin profiles` shows it. Every answer of a twin whose model, GPU, version or flags are now others says so.",
    ),
    Key(path="latency.fitted_on.model", kind="text", default="none", meaning="The served model."),
    Key(path="latency.fitted_on.gpu", kind="text", default="none", meaning="Its GPU."),
    Key(
        path="latency.fitted_on.num_gpus",
        kind="integer",
        default="none",
        least=1,
        meaning="How many GPUs one engine had.",
    ),
    Key(
        path="latency.fitted_on.tp",
        kind="integer",
        default="none",
        least=1,
        meaning="How many of them shared each layer.",
    ),
    Key(
        path="latency.fitted_on.vllm_version",
        kind="text",
        default="none",
        meaning="vLLM's version, as the server or the user told it; absent where nobody did.",
    ),
    Key(
        path="latency.fitted_on.flags",
        kind="mapping",
        default="none",
        meaning="Flags of `vllm serve`, by name: "
        + ", ".join(f"`{name}`" for name in FLAGS)
        + ". `max_num_batched_tokens` may be smaller, and what the engine simulates may differ.",
    ),
    Key(
        path="latency.fitted_on.noise",
        kind="mapping",
        default="none",
        meaning="`{ttft, tpot, e2e}`: how far two runs of one load were apart, per request, fractions.",
    ),
    Key(
        path="latency.fitted_on.loads",
        kind="mapping",
        default="none",
        meaning="A list of the observed runs: `name`, `role` (`fitted`, `held out`, or `half` of either), "
        "`num_requests`, `rate_per_s`, `concurrency` (requests in flight, mean over time), mean `prompt_tokens` and "
        "`output_tokens`, and the twin's mean error per request there (`ttft`, `tpot`, `e2e`, fractions).",
    ),
    Key(
        path="latency.fitted_on.carried_from",
        kind="text",
        default="none",
        meaning="The server whose twin this one was made from (`calibrate --from`).",
    ),
)
