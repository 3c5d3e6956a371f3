"""Every key of TWIN.yaml, once: the reader, the writer and the reference page all use this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from functools import lru_cache
from typing import get_args, get_type_hints

from replay.model.layout import ONE_NODE, All2AllBackend
from replay.model.vision.tower import MMEncoderTPMode
from replay.twin.keys.cluster_keys import CLUSTER_KEYS
from replay.twin.keys.key import Key, Kind
from replay.twin.kv_cache.groups import GROUP_KEYS
from replay.twin.kv_cache.retention_interval import INTERVAL, RETENTION_KEY
from sim import DEFAULT_VERSION, KNOWN_VERSIONS, EngineConfig, InvalidConfig, all_versions, rules_of
from sim.latency import Blackbox, Extended, LatencyModel, Physics, Profiled, Roofline

FITTED: Mapping[str, type[Blackbox]] = {"blackbox": Blackbox, "extended": Extended}
"""Models whose coefficients come from a fit, by the name that TWIN.yaml gives them."""
ANALYTIC: Mapping[str, type[Physics] | type[Roofline]] = {"physics": Physics, "roofline": Roofline}
"""Models that follow from a model and a GPU."""
LATENCY_CLASSES: Mapping[str, type[LatencyModel]] = {**FITTED, **ANALYTIC, "profiled": Profiled}
LATENCY_MODELS: tuple[str, ...] = (*LATENCY_CLASSES, "auto")
"""What ``latency.model`` may say."""

RULES_VERSION = DEFAULT_VERSION
"""The vLLM version whose scheduling rules the engine follows where a file names none."""

DEFAULT_SEED = 42


ENGINE_MEANINGS: Mapping[str, str] = {
    "max_num_seqs": "Requests that may run at once, partial prefills included. Absent: what vLLM's API server takes on "
    "the GPU of `hardware` or `latency.defaults`, for this version; vtwin says which.",
    "max_num_batched_tokens": "Tokens that one step may compute, prefill and decode together. Absent: likewise.",
    "num_gpu_blocks": "KV cache blocks as vLLM counts them, the null block included. Absent: with "
    "`latency.defaults`, the entry's, where its block size is the same; else what `hardware` leaves room for next to "
    "`latency.model_config`; else unbounded; vtwin says which.",
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
    "copied there once computed (0.31 and 0.32, without stages; groups: 0.32). `shared`: likewise, to "
    "one store of all instances. `blis`: blocks go there when the GPU's cache evicts them.",
    "kv_load_us_per_block": "Native: µs that a block takes from host memory to the GPU; `hardware.kv_offload_gb_per_s` "
    "says it in GB/s.",
    "kv_store_us_per_block": "Native: µs that a block takes from the GPU to host memory; likewise.",
    "kv_store_threshold": "Native: a block is stored when it is offered for the so-many-th time, as vLLM's "
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
    "encoder_data_parallel_size": "GPUs that share the images of a step out: it waits for the largest one, or for a "
    "so-many-th of all.",
    "max_cudagraph_capture_size": "A step of up to this many tokens runs as a CUDA graph. 0: vLLM's default, twice "
    "`max_num_seqs`, 512 at most.",
    "launch_us": "A step of more tokens than that takes at least this many µs: the CPU starts its kernels one by one. "
    "20,000 on an H100 with an 8B model.",
    "host_step_us": "µs that the CPU needs between two steps. Added to every step without `async_scheduling`, hidden "
    "with it. 2,300 on an H100 machine with 16 cores.",
    "host_prefill_us": "The same, in addition, of a step with prompts. 3,800 on that machine.",
    "session_kv_ttl_us": "Beyond vLLM: µs for which the KV of a session's round stays pinned until the next round "
    "comes (docs/how-to/size-for-agents.md); 0: not at all, as vLLM. A running request that lacks blocks takes pins "
    "away, and so does the head of the queue when nobody runs.",
    "max_num_encoder_input_tokens": "Tokens of images (`images` of a trace) that a step encodes; 0: "
    "`max_num_batched_tokens`, as vLLM. It is at least the largest image.",
    "encoder_cache_size": "Tokens of encoded images that are kept, shared by requests with one image; 0: as above.",
    "disable_chunked_mm_input": "No step computes a part of an image: a prompt is cut before it. vLLM sees to it for "
    "models whose images see themselves in both directions (Gemma 3 and 4).",
    "language_model_only": "No encoder: a trace's images are tokens that can be cut anywhere, as text.",
    "batching": "Which requests are put into a batch: by vLLM's rule, or for comparison by that of Orca, "
    "Sarathi-Serve or static batching (docs/explanation/batching.md), which have no async scheduling and no prefix "
    "cache.",
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
    "encoder_data_parallel_size": "`hardware.tp` where its GPUs share images out, else 1",
    "disable_chunked_mm_input": "the model's, else false",
    "kv_offloading": "native where it can be simulated and no key of blis is set, else blis",
}
"""Defaults that follow what the file says elsewhere: ``hardware``, ``latency.model_config``, ``latency.defaults``."""

_TYPES: Mapping[str, Kind] = {
    "int": "integer",
    "bool": "boolean",
    "float": "number",
    "tuple[float, ...]": "numbers",
}


@lru_cache(maxsize=1)
def engine_keys() -> tuple[Key, ...]:
    """Return the keys of the ``engine`` section, in the order of sim.EngineConfig."""
    hints = get_type_hints(EngineConfig)
    return tuple(_engine_key(field, hints[field.name]) for field in engine_fields())


OUTSIDE_ENGINE = ("seed", "compatibility", "vllm_version", "kv_cache_groups", INTERVAL)
"""Fields of sim.EngineConfig that stand at the top, or have keys of their own (``GROUP_KEYS``, ``RETENTION_KEY``)."""


def engine_fields() -> tuple[Field[object], ...]:
    """Return the fields of sim.EngineConfig that the ``engine`` section has, each as one scalar or list of numbers."""
    return tuple(field for field in fields(EngineConfig) if field.name not in OUTSIDE_ENGINE)


def _engine_key(field: Field[object], hint: object) -> Key:
    default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    default = "none" if field.default == () else default
    default = FOLLOWING.get(field.name, default)
    return Key(
        path=f"engine.{field.name}",
        kind="fraction" if field.name == "watermark" else _TYPES.get(str(field.type), "choice"),
        default=default,
        meaning=ENGINE_MEANINGS.get(field.name, ""),
        choices=() if str(field.type).startswith("tuple") else get_args(hint),
        least=_least(field.name) if field.type == "int" else 0,
    )


def _least(name: str) -> int:
    """Return the smallest integer a field takes; 0 blocks, the engine's "unbounded", are for absence only."""
    if name == "num_gpu_blocks":
        return 2
    try:
        EngineConfig(**{name: 0})  # type: ignore[arg-type]  # the caller says that it is an integer
    except InvalidConfig:
        return 1
    return 0


