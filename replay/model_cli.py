"""``vtwin model``: what is known of a model and a GPU before anything is measured."""

from __future__ import annotations

import json
from typing import Annotated

import typer

model_app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="What a model needs and what a GPU can give it."
)


@model_app.callback()
def _model() -> None:
    """Say what a model needs and what a GPU can give it."""


@model_app.command()
def info(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    model_config: Annotated[
        str,
        typer.Option(
            metavar="CONFIG.json",
            help="A Hugging Face config.json, or a model that ships by its name; an unknown name lists them.",
        ),
    ],
    gpu: Annotated[
        str,
        typer.Option(
            help="A GPU of the table: A30, A40, A100-40, A100-80, L40S, A10G, RTX4090, RTXPRO6000, H100, H200, B200, "
            "B300, GB200, MI300X."
        ),
    ],
    tp: Annotated[int, typer.Option(min=1, help="GPUs that share each layer.")] = 1,
    pp: Annotated[int, typer.Option(min=1, help="Pipeline stages.")] = 1,
    gpu_memory_utilization: Annotated[
        float | None,
        typer.Option(min=0.01, max=1.0, help="Share of the memory; default: vLLM's own.", show_default=False),
    ] = None,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens per KV block.")] = 16,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum tokens in a step; default: vLLM's on this GPU.", show_default=False
        ),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum requests in a step; default: vLLM's on this GPU.", show_default=False
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(help="As vLLM's flag: auto, bfloat16, float16, float32.")] = "auto",
    kv_cache_dtype: Annotated[str, typer.Option(help="As vLLM's flag: auto or fp8.")] = "auto",
    vllm_version: Annotated[
        str, typer.Option(help="vLLM version; the memory that vLLM reserves depends on it.")
    ] = "0.32.0",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Print weights, KV cache, num_gpu_blocks, the batch that saturates the GPU, and its roofline."""
    from replay.model.card import card, document
    from replay.model.gpu_memory import Serving, kv_cache_size
    from replay.model.gpus import find_gpu
    from replay.model.hf_config import read_model_config
    from replay.twin.engine_defaults import batch_limits

    shape = read_model_config(model_config, kv_cache_dtype=kv_cache_dtype, dtype=dtype)
    device = find_gpu(gpu)
    seqs, tokens = batch_limits(device, vllm_version=vllm_version)
    serving = Serving(
        gpu_memory_utilization=gpu_memory_utilization,
        block_size=block_size,
        max_num_batched_tokens=max_num_batched_tokens or tokens,
        max_num_seqs=max_num_seqs or seqs,
        vllm_version=vllm_version,
    )
    capacity = kv_cache_size(shape, device, tp=tp, pp=pp, serving=serving)
    if as_json:
        typer.echo(json.dumps(document(shape, device, capacity, tp=tp, pp=pp), indent=2, allow_nan=False))
    else:
        typer.echo(card(shape, device, capacity, tp=tp, pp=pp))
    for note in shape.left_out:
        typer.echo(f"note: {note}", err=True)
