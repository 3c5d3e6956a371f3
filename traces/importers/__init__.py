"""Public formats of recorded requests brought to TraceV2: ``read_public("azure", path)``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from traces.errors import TraceError

if TYPE_CHECKING:
    from traces.trace import Trace

PublicFormat = Literal[
    "azure",
    "mooncake",
    "llmservingsim",
    "burstgpt",
    "vllm-bench",
    "aiperf",
    "guidellm",
    "vidur",
    "tracev2",
]


def read_public(source: PublicFormat, path: str | Path, *, part: int | None = None) -> Trace:
    """Return the trace that ``path`` holds in the named public format; ``tracev2`` just reads one.

    ``part``: which of several runs in one file (guidellm). Raises TraceError, naming file and line or row, for what
    the format does not allow or no trace may hold.
    """
    trace = read_typed(_reader(source, part=part), Path(path))
    check_converted(trace, Path(path))
    return trace


def read_typed(read: Callable[[Path], Trace], path: Path) -> Trace:
    """Return what a reader makes of a file. Raises TraceError, too, for a cell that does not fit its column."""
    from traces.trace import UnfitColumn

    try:
        return read(path)
    except UnfitColumn as error:
        raise TraceError(f"{error} ({path})") from error


def check_converted(trace: Trace, path: Path) -> None:
    """Raise TraceError where a converted trace holds what no trace may, naming the row."""
    from traces.tables.problems import refuse
    from traces.tables.rules import request_findings

    refuse([], request_findings(trace.requests, trace.header, file=path.name))


def _reader(source: PublicFormat, *, part: int | None) -> Callable[[Path], Trace]:
    from traces.files.read import read_trace
    from traces.importers.aiperf import read_aiperf
    from traces.importers.azure import read_azure
    from traces.importers.burstgpt import read_burstgpt
    from traces.importers.guidellm import read_guidellm
    from traces.importers.llmservingsim import read_llmservingsim
    from traces.importers.mooncake import read_mooncake
    from traces.importers.vidur import read_vidur
    from traces.importers.vllmbench import read_vllm_bench

    readers: dict[PublicFormat, Callable[[Path], Trace]] = {
        "azure": read_azure,
        "mooncake": read_mooncake,
        "llmservingsim": read_llmservingsim,
        "burstgpt": read_burstgpt,
        "vllm-bench": read_vllm_bench,
        "aiperf": read_aiperf,
        "guidellm": partial(read_guidellm, part=part),
        "vidur": read_vidur,
        "tracev2": read_trace,
    }
    return readers[source]
