"""vLLM's own scheduler under a clock that is only a number: no model, no GPU, no waiting.

Runs under a Python that has vLLM. The scheduler is vLLM's, untouched, and so is the length of the batch queue. Ours
are the loop around it, which follows v1/engine/core.py (``step``, ``step_with_batch_queue``), the pipeline stages, and
the model's output, which is made up: every request that samples gets one token. README.md has the conventions that
this file carries out.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from dataclasses import dataclass, field
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    LoRAConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.utils.hashing import sha256
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager, compute_mm_encoder_budget
from vllm.v1.core.kv_cache_utils import init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from tests.conformance.conventions import (
    DEFAULTS,
    MOST_FRUITLESS_STEPS,
    images_of,
    num_accepted,
    output_token_id,
    prompt_token_ids,
)
from tests.conformance.vllm_versions import (
    RETENTION_IN_ENVIRONMENT,
    block_hasher_of,
    block_sizes_of,
    depth_of,
    fills_queue_after_empty_batch,
    made,
    note_prefill_chunks,
    put,
    results_of,
    resumed_in,
)

LONGEST_OF_THE_MODEL = 8192
"""Above it vLLM would refuse ``max_model_len`` for this model; the scheduler is told the real one later."""

MOST_STEPS = 200_000
"""A recording that takes more has lost its way."""


def vllm_config(settings: dict[str, Any], model: str) -> VllmConfig:
    """Return vLLM's configuration for ``settings``; ValueError where vLLM refuses them.

    The CPU platform rewrites some of them on the way (block size, async scheduling): they are set again.
    """
    max_model_len = settings["max_model_len"]
    scheduler = made(
        SchedulerConfig,
        max_model_len=max_model_len,
        is_encoder_decoder=False,
        max_num_seqs=settings["max_num_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
        long_prefill_token_threshold=settings["long_prefill_token_threshold"],
        long_prefill_token_threshold_adaptive=settings["long_prefill_token_threshold_adaptive"],
        enable_chunked_prefill=settings["enable_chunked_prefill"],
        policy=settings["policy"],
        watermark=settings["watermark"],
        scheduler_reserve_full_isl=settings["scheduler_reserve_full_isl"],
        async_scheduling=False,
    )
    cache = CacheConfig(
        block_size=settings["block_size"], enable_prefix_caching=settings["enable_prefix_caching"]
    )
    config = VllmConfig(
        model_config=ModelConfig(
            model=model,
            tokenizer=model,
            dtype="float32",
            seed=0,
            max_model_len=min(max_model_len, LONGEST_OF_THE_MODEL),
            skip_tokenizer_init=True,
        ),
        scheduler_config=scheduler,
        cache_config=cache,
        parallel_config=ParallelConfig(),
        device_config=DeviceConfig("cpu"),
        lora_config=LoRAConfig(max_loras=settings["max_loras"]) if settings["max_loras"] else None,
        **(
            {"kv_transfer_config": settings["kv_transfer_config"]} if "kv_transfer_config" in settings else {}
        ),
    )
    config.model_config.max_model_len = max_model_len
    if settings["num_speculative_tokens"]:
        config.speculative_config = speculative_config(settings)
    config.parallel_config.pipeline_parallel_size = settings["pipeline_parallel_size"]
    put(
        scheduler,
        max_num_batched_tokens=settings["max_num_batched_tokens"],
        max_num_scheduled_tokens=None,
        enable_chunked_prefill=settings["enable_chunked_prefill"],
        async_scheduling=settings["async_scheduling"],
    )
    put(
        cache,
        block_size=settings["block_size"],
        num_gpu_blocks=settings["num_gpu_blocks"],
        enable_prefix_caching=settings["enable_prefix_caching"],
        prefix_cache_retention_interval=settings["prefix_cache_retention_interval"],
        prefix_match_unit=settings["prefix_match_unit"],
    )
    return config


def speculative_config(settings: dict[str, Any]) -> SpeculativeConfig:
    """Return vLLM's speculative configuration; EAGLE's would ask for a model that drafts."""
    drafts = SpeculativeConfig(
        method="ngram", num_speculative_tokens=settings["num_speculative_tokens"], prompt_lookup_max=3
    )
    if settings["use_eagle"]:
        drafts.method = "eagle"
    if settings["num_prefill_lookahead_tokens"] > 1:
        drafts.method = "mtp"
        drafts.draft_model_config = SimpleNamespace(
            hf_config=SimpleNamespace(num_nextn_predict_layers=settings["num_prefill_lookahead_tokens"])
        )
    return drafts


def new_scheduler(settings: dict[str, Any], model: str) -> Scheduler:
    """Return vLLM's scheduler with a KV cache of the groups given, or of one full-attention group."""
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"  # the CPU has no other, and VllmConfig checks it
    os.environ.pop(RETENTION_IN_ENVIRONMENT, None)
    if settings["prefix_cache_retention_interval"] is not None:
        os.environ[RETENTION_IN_ENVIRONMENT] = str(settings["prefix_cache_retention_interval"])
    config = vllm_config(settings, model)
    if settings["pipeline_parallel_size"] > 1 and settings["async_scheduling"]:
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"  # the GPUs' one, whose rule the scheduler then follows
    groups = settings["groups"] or [{"kind": "full"}]
    modes = {group.get("mode", "none") for group in groups if group["kind"] == "state"}
    if modes:
        mode = modes.pop()
        size = settings["block_size" if mode == "align" else "max_model_len"]
        put(config.cache_config, mamba_cache_mode=mode, mamba_block_size=size)
        if len(groups) == 1:  # a block is then a state
            config.cache_config.block_size = config.cache_config.mamba_block_size
    kv_cache = made(
        KVCacheConfig,
        num_blocks=settings["num_gpu_blocks"],
        kv_cache_tensors=[],
        prefix_cache_retention_interval=settings["prefix_cache_retention_interval"],
        kv_cache_groups=[
            made(
                KVCacheGroupSpec,
                layer_names=[f"layer {number}"],
                kv_cache_spec=layers_of(group, settings),
                is_eagle_group=group.get("is_eagle_group", False),
            )
            for number, group in enumerate(groups)
        ],
    )
    block_size, hash_block_size = block_sizes_of(kv_cache, config)
    scheduler: Scheduler = made(
        AsyncScheduler if settings["async_scheduling"] else Scheduler,
        vllm_config=config,
        kv_cache_config=kv_cache,
        structured_output_manager=StructuredOutputManager(config),
        block_size=block_size,
        hash_block_size=hash_block_size,
        log_stats=False,
    )
    note_prefill_chunks(scheduler)
    return scheduler


