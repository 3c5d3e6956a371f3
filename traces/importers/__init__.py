"""Public trace formats brought to TraceV2: ``convert("azure", path)``, and so for every ``SourceFormat``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from traces.errors import ConfigError

if TYPE_CHECKING:
    from traces.importers.servegen import Cut
    from traces.trace import Trace

SourceFormat = Literal[
    "azure",
    "mooncake",
    "llmservingsim",
    "burstgpt",
    "servegen",
    "vllm-bench",
    "aiperf",
    "guidellm",
    "tracev2",
]
SOURCE_FORMATS: Final = get_args(SourceFormat)


def convert(
    source: SourceFormat, path: str | Path, *, part: int | None = None, cut: Cut | None = None
) -> Trace:
    """Return the trace that ``path`` holds in the named public format; ``tracev2`` just reads one.

    ``part``: which of several runs in one file (guidellm). ``cut``: what is drawn from data that are no request
    logs (servegen). Raises TraceError, naming file and line or row, for what the format does not allow or no
    trace may hold; ConfigError for an unknown format.
    """
    from traces.problems import refuse
    from traces.rules import request_findings

    if source not in SOURCE_FORMATS:
        raise ConfigError(f"--from: got {source!r}, expected one of {', '.join(SOURCE_FORMATS)}")
    if part is not None and source != "guidellm":
        raise ConfigError(f"--part: got it beside --from {source}, expected --from guidellm")
    if cut is not None and source != "servegen":
        raise ConfigError(
            f"--start, --duration, --rate-scale, --seed: got them beside --from {source}, expected --from servegen"
        )
    trace = _reader(source, part=part, cut=cut)(Path(path))
    refuse([], request_findings(trace.requests, trace.header, file=Path(path).name))
    return trace


def _reader(source: SourceFormat, *, part: int | None, cut: Cut | None) -> Callable[[Path], Trace]:
    from traces.importers.aiperf import read_aiperf
    from traces.importers.azure import read_azure
    from traces.importers.burstgpt import read_burstgpt
    from traces.importers.guidellm import read_guidellm
    from traces.importers.llmservingsim import read_llmservingsim
    from traces.importers.mooncake import read_mooncake
    from traces.importers.servegen import read_servegen
    from traces.importers.vllmbench import read_vllm_bench
    from traces.read import read_trace

    readers: dict[SourceFormat, Callable[[Path], Trace]] = {
        "azure": read_azure,
        "mooncake": read_mooncake,
        "llmservingsim": read_llmservingsim,
        "burstgpt": read_burstgpt,
        "vllm-bench": read_vllm_bench,
        "aiperf": read_aiperf,
        "guidellm": partial(read_guidellm, part=part),
        "servegen": partial(read_servegen, cut=cut),
        "tracev2": read_trace,
    }
    return readers[source]
