"""A model on several GPUs, as a function; ``vtwin model compare`` prints what it returns.

It takes the command's table of options, which needs no command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from lazy_dataclasses import dataclass

from replay.console.ready import load_engine
from replay.gpus.comparison import GpuQuestion, GpuResult, compared_gpus
from replay.gpus.options import MOST_GPUS, GpuCompareOptions
from replay.gpus.text import entry_of, gpus_parts
from replay.model.gpus import Gpu, find_gpu
from replay.model.prices import list_price_notes, list_prices, list_prices_per_hour, read_prices
from replay.numbers.argument_ranges import WORKLOAD
from replay.search.workload_draws import drawing_of, draws, options_at
from traces import ConfigError, parse_run_slo, tool_version
from traces.facts import terminal_lines
from traces.strict.arguments import OfClass, takes
from traces.workload import WorkloadOptions

SCHEMA_VERSION = 1
DEFAULT_RATE = 1.0
DEFAULT_NUM_REQUESTS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedGpus:
    """One model on several GPUs. ``num_requests``: of each draw; ``prices``: where they are from."""

    results: tuple[GpuResult, ...]
    asked: GpuQuestion
    num_requests: int
    prices: Mapping[str, str] | str

    def document(self) -> dict[str, object]:
        """Return what ``vtwin model compare --json`` prints; rates in requests/s, times in µs."""
        return {
            "schema_version": SCHEMA_VERSION,
            "tool_version": tool_version(),
            "model_config": self.asked.model_config,
            "latency_model": self.asked.latency_model,
            "rate": self.asked.rate_per_s,
            "slo_us": {each.name: each.limit_us for each in self.asked.limits},
            "num_requests": self.num_requests,
            "gpus": [entry_of(each, self.asked) for each in self.results],
            "prices": self.prices,
        }

    def __str__(self) -> str:
        """Return what the terminal shows."""
        return "\n".join(terminal_lines(gpus_parts(self.results, self.asked), width=None))


@takes(workload=WORKLOAD, asked=OfClass(("GpuCompareOptions",), "GpuCompareOptions"))
def compare_gpus(
    workload: WorkloadOptions, asked: GpuCompareOptions, *, tell: Callable[[str], None] = lambda _: None
) -> ComparedGpus:
    """Return one model on several GPUs: does it fit, TTFT and TPOT at a rate, capacity, tokens per price.

    ``workload``: its rate is the load, 1 request/s where it has none. ``tell`` is called with each note. Raises
    ConfigError where the model or the load is wrong, whatever the GPU.
    """
    question, servers = question_of(workload, asked, tell=tell), servers_of(asked.gpus, asked.tp)
    costs = list_prices_per_hour() if asked.prices is None else read_prices(asked.prices)
    options = options_at(workload, rate=question.rate_per_s, num_requests=DEFAULT_NUM_REQUESTS)
    traces = draws(options, asked.seeds)
    takes_all = workload.num_requests is None and workload.trace is None
    for note in () if asked.prices is not None else list_price_notes(gpu.name for gpu, _ in servers):
        tell(note)
    drawing = drawing_of(options, seeds=asked.seeds) if takes_all else None
    load_engine()
    results = compared_gpus(servers, question, traces, prices=costs, drawing=drawing)
    names = {each.gpu.name for each in results}
    listed = {name: price.source for name, price in list_prices().items() if name in names}
    return ComparedGpus(
        results=tuple(results),
        asked=question,
        num_requests=len(traces[0]),
        prices=listed if asked.prices is None else str(asked.prices),
    )


def question_of(
    workload: WorkloadOptions, asked: GpuCompareOptions, *, tell: Callable[[str], None]
) -> GpuQuestion:
    """Return what is simulated on each GPU, and within which limits. Raises ConfigError."""
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
        limits=() if asked.slo is None else parse_run_slo(asked.slo, tell=tell),
    )


def servers_of(gpus: str, tp: str) -> list[tuple[Gpu, int]]:
    """Return every GPU with every number of them. Raises ConfigError."""
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