def features_of(row: dict[str, Any]) -> list[MultiModalFeatureSpec]:
    """Return a prompt's images as vLLM has them."""
    return [
        MultiModalFeatureSpec(
            data=None,
            modality="image",
            identifier=f"image {content}",
            mm_position=PlaceholderRange(offset=position, length=num_tokens),
        )
        for position, num_tokens, content in images_of(row)
    ]


def give_encoder(scheduler: Scheduler, settings: dict[str, Any], largest: int) -> None:
    """Give a scheduler the encoder's budget and cache, as a model that sees has them; this one has none."""
    config = scheduler.scheduler_config
    for name in ("max_num_encoder_input_tokens", "encoder_cache_size", "disable_chunked_mm_input"):
        setattr(config, name, settings[name])
    budget, cache_size = compute_mm_encoder_budget(config, {"image": largest})
    scheduler.max_num_encoder_input_tokens = budget
    scheduler.encoder_cache_manager = EncoderCacheManager(cache_size=cache_size)


def lora_request(row: dict[str, Any]) -> LoRARequest | None:
    """Return a request's adapter; vLLM counts them from 1."""
    if "adapter" not in row:
        return None
    return LoRARequest(
        lora_name=f"adapter {row['adapter']}", lora_int_id=row["adapter"] + 1, lora_path="none"
    )


