"""Which tool wrote a file, told by its content: the keys of its first line or document, the columns of its header.

A file of figures without requests, or of texts without lengths, is told apart here, too: its refusal names the file or
the flag that has them.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from traces.errors import TraceError
from traces.importers import PublicFormat

if TYPE_CHECKING:
    from traces.importers.without_requests import Aggregate

_HEAD_BYTES: Final = 65_536
"""The bytes of a file that show which tool wrote it."""
_GZIP: Final = b"\x1f\x8b"
_SUFFIXES: Final = (".csv", ".json", ".json.gz", ".jsonl", ".jsonl.gz", ".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """What shows a format: all of ``has`` are keys (or columns) of the file, and none of ``lacks`` is."""

    format: PublicFormat
    has: tuple[str, ...]
    lacks: tuple[str, ...] = ()


_OTHERS: Final = ("sharegpt_output_len", "total_output_tokens_retokenized", "run_number")
"""Keys of results that only look like vllm bench's: sglang's, and the summary of a sweep."""

COLUMNS: Final = (
    Sign(format="azure", has=("TIMESTAMP", "ContextTokens", "GeneratedTokens")),
    Sign(format="burstgpt", has=("Timestamp", "Request tokens", "Response tokens")),
    Sign(format="vidur", has=("num_prefill_tokens", "num_decode_tokens")),
)
"""Signs of a CSV: columns of its header, in any order."""

LINES: Final = (
    Sign(format="otel", has=("resourceSpans",)),
    Sign(format="aiperf", has=("metadata", "metrics")),
    Sign(format="sglang-bench", has=("input_lens", "output_lens", "sharegpt_output_len")),
    Sign(format="sglang-bench", has=("input_lens", "output_lens", "total_output_tokens_retokenized")),
    Sign(format="vllm-bench", has=("input_lens", "ttfts")),
    Sign(format="bailian", has=("chat_id", "input_length", "output_length")),
    Sign(format="mooncake", has=("input_length", "output_length")),
    Sign(format="llmservingsim", has=("input_toks", "output_toks")),
)
"""Signs of JSON lines: keys of the first of them."""

DOCUMENTS: Final = (
    Sign(format="otel", has=("resourceSpans",)),
    Sign(format="weka", has=("block_size", "requests", "hash_ids")),
    Sign(format="guidellm", has=("benchmarks",)),
    Sign(format="genai-perf", has=("experiments", "response_timestamps")),
    Sign(format="genai-bench", has=("individual_request_metrics", "aggregated_metrics")),
    Sign(format="inference-perf", has=("start_time", "end_time", "info", "input_tokens")),
    Sign(format="inference-perf", has=("start_time", "end_time", "info", "response_metrics")),
    Sign(format="llmperf", has=("ttft_s", "end_to_end_latency_s", "number_input_tokens")),
    Sign(format="sglang-bench", has=("input_lens", "output_lens", "sharegpt_output_len")),
    Sign(format="sglang-bench", has=("input_lens", "output_lens", "total_output_tokens_retokenized")),
    Sign(format="vllm-bench", has=("input_lens", "ttfts")),
    Sign(format="vllm-bench", has=("mean_ttft_ms", "request_throughput"), lacks=_OTHERS),
    Sign(format="vllm-bench", has=("request_throughput", "total_input_tokens"), lacks=_OTHERS),
    Sign(format="vllm-bench", has=("mean_ttft_ms", "completed"), lacks=_OTHERS),
)
"""Signs of one JSON document: its keys."""


def recognised(path: Path) -> PublicFormat | None:
    """Return the public format of a file by its content, None if it looks like none (a trace's own files do).

    Raises TraceError for a file of a known tool that holds no requests; it names the one that does.
    """
    if not path.name.endswith(_SUFFIXES) or not path.is_file():
        return None
    if path.suffix in (".yaml", ".yml"):
        return "guidellm" if _is_guidellm_yaml(_head(path)) else None
    if path.suffix == ".csv":
        columns = _columns(_head(path))
        found = _first(COLUMNS, columns)
        if found is None:
            _refuse_aggregate(path, columns, is_table=True)
        return found
    head = _head(path).lstrip(b"\xef\xbb\xbf \t\r\n")
    first, _, rest = head.partition(b"\n")
    is_lines = path.name.endswith((".jsonl", ".jsonl.gz")) or (
        first.rstrip().endswith(b"}") and rest.lstrip().startswith(b"{")
    )
    text = first if is_lines else _whole(path)
    if is_lines and not rest and len(head) >= _HEAD_BYTES:  # a first line longer than the head
        text = _whole(path).partition(b"\n")[0]
    keys = _Keys(text)
    found = _first(LINES if is_lines else DOCUMENTS, keys)
    if found is None:
        _refuse_aggregate(path, keys, is_table=False)
    return found


class _Keys:
    """The keys of JSON text; a text may hold any of them at any depth."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def __contains__(self, key: object) -> bool:
        return b'"%s"' % str(key).encode() in self._text


def _first(signs: tuple[Sign, ...], keys: _Keys | set[str]) -> PublicFormat | None:
    return next((sign.format for sign in signs if _fits(sign, keys)), None)


def _fits(sign: Sign | Aggregate, keys: _Keys | set[str]) -> bool:
    return all(key in keys for key in sign.has) and not any(key in keys for key in sign.lacks)


def _refuse_aggregate(path: Path, keys: _Keys | set[str], *, is_table: bool) -> None:
    """Raise TraceError for a file of a known tool that holds no requests."""
    from traces.importers.without_requests import FIGURES, TABLES, TEXTS

    known = TABLES if is_table else (*FIGURES, *TEXTS)
    found = next((each for each in known if _fits(each, keys)), None)
    if found is not None:
        raise TraceError(
            f"{path}: got {found.what}: not a known format of requests. {found.instead[:1].upper()}{found.instead[1:]}"
        )


def _head(path: Path) -> bytes:
    """Return the beginning of a file, unpacked where it is gzip's. Raises TraceError if it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if head[:2] == _GZIP:
            with gzip.open(path) as unpacked:
                head = unpacked.read(_HEAD_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return b""  # damaged: its reader says so
    except OSError as error:
        raise TraceError(f"{path}: got {error.strerror}, expected a readable file") from error
    return head


def _whole(path: Path) -> bytes:
    from traces.strict.json_text import read_bytes

    return read_bytes(path, expected="a readable file")


def _columns(head: bytes) -> set[str]:
    """Return the names in the first line of a CSV."""
    line = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode("utf-8", "replace")
    try:
        return {name.strip() for row in csv.reader(io.StringIO(line)) for name in row}
    except csv.Error:
        return set()


def _is_guidellm_yaml(head: bytes) -> bool:
    """Return whether a YAML file has guidellm's list of benchmarks: a key at the margin."""
    return any(line.startswith(b"benchmarks:") for line in head.splitlines())
