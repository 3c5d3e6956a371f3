"""``vtwin model``: what is known of a model and a GPU before anything is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from replay.twin.own.own_code import with_code_option
from traces.strict.tell import say, say_text, tell
from traces.workload import WorkloadOptions, with_workload_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replay.gpus.comparison import Asked, GpuResult
    from replay.model.gpus import Gpu
    from replay.search.draws import Drawing
    from traces import Trace

DEFAULT_RATE = 1.0
DEFAULT_NUM_REQUESTS, DEFAULT_SEEDS = 4000, 5
"""With 3 seeds of 1,000, capacities had intervals a quarter wide, and were 1.5 % too high (docs/validation.md)."""

MOST_GPUS = 65_536
"""Of one server."""
model_app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="What a model needs and what a GPU can give it."
)


@model_app.callback()
def _model() -> None:
    """Say what a model needs and what a GPU can give it."""


@model_app.command(epilog="Example: vtwin model info --model-config Qwen/Qwen3-14B --gpu H100 --tp 2")
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
    tp: Annotated[int, typer.Option(min=1, max=MOST_GPUS, help="GPUs that share each layer.")] = 1,
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
        say_text(json.dumps(document(shape, device, capacity, tp=tp, pp=pp), indent=2, allow_nan=False))
    else:
        say_text(card(shape, device, capacity, tp=tp, pp=pp))
    for note in shape.left_out:
        tell(f"note: {note}")


@model_app.command(
    epilog="Example: vtwin model compare --model-config Qwen/Qwen3-14B --gpus H100,L40S --slo ttft_p99=500ms --rate 5"
)
@with_code_option
@with_workload_options
def compare(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOptions,
    model_config: Annotated[
        str,
        typer.Option(
            metavar="CONFIG.json", help="A Hugging Face config.json, or a model that ships by its name."
        ),
    ],
    gpus: Annotated[
        str, typer.Option(metavar="NAMES", help="GPUs of the table, commas between: H100,H200,L40S.")
    ],
    tp: Annotated[
        str, typer.Option(metavar="NUMBERS", help="GPUs that share each layer; several: 1,2,4.")
    ] = "1",
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS",
            help="Latency limits over the run, as in capacity: ttft_p99=500ms,tpot_p99=50ms. Without them the capacity "
            "is what a full server serves.",
            show_default=False,
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="STEM", help="Take lengths and prefixes from this trace (short for --lengths-from)."
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="YAML file of prices per GPU and hour, one per line (H100: 2.5). Default: the list prices that ship.",
            show_default=False,
        ),
    ] = None,
    latency_model: Annotated[
        Literal["physics", "roofline"], typer.Option(help="Latency model that simulates the GPUs.")
    ] = "physics",
    seeds: Annotated[
        int, typer.Option(min=1, max=50, help="How many times to draw the workload.")
    ] = DEFAULT_SEEDS,
    max_model_len: Annotated[
        int | None,
        typer.Option(
            min=1, help="Default: the model's, or what the KV cache holds of it.", show_default=False
        ),
    ] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option(min=1, help="Default: vLLM's on each GPU.", show_default=False)
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(min=1, help="Default: vLLM's on each GPU.", show_default=False)
    ] = None,
    dtype: Annotated[str, typer.Option(help="As vLLM's flag: auto, bfloat16, float16, float32.")] = "auto",
    kv_cache_dtype: Annotated[str, typer.Option(help="As vLLM's flag: auto or fp8.")] = "auto",
    vllm_version: Annotated[
        str | None, typer.Option(help="vLLM version; default: the newest known.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Compare GPUs for a model: does it fit, TTFT and TPOT at a rate, capacity, tokens per dollar.

    The load is one request per second unless --rate says otherwise, 4,000 requests; for the capacity more, where queues
    take longer to grow. Exit code 1 if it starts on none.
    """
    from replay.gpus.comparison import Asked
    from replay.search.draws import drawing_of, draws, options_at
    from replay.search.prices import list_price_notes, list_prices_per_hour, read_prices
    from traces import parse_run_slo
    from traces.strict.tell import tell_note

    engine = {
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
    }
    asked = Asked(
        model_config=model_config,
        latency_model=latency_model,
        engine={key: value for key, value in engine.items() if value is not None},
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
        vllm_version=vllm_version,
        rate_per_s=DEFAULT_RATE if workload.rate is None else workload.rate,
        limits=() if slo is None else parse_run_slo(slo, tell=tell_note),
    )
    servers = _servers(gpus, tp)
    costs = list_prices_per_hour() if prices is None else read_prices(prices)
    options = options_at(workload, like, rate=asked.rate_per_s, num_requests=DEFAULT_NUM_REQUESTS)
    traces = draws(options, seeds)
    takes_all = workload.num_requests is None and workload.trace is None
    for note in () if prices is not None else list_price_notes(gpu.name for gpu, _ in servers):
        tell(f"note: {note}")
    results = _compared(
        servers, asked, traces, costs, drawing=drawing_of(options, seeds=seeds) if takes_all else None
    )
    priced = "list prices" if prices is None else str(prices)
    _show_comparison(results, asked, num_requests=len(traces[0]), priced=priced, as_json=as_json)
    if all(each.refusal for each in results):
        raise typer.Exit(1)


def _servers(gpus: str, tp: str) -> list[tuple[Gpu, int]]:
    """Return every GPU with every number of them. Raises ConfigError."""
    from replay.model.gpus import find_gpu
    from traces import ConfigError

    try:
        numbers = [int(each) for each in tp.split(",")]
    except ValueError as error:
        raise ConfigError(f"--tp: got {tp!r}, expected numbers with commas between (1,2,4)") from error
    if min(numbers) < 1 or max(numbers) > MOST_GPUS or len(set(numbers)) < len(numbers):
        raise ConfigError(f"--tp: got {tp!r}, expected different numbers of 1 to {MOST_GPUS:,}")
    devices = [find_gpu(each.strip(), where="--gpus") for each in gpus.split(",")]
    if len({each.name for each in devices}) < len(devices):
        raise ConfigError(f"--gpus: got {gpus!r}, expected each GPU once")
    return [(device, number) for device in devices for number in numbers]


def _compared(
    servers: Sequence[tuple[Gpu, int]],
    asked: Asked,
    traces: Sequence[Trace],
    prices: Mapping[str, float],
    *,
    drawing: Drawing | None,
) -> list[GpuResult]:
    """Compare, with a line on stderr once it takes long."""
    from replay.gpus.comparison import compare_gpus
    from replay.progress import working
    from replay.ready import load_engine

    load_engine()
    with working(f"simulating {len(servers)} servers"):
        return compare_gpus(servers, asked, traces, prices=prices, drawing=drawing)


def _show_comparison(
    results: Sequence[GpuResult], asked: Asked, *, num_requests: int, priced: str, as_json: bool
) -> None:
    """Print the comparison on stdout."""
    from replay.gpus.text import document, lines
    from traces import terminal_width, tool_version

    if as_json:
        told = document(results, asked, num_requests=num_requests, tool_version=tool_version())
        told["prices"] = _price_sources(results) if priced == "list prices" else priced
        say_text(json.dumps(told, indent=2, allow_nan=False))
        return
    say(*lines(results, asked, width=terminal_width()))


def _price_sources(results: Sequence[GpuResult]) -> dict[str, str]:
    """Return of each GPU with a list price whose it is, and of which day."""
    from replay.search.prices import list_prices

    names = {each.gpu.name for each in results}
    return {name: price.source for name, price in list_prices().items() if name in names}
