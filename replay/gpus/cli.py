"""``vtwin model``: what is known of a model and a GPU before anything is measured."""

from __future__ import annotations

import typer

from replay.gpus.options import GpuCompareOptions, ModelInfoOptions
from replay.search.searched_rate import NOT_FOR_A_COMPARISON
from replay.twin.own.own_code import with_code_option
from traces import ExitCode
from traces.facts import say_answer
from traces.strict.option_table import refusing, with_option_tables
from traces.strict.tell import tell
from traces.workload import WorkloadOptions

model_app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="What a model needs and what a GPU can give it."
)


@model_app.callback()
def _model() -> None:
    """Say what a model needs and what a GPU can give it."""


@model_app.command(epilog="Example: vtwin model info --model-config Qwen/Qwen3-14B --gpu H100 --tp 2")
@with_option_tables
def info(asked: ModelInfoOptions) -> None:
    """Print weights, KV cache, num_gpu_blocks, the batch that saturates the GPU, and its roofline."""
    from replay.gpus.model_card import model_card

    found = model_card(asked)
    say_answer(found.document, lambda: found.parts, asked.answer)
    for note in found.shape.left_out:
        tell(f"note: {note}")


@model_app.command(
    epilog="Example: vtwin model compare --model-config Qwen/Qwen3-14B --gpus H100,L40S --slo ttft_p99=500ms --rate 5"
)
@with_code_option
@with_option_tables
@refusing(*NOT_FOR_A_COMPARISON)
def compare(workload: WorkloadOptions, asked: GpuCompareOptions) -> None:
    """Compare GPUs for a model: does it fit, TTFT and TPOT at a rate, capacity, tokens per dollar.

    The load is one request per second unless --rate says otherwise, 4,000 requests; for the capacity more, where queues
    take longer to grow. Exit code 1 if it starts on none.
    """
    from replay.console.progress import working
    from replay.gpus.question import compare_gpus, servers_of
    from replay.gpus.text import gpus_parts
    from traces.strict.tell import tell_note

    with working(f"simulating {len(servers_of(asked.gpus, asked.tp))} servers"):
        found = compare_gpus(workload, asked, tell=tell_note)
    say_answer(found.document, lambda: gpus_parts(found.results, found.asked), asked.answer)
    if all(each.refusal for each in found.results):
        raise typer.Exit(ExitCode.NEGATIVE)