TOP_KEYS: tuple[Key, ...] = (
    Key(
        path="vllm_version",
        kind="text",
        default=RULES_VERSION,
        meaning=f"The server's version, {KNOWN_VERSIONS}: its scheduling rules and defaults hold.",
    ),
    Key(
        path="compatibility",
        kind="choice",
        default="vllm",
        meaning="Whose scheduler to follow where the two differ; docs/explanation/policies.md lists where. `blis` has "
        "no async scheduling.",
        choices=("vllm", "blis"),
    ),
    Key(path="seed", kind="integer", default=str(DEFAULT_SEED), meaning="Seed of everything that is random."),
)

EXTENDED_MEANINGS: Mapping[str, str] = {
    "beta3": "µs per KV entry that decodes read.",
    "beta4": "µs per (query, key) pair that prefills attend to.",
    "beta5": "µs per prefilling request.",
    "floor": "µs that a step's dense part lasts at least: reading the weights. Decode tokens are in it, too.",
    "kappa": "Slowdown of the dense and attention parts per share of recent time above `u0` that the GPU computed.",
    "u0": "Share of recent time spent computing above which the GPU slows down (its power limit); 0 to 1.",
    "tau_s": "Seconds over which that share of time is averaged.",
    "concavity": "How much less each further decoding sequence costs: `beta2` counts D^(1 - concavity); 0 to 1.",
    "sigma": "Scatter of step times: lognormal with mean 1, from `seed` and the step's number.",
}
"""What `model: extended` has beyond blackbox; names and defaults are those of sim.Extended."""


