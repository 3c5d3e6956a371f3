"""The files that ``--trace`` may name: a trace, or a file of requests in a recognisable public format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from traces.errors import TraceError
from traces.importers import PublicFormat, read_public
from traces.tables.paths import companion_file, stem_of
from traces.tables.problems import Problem
from traces.trace import Trace

_HEADS: Final[dict[str, PublicFormat]] = {
    "TIMESTAMP,ContextTokens,GeneratedTokens": "azure",
    "Timestamp,Model,Request tokens,Response tokens": "burstgpt",
    "arrived_at,num_prefill_tokens,num_decode_tokens": "vidur",
    "num_prefill_tokens,num_decode_tokens": "vidur",
}


_HEAD_BYTES: Final = 65_536
"""The bytes of a JSON file that show which tool wrote it."""
_SPANS: Final = '"resourceSpans"'
_NEAR: Final = 64
"""The same in characters for OTLP, whose only key is at the beginning."""
_VLLM_BENCH: Final = (
    ('"input_lens"', '"ttfts"'),
    ('"mean_ttft_ms"',),
    ('"request_throughput"', '"total_input_tokens"'),
)
"""The keys of a result of vllm bench: all of one of these sets. Only --save-detailed saves the first."""


def read_recorded(path: Path, *, events: bool = False) -> Trace:
    """Return the trace at ``path``, converted if it is a file of another tool in a recognisable format.

    These are CSVs of Azure, BurstGPT and Vidur, Mooncake's and aiperf's JSONL, results of vllm bench and guidellm,
    spans of OpenTelemetry.
    ``events``: also the times of tokens, where a trace has them. Raises TraceError, which for another file names the
    command that converts.
    """
    source = format_of(path)
    if source is not None:
        return read_public(source, path)
    from traces.files.read import read_trace

    with telling_formats(path):
        return read_trace(path, events=events)


def check_recorded(path: Path) -> list[Problem]:
    """Return all faults of a trace; none for a file in a public format that can be converted.

    Raises TraceError if there is no trace to check, and for a public file its first fault.
    """
    source = format_of(path)
    if source is not None:
        read_public(source, path)
        return []
    from traces.files.check import check_trace

    with telling_formats(path):
        return check_trace(path)


@contextmanager
def telling_formats(path: Path) -> Iterator[None]:
    """Make an error on reading ``path`` as a trace name the command that converts, if it is a file of another kind.

    Raises TraceError.
    """
    try:
        yield
    except TraceError as error:
        if path.suffix not in (".csv", ".json", ".jsonl") or not path.is_file() or has_header(path):
            raise
        raise TraceError(
            f"{path}: got a file that is neither a trace nor of a known format, expected one of them; "
            f"`vtwin trace convert {path} --from FORMAT --output STEM` reads a format that you name"
        ) from error


def has_header(path: Path) -> bool:
    """Return whether there is a trace's header beside a table."""
    return companion_file(stem_of(path), ".yaml").is_file()


def format_of(path: Path) -> PublicFormat | None:
    """Return the public format of a file by its name or its beginning, None if it looks like none."""
    if path.name.endswith(".jsonl.gz"):
        return "mooncake"
    if path.suffix not in (".csv", ".json", ".jsonl") or not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    if path.suffix == ".csv":
        return next((source for start, source in _HEADS.items() if head.startswith(start)), None)
    if _SPANS in head[:_NEAR]:
        return "otel"
    if path.suffix == ".jsonl":
        line = head.partition("\n")[0]
        return "aiperf" if '"metadata"' in line and '"metrics"' in line else "mooncake"
    return _of_json(path, head)


def _of_json(path: Path, head: str) -> PublicFormat | None:
    """Return the format of a JSON document by its beginning."""
    if '"benchmarks"' in head:
        return "guidellm"
    return "vllm-bench" if _is_vllm_bench(path, head) else None


def _is_vllm_bench(path: Path, head: str) -> bool:
    """Return whether a JSON file is a result of vllm bench, detailed or not: its lists may be far from the beginning.

    A result without its requests' times counts, so that the format's reader reports what is missing.
    """
    if not head.lstrip().startswith("{"):
        return False
    text = path.read_text(encoding="utf-8", errors="replace")
    return any(all(key in text for key in keys) for keys in _VLLM_BENCH)
