"""Public formats of recorded requests brought to TraceV2: ``read_public("azure", path)``.

One table says which formats there are, who reads each, and what can be said of a file of it. ``recorded`` is the door
through which every command reads; ``recognise`` tells a file's format from its content.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from traces.errors import ConfigError, TraceError
from traces.importers.reading_options import ReadingOptions

if TYPE_CHECKING:
    from traces.trace import Trace

PublicFormat = Literal[
    "azure",
    "mooncake",
    "llmservingsim",
    "burstgpt",
    "bailian",
    "vllm-bench",
    "sglang-bench",
    "aiperf",
    "guidellm",
    "genai-perf",
    "genai-bench",
    "inference-perf",
    "llmperf",
    "vidur",
    "weka",
    "otel",
    "tracev2",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who reads a format: a module below ``traces`` and its function, imported when a file of it is read.

    ``takes``: options of ``ReadingOptions`` that the function has as keywords.
    """

    module: str
    function: str
    takes: tuple[str, ...] = ()


_BENCHMARKS: Final = "importers.benchmarks"

READERS: Final[dict[PublicFormat, Reader]] = {
    "azure": Reader(module="importers.logs.azure", function="read_azure"),
    "mooncake": Reader(
        module="importers.mooncake", function="read_mooncake", takes=("block_size", "time_unit")
    ),
    "llmservingsim": Reader(module="importers.simulators.llmservingsim", function="read_llmservingsim"),
    "burstgpt": Reader(module="importers.logs.burstgpt", function="read_burstgpt"),
    "bailian": Reader(
        module="importers.logs.bailian", function="read_bailian", takes=("block_size", "time_unit")
    ),
    "vllm-bench": Reader(module=f"{_BENCHMARKS}.vllmbench", function="read_vllm_bench", takes=("part",)),
    "sglang-bench": Reader(module=f"{_BENCHMARKS}.vllmbench", function="read_sglang_bench", takes=("part",)),
    "aiperf": Reader(module=f"{_BENCHMARKS}.aiperf", function="read_aiperf"),
    "guidellm": Reader(module=f"{_BENCHMARKS}.guidellm", function="read_guidellm", takes=("part",)),
    "genai-perf": Reader(module=f"{_BENCHMARKS}.genaiperf", function="read_genai_perf", takes=("part",)),
    "genai-bench": Reader(module=f"{_BENCHMARKS}.genaibench", function="read_genai_bench"),
    "inference-perf": Reader(module=f"{_BENCHMARKS}.inferenceperf", function="read_inference_perf"),
    "llmperf": Reader(module=f"{_BENCHMARKS}.llmperf", function="read_llmperf"),
    "vidur": Reader(module="importers.simulators.vidur", function="read_vidur"),
    "weka": Reader(module="importers.weka", function="read_weka"),
    "otel": Reader(module="importers.otel", function="read_otel"),
    "tracev2": Reader(module="files.read", function="read_trace"),
}


def read_public(source: PublicFormat, path: str | Path, *, options: ReadingOptions | None = None) -> Trace:
    """Return the trace that ``path`` holds in the named public format; ``tracev2`` just reads one.

    Raises TraceError, naming file and line or row, for content that the format or a trace does not allow; ConfigError
    for an option that the format does not take.
    """
    options = options or ReadingOptions()
    trace = read_typed(_reader(source, options, path=Path(path)), Path(path))
    if trace.header.source is not None and options.part is not None:
        trace = trace.with_header(source=replace(trace.header.source, part=options.part))
    check_converted(trace, Path(path))
    return trace


def read_typed(read: Callable[[Path], Trace], path: Path) -> Trace:
    """Return a reader's trace of a file, another tool's names kept short.

    Raises TraceError, too, for a cell that does not fit its column.
    """
    from traces.importers.short_names import with_short_names
    from traces.tables.cells import UnfitColumn

    try:
        trace = read(path)
        return trace if trace.header.source is None else with_short_names(trace)
    except UnfitColumn as error:
        raise TraceError(f"{error} ({path})") from error


def check_converted(trace: Trace, path: Path) -> None:
    """Raise TraceError, naming the row, if a converted trace breaks a rule of traces."""
    from traces.tables.problems import refuse
    from traces.tables.rules import request_findings

    refuse([], request_findings(trace.table, trace.header, file=path.name))


def _reader(source: PublicFormat, options: ReadingOptions, *, path: Path) -> Callable[[Path], Trace]:
    reader = READERS[source]
    for name in options.given():
        if name not in reader.takes:
            able = ", ".join(each for each, it in READERS.items() if name in it.takes)
            raise ConfigError(
                f"{options.option(name)}: got a file of the format {source}, expected one of {able} ({path})"
            )
    function = getattr(import_module(f"traces.{reader.module}"), reader.function)
    return partial(function, **options.given()) if reader.takes else function
