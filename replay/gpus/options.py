"""The options of ``vtwin model info`` and ``vtwin model compare``."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from replay.numbers.argument_ranges import GPUS, SEEDS
from traces.console.options import (
    AnswerForm,
    DtypeOption,
    KvCacheDtypeOption,
    MambaSsmCacheDtypeOption,
    ModelConfigOption,
    PricesOption,
    QuantizationOption,
)
from traces.strict.option_table import option_table

DEFAULT_SEEDS = 5
"""With 3 seeds of 1,000 requests, capacities had intervals a quarter wide, and were 1.5 % too high
(docs/validation.md)."""
MOST_GPUS = GPUS.most
"""The most GPUs of one server."""


@option_table
class ModelInfoOptions:
    """All options of ``vtwin model info``."""

    model_config: Annotated[
        str,
        typer.Option(
            metavar="CONFIG.json",
            help="A Hugging Face config.json, or a model that ships by its name; an unknown name lists them.",
        ),
    ]
    gpu: Annotated[
        str,
        typer.Option(
            help="A GPU of the table: A30, A40, A100-40, A100-80, L40S, L4, A10G, RTX4090, RTXPRO6000, H100, H200, "
            "H20, B200, B300, GB200, GB300, MI300X, MI325X, MI355X, B60."
        ),
    ]
    tp: Annotated[int, typer.Option(min=1, max=MOST_GPUS, help="GPUs that share each layer.")] = 1
    pp: Annotated[int, typer.Option(min=1, help="Pipeline stages.")] = 1
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(min=0.01, max=1.0, help="Share of the memory; default: vLLM's own.")
    ] = None
    kv_cache_memory_bytes: Annotated[
        int | None,
        typer.Option(min=1, help="Each GPU's KV cache, bytes; default: what is left of that share."),
    ] = None
    block_size: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens per KV block; default: 16, or what the model's kernels take."),
    ] = None
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(min=1, help="Maximum tokens in a step; default: vLLM's on this GPU.")
    ] = None
    max_num_seqs: Annotated[
        int | None, typer.Option(min=1, help="Maximum requests in a step; default: vLLM's on this GPU.")
    ] = None
    dtype: DtypeOption = "auto"
    kv_cache_dtype: KvCacheDtypeOption = "auto"
    mamba_ssm_cache_dtype: MambaSsmCacheDtypeOption = "auto"
    quantization: QuantizationOption = "auto"
    vllm_version: Annotated[
        str, typer.Option(help="vLLM version; the memory that vLLM reserves depends on it.")
    ] = "0.32.0"
    enforce_eager: Annotated[
        bool,
        typer.Option(
            "--enforce-eager", help="No CUDA graphs, as vLLM's flag: their memory is the KV cache's."
        ),
    ] = False
    answer: AnswerForm = AnswerForm()


@option_table
class GpuCompareOptions:
    """Model, GPUs, limits and output."""

    model_config: ModelConfigOption
    gpus: Annotated[
        str, typer.Option(metavar="NAMES", help="GPUs of the table, commas between: H100,H200,L40S.")
    ]
    tp: Annotated[
        str, typer.Option(metavar="NUMBERS", help="GPUs that share each layer; several: 1,2,4.")
    ] = "1"
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS",
            help="Latency limits over the run, as in capacity: ttft_p99=500ms,tpot_p99=50ms. Without them the capacity "
            "is what a full server serves.",
        ),
    ] = None
    prices: PricesOption = None
    latency_model: Annotated[
        Literal["physics", "roofline"], typer.Option(help="Latency model that simulates the GPUs.")
    ] = "physics"
    seeds: Annotated[
        int, typer.Option(min=SEEDS.least, max=SEEDS.most, help="How many times to draw the workload.")
    ] = DEFAULT_SEEDS
    max_model_len: Annotated[
        int | None, typer.Option(min=1, help="Default: the model's, or what the KV cache holds of it.")
    ] = None
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="Default: vLLM's on each GPU.")] = None
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(min=1, help="Default: vLLM's on each GPU.")
    ] = None
    dtype: DtypeOption = "auto"
    kv_cache_dtype: KvCacheDtypeOption = "auto"
    mamba_ssm_cache_dtype: MambaSsmCacheDtypeOption = "auto"
    quantization: QuantizationOption = "auto"
    vllm_version: Annotated[str | None, typer.Option(help="vLLM version; default: the newest known.")] = None
    kv_check: Annotated[
        bool,
        typer.Option(
            help="Also simulate a quarter less and more of the KV cache, whose size nobody told, and tell where the "
            "figures at the rate hang on it."
        ),
    ] = True
    answer: AnswerForm = AnswerForm()
