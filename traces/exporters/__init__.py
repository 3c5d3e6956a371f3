"""Workloads for other tools: ``export(trace, "mooncake", path)`` writes what their replays read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from traces.errors import ConfigError
from traces.exporters.target import TARGET_FORMATS, TargetFormat

if TYPE_CHECKING:
    from traces.trace import Trace


def export(trace: Trace, target: TargetFormat, path: str | Path) -> Path:
    """Write the requests of ``trace`` to ``path`` in another tool's format; return the path.

    Raises ConfigError for an unknown format, TraceError for a trace that says no times (a closed loop) or no
    lengths, or a path that cannot be written.
    """
    from traces.exporters.formats import write_requests

    if target not in TARGET_FORMATS:
        raise ConfigError(f"--to: got {target!r}, expected one of {', '.join(TARGET_FORMATS)}")
    return write_requests(trace, target, Path(path))
