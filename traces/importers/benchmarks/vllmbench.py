"""Result files of ``vllm bench serve --save-result --save-detailed``: observed traces.

Source of the format: vllm 0.32.0 benchmarks/serve.py: parallel lists ``input_lens``, ``output_lens``, ``ttfts`` and
``itls`` (s), ``errors``, and since 2025 ``start_times`` (s of a monotonic clock). A gap of ``itls`` is between two
events, whatever tokens they carry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traces.errors import TraceError
from traces.header import ClientInfo, ClosedLoop, Header, ServerInfo, Source
from traces.strict.json_text import finite, parse_value
from traces.strict.limits import MOST_S
from traces.trace import Trace, make_trace

_LISTS: Final = ("input_lens", "output_lens", "ttfts", "itls", "errors")
_HINT: Final = "expected a result of vllm bench serve --save-result --save-detailed"


def read_vllm_bench(path: Path) -> Trace:
    """Return the observed trace in this JSON file. Raises TraceError that names the key.

    Without ``start_times`` every request is taken as sent at 0, and the header says so: latencies hold, the load
    does not. Failed requests keep their lengths and have no times.
    """
    result = _load(path)
    lists = {name: _list(result, name, file=path.name) for name in _LISTS}
    number = len(lists["input_lens"])
    uneven = next((name for name, values in lists.items() if len(values) != number), None)
    if uneven is not None:
        raise TraceError(f"{uneven}: got {len(lists[uneven])} entries, expected {number} ({path.name})")
    failed = np.array([bool(error) for error in lists["errors"]], dtype=bool)
    starts, notes = _starts(result, number, file=path.name)
    send = _us(starts - starts.min(), file=path.name, name="start_times")
    first = send + _us(lists["ttfts"], file=path.name, name="ttfts")
    gaps = [_us(row, file=path.name, name="itls") for row in lists["itls"]]
    last = first + np.array([int(row.sum()) for row in gaps], dtype=np.int64)
    return make_trace(
        _header(result, path, notes=notes),
        {
            "request_id": [str(row) for row in range(number)],
            "streaming": True,
            "input_tokens": lists["input_lens"],
            "output_tokens": [
                None if bad else n for n, bad in zip(lists["output_lens"], failed, strict=True)
            ],
            "arrival_time_us": send,
            "send_time_us": send,
            "content_first_time_us": _unless(failed, first),
            "last_token_time_us": _unless(failed, last),
            "num_token_chunks": [0 if bad else len(row) + 1 for row, bad in zip(gaps, failed, strict=True)],
            "status": ["error" if bad else "ok" for bad in failed],
            "error_message": [
                str(error).strip().splitlines()[-1] if error else None for error in lists["errors"]
            ],
        },
        events=_events(first, gaps, failed=failed),
    )


def _unless(failed: NDArray[np.bool_], times: NDArray[np.int64]) -> pd.Series[Any]:
    return pd.Series(times, dtype="Int64").mask(failed)


def _load(path: Path) -> dict[str, Any]:
    try:
        result = parse_value(path.read_bytes())
    except OSError as error:
        raise TraceError(f"{path}: got {error.strerror}, {_HINT}") from error
    except ValueError as error:
        raise TraceError(f"{path.name}: got no JSON ({error}), {_HINT}") from error
    if not isinstance(result, dict):
        raise TraceError(f"{path.name}: got no JSON object, {_HINT}")
    return result


def _list(result: dict[str, Any], name: str, *, file: str) -> list[Any]:
    values = result.get(name)
    if not isinstance(values, list) or not values:
        raise TraceError(f"{name}: got no list, {_HINT} ({file})")
    return values


def _starts(result: dict[str, Any], number: int, *, file: str) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    starts = result.get("start_times")
    if starts is None:
        return np.zeros(number), ("no start_times: every request is taken as sent at 0",)
    if not isinstance(starts, list) or len(starts) != number:
        raise TraceError(f"start_times: got no list of {number} times, {_HINT} ({file})")
    try:
        return np.array([finite(start) for start in starts], dtype=np.float64), ()
    except (TypeError, ValueError) as error:
        raise TraceError(f"start_times: got {error}, expected seconds ({file})") from error


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


def _header(result: dict[str, Any], path: Path, *, notes: tuple[str, ...]) -> Header:
    model, cap = result.get("model_id"), result.get("max_concurrency")
    at_once = str(result.get("request_rate")) == "inf"
    loop = ClosedLoop(concurrency=cap) if at_once and isinstance(cap, int) and cap >= 1 else None
    said = ("prompt lengths are the client's; gaps are between events, not tokens", *notes)
    return Header(
        tool="vllm bench serve",
        mode="real",
        server=ServerInfo().learn("model_id", model=model if isinstance(model, str) else None),
        client=ClientInfo(
            library="aiohttp", max_concurrency=cap if isinstance(cap, int) else None, finished=True
        ),
        closed_loop=loop,
        source=Source(format="vllm-bench", file=path.name, notes=said),
    )