def layers_of(group: dict[str, Any], settings: dict[str, Any]) -> KVCacheSpec:
    """Return how a group's layers cache: a head of one value, so that all pages could have the same bytes."""
    heads = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    size = group.get("block_size") or settings["block_size"]
    if group["kind"] == "sliding":
        return made(
            SlidingWindowSpec,
            block_size=size,
            sliding_window=group["window"],
            extra_retained_tokens=max(0, settings["num_prefill_lookahead_tokens"] - 1),
            **heads,
        )
    if group["kind"] == "chunked":
        return made(ChunkedLocalAttentionSpec, block_size=size, attention_chunk_size=group["chunk"], **heads)
    if group["kind"] == "state":
        mode = group.get("mode", "none")
        return made(
            MambaSpec,
            block_size=size if mode == "align" else settings["max_model_len"],
            shapes=((2 * size,),),
            dtypes=(torch.float32,),
            mamba_cache_mode=mode,
            num_speculative_blocks=settings["num_speculative_tokens"],
            num_prefill_checkpoint_blocks=group.get("num_prefill_checkpoint_blocks", 0),
            prefill_checkpoint_alignment=group.get("prefill_checkpoint_alignment"),
        )
    return made(FullAttentionSpec, block_size=size, **heads)


class Anything:
    """A grammar that takes every token."""

    def accept_tokens(self, _request_id: str, _tokens: list[int]) -> bool:
        """Return True."""
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """Return all of them."""
        return tokens


class CompilingGrammar(Future):  # type: ignore[type-arg]  # what it gives is vLLM's affair
    """A grammar that is there from a time on; who asks before is noted."""

    def __init__(self, engine: VllmEngine, ready_us: int) -> None:
        super().__init__()
        self.engine, self.ready_us = engine, ready_us

    def done(self) -> bool:
        """Return whether it is there."""
        if self.ready_us > self.engine.now_us:
            self.engine.awaited_us.append(self.ready_us)
        return self.ready_us <= self.engine.now_us

    def result(self, timeout: float | None = None) -> Anything:  # noqa: ARG002 - nothing is waited for
        """Return it; TimeoutError where it is not there: up to 0.30 vLLM asks so, for 100 µs."""
        if not self.done():
            raise TimeoutError
        return Anything()


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of a request; None where it never happened."""

    status: str = "stuck"
    max_tokens: int | None = None
    num_outputs: int = 0
    first_sched_us: int | None = None
    first_token_us: int | None = None
    completion_us: int | None = None
    num_preemptions: int = 0
    cached_first: int | None = None
    cached_total: int = 0


@dataclass(slots=True, kw_only=True)
class Batch:
    """A scheduling decision: vLLM's, its line of steps.jsonl, and who samples."""

    output: SchedulerOutput
    line: dict[str, Any]
    sampling: set[str]
    padded: set[str]
    goes_in_circles: bool

    @property
    def has_tokens(self) -> bool:
        return bool(self.line["sched"])

    @property
    def does_nothing(self) -> bool:
        return not self.line["sched"] and not self.line["preempted"]