def extended_keys() -> tuple[Key, ...]:
    """Return the coefficients that only `model: extended` takes."""
    defaults = {field.name: field.default for field in fields(Extended)}
    return tuple(
        Key(
            path=f"latency.coefficients.{name}",
            kind="number",
            default=str(defaults[name]),
            meaning=f"`extended` only. {meaning}",
        )
        for name, meaning in EXTENDED_MEANINGS.items()
    )


VIDUR_MEANINGS: Mapping[str, str] = {
    "decode_batching": "Share by which attention of several decodes takes longer than the table's; only for grouped "
    "queries. Vidur has 0.1.",
    "prefill_batching": "The same for several prompts in a step. Vidur has 0.1.",
    "nccl_launch": "µs of CPU time for each all-reduce beside the measured time. Vidur has 20.",
    "nccl_skew": "µs for each all-reduce, times tp^1.25: GPUs that wait for each other. Vidur has 0.",
}

PROFILED_KEYS: tuple[Key, ...] = (
    Key(
        path="latency.coefficients.scale",
        kind="number",
        default="1.0",
        meaning="`profiled` only. Factor on the table's times.",
    ),
    Key(
        path="latency.coefficients.step",
        kind="number",
        default="the table's",
        meaning="`profiled` only. µs per step in addition.",
    ),
    *(
        Key(
            path=f"latency.coefficients.{name}",
            kind="number",
            default="0",
            meaning=f"`profiled` only. {meaning}",
        )
        for name, meaning in VIDUR_MEANINGS.items()
    ),
    Key(
        path="latency.table",
        kind="text",
        default="required with `profiled`",
        meaning="`profiled` only. What `vtwin predictor train` wrote; relative to TWIN.yaml. `coefficients` is then "
        "optional, and so are its alphas.",
    ),
)

FITTED_RANGE_KEYS: tuple[Key, ...] = (
    Key(
        path="latency.fitted_range",
        kind="mapping",
        default="none",
        meaning="What the coefficients were fitted on; `vtwin calibrate --write-config` writes it. `run`, `replay` and "
        "`calibrate` say by which factor a run goes beyond it. Each value is a pair, [low, high].",
    ),
    Key(
        path="latency.fitted_range.rate_per_s",
        kind="numbers",
        default="none",
        meaning="Mean request rates of the fitted traces, requests/s.",
    ),
    Key(
        path="latency.fitted_range.prompt_tokens",
        kind="numbers",
        default="none",
        meaning="Prompt lengths, 1st to 99th percentile.",
    ),
    Key(
        path="latency.fitted_range.output_tokens",
        kind="numbers",
        default="none",
        meaning="Output lengths, 1st to 99th percentile.",
    ),
    Key(
        path="latency.fitted_range.concurrency",
        kind="numbers",
        default="none",
        meaning="Requests in flight when one is sent, 1st to 99th percentile.",
    ),
)

PACE_KEYS: tuple[Key, ...] = (
    Key(
        path="latency.pace",
        kind="mapping",
        default="none",
        meaning="How far all steps together may be longer or shorter than the coefficients say; `vtwin calibrate "
        "--write-config` writes it. `run`, `replay` and `capacity` say what that makes of their answers.",
    ),
    Key(
        path="latency.pace.within",
        kind="fraction",
        default="required",
        meaning="A fraction, of runs within the fitted loads and lengths; holds nine times of ten.",
    ),
    Key(
        path="latency.pace.beyond",
        kind="fraction",
        default="required",
        meaning="The same of runs that go beyond them.",
    ),
)

TILES_KEY = Key(
    path="latency.tiles",
    kind="numbers",
    default="none",
    meaning="`extended` only. How much longer the products of a step take than a smooth curve says, by its tokens: "
    "pairs [tokens, factor], straight lines in between. `calibrate --fit` takes them from measured products of the "
    "model on its GPU (`vtwin model info` lists the edges).",
)

