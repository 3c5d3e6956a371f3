"""genai-bench's results of one run (``…_num_concurrency_8_time_60s.json``): latencies of each request, without times.

Source of the format: github.com/sgl-project/genai-bench, genai_bench/metrics/aggregated_metrics_collector.py (save)
and metrics.py: ``aggregated_metrics``, ``individual_request_metrics`` (``ttft``, ``tpot``, ``e2e_latency`` in
``_time_unit``, s where it is absent; ``num_input_tokens``, ``num_output_tokens``, ``error_code``) and no start times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from traces.errors import TraceError, quoted
from traces.header import ClientInfo, ClosedLoop, Header, Source
from traces.importers.benchmarks.result_rows import (
    Measured,
    columns_of,
    load_json,
    message,
    seconds,
    tokens,
)
from traces.importers.noted import left_out, of
from traces.trace import Trace, make_trace

_HINT: Final = "expected genai-bench's results of a run (individual_request_metrics)"
_PER_S: Final = {"s": 1.0, "ms": 1000.0}


def read_genai_bench(path: Path) -> Trace:
    """Return the latencies in this file as a trace; all requests stand at 0, as the header says.

    Raises TraceError that names the request, from 0.
    """
    found = load_json(path, hint=_HINT)
    entries = of(found, "individual_request_metrics")
    if not isinstance(entries, list):
        raise TraceError(f"{path.name}: individual_request_metrics: got no list, {_HINT}")
    if not entries:
        raise TraceError(f"{path.name}: individual_request_metrics: got none, expected at least one request")
    unit = of(found, "_time_unit") or "s"
    if not isinstance(unit, str) or unit not in _PER_S:
        raise TraceError(f"{path.name}: _time_unit: got {quoted(str(unit))}, expected s or ms")
    per_s = _PER_S[unit]
    rows = [
        row
        for place, said in enumerate(entries)
        if (row := _row(said, per_s, where=f"{path.name}: request {place}"))
    ]
    if not rows:
        raise TraceError(f"{path.name}: got no request of known length, {_HINT}")
    users = _users(found)
    source = Source(
        format="genai-bench",
        file=path.name,
        load_unknown="the file has no start times of requests",
        left_out=left_out(unknown=len(entries) - len(rows)),
        notes=_notes(found, users=users, unit=unit),
    )
    header = Header(
        mode="real",
        tool="genai-bench",
        closed_loop=None if users is None else ClosedLoop(concurrency=users),
        client=ClientInfo(finished=True),
        source=source,
    )
    return make_trace(header, columns_of(rows))


def _row(said: Any, per_s: float, *, where: str) -> Measured | None:  # noqa: ANN401  JSON
    """Return a request's row; None for one that failed and whose length is not known."""
    if not isinstance(said, dict):
        raise TraceError(f"{where}: got {type(said).__name__}, {_HINT}")
    prompt = tokens(said.get("num_input_tokens"), what=f"{where}: num_input_tokens") or None
    output = tokens(said.get("num_output_tokens"), what=f"{where}: num_output_tokens") or None
    code, words = said.get("error_code"), said.get("error_message")
    first, last = (_us(said, key, per_s, where=where) for key in ("ttft", "e2e_latency"))
    failed = code is not None or output is None or last is None
    if prompt is None:
        return None
    if not failed and first is not None and last is not None and first > last:
        raise TraceError(f"{where}: ttft: got more than e2e_latency, {_HINT}")
    streamed = bool(first) and (output == 1 or first != last)
    return Measured(
        send_us=0,
        prompt=prompt,
        output=None if failed else output,
        first_us=first,
        last_us=last,
        error=message(code, words) if code is not None else ("an answer without tokens" if failed else None),
        streamed=streamed,
    )


def _us(said: Any, key: str, per_s: float, *, where: str) -> int | None:  # noqa: ANN401  JSON
    found = seconds(said.get(key), what=f"{where}: {key}")
    return None if found is None else round(found / per_s * 1e6)


def _users(found: object) -> int | None:
    """Return the users of a closed loop, None of a load with a rate."""
    number = of(found, "aggregated_metrics", "num_concurrency")
    by_rate = of(found, "aggregated_metrics", "total_arrivals") is not None
    kind = of(found, "aggregated_metrics", "iteration_type") or "num_concurrency"
    if by_rate or kind != "num_concurrency" or isinstance(number, bool):
        return None
    return int(number) if isinstance(number, int | float) and 1 <= number <= 10**6 else None


def _notes(found: object, *, users: int | None, unit: str) -> tuple[str, ...]:
    notes = [f"latencies taken in {unit}"]
    if users is not None:
        notes.append(f"{users:,} user{'s' if users > 1 else ''}: each sent when the answer before was there")
    said = of(found, "aggregated_metrics", "requests_per_second")
    if isinstance(said, int | float) and not isinstance(said, bool) and 0 < said < 10**9:
        notes.append(f"its own figure of the whole run: {said:.4g} answered requests/s")
    return tuple(notes)
