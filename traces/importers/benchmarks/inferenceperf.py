"""inference-perf's requests (``per_request_lifecycle_metrics.json``): an observed trace.

Source of the format: github.com/kubernetes-sigs/inference-perf, inference_perf/reportgen/base.py and apis/base.py: a
list of objects with ``start_time`` and ``end_time`` (s of a monotonic clock), ``info`` and ``error``. Since 2026
``info`` has ``request_metrics.text.input_tokens`` and ``response_metrics`` (``output_tokens``,
``output_token_times``, ``server_usage``: the server's own counts); before, the three stood in ``info`` itself. The
texts in ``request`` and ``response`` are passed over. apis/user_session.py: rounds of a session carry
``extra_info.user_session``, and each prompt begins with the prompts and answers before it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from traces.errors import TraceError
from traces.header import ClientInfo, Header, Source
from traces.importers.benchmarks.result_rows import (
    Measured,
    columns_of,
    conversations_in,
    events_of,
    load_json,
    message,
    seconds,
    tokens,
)
from traces.importers.noted import differing_counts, left_out, name_of, of
from traces.strict.json_text import parse_value
from traces.strict.limits import MOST_TOKENS
from traces.trace import Trace, make_trace

_HINT: Final = "expected inference-perf's per_request_lifecycle_metrics.json"


def read_inference_perf(path: Path) -> Trace:
    """Return the observed trace in this file; times count from the first request sent.

    The server's counts of tokens come before the tool's. Raises TraceError that names the request, from 0.
    """
    found = load_json(path, hint=_HINT)
    if not isinstance(found, list) or not found:
        raise TraceError(f"{path.name}: got no list of requests, {_HINT}")
    where = [f"{path.name}: request {place}" for place in range(len(found))]
    starts = [_start(said, where=at) for said, at in zip(found, where, strict=True)]
    origin = min(starts)
    own = [_own_counts(said, where=at) for said, at in zip(found, where, strict=True)]
    server = [_server_counts(said, where=at) for said, at in zip(found, where, strict=True)]
    rows = [
        row
        for place, said in enumerate(found)
        if (row := _row(said, starts[place] - origin, origin, own[place], server[place], where=where[place]))
    ]
    if not rows:
        raise TraceError(f"{path.name}: got no request of known length, {_HINT}")
    talks = conversations_in(rows)
    notes = ["due times are not recorded: a request counts as due when it was sent"]
    notes += differing_counts(
        [(s[0], o[0]) for s, o in zip(server, own, strict=True)], what="prompt tokens", tool="inference-perf"
    )
    notes += differing_counts(
        [(s[1], o[1]) for s, o in zip(server, own, strict=True)], what="output tokens", tool="inference-perf"
    )
    notes += talks.notes
    source = Source(
        format="inference-perf",
        file=path.name,
        left_out=left_out(unknown=len(found) - len(rows)),
        notes=tuple(notes),
    )
    header = Header(
        mode="real",
        tool="inference-perf",
        client=ClientInfo(library="aiohttp", clock="perf_counter", finished=True),
        session_context_growth="accumulate" if any(talks.new_input_tokens) else None,
        source=source,
    )
    columns = columns_of(rows) | talks.columns()
    return make_trace(header, columns, events=events_of(rows))  # type: ignore[arg-type]  # a frame


def _start(said: object, *, where: str) -> float:
    if not isinstance(said, dict):
        raise TraceError(f"{where}: got {type(said).__name__}, {_HINT}")
    start = seconds(said.get("start_time"), what=f"{where}: start_time")
    if start is None:
        raise TraceError(f"{where}: start_time: got nothing, {_HINT}")
    return start


def _own_counts(said: Any, *, where: str) -> tuple[int | None, int | None]:  # noqa: ANN401  JSON
    """Return the tool's counts of prompt and answer, None for one that it did not make."""
    info = said.get("info")
    prompt = of(info, "request_metrics", "text", "input_tokens")
    answer = of(info, "response_metrics", "output_tokens")
    return (
        tokens(of(info, "input_tokens") if prompt is None else prompt, what=f"{where}: input_tokens") or None,
        tokens(of(info, "output_tokens") if answer is None else answer, what=f"{where}: output_tokens")
        or None,
    )


def _server_counts(said: Any, *, where: str) -> tuple[int | None, int | None]:  # noqa: ANN401  JSON
    usage = of(said, "info", "response_metrics", "server_usage")
    return (
        tokens(of(usage, "prompt_tokens"), what=f"{where}: server_usage.prompt_tokens") or None,
        tokens(of(usage, "completion_tokens"), what=f"{where}: server_usage.completion_tokens") or None,
    )


def _row(
    said: Any,  # noqa: ANN401  JSON
    since_s: float,
    origin: float,
    own: tuple[int | None, int | None],
    server: tuple[int | None, int | None],
    *,
    where: str,
) -> Measured | None:
    """Return a request's row; None for one that failed and whose length is not known."""
    prompt, output = (own[place] if server[place] is None else server[place] for place in (0, 1))
    times = _token_times(said, since=origin, where=where)
    output = output or len(times) or None
    error = said.get("error")
    failed = error is not None or output is None
    if prompt is None:
        return None
    end = seconds(said.get("end_time"), what=f"{where}: end_time")
    last_us = times[-1] if times else (None if end is None else round((end - origin) * 1e6))
    send_us = round(since_s * 1e6)
    return Measured(
        send_us=send_us,
        prompt=prompt,
        output=None if failed else output,
        first_us=times[0] if times else None,
        last_us=None if last_us is None else max(last_us, send_us),
        error=message(of(error, "error_type"), of(error, "error_msg"))
        if error is not None
        else ("an answer without tokens" if failed else None),
        streamed=bool(times),
        session=_session(said),
        max_tokens=_asked(said) if failed else None,
        cached=_cached(said, prompt, where=where),
        events_us=() if failed else times,
    )


def _token_times(said: Any, *, since: float, where: str) -> tuple[int, ...]:  # noqa: ANN401  JSON
    info = said.get("info")
    found = of(info, "response_metrics", "output_token_times")
    found = of(info, "output_token_times") if found is None else found
    if not isinstance(found, list):
        return ()
    times = [seconds(each, what=f"{where}: output_token_times") or 0.0 for each in found]
    if any(after < before for before, after in zip([since, *times], times, strict=False)):
        raise TraceError(f"{where}: output_token_times: got a time before the one before it, {_HINT}")
    return tuple(round((time - since) * 1e6) for time in times)


def _cached(said: Any, prompt: int, *, where: str) -> int | None:  # noqa: ANN401  JSON
    found = of(said, "info", "response_metrics", "server_usage", "prompt_tokens_details", "cached_tokens")
    cached = tokens(found, what=f"{where}: cached_tokens")
    return cached if cached is not None and cached <= prompt else None


def _asked(said: Any) -> int | None:  # noqa: ANN401  JSON
    """Return the output budget in a request's body, None where it says none."""
    body = said.get("request")
    try:
        value = of(parse_value(body), "max_tokens") if isinstance(body, str) else None
    except ValueError:
        return None
    return value if type(value) is int and 1 <= value <= MOST_TOKENS else None


def _session(said: Any) -> str | None:  # noqa: ANN401  JSON
    name = of(said, "info", "extra_info", "user_session")
    return name_of(str(name)) if isinstance(name, str | int) and not isinstance(name, bool) else None
