"""What ``--trace`` may name: a trace, or a file of requests in a public format that tells itself apart."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from traces.files.read import read_trace
from traces.importers import PublicFormat, read_public
from traces.trace import Trace

_HEADS: Final[dict[str, PublicFormat]] = {
    "TIMESTAMP,ContextTokens,GeneratedTokens": "azure",
    "Timestamp,Model,Request tokens,Response tokens": "burstgpt",
    "arrived_at,num_prefill_tokens,num_decode_tokens": "vidur",
    "num_prefill_tokens,num_decode_tokens": "vidur",
}
_LONGEST_HEAD: Final = 200


def read_recorded(path: Path) -> Trace:
    """Return the trace at ``path``, converted where it is an Azure, BurstGPT or Vidur CSV or a Mooncake JSONL file.

    Raises TraceError.
    """
    source = format_of(path)
    return read_trace(path, events=False) if source is None else read_public(source, path)


def format_of(path: Path) -> PublicFormat | None:
    """Return the public format of a file by its name or its first line, None where it looks like none."""
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return "mooncake"
    if path.suffix != ".csv" or not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(_LONGEST_HEAD)
    line = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return next((source for start, source in _HEADS.items() if line.startswith(start)), None)