LATENCY_KEYS: tuple[Key, ...] = (
    Key(
        path="latency.model",
        kind="choice",
        default="required",
        meaning="How long a step takes. `blackbox`: a straight line in the step's prefill and decode tokens; "
        "`extended`: more terms, see below; `roofline`, `physics`: from `model_config` and `hardware` "
        "(docs/explanation/latency-models.md); `profiled`: measured operators, added up (`table`); `auto`: blackbox "
        "where defaults know the server, else profiled where `table` is given, else physics, else roofline; "
        "`FILE.py:Class`: your own, which needs `--allow-code` (docs/how-to/add-a-latency-model.md).",
        choices=LATENCY_MODELS,
    ),
    Key(
        path="latency.model_config",
        kind="text",
        default="none",
        meaning="A Hugging Face config.json, relative to TWIN.yaml, or a model that ships by its name; with `hardware` "
        "it also sizes the KV cache where `engine.num_gpu_blocks` is absent.",
    ),
    Key(
        path="latency.dtype",
        kind="text",
        default="auto",
        meaning="As vLLM's `--dtype`: auto, bfloat16, float16, float32.",
    ),
    Key(
        path="latency.kv_cache_dtype",
        kind="text",
        default="auto",
        meaning="As vLLM's `--kv-cache-dtype`: auto or fp8.",
    ),
    Key(
        path="latency.mamba_ssm_cache_dtype",
        kind="text",
        default="auto",
        meaning="As vLLM's `--mamba-ssm-cache-dtype`, of states in the cache: auto (what the model says, else its own "
        "type), float32, float16, bfloat16.",
    ),
    Key(
        path="latency.peak",
        kind="mapping",
        default="of `model_config` and `hardware`",
        meaning="What `roofline` and `physics` go by, written out: µs of each part of a step at the GPU's peak "
        "(`sim.PeakTimes`). `vtwin config show` prints it.",
    ),
    Key(
        path="latency.coefficients",
        kind="mapping",
        default="this or `defaults`",
        meaning="The six numbers below, all of them; with `extended`, its own in addition; with `roofline` or "
        "`physics`, those of theirs that are not to have their default; `physics` also takes the name of a "
        "set that ships: `silicon-2026` (its default) or `blis-iter29`.",
    ),
    Key(
        path="latency.coefficients.alpha0",
        kind="decimal",
        default="required",
        meaning="µs from a request's arrival until it joins the queue.",
    ),
    Key(
        path="latency.coefficients.alpha1",
        kind="decimal",
        default="required",
        meaning="The same, per prompt token (prefix included).",
    ),
    Key(
        path="latency.coefficients.alpha2",
        kind="decimal",
        default="required",
        meaning="µs per output token: the k-th is seen k·alpha2 after its step; the clock does not move.",
    ),
    Key(path="latency.coefficients.beta0", kind="decimal", default="required", meaning="µs per step."),
    Key(
        path="latency.coefficients.beta1",
        kind="decimal",
        default="required",
        meaning="µs per prefill token computed in the step (cache hits are not).",
    ),
    Key(
        path="latency.coefficients.beta2",
        kind="decimal",
        default="required",
        meaning="µs per decode token of the step.",
    ),
    *extended_keys(),
    *PROFILED_KEYS,
    TILES_KEY,
    *FITTED_RANGE_KEYS,
    *PACE_KEYS,
    Key(
        path="latency.defaults",
        kind="mapping",
        default="this or `coefficients`",
        meaning="Look the coefficients up in defaults.yaml: `{model, gpu, tp, vllm_version}`.",
    ),
    Key(path="latency.defaults.model", kind="text", default="required", meaning="As Hugging Face names it."),
    Key(path="latency.defaults.gpu", kind="text", default="required", meaning="`H100`, `A100-80`, …"),
    Key(path="latency.defaults.tp", kind="integer", default="1", least=1, meaning="Tensor parallelism."),
    Key(
        path="latency.defaults.vllm_version",
        kind="text",
        default="the newest on record",
        meaning="The version that the coefficients were fitted to.",
    ),
    Key(
        path="latency.defaults_file",
        kind="text",
        default="none",
        meaning="A defaults.yaml of your own, looked at before the one that ships; relative to TWIN.yaml.",
    ),
)


def _memory_shares() -> str:
    """Return what ``hardware.gpu_memory_utilization`` is without being given, by version."""
    first, *_, last = (rules.gpu_memory_utilization for rules in map(rules_of, all_versions()))
    since = next(each for each in all_versions() if rules_of(each).gpu_memory_utilization == last)
    return f"Share of the memory that vLLM may take: {last:g}, before vLLM {since} {first:g}."


