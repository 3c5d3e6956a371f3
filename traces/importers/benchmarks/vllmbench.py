"""Result files of ``vllm bench serve --save-result --save-detailed``, and sglang's like them: observed traces.

Source of the format: vllm 0.32.0 benchmarks/serve.py: parallel lists ``input_lens``, ``output_lens``, ``ttfts`` and
``itls`` (s), ``errors``, and since 2025 ``start_times`` (s of a monotonic clock). A gap of ``itls`` is between two
events, whatever tokens they carry. ``--append-result`` writes a further result on a line of its own. sglang's
``bench_serving --output-details`` has the same lists, in a file of JSON lines, and no ``start_times``.
"""

from __future__ import annotations

import re
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traces.errors import TraceError
from traces.header import ClientInfo, Header, ServerInfo, Source, loop_of
from traces.importers.benchmarks.failed_requests import assumed_length, only_length
from traces.importers.noted import left_out
from traces.importers.reading_options import number_of_part
from traces.strict.json_text import finite, parse_value, read_bytes
from traces.strict.limits import MOST_S
from traces.trace import Trace, make_trace

_BETWEEN: Final = re.compile(rb"\}\s*\{")
"""What stands between two results that ``--append-result`` wrote, in versions without an end of line. A text in the
file may have it too: then its pieces are no JSON, which is said."""
_LISTS: Final = ("input_lens", "output_lens", "ttfts", "itls", "errors")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    """Who wrote a result: its name, its format's, and the command whose results have requests."""

    name: str
    format: str
    hint: str


_VLLM: Final = _Tool(
    name="vllm bench serve",
    format="vllm-bench",
    hint="expected a result of vllm bench serve --save-result --save-detailed",
)
_SGLANG: Final = _Tool(
    name="sglang.bench_serving",
    format="sglang-bench",
    hint="expected a result of sglang.bench_serving --output-details",
)


def read_vllm_bench(path: Path, *, part: int | None = None) -> Trace:
    """Return the observed trace in this JSON file, of its ``part``-th result (from 1) where it has several.

    Without ``start_times`` the load is not known (``Source.load_unknown``): every request stands at 0, and latencies
    alone hold. A failed request has no times; its answer would have been as long as the others' where all are equally
    long, else its length is unknown. Raises TraceError that names the key.
    """
    return _read(path, _VLLM, part=part)


def read_sglang_bench(path: Path, *, part: int | None = None) -> Trace:
    """Return the observed trace in a result of sglang.bench_serving, as ``read_vllm_bench`` does."""
    return _read(path, _SGLANG, part=part)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """A result's requests: its lists by name, which failed, and when each was sent (s), None where none is known.

    ``num_untimed``: failed requests that are left out, since they have no time where others have one.
    """

    lists: dict[str, list[Any]]
    failed: NDArray[np.bool_]
    starts_s: NDArray[np.float64] | None
    num_untimed: int

    def __len__(self) -> int:
        return len(self.failed)


def _read(path: Path, tool: _Tool, *, part: int | None) -> Trace:
    results = _results(path, tool)
    result = results[number_of_part(part, [_describe(each) for each in results], what="results", path=path)]
    rows = _rows(result, tool, file=path.name)
    lists, failed, number = rows.lists, rows.failed, len(rows)
    starts = np.zeros(number) if rows.starts_s is None else rows.starts_s
    send = _us(starts - starts.min(), file=path.name, name="start_times")
    first = send + _us(lists["ttfts"], file=path.name, name="ttfts")
    gaps = [_us(row, file=path.name, name="itls") for row in lists["itls"]]
    last = first + np.array([int(row.sum()) for row in gaps], dtype=np.int64)
    asked = only_length(lists["output_lens"], list(~failed))
    return make_trace(
        _header(result, path, rows=rows, tool=tool, asked=asked if failed.any() else None),
        {
            "request_id": [str(row) for row in range(number)],
            "streaming": True,
            "input_tokens": lists["input_lens"],
            "output_tokens": [
                None if bad else n for n, bad in zip(lists["output_lens"], failed, strict=True)
            ],
            "max_tokens": [asked if bad else None for bad in failed] if asked is not None else None,
            "arrival_time_us": send,
            "send_time_us": send,
            "content_first_time_us": _unless(failed, first),
            "last_token_time_us": _unless(failed, last),
            "num_token_chunks": [0 if bad else len(row) + 1 for row, bad in zip(gaps, failed, strict=True)],
            "status": ["error" if bad else "ok" for bad in failed],
            "error_message": [
                _message(error) if bad else None for error, bad in zip(lists["errors"], failed, strict=True)
            ],
        },
        events=_events(first, gaps, failed=failed),
    )


