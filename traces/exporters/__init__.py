"""A trace for other tools: ``export(trace, "mooncake", path)`` writes what their replays or reports read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from traces.errors import ConfigError
from traces.exporters.target import TARGET_FORMATS, TargetFormat

if TYPE_CHECKING:
    from traces.trace import Trace


def export(trace: Trace, target: TargetFormat, path: str | Path) -> Path:
    """Write ``trace`` to ``path`` in another tool's format, whole or not at all; return the path.

    Raises ConfigError for an unknown format, a path that cannot be written or that has a trace's name, TraceError for a
    trace that lacks what the format says (times in a closed loop, lengths, outcomes).
    """
    from traces.atomic import atomic_file
    from traces.files.overwrite import refuse_name_of_trace

    if target not in TARGET_FORMATS:
        raise ConfigError(f"--to: got {target!r}, expected one of {', '.join(TARGET_FORMATS)}")
    out = Path(path)
    refuse_name_of_trace(out)
    text = _document(trace, target, out=out)
    with atomic_file(out, option="--output") as temporary:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
    return out


def _document(trace: Trace, target: TargetFormat, *, out: Path) -> str:
    if target in ("blis-simresult", "blis-metrics"):
        from traces.exporters.blis_results import blis_document

        return blis_document(trace, target, file=out)
    if target in ("vllm-bench-result", "guidellm-report", "genai-perf-summary"):
        from traces.exporters.results import result_document

        return result_document(trace, target)
    if target == "spec":
        from traces.exporters.specification import describe_as_specification

        return describe_as_specification(trace).text
    from traces.exporters.formats import requests_document

    return requests_document(trace, target)