HARDWARE_KEYS: tuple[Key, ...] = (
    Key(
        path="hardware",
        kind="mapping",
        default="none",
        meaning="A GPU of the table by its name, such as `H100`, or a mapping of what follows.",
    ),
    Key(
        path="hardware.gpu",
        kind="text",
        default="none",
        meaning="Its name; numbers next to it take the place of its own.",
    ),
    Key(path="hardware.tp", kind="integer", default="1", least=1, meaning="GPUs that share each layer."),
    Key(
        path="hardware.pp",
        kind="integer",
        default="1",
        least=1,
        meaning="Pipeline stages, for `engine.pipeline_parallel_size`.",
    ),
    Key(
        path="hardware.dp",
        kind="integer",
        default="1",
        least=1,
        meaning="Engines in step that share the experts of each layer (vLLM's data parallelism of a mixture of "
        "experts); one of them is simulated, the others taken to be as loaded.",
    ),
    Key(
        path="hardware.enable_expert_parallel",
        kind="boolean",
        default="false",
        meaning="As vLLM's flag: each of tp x dp GPUs has whole experts in place of a slice of each.",
    ),
    Key(
        path="hardware.all2all_backend",
        kind="choice",
        default=get_args(All2AllBackend)[0],
        meaning="As vLLM's flag, with `dp`: `allgather_reducescatter` and `naive` send every token to every engine, "
        "the others only to its experts.",
        choices=get_args(All2AllBackend),
    ),
    Key(
        path="hardware.mm_encoder_tp_mode",
        kind="choice",
        default=get_args(MMEncoderTPMode)[0],
        meaning="As vLLM's flag: `tp` GPUs split the layers of a vision tower, or share the images of a step out. A "
        "tower that vLLM does not know to do so takes no notice.",
        choices=get_args(MMEncoderTPMode),
    ),
    Key(
        path="hardware.gpus_per_node",
        kind="integer",
        default=str(ONE_NODE.gpus_per_node),
        least=1,
        meaning="Collectives of more neighbours than that go over the network, at its rate.",
    ),
    Key(
        path="hardware.network_gb_per_s",
        kind="number",
        default=f"{ONE_NODE.network_gb_per_s:g}",
        meaning="A GPU's way to another node at its peak, one direction, GB/s: measured between H100 nodes.",
    ),
    Key(
        path="hardware.network_us",
        kind="number",
        default=f"{ONE_NODE.network_us:g}",
        meaning="µs per hop between nodes: one per send, two per node and collective; measured likewise.",
    ),
    Key(
        path="hardware.nccl_launch_us",
        kind="number",
        default="the latency model's `all_reduce_us`",
        meaning="µs per collective, bytes excluded: roofline has 20 (Vidur's nccl_cpu_launch_overhead), physics a "
        "learned 15.",
    ),
    Key(
        path="hardware.nccl_skew_us",
        kind="number",
        default=f"{ONE_NODE.nccl_skew_us:g}",
        meaning="µs that each collective waits for its slowest GPU, times (GPUs of the group)^1.25 (Vidur's "
        "nccl_cpu_skew_overhead_per_device).",
    ),
    Key(
        path="hardware.gpu_memory_utilization",
        kind="fraction",
        default="vLLM's",
        meaning=_memory_shares(),
    ),
    Key(
        path="hardware.kv_offloading_size",
        kind="number",
        default="none",
        meaning="As vLLM's flag: GiB of host memory for KV blocks, of all GPUs together, 0: none; sets "
        "`engine.num_cpu_blocks` by `latency.model_config`.",
    ),
    Key(
        path="hardware.kv_offload_gb_per_s",
        kind="number",
        default="25, told",
        meaning="Between host memory and each GPU, GB/s, each way; sets `engine.kv_load_us_per_block` and "
        "`engine.kv_store_us_per_block`, or `engine.kv_transfer_bandwidth`.",
    ),
    Key(
        path="hardware.memory_gib",
        kind="number",
        default="of `gpu`",
        meaning="Memory as CUDA reports it, GiB.",
    ),
    Key(
        path="hardware.bandwidth_gb_per_s", kind="number", default="of `gpu`", meaning="Of its memory, GB/s."
    ),
    Key(
        path="hardware.tflops_16bit",
        kind="number",
        default="of `gpu`",
        meaning="Dense products of 16 bits, TFLOPS.",
    ),
    Key(
        path="hardware.tflops_fp8", kind="number", default="of `gpu`", meaning="Of fp8; absent: it has none."
    ),
    Key(
        path="hardware.tflops_fp4",
        kind="number",
        default="of `gpu`",
        meaning="Of 4 bits; absent: it has none.",
    ),
    Key(
        path="hardware.tops_int8", kind="number", default="of `gpu`", meaning="Of int8; absent: it has none."
    ),
    Key(
        path="hardware.link_gb_per_s",
        kind="number",
        default="of `gpu`",
        meaning="To its peers, one direction, GB/s.",
    ),
)

