"""Public trace formats brought to TraceV2: ``convert("azure" | "mooncake" | "llmservingsim", path)``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from traces.errors import ConfigError

if TYPE_CHECKING:
    from traces.trace import Trace

SourceFormat = Literal["azure", "mooncake", "llmservingsim", "burstgpt", "vllm-bench", "aiperf", "tracev2"]
SOURCE_FORMATS: Final = ("azure", "mooncake", "llmservingsim", "burstgpt", "vllm-bench", "aiperf", "tracev2")


def convert(source: SourceFormat, path: str | Path) -> Trace:
    """Return the trace that ``path`` holds in the named public format; ``tracev2`` just reads one.

    Raises TraceError, naming file and line or row, for what the format does not allow or no trace may hold;
    ConfigError for an unknown format.
    """
    from traces.problems import refuse
    from traces.rules import request_findings

    if source not in SOURCE_FORMATS:
        raise ConfigError(f"--from: got {source!r}, expected one of {', '.join(SOURCE_FORMATS)}")
    trace = _reader(source)(Path(path))
    refuse([], request_findings(trace.requests, trace.header, file=Path(path).name))
    return trace


def _reader(source: SourceFormat) -> Callable[[Path], Trace]:
    from traces.importers.aiperf import read_aiperf
    from traces.importers.azure import read_azure
    from traces.importers.burstgpt import read_burstgpt
    from traces.importers.llmservingsim import read_llmservingsim
    from traces.importers.mooncake import read_mooncake
    from traces.importers.vllmbench import read_vllm_bench
    from traces.read import read_trace

    return {
        "azure": read_azure,
        "mooncake": read_mooncake,
        "llmservingsim": read_llmservingsim,
        "burstgpt": read_burstgpt,
        "vllm-bench": read_vllm_bench,
        "aiperf": read_aiperf,
        "tracev2": read_trace,
    }[source]
