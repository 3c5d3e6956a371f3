"""Public formats of recorded requests brought to TraceV2: ``read_public("azure", path)``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

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
    "weka",
    "otel",
    "tracev2",
]


# format: its module and function, imported when a file of this format is read: some take pandas with them.
_READERS: Final[dict[PublicFormat, tuple[str, str]]] = {
    "azure": ("importers.azure", "read_azure"),
    "mooncake": ("importers.mooncake", "read_mooncake"),
    "llmservingsim": ("importers.llmservingsim", "read_llmservingsim"),
    "burstgpt": ("importers.burstgpt", "read_burstgpt"),
    "vllm-bench": ("importers.vllmbench", "read_vllm_bench"),
    "aiperf": ("importers.aiperf", "read_aiperf"),
    "guidellm": ("importers.guidellm", "read_guidellm"),
    "vidur": ("importers.vidur", "read_vidur"),
    "weka": ("importers.weka", "read_weka"),
    "otel": ("importers.otel", "read_otel"),
    "tracev2": ("files.read", "read_trace"),
}


def read_public(source: PublicFormat, path: str | Path, *, part: int | None = None) -> Trace:
    """Return the trace that ``path`` holds in the named public format; ``tracev2`` just reads one.

    ``part``: which of several runs in one file (guidellm). Raises TraceError, naming file and line or row, for content
    that the format or a trace does not allow.
    """
    trace = read_typed(_reader(source, part=part), Path(path))
    check_converted(trace, Path(path))
    return trace


def read_typed(read: Callable[[Path], Trace], path: Path) -> Trace:
    """Return a reader's trace of a file. Raises TraceError, too, for a cell that does not fit its column."""
    from traces.tables.cells import UnfitColumn

    try:
        return read(path)
    except UnfitColumn as error:
        raise TraceError(f"{error} ({path})") from error


def check_converted(trace: Trace, path: Path) -> None:
    """Raise TraceError, naming the row, if a converted trace breaks a rule of traces."""
    from traces.tables.problems import refuse
    from traces.tables.rules import request_findings

    refuse([], request_findings(trace.table, trace.header, file=path.name))


def _reader(source: PublicFormat, *, part: int | None) -> Callable[[Path], Trace]:
    module, name = _READERS[source]
    reader = getattr(import_module(f"traces.{module}"), name)
    read: Callable[[Path], Trace] = partial(reader, part=part) if source == "guidellm" else reader
    return read