FOREIGN_NAMES: Mapping[str, str] = {
    "total_kv_blocks": "engine.num_gpu_blocks",
    "num_gpu_blocks_override": "engine.num_gpu_blocks",
    "block_size_in_tokens": "engine.block_size",
    "max_num_running_reqs": "engine.max_num_seqs",
    "max_num_scheduled_tokens": "engine.max_num_batched_tokens",
    "policy": "engine.scheduling_policy",
    "scheduler": "engine.scheduling_policy",
    "coefficients": "latency.coefficients",
    "alpha_coeffs": "latency.coefficients",
    "beta_coeffs": "latency.coefficients",
}
"""Names that others give to these keys, for the hint of an unknown key."""


def all_keys() -> tuple[Key, ...]:
    """Return every key in the order of the file."""
    top = {key.path: key for key in TOP_KEYS}
    return (
        top["vllm_version"],
        top["compatibility"],
        *engine_keys(),
        *GROUP_KEYS,
        RETENTION_KEY,
        *LATENCY_KEYS,
        *HARDWARE_KEYS,
        *CLUSTER_KEYS,
        top["seed"],
    )


def reference_page() -> str:
    """Return docs/reference/config.md, generated from the table."""
    head = """\
# TWIN.yaml

<!-- Generated by `make docs` from the table that the reader uses. Do not edit. -->

What `--config` reads. Keys have vLLM's names and defaults; an unknown key is an error that names the nearest
known one, with its line. `vtwin config show TWIN.yaml` prints what a file amounts to, defaults filled in.

```yaml
engine: {max_num_seqs: 256, max_num_batched_tokens: 2048, num_gpu_blocks: 2588, block_size: 16}
latency:
  model: blackbox
  coefficients: {alpha0: 8000, alpha1: 1.0, alpha2: 0, beta0: 11000, beta1: 40, beta2: 41}
```

| key | value | default | meaning |
|---|---|---|---|
"""
    rows = [f"| `{k.path}` | {k.expected} | {k.default} | {k.meaning} |" for k in all_keys()]
    tail = """

Coefficients are microseconds, not negative, written as decimals and kept to 10⁻⁶ µs. A step of P prefill and
D decode tokens lasts `beta0 + beta1·P + beta2·D`, rounded half to even. With `model: extended` it lasts
`beta0 + hypot(floor, beta1·T·s)·r + beta4·A·s + beta2·D^(1 - concavity) + beta3·C + beta5·Q` with
`s = 1 + kappa·max(0, u - u0)`: A pairs, C entries and Q requests as above, u the share of recent time spent on the
terms with s; T = P + D where there is a floor, else P; hypot(a, b) is the root of a² + b²; r the factor of `tiles` at
P + D tokens, 1 without.

With `cluster` the file describes several servers behind a gateway (docs/how-to/compare-routers.md). `vtwin run`,
`replay`, `capacity`, `sweep`, `tune` and `serve` simulate them. `vtwin calibrate` and `vtwin fleet` take files of one
server and refuse a file with `cluster`. `serve` takes everything in it but `retries` (its clients are real) and
`lockstep`.
"""
    return head + "\n".join(rows) + tail


if __name__ == "__main__":
    print(reference_page(), end="")  # noqa: T201 - the generator of a page writes to stdout