@dataclass(slots=True)
class VllmEngine:
    """One engine and its recording so far. ``run`` it once, then read ``steps`` and ``outcomes``."""

    settings: dict[str, Any]
    rows: list[dict[str, Any]]
    with_blocks: bool = False
    model: str = field(default_factory=lambda: os.environ["VLLM_MODEL"])
    scheduler: Scheduler = field(init=False)
    outcomes: list[Outcome] = field(init=False)
    steps: list[dict[str, Any]] = field(init=False, default_factory=list)
    num_scheduled_steps: int = 0
    num_added: int = 0
    stages_free_us: list[int] = field(init=False)
    sampled_us: dict[str, int] = field(init=False, default_factory=dict)
    fruitless_since: tuple[int, int] | None = None
    num_fruitless_steps: int = 0
    num_failed_allocations: int = 0
    preempted: list[int] = field(init=False, default_factory=list)
    throttles_prefills: bool = False
    """Of a rank among others: what the next decision is told (``ranks``)."""
    now_us: int = 0
    awaited_us: list[int] = field(init=False, default_factory=list)
    """When grammars are there that the last decision asked for in vain."""

    def __post_init__(self) -> None:
        self.settings = DEFAULTS | self.settings
        init_none_hash(sha256)
        self.scheduler = new_scheduler(self.settings, self.model)
        if self.settings["max_num_encoder_input_tokens"]:
            largest = max((image[1] for row in self.rows for image in images_of(row)), default=1)
            give_encoder(self.scheduler, self.settings, largest)
        self.outcomes = [Outcome() for _ in self.rows]
        self.stages_free_us = [0] * self.settings["pipeline_parallel_size"]
        self._listen_to_preemptions()
        self._count_failed_allocations()

    def _listen_to_preemptions(self) -> None:
        """Note each preemption in the order in which the scheduler makes them; its output has a set."""
        preempt = self.scheduler._preempt_request

        def noted(request: Request, *others: object, **options: object) -> object:
            number = number_of(request.request_id)
            self.preempted.append(number)
            self.outcomes[number].num_preemptions += 1
            return preempt(request, *others, **options)

        self.scheduler._preempt_request = noted

    def _count_failed_allocations(self) -> None:
        """Count how often the scheduler asks for blocks that are not free."""
        manager = self.scheduler.kv_cache_manager
        allocate = manager.allocate_slots

        def counted(*others: object, **options: object) -> object:
            blocks = allocate(*others, **options)
            self.num_failed_allocations += blocks is None
            return blocks

        manager.allocate_slots = counted
        if hasattr(manager, "can_fit_full_sequence"):  # 0.19 and 0.20 ask at the gate by itself
            asks = manager.can_fit_full_sequence

            def gated(*others: object, **options: object) -> object:
                fits = asks(*others, **options)
                self.num_failed_allocations += not fits
                return fits

            manager.can_fit_full_sequence = gated

    # -- requests --------------------------------------------------------------------------------------------

    def add(self, number: int) -> None:
        """Hand a request to the scheduler, or reject it as the API server would."""
        row, settings, outcome = self.rows[number], self.settings, self.outcomes[number]
        if self.is_refused(number):
            outcome.status = "rejected"
            return
        prompt, max_tokens = prompt_token_ids(row, number), row["output_len"]
        if settings["frontend"] == "openai":
            max_tokens = min(max_tokens, settings["max_model_len"] - len(prompt))
        outcome.max_tokens = max_tokens
        hasher = None
        if settings["enable_prefix_caching"]:
            hasher = block_hasher_of(self.scheduler)
        request = made(
            Request,
            request_id=request_id(number),
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(
                max_tokens=max_tokens,
                ignore_eos=True,
                stop_token_ids=[output_token_id(number, row["stops_after"] - 1)]
                if "stops_after" in row
                else [],
                structured_outputs=StructuredOutputsParams(regex=".*") if row.get("guided") else None,
                **self.more_sampling_params(),
            ),
            pooling_params=None,
            eos_token_id=None,
            arrival_time=float(self.arrival_us(number)),
            priority=row.get("priority") or 0,
            block_hasher=hasher,
            lora_request=lora_request(row),
            mm_features=features_of(row),
        )
        if request.structured_output_request is not None:
            ready_us = self.arrival_us(number) + settings["guided_compile_us"]
            request.structured_output_request.grammar = CompilingGrammar(self, ready_us)
        self.scheduler.add_request(request)

    def is_refused(self, number: int) -> bool:
        """Return whether the API server refuses a request: the scheduler never hears of it."""
        row, longest = self.rows[number], self.settings["max_model_len"]
        fits = 0 < len(prompt_token_ids(row, number)) < longest and row["output_len"] <= longest
        return bool(self.settings["frontend"] == "openai" and not fits)

    def add_arrived(self, now_us: int) -> None:
        """Add everybody who has arrived by now, in the trace's order, and who comes next if that is refused."""
        while not self.all_added and (self.next_arrival_us <= now_us or self.is_refused(self.num_added)):
            self.add(self.num_added)
            self.num_added += 1

    @property
    def all_added(self) -> bool:
        return self.num_added == len(self.rows)

    @property
    def next_arrival_us(self) -> int:
        return int(self.rows[self.num_added]["arrival_us"])

    @property
    def next_event_us(self) -> int | None:
        """Return when somebody arrives, or a grammar is there that was asked for; None: neither will happen."""
        awaited_us = self.awaited_us if self.scheduler.has_unfinished_requests() else []
        return min([*awaited_us, *([] if self.all_added else [self.next_arrival_us])], default=None)

    # -- what an engine with a KV connector has beside (``pair``) ---------------------------------------------

    def arrival_us(self, number: int) -> int:
        """Return when a request came."""
        return int(self.rows[number]["arrival_us"])

    def more_sampling_params(self) -> dict[str, Any]:
        """Return what else a request asks for."""
        return {}

    def more_results(self, _batch: Batch) -> dict[str, Any]:
        """Return what else a batch's results say."""
        return {}

    # -- a step ----------------------------------------------------------------------------------------------

    def schedule(self, now_us: int) -> Batch:
        """Let the scheduler decide a step at ``now_us``."""
        if self.num_scheduled_steps == MOST_STEPS:
            raise RuntimeError(f"steps: got more than {MOST_STEPS:,}, expected the case to end")
        self.preempted, self.num_failed_allocations = [], 0
        self.now_us, self.awaited_us = now_us, []
        output = self.scheduler.schedule(*[True] * self.throttles_prefills)
        admitted = {new.req_id for new in output.scheduled_new_reqs}
        admitted |= resumed_in(output)
        entries, hits, sampling = [], [], set()
        num_decode = 0
        for identity, num_tokens in output.num_scheduled_tokens.items():
            request, number = self.scheduler.requests[identity], number_of(identity)
            computed_before = (
                request.num_computed_tokens - num_tokens
            )  # the scheduler has counted them already
            num_drafts = len(output.scheduled_spec_decode_tokens.get(identity, ()))
            is_decode = self._is_decode(request, num_tokens - num_drafts, num_drafts, before=computed_before)
            num_decode += num_tokens * is_decode
            entries.append([number, num_tokens, computed_before, "d" if is_decode else "p"])
            if not request.is_prefill_chunk:
                sampling.add(identity)
            if identity in admitted:
                hits.append([number, computed_before])
                self._note_admission(number, now_us, cached=computed_before)
        num_prefill = sum(entry[1] for entry in entries) - num_decode
        line = {
            "step": self.num_scheduled_steps,
            "t": now_us,
            "dur": self.duration_us(num_prefill, num_decode) + self.encoding_us(output),
            "P": num_prefill,
            "D": num_decode,
            "sched": entries,
            "preempted": self.preempted,
            "hits": hits,
            "finished": [],
            "failed": self.num_failed_allocations,
        }
        self.num_scheduled_steps += 1
        return Batch(
            output=output,
            line=line | self._state(output),
            sampling=sampling,
            padded=admitted & output.scheduled_spec_decode_tokens.keys(),
            goes_in_circles=self._goes_in_circles(),
        )

    def _goes_in_circles(self) -> bool:
        """Return whether preemptions follow on preemptions for ever: so many steps, nobody new and no token."""
        if not self.preempted:
            return False
        now = (sum(outcome.num_outputs for outcome in self.outcomes), self.num_added)
        if now != self.fruitless_since:
            self.fruitless_since, self.num_fruitless_steps = now, 0
        self.num_fruitless_steps += 1
        return self.num_fruitless_steps >= MOST_FRUITLESS_STEPS

    def _is_decode(self, request: Request, num_tokens: int, num_drafts: int, *, before: int) -> bool:
        """Return whether an entry computes exactly the newest sampled token, which async may not know yet.

        ``num_tokens``: without the drafts. ``before``: computed before.
        """
        in_flight = 0
        if self.settings["async_scheduling"]:
            own = 0 if request.is_prefill_chunk else 1 + num_drafts
            in_flight = request.num_output_placeholders - own
        num_known = request.num_tokens + in_flight
        has_outputs = request.num_output_tokens + in_flight > 0
        return num_tokens == 1 and has_outputs and before == num_known - 1

    def _note_admission(self, number: int, now_us: int, *, cached: int) -> None:
        outcome = self.outcomes[number]
        outcome.cached_total += cached
        if outcome.first_sched_us is None:
            outcome.first_sched_us, outcome.cached_first = now_us, cached

    def _state(self, output: SchedulerOutput) -> dict[str, Any]:
        """Return the keys of a step that say how the engine stands after scheduling."""
        pool = self.scheduler.kv_cache_manager.block_pool
        num_running, num_waiting = self.scheduler.get_request_counts()
        state = {"running": num_running, "waiting": num_waiting, "free": pool.get_num_free_blocks()}
        if self.with_blocks:
            tables = {
                str(number_of(identity)): [
                    list(ids) for ids in self.scheduler.kv_cache_manager.get_block_ids(identity)
                ]
                for identity in output.num_scheduled_tokens
            }
            if not self.settings["groups"]:
                tables = {number: table for number, (table,) in tables.items()}
            state["block_ids"] = tables
            state["free_queue"] = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
        return state

    def duration_us(self, num_prefill: int, num_decode: int) -> int:
        """Return a step's duration, exactly, rounded half to even; no time without tokens."""
        if num_prefill + num_decode == 0:
            return 0
        beta0, beta1, beta2 = (Fraction(str(self.settings[name])) for name in ("beta0", "beta1", "beta2"))
        return round(beta0 + beta1 * num_prefill + beta2 * num_decode)

    def encoding_us(self, output: SchedulerOutput) -> int:
        """Return what the images add to a step that are encoded in it."""
        sizes = [
            self.scheduler.requests[identity].get_num_encoder_embeds(number)
            for identity, numbers in output.scheduled_encoder_inputs.items()
            for number in numbers
        ]
        once, per_token, per_pair = (
            self.settings[f"encoder_{each}_us"] for each in ("step", "token", "token_pair")
        )
        return int(once * bool(sizes) + sum(per_token * size + per_pair * size * size for size in sizes))

    def update(self, batch: Batch, now_us: int) -> None:
        """Give the scheduler a batch's made-up results at ``now_us``."""
        identities = list(batch.output.num_scheduled_tokens)
        sampled = []
        for identity in identities:
            request = self.scheduler.requests.get(identity)  # async: it may have finished meanwhile
            samples = request is not None and identity in batch.sampling
            sampled.append(self._sampled(request, batch) if samples else [])
        results = results_of(
            req_ids=identities,
            req_id_to_index={identity: i for i, identity in enumerate(identities)},
            sampled_token_ids=sampled,
            **self.more_results(batch),
        )
        answers = self.scheduler.update_from_output(batch.output, results)
        if self.settings["num_speculative_tokens"] and not self.settings["async_scheduling"]:
            drafts = [[0] * self.settings["num_speculative_tokens"] for _ in identities]
            self.scheduler.update_draft_token_ids(DraftTokenIds(identities, drafts))
        for answer in answers[0].outputs if 0 in answers else []:
            number = number_of(answer.request_id)
            outcome = self.outcomes[number]
            outcome.num_outputs += len(answer.new_token_ids)
            if answer.new_token_ids and outcome.first_token_us is None:
                outcome.first_token_us = now_us
            if answer.finish_reason is not None:
                outcome.completion_us = now_us
                outcome.status = "finished:" + str(answer.finish_reason).lower()
                batch.line["finished"].append(number)
        batch.line["t_end"] = now_us
        batch.line["free_end"] = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        self.steps.append(batch.line)

    def _sampled(self, request: Request, batch: Batch) -> list[int]:
        """Return a request's new tokens: one behind its drafts that hold."""
        number, holding = number_of(request.request_id), 0
        drafts = batch.output.scheduled_spec_decode_tokens.get(request.request_id, ())
        if request.request_id not in batch.padded:
            rates = self.settings["synthetic_acceptance_rates"]
            holding = num_accepted(rates, number, request.num_tokens, num_scheduled=len(drafts))
        first = request.num_output_tokens
        return [output_token_id(number, first + i) for i in range(holding + 1)]

    # -- the loop --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end: nobody is left, or nobody who is left can ever run."""
        depth = depth_of(self.scheduler.vllm_config)
        if depth > 1:
            self._run_with_batch_queue(depth)
        else:
            self._run_sync()

    def _run_sync(self) -> None:
        """One batch at a time (v1/engine/core.py:step)."""
        now_us = 0
        while True:
            self.add_arrived(now_us)
            is_idle = not self.scheduler.has_unfinished_requests()
            if not is_idle:
                batch = self.schedule(now_us)
                now_us += batch.line["dur"]
                self.update(batch, now_us)
            if is_idle or leads_nowhere(batch, []):  # the real engine would not stop
                if self.next_event_us is None:
                    return
                now_us = max(now_us, self.next_event_us)

    def _run_with_batch_queue(self, depth: int) -> None:
        """Several batches in flight, the device never idle between them (step_with_batch_queue)."""
        now_us = 0
        in_flight: list[Batch] = []  # oldest first
        fills_queue = fills_queue_after_empty_batch()
        while True:
            self.add_arrived(now_us)
            is_idle = not in_flight and not self.scheduler.has_unfinished_requests()
            batch = None
            if not is_idle and self.scheduler.has_requests():
                batch = self.schedule(now_us)
                if leads_nowhere(batch, in_flight):
                    if batch.goes_in_circles:
                        self._launch(batch, now_us)
                    for useless in [*in_flight, batch]:
                        now_us = max(now_us, useless.line.get("exec_end", now_us))
                        self.update(useless, now_us)
                    in_flight, is_idle = [], True
            if is_idle:
                if self.next_event_us is None:
                    return
                now_us = max(now_us, self.next_event_us)
                continue
            if batch is not None:
                self._launch(batch, now_us)
                in_flight.append(batch)
                if len(in_flight) < depth and (
                    batch.has_tokens or (fills_queue and self.scheduler.has_requests())
                ):
                    continue
            oldest = in_flight.pop(0)
            now_us = max(now_us, oldest.line["exec_end"])
            self.update(oldest, now_us)

    def _launch(self, batch: Batch, now_us: int) -> None:
        """Put a batch behind those on the device; scheduling takes no time, an empty batch no device.

        The first stage waits for tokens that it is to read and that the last one has not sampled yet. A batch's time is
        divided evenly among the stages, in whole microseconds; the last one has the rest.
        """
        start_us = max(now_us, self.stages_free_us[0])
        for identity in batch.output.num_scheduled_tokens:
            request = self.scheduler.requests[identity]
            if request.num_computed_tokens > request.num_tokens:
                start_us = max(start_us, self.sampled_us.get(identity, 0))
        batch.line["exec_start"] = end_us = start_us
        last, each_us = len(self.stages_free_us) - 1, batch.line["dur"] // len(self.stages_free_us)
        if batch.has_tokens:
            for stage, free_us in enumerate(self.stages_free_us):
                end_us = max(end_us, free_us) + (
                    each_us if stage < last else batch.line["dur"] - last * each_us
                )
                self.stages_free_us[stage] = end_us
        batch.line["exec_end"] = max(end_us, self.stages_free_us[last])
        self.sampled_us.update(dict.fromkeys(batch.sampling, end_us))


def leads_nowhere(batch: Batch, in_flight: list[Batch]) -> bool:
    """Return whether nothing will ever come of what is under way, unless somebody arrives."""
    if batch.goes_in_circles:
        return not any(under_way.sampling for under_way in [*in_flight, batch])
    return batch.does_nothing and not any(earlier.has_tokens for earlier in in_flight)


def request_id(number: int) -> str:
    """Return the id of a request; ids sort as the trace's lines do, which is vLLM's last tie-break."""
    return f"r{number:08d}"


def number_of(identity: str) -> int:
    """Return the line of the trace that a request id stands for."""
    return int(identity[1:])
