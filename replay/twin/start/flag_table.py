"""Every flag of ``vllm serve`` that ``config from-serve`` knows: how it is read, its key, and its effect.

The reader of command lines and the page of coverage both use this table. A flag that is not in it is reported as "not
in the twin".
"""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass
from typing import Final, Literal

from traces import Coverage, Treatment

FlagKind = Literal[
    "integer", "fraction", "number", "text", "switch", "choice", "speculation", "interval", "connector"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFlag:
    """One flag. ``key``: of TWIN.yaml, "" if it has none. ``how``: its effect, or why it has none.

    Flags of ``hardware`` and ``latency`` are written to TWIN.yaml with ``--gpu``; without it they are reported.
    ``harmless``: values that a refused flag may have; ``choices``: all values of a flag, if vLLM lists them.
    """

    kind: FlagKind
    treatment: Treatment
    how: str
    key: str = ""
    harmless: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()

    @property
    def section(self) -> str:
        """The section of TWIN.yaml that has it."""
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        """Its key within that section."""
        return self.key.partition(".")[2]


SPEED: Final = "in the coefficients, not in the engine"
NOT_THE_ENGINE: Final = "of the API server, not of the scheduler: no time of it is simulated"
SAME_WORK: Final = "which kernels do the work: in the coefficients, if at all"
NOT_SCHEDULING: Final = "of loading and logging: no step is scheduled otherwise for it"


def _engine(name: str, kind: FlagKind = "integer") -> KnownFlag:
    return KnownFlag(kind=kind, treatment="modelled", key=f"engine.{name}", how=f"`engine.{name}`")


def _hardware(key: str, kind: FlagKind, *, otherwise: str) -> KnownFlag:
    """Return a flag that TWIN.yaml has with ``--gpu``; ``otherwise``: the note without it."""
    return KnownFlag(kind=kind, treatment="modelled", key=key, how=otherwise)


def _told(how: str, *, kind: FlagKind = "text", choices: tuple[str, ...] = ()) -> KnownFlag:
    return KnownFlag(kind=kind, treatment="noted", how=how, choices=choices)


def _refused(how: str, *harmless: str) -> KnownFlag:
    return KnownFlag(kind="text", treatment="refused", how=how, harmless=harmless)


FLAGS: Final[Mapping[str, KnownFlag]] = {
    "model": KnownFlag(kind="text", treatment="modelled", how="the model's name, as the first word"),
    "max-num-seqs": _engine("max_num_seqs"),
    "max-num-batched-tokens": _engine("max_num_batched_tokens"),
    "max-model-len": _engine("max_model_len"),
    "block-size": _engine("block_size"),
    "num-gpu-blocks-override": _engine("num_gpu_blocks"),
    "long-prefill-token-threshold": _engine("long_prefill_token_threshold"),
    "enable-prefix-caching": _engine("enable_prefix_caching", "switch"),
    "prefix-cache-retention-interval": _engine("prefix_cache_retention_interval", "interval"),
    "prefix-match-unit": _engine("prefix_match_unit", "interval"),
    "enable-chunked-prefill": _engine("enable_chunked_prefill", "switch"),
    "async-scheduling": _engine("async_scheduling", "switch"),
    "scheduler-reserve-full-isl": _engine("scheduler_reserve_full_isl", "switch"),
    "long-prefill-token-threshold-adaptive": _engine("long_prefill_token_threshold_adaptive", "switch"),
    "prefill-schedule-interval": KnownFlag(
        kind="integer",
        treatment="modelled",
        key="engine.prefill_schedule_interval",
        how="`engine.prefill_schedule_interval`, of ranks in lockstep (`cluster.lockstep`); a single engine ignores it "
        "up to 0.32, and is refused from 0.33 on",
    ),
    "scheduling-policy": _engine("scheduling_policy", "choice"),
    "watermark": _engine("watermark", "fraction"),
    "speculative-config": KnownFlag(
        kind="speculation",
        treatment="modelled",
        how="`engine.num_speculative_tokens`, `num_lookahead_tokens`, `use_eagle`, `speculative_method` and "
        "`synthetic_acceptance_rates`; "
        "what it says of the drafting model is told",
    ),
    "tensor-parallel-size": _hardware("hardware.tp", "integer", otherwise=SPEED),
    "pipeline-parallel-size": _engine("pipeline_parallel_size"),
    "data-parallel-size": _hardware(
        "hardware.dp",
        "integer",
        otherwise="one engine is simulated: cluster.instances and cluster.lockstep simulate its ranks",
    ),
    "enable-expert-parallel": _hardware(
        "hardware.enable_expert_parallel", "switch", otherwise=f"{SPEED}; with --gpu under hardware"
    ),
    "all2all-backend": _hardware(
        "hardware.all2all_backend", "text", otherwise=f"{SPEED}; with --gpu under hardware"
    ),
    "gpu-memory-utilization": _hardware(
        "hardware.gpu_memory_utilization",
        "fraction",
        otherwise="it sets how many blocks there are: num_gpu_blocks says it to the twin",
    ),
    "kv-cache-memory-bytes": _hardware(
        "hardware.kv_cache_memory_bytes",
        "integer",
        otherwise="it sets how many blocks there are: num_gpu_blocks says it to the twin",
    ),
    "kv-offloading-size": _hardware(
        "hardware.kv_offloading_size",
        "number",
        otherwise="engine.num_cpu_blocks says it to the twin, in blocks",
    ),
    "kv-offloading-backend": _told(
        "native is what is simulated; lmcache moves blocks by rules of its own, which are not"
    ),
    "dtype": _hardware("latency.dtype", "text", otherwise=SPEED),
    "kv-cache-dtype": _hardware(
        "latency.kv_cache_dtype", "text", otherwise=f"{SPEED}; it also sets how many blocks there are"
    ),
    "mamba-ssm-cache-dtype": _hardware(
        "latency.mamba_ssm_cache_dtype", "text", otherwise=f"{SPEED}; it also sets how many blocks there are"
    ),
    "mamba-cache-dtype": _told("the inputs of convolutions are taken to be kept in the model's own type"),
    "quantization": _hardware(
        "latency.quantization", "text", otherwise=f"{SPEED}; it also sets how many blocks there are"
    ),
    "config": _told("not read; give its flags on the command line"),
    # refused: the schedule would be another than the simulated one
    "scheduler-cls": _refused("a scheduler of your own is not simulated"),
    "runner": _refused("only generation is simulated", "auto", "generate"),
    "task": _refused("only generation is simulated", "auto", "generate"),
    "convert": _refused("only generation is simulated", "auto", "none"),
    "decode-context-parallel-size": _refused("a sequence's KV cache is not split over GPUs", "1"),
    "prefill-context-parallel-size": _refused("a prompt is not split over GPUs", "1"),
    # other flags that the twin does not use
    "performance-mode": _told(
        "throughput doubles vLLM's own limits: give --max-num-seqs and the like in numbers"
    ),
    "max-num-partial-prefills": _told(
        "prompts are prefilled in order, several at a time where tokens are left"
    ),
    "max-long-partial-prefills": _told(
        "prompts are prefilled in order, several at a time where tokens are left"
    ),
    "disable-chunked-mm-input": _engine("disable_chunked_mm_input", "switch"),
    "disable-hybrid-kv-cache-manager": _engine("disable_hybrid_kv_cache_manager", "switch"),
    "mamba-cache-mode": _told(
        "states are kept at block ends where prefixes are cached (align), else not (none), as vLLM sets it by itself; "
        "its all, which 0.31 was the last to have, is not simulated",
        choices=("align", "none", "all"),
    ),
    "mamba-block-size": _told(
        "beside attention layers vLLM (0.32, 0.33) takes their block size in its place where prefixes are cached, and "
        "no other value than max_model_len where they are not; in a model of states alone it counts, and the "
        "twin has engine.block_size"
    ),
    "disable-sliding-window": _told("the config.json's window is followed; cut it there", kind="switch"),
    "kv-transfer-config": KnownFlag(
        kind="connector",
        treatment="modelled",
        key="hardware.kv_offloading_size",
        how="with OffloadingConnector its `cpu_bytes_to_use` is `hardware.kv_offloading_size`; one server is written: "
        "prefill and decode servers that pull KV (NixlConnector) are `cluster.disaggregation`, a store that servers "
        "share is `engine.kv_offloading: shared`",
    ),
    "cpu-offload-gb": _told("weights in host memory: in the coefficients, if at all"),
    "swap-space": _told("vLLM's engine does not swap: it preempts and computes again"),
    "stream-interval": _told("a simulated answer streams every token"),
    "enable-lora": _told(
        "`engine.lora_load_us` and `lora_step_factor` add the time of adapters", kind="switch"
    ),
    "max-loras": _engine("max_loras"),
    "max-lora-rank": _told(SPEED),
    "lora-modules": _told("a trace says which request has which adapter"),
    "limit-mm-per-prompt": _told("a trace says how many tokens of images, audio and video a prompt has"),
    "mm-encoder-tp-mode": _hardware("hardware.mm_encoder_tp_mode", "text", otherwise=SPEED),
    "enable-dbo": _told(SPEED, kind="switch"),
    "enable-eplb": _told("experts are taken to be evenly loaded", kind="switch"),
    "enforce-eager": _engine("enforce_eager", "switch"),
    "compilation-config": _told(f"{SAME_WORK}; one without CUDA graphs is `engine.enforce_eager`"),
    "cudagraph-capture-sizes": _told(SAME_WORK),
    "max-cudagraph-capture-size": _engine("max_cudagraph_capture_size"),
    "attention-backend": _told(SAME_WORK),
    "attention-config": _told(SAME_WORK),
    "kernel-config": _told(SAME_WORK),
    "moe-backend": _told(SAME_WORK),
    "optimization-level": _told(f"{SAME_WORK}; 0 is `engine.enforce_eager`"),
    "disable-custom-all-reduce": _told(SAME_WORK, kind="switch"),
    "distributed-executor-backend": _told(SAME_WORK),
    "disable-cascade-attn": _told(SAME_WORK, kind="switch"),
    "language-model-only": _engine("language_model_only", "switch"),
    "structured-outputs-config": _told("which grammar backend runs is not simulated"),
    "reasoning-parser": _told("reasoning tokens are output tokens"),
    "tool-call-parser": _told(NOT_THE_ENGINE),
    "enable-auto-tool-choice": _told(NOT_THE_ENGINE, kind="switch"),
    "chat-template": _told("a trace says how many tokens a prompt has"),
    "generation-config": _told("a trace says how many tokens an answer has"),
    "override-generation-config": _told("a trace says how many tokens an answer has"),
    "max-logprobs": _told(NOT_THE_ENGINE),
    "api-server-count": _told(NOT_THE_ENGINE),
    "api-key": _told(NOT_THE_ENGINE),
    "host": _told(NOT_THE_ENGINE),
    "port": _told(NOT_THE_ENGINE),
    "served-model-name": _told(NOT_THE_ENGINE),
    "enable-request-id-headers": _told(NOT_THE_ENGINE, kind="switch"),
    "enable-prompt-tokens-details": _told(NOT_THE_ENGINE, kind="switch"),
    "enable-sleep-mode": _told(NOT_SCHEDULING, kind="switch"),
    "tokenizer": _told(NOT_SCHEDULING),
    "tokenizer-mode": _told(NOT_SCHEDULING),
    "trust-remote-code": _told(NOT_SCHEDULING, kind="switch"),
    "revision": _told(NOT_SCHEDULING),
    "download-dir": _told(NOT_SCHEDULING),
    "load-format": _told(NOT_SCHEDULING),
    "hf-overrides": _told("the config.json as it is is followed"),
    "seed": _told("of what the model says, not of how long it takes"),
    "aggregate-engine-logging": _told(NOT_SCHEDULING, kind="switch"),
    "disable-log-requests": _told(NOT_SCHEDULING, kind="switch"),
    "disable-log-stats": _told(NOT_SCHEDULING, kind="switch"),
    "enable-log-requests": _told(NOT_SCHEDULING, kind="switch"),
    "disable-uvicorn-access-log": _told(NOT_SCHEDULING, kind="switch"),
    "uvicorn-log-level": _told(NOT_SCHEDULING),
}

SHORT: Final[Mapping[str, str]] = {
    "-tp": "tensor-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-dp": "data-parallel-size",
    "-dcp": "decode-context-parallel-size",
    "-pcp": "prefill-context-parallel-size",
    "-ep": "enable-expert-parallel",
    "-q": "quantization",
    "-sc": "speculative-config",
    "-cc": "compilation-config",
    "-O": "optimization-level",
}


def coverage_of(flag: KnownFlag) -> Coverage:
    """Return a flag's text on the page of coverage."""
    if flag.treatment == "refused" and flag.harmless:
        return Coverage("refused", f"{flag.how}; taken with {' or '.join(flag.harmless)}")
    if flag.section in ("hardware", "latency"):
        return Coverage("modelled", f"`{flag.key}` with `--gpu`; else noted: {flag.how}")
    return Coverage(flag.treatment, flag.how)