def _rows(result: dict[str, Any], tool: _Tool, *, file: str) -> _Rows:
    """Return a result's requests. Raises TraceError for lists that are missing or of different lengths."""
    lists = {name: _list(result, name, tool=tool, file=file) for name in _LISTS}
    number = len(lists["input_lens"])
    uneven = next((name for name, values in lists.items() if len(values) != number), None)
    if uneven is not None:
        raise TraceError(f"{uneven}: got {len(lists[uneven])} entries, expected {number} ({file})")
    failed = _failed(lists)
    starts = _starts(result, number, tool=tool, file=file)
    if starts is None:
        return _Rows(lists=lists, failed=failed, starts_s=None, num_untimed=0)
    kept = ~(failed & (starts == 0)) | bool((starts == 0).all())
    return _Rows(
        lists={
            name: [it for it, stays in zip(cells, kept, strict=True) if stays]
            for name, cells in lists.items()
        },
        failed=failed[kept],
        starts_s=starts[kept],
        num_untimed=int((~kept).sum()),
    )


def _failed(lists: dict[str, list[Any]]) -> NDArray[np.bool_]:
    """Return which requests have no whole answer: an error, or no token and no first token's time."""
    rows = zip(lists["errors"], lists["output_lens"], lists["ttfts"], strict=True)
    return np.array([bool(error) or (not tokens and not ttft) for error, tokens, ttft in rows], dtype=bool)


def _message(error: object) -> str:
    return (str(error or "").strip() or "no answer was recorded").splitlines()[-1]


def _unless(failed: NDArray[np.bool_], times: NDArray[np.int64]) -> pd.Series[Any]:
    return pd.Series(times, dtype="Int64").mask(failed)


def _results(path: Path, tool: _Tool) -> list[dict[str, Any]]:
    """Return the results in a file: one JSON document, or one a line."""
    content = read_bytes(path, expected=tool.hint.removeprefix("expected "))
    try:
        found = [parse_value(content)]
    except ValueError as error:
        lines = [line for line in _BETWEEN.sub(b"}\n{", content).splitlines() if line.strip()]
        if len(lines) < 2:
            raise TraceError(f"{path.name}: got no JSON ({error}), {tool.hint}") from error
        found = []
        for place, line in enumerate(lines, start=1):
            try:
                found.append(parse_value(line))
            except ValueError as fault:
                raise TraceError(f"{path.name}:{place}: got no JSON ({fault}), {tool.hint}") from fault
    if isinstance(found[0], list) and len(found) == 1:
        found = found[0]
    results = [each for each in found if isinstance(each, dict)]
    if not results or len(results) < len(found):
        raise TraceError(f"{path.name}: got no JSON object, {tool.hint}")
    return results


def _describe(result: dict[str, Any]) -> str:
    """Return what tells a result from the others of its file: its rate, or its users."""
    rate, users = result.get("request_rate"), result.get("max_concurrency")
    if isinstance(rate, int | float) and np.isfinite(rate):
        return f"{rate:g} requests/s"
    return f"{users} at a time" if isinstance(users, int) else f"{result.get('num_prompts', 'some')} requests"


