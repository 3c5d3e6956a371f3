"""``vtwin model``: what is known of a model and a GPU before anything is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from replay.gpus.options import MOST_GPUS, CompareOptions, InfoOptions
from replay.search.searched_rate import NOT_FOR_A_COMPARISON
from replay.twin.own.own_code import with_code_option
from traces import ExitCode
from traces.facts import say_answer
from traces.strict.option_table import refusing, with_option_tables
from traces.strict.tell import tell
from traces.workload import WorkloadOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replay.gpus.comparison import GpuQuestion, GpuResult
    from replay.model.gpus import Gpu
    from replay.search.workload_draws import Drawing
    from traces import Trace
    from traces.console.options import AnswerForm

DEFAULT_RATE = 1.0
DEFAULT_NUM_REQUESTS = 4000
model_app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="What a model needs and what a GPU can give it."
)


@model_app.callback()
def _model() -> None:
    """Say what a model needs and what a GPU can give it."""


@model_app.command(epilog="Example: vtwin model info --model-config Qwen/Qwen3-14B --gpu H100 --tp 2")
@with_option_tables
def info(asked: InfoOptions) -> None:
    """Print weights, KV cache, num_gpu_blocks, the batch that saturates the GPU, and its roofline."""
    from replay.model.card import card, document
    from replay.model.gpu_memory import Serving, kv_cache_size
    from replay.model.gpus import find_gpu
    from replay.model.hf_config import read_model_config
    from replay.model.kernels.latent_kernels import check_block_size, served_on, usual_block_size
    from replay.twin.engine_defaults import batch_limits
    from sim import minor_version
    from traces import ConfigError

    shape = read_model_config(
        asked.model_config,
        kv_cache_dtype=asked.kv_cache_dtype,
        mamba_ssm_cache_dtype=asked.mamba_ssm_cache_dtype,
        dtype=asked.dtype,
        quantization=asked.quantization,
    )
    device = find_gpu(asked.gpu)
    if minor_version(asked.vllm_version) is None:
        raise ConfigError(f"--vllm-version: got {asked.vllm_version!r}, expected a version such as 0.32.0")
    shape = served_on(shape, device, tp=asked.tp, version=asked.vllm_version)
    if asked.block_size is not None:
        check_block_size(shape, asked.block_size, where="--block-size")
    seqs, tokens = batch_limits(device, vllm_version=asked.vllm_version)
    serving = Serving(
        gpu_memory_utilization=asked.gpu_memory_utilization,
        kv_cache_memory_bytes=asked.kv_cache_memory_bytes,
        block_size=asked.block_size or usual_block_size(shape, device, version=asked.vllm_version),
        max_num_batched_tokens=asked.max_num_batched_tokens or tokens,
        max_num_seqs=asked.max_num_seqs or seqs,
        vllm_version=asked.vllm_version,
        enforce_eager=asked.enforce_eager,
    )
    tp, pp = asked.tp, asked.pp
    capacity = kv_cache_size(shape, device, tp=tp, pp=pp, serving=serving)
    say_answer(
        lambda: document(shape, device, capacity, tp=tp, pp=pp),
        lambda: card(shape, device, capacity, tp=tp, pp=pp),
        asked.answer,
    )
    for note in shape.left_out:
        tell(f"note: {note}")


@model_app.command(
    epilog="Example: vtwin model compare --model-config Qwen/Qwen3-14B --gpus H100,L40S --slo ttft_p99=500ms --rate 5"
)
@with_code_option
@with_option_tables
@refusing(*NOT_FOR_A_COMPARISON)
def compare(workload: WorkloadOptions, asked: CompareOptions) -> None:
    """Compare GPUs for a model: does it fit, TTFT and TPOT at a rate, capacity, tokens per dollar.

    The load is one request per second unless --rate says otherwise, 4,000 requests; for the capacity more, where queues
    take longer to grow. Exit code 1 if it starts on none.
    """
    from replay.model.prices import list_price_notes, list_prices_per_hour, read_prices
    from replay.search.workload_draws import drawing_of, draws, options_at

    question = _question(workload, asked)
    servers = _servers(asked.gpus, asked.tp)
    costs = list_prices_per_hour() if asked.prices is None else read_prices(asked.prices)
    options = options_at(workload, rate=question.rate_per_s, num_requests=DEFAULT_NUM_REQUESTS)
    traces = draws(options, asked.seeds)
    takes_all = workload.num_requests is None and workload.trace is None
    for note in () if asked.prices is not None else list_price_notes(gpu.name for gpu, _ in servers):
        tell(f"note: {note}")
    drawing = drawing_of(options, seeds=asked.seeds) if takes_all else None
    results = _compared(servers, question, traces, costs, drawing=drawing)
    priced = "list prices" if asked.prices is None else str(asked.prices)
    _show_comparison(results, question, num_requests=len(traces[0]), priced=priced, how=asked.answer)
    if all(each.refusal for each in results):
        raise typer.Exit(ExitCode.NEGATIVE)


def _question(workload: WorkloadOptions, asked: CompareOptions) -> GpuQuestion:
    """Return what is simulated on each GPU, and within which limits. Raises ConfigError."""
    from replay.gpus.comparison import GpuQuestion
    from traces import parse_run_slo
    from traces.strict.tell import tell_note

    engine = {
        "max_model_len": asked.max_model_len,
        "max_num_seqs": asked.max_num_seqs,
        "max_num_batched_tokens": asked.max_num_batched_tokens,
    }
    return GpuQuestion(
        model_config=asked.model_config,
        latency_model=asked.latency_model,
        engine={key: value for key, value in engine.items() if value is not None},
        dtype=asked.dtype,
        kv_cache_dtype=asked.kv_cache_dtype,
        mamba_ssm_cache_dtype=asked.mamba_ssm_cache_dtype,
        quantization=asked.quantization,
        vllm_version=asked.vllm_version,
        checks_memory=asked.kv_check,
        rate_per_s=DEFAULT_RATE if workload.rate is None else workload.rate,
        limits=() if asked.slo is None else parse_run_slo(asked.slo, tell=tell_note),
    )


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
    asked: GpuQuestion,
    traces: Sequence[Trace],
    prices: Mapping[str, float],
    *,
    drawing: Drawing | None,
) -> list[GpuResult]:
    """Compare, with a line on stderr once it takes long."""
    from replay.console.progress import working
    from replay.console.ready import load_engine
    from replay.gpus.comparison import compare_gpus

    load_engine()
    with working(f"simulating {len(servers)} servers"):
        return compare_gpus(servers, asked, traces, prices=prices, drawing=drawing)


def _show_comparison(
    results: Sequence[GpuResult], asked: GpuQuestion, *, num_requests: int, priced: str, how: AnswerForm
) -> None:
    """Print the comparison on stdout."""
    from replay.gpus.text import gpus_document, gpus_parts

    say_answer(
        lambda: {
            **gpus_document(results, asked, num_requests=num_requests),
            "prices": _price_sources(results) if priced == "list prices" else priced,
        },
        lambda: gpus_parts(results, asked),
        how,
    )


def _price_sources(results: Sequence[GpuResult]) -> dict[str, str]:
    """Return the provider and the day of each GPU's list price."""
    from replay.model.prices import list_prices

    names = {each.gpu.name for each in results}
    return {name: price.source for name, price in list_prices().items() if name in names}