def _list(result: dict[str, Any], name: str, *, tool: _Tool, file: str) -> list[Any]:
    values = result.get(name)
    if not isinstance(values, list) or not values:
        raise TraceError(f"{name}: got no list, {tool.hint} ({file})")
    return values


def _starts(result: dict[str, Any], number: int, *, tool: _Tool, file: str) -> NDArray[np.float64] | None:
    """Return when each request was sent, s; None where the file does not say it: no list, an empty one, or one time.

    A backend that sets no start time leaves 0 for all; not even a burst is sent in the very same nanosecond.
    """
    starts = result.get("start_times")
    if starts is None or starts == [] or (isinstance(starts, list) and None in starts):
        return None
    if not isinstance(starts, list) or len(starts) != number:
        raise TraceError(f"start_times: got no list of {number} times, {tool.hint} ({file})")
    try:
        times = np.array([finite(start) for start in starts], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TraceError(f"start_times: got {error}, expected seconds ({file})") from error
    return None if number > 1 and (times == times[0]).all() else times


def _us(seconds: object, *, file: str, name: str) -> NDArray[np.int64]:
    try:
        values = np.array(seconds, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TraceError(f"{name}: got {error}, expected seconds ({file})") from error
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any() or (values > MOST_S).any():
        raise TraceError(
            f"{name}: got a negative or endless time, expected seconds >= 0, one after the other ({file})"
        )
    return np.rint(values * 1e6).astype(np.int64)


def _events(
    first: NDArray[np.int64], gaps: list[NDArray[np.int64]], *, failed: NDArray[np.bool_]
) -> pd.DataFrame:
    whole = [row for row in range(len(gaps)) if not failed[row]]
    times = [first[row] + np.concatenate([[0], np.cumsum(gaps[row])]) for row in whole]
    sizes = [len(each) for each in times]
    return pd.DataFrame(
        {
            "request_id": np.repeat([str(row) for row in whole], sizes),
            "chunk_index": np.concatenate([np.arange(size) for size in sizes]) if sizes else [],
            "timestamp_us": np.concatenate(times) if times else [],
            "num_tokens": None,
        }
    )


def _header(
    result: dict[str, Any],
    path: Path,
    *,
    rows: _Rows,
    tool: _Tool,
    asked: int | None,
) -> Header:
    model, cap = result.get("model_id"), result.get("max_concurrency")
    at_once = str(result.get("request_rate")) == "inf"
    has_times = rows.starts_s is not None
    loop = loop_of(cap) if at_once else None
    notes = ["prompt lengths are the client's; gaps are between events, not tokens"]
    if asked is not None:
        notes.append(assumed_length(asked))
    return Header(
        tool=tool.name,
        mode="real",
        server=ServerInfo().learn("model_id", model=model if isinstance(model, str) else None),
        client=ClientInfo(
            library="aiohttp", max_concurrency=cap if isinstance(cap, int) else None, finished=True
        ),
        closed_loop=loop if has_times else None,
        source=Source(
            format=tool.format,
            file=path.name,
            left_out=left_out(no_time=rows.num_untimed),
            load_unknown=None
            if has_times
            else f"no start_times, so when requests were sent is not in the file{_stated(result)}",
            notes=tuple(notes),
        ),
    )


def _stated(result: dict[str, Any]) -> str:
    """Return the load that a result states of itself, in words; nothing where it does not."""
    served, asked, duration = (result.get(key) for key in ("request_throughput", "request_rate", "duration"))
    said = []
    if isinstance(served, int | float) and not isinstance(served, bool):
        said.append(f"{served:.4g} requests/s served")
    if isinstance(asked, int | float) and not isinstance(asked, bool) and np.isfinite(asked):
        said.append(f"{asked:g}/s asked for")
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        said.append(f"{duration:.4g} s long")
    return f" (it states {', '.join(said)})" if said else ""
