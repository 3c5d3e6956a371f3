"""Reports of guidellm (``benchmarks.json``, or ``.yaml``): each benchmark in one is an observed trace.

Source of the format: guidellm 0.8 schemas/base/request_stats.py and info.py: ``benchmarks[].requests`` has the
lists ``successful``, ``incomplete`` and ``errored``; each entry has token counts and, under ``info.timings``, Unix
times in s: targeted_start, request_start, first and last iteration with a token, request_end. They are stamped by
the wall clock, after the line was decoded. Up to 0.3 (benchmark/benchmark.py) an entry had ``start_time``,
``first_token_time``, ``last_token_time`` and ``end_time`` itself, the strategy stood under ``args`` and
``requests_made`` under ``run_stats``.
"""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from traces.errors import TraceError
from traces.header import ClientInfo, Header, ServerInfo, Source, loop_of
from traces.importers.benchmarks.failed_requests import assumed_length, only_length
from traces.importers.conversation_turns import Conversations, Turn, conversations_of
from traces.importers.noted import left_out
from traces.importers.reading_options import number_of_part
from traces.importers.short_names import short_name
from traces.strict.json_text import finite, parse_value, read_bytes
from traces.strict.limits import MOST_S
from traces.trace import Trace, make_trace

_HINT: Final = "expected a report of guidellm (benchmarks.json)"
_STATUS: Final = {"successful": "ok", "incomplete": "aborted", "errored": "error"}
_SCHEDULED: Final = ("constant", "poisson", "async", "trace", "replay")
"""Strategies whose ``targeted_start`` is a due time; the others aim at "now"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One request: times in s, None where there is none."""

    start_s: float
    due_s: float | None
    first_event_s: float | None
    first_token_s: float | None
    last_token_s: float | None
    last_event_s: float | None
    num_events: int | None
    num_token_events: int | None
    prompt: int | None
    output: int | None
    cached: int | None
    max_tokens: int | None
    itl_us: float | None
    name: str | None
    session: str | None
    turn: int | None
    status: str
    error: str | None


def read_guidellm(path: Path, *, part: int | None = None) -> Trace:
    """Return the observed trace of a benchmark of this report, the ``part``-th (from 1) where there are several.

    Times count from the earliest request. Gaps between events are not recorded: the mean is. Raises TraceError that
    names the key, ConfigError for a part that does not exist, or if there are several and none is named.
    """
    report = _load(path)
    benchmark = _benchmark(report, part, path=path)
    strategy = _strategy(benchmark)
    scheduled = strategy.get("type_") in _SCHEDULED
    found = sorted(
        _rows(benchmark, scheduled=scheduled, file=path.name), key=lambda row: row.due_s or row.start_s
    )
    rows = [row for row in found if row.prompt]
    if not rows:
        raise TraceError(f"requests: got none with a prompt's length, {_HINT} ({path.name})")
    origin = min(min(row.start_s, row.due_s or row.start_s) for row in rows)
    talks = conversations_of(
        [
            Turn(
                conversation=it.session,
                turn=it.turn,
                prompt=it.prompt,
                output=it.output,
                sent_us=round((it.start_s - origin) * 1e6),
                answered_us=None
                if it.status != "ok" or it.last_token_s is None
                else round((it.last_token_s - origin) * 1e6),
            )
            for it in rows
        ]
    )
    asked = _asked_alike(rows)
    source = Source(
        format="guidellm",
        file=path.name,
        load_unknown=_sampled(benchmark),
        left_out=left_out(no_prompt=len(found) - len(rows)),
        notes=(
            "stamped by the wall clock, after decoding; gaps between events are not recorded, their mean is",
            *(() if asked is None else (assumed_length(asked),)),
            *talks.notes,
        ),
    )
    return make_trace(
        _header(report, source, strategy=strategy, origin_s=origin),
        _columns(rows, origin, talks, scheduled=scheduled, asked=asked),
    )


def _asked_alike(rows: list[_Row]) -> int | None:
    """Return the length to take for failed requests that do not say theirs; None where none lacks it, or none shows."""
    if all(row.status == "ok" or row.max_tokens for row in rows):
        return None
    return only_length([row.output for row in rows], [row.status == "ok" for row in rows])


def _sampled(benchmark: Mapping[str, Any]) -> str | None:
    """Return why the load is not known where a report has only some of the requests that were made.

    ``--sample-requests`` keeps so many of each kind; up to 0.3 those of warm-up and cool-down were left out, too.
    """
    made = _made(benchmark)
    if made is None:
        return None
    groups = [group for group in _STATUS if isinstance(made.get(group), int)]
    kept = {group: len(benchmark["requests"].get(group) or ()) for group in groups}
    if all(kept[group] >= made[group] for group in groups):
        return None
    number, total = sum(kept.values()), sum(made[group] for group in groups)
    per_s = _at(benchmark, "metrics", "requests_per_second", "successful", "mean")
    stated = f"; the report states {per_s:.4g} requests/s of all" if _is_number(per_s) else ""
    return (
        f"guidellm's report has {number:,} of the {total:,} requests that were made (a sample: "
        f"--sample-requests{stated})"
    )


def _made(benchmark: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return how many requests were made, by outcome, where the report says it."""
    places = (
        ("scheduler_metrics", "requests_made"),
        ("run_stats", "requests_made"),
        ("metrics", "request_totals"),
        ("request_totals",),
    )
    found = (_at(benchmark, *place) for place in places)
    return next((each for each in found if isinstance(each, dict)), None)


def _at(holder: object, *keys: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    for key in keys:
        holder = holder.get(key) if isinstance(holder, dict) else None
    return holder


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _columns(
    rows: list[_Row], origin: float, talks: Conversations, *, scheduled: bool, asked: int | None
) -> dict[str, object]:
    def us(seconds: float | None) -> int | None:
        return None if seconds is None else max(round((seconds - origin) * 1e6), 0)

    def of_ok(times: list[float | None]) -> list[int | None]:
        return [us(time) if row.status == "ok" else None for time, row in zip(times, rows, strict=True)]

    streamed = [
        (row.num_token_events is None or row.num_token_events > 1 or (row.output or 0) <= 1)
        if row.status == "ok"
        else None
        for row in rows
    ]
    send = [us(row.start_s) or 0 for row in rows]
    due = [us(row.start_s if row.due_s is None else row.due_s) or 0 for row in rows]
    lacks = [row.status != "ok" and row.max_tokens is None for row in rows]
    return {
        "request_id": [str(place) for place in range(len(rows))],
        "x_request_id": [row.name for row in rows],
        "streaming": streamed,
        "input_tokens": [row.prompt for row in rows],
        "output_tokens": [row.output for row in rows],
        "max_tokens": [asked if lack else row.max_tokens for row, lack in zip(rows, lacks, strict=True)],
        "cached_input_tokens": [row.cached for row in rows],
        "arrival_time_us": due,
        "send_time_us": send,
        "dispatch_lag_us": [max(s - d, 0) for s, d in zip(send, due, strict=True)] if scheduled else None,
        "first_chunk_time_us": of_ok([row.first_event_s for row in rows]),
        "last_chunk_time_us": of_ok([row.last_event_s for row in rows]),
        "num_chunks": [row.num_events for row in rows],
        "content_first_time_us": of_ok(
            [row.first_token_s if flag else None for row, flag in zip(rows, streamed, strict=True)]
        ),
        "last_token_time_us": of_ok([row.last_token_s for row in rows]),
        "num_token_chunks": [row.num_token_events for row in rows],
        "itl_mean_us": [row.itl_us if row.status == "ok" else None for row in rows],
        "status": [row.status for row in rows],
        "error_message": [row.error for row in rows],
        **talks.columns(),
    }


def _load(path: Path) -> dict[str, Any]:
    content = read_bytes(path, expected="a report of guidellm")
    try:
        report = parse_value(content) if path.suffix.lower() not in (".yaml", ".yml") else _yaml(content)
    except ValueError as error:
        raise TraceError(f"{path.name}: got {' '.join(str(error).split())}, {_HINT}") from error
    if (
        not isinstance(report, dict)
        or not isinstance(report.get("benchmarks"), list)
        or not report["benchmarks"]
    ):
        raise TraceError(f"benchmarks: got no list, {_HINT} ({path.name})")
    return report


def _yaml(content: bytes) -> object:
    import yaml

    try:
        return yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both are safe
    except RecursionError as error:
        raise ValueError("values nested too deep") from error
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML ({error})") from error


def _benchmark(report: Mapping[str, Any], part: int | None, *, path: Path) -> dict[str, Any]:
    names = [_describe(each) for each in report["benchmarks"]]
    benchmark = report["benchmarks"][number_of_part(part, names, what="benchmarks", path=path)]
    if not isinstance(benchmark, dict) or not isinstance(benchmark.get("requests"), dict):
        raise TraceError(f"requests: got none, {_HINT} ({path.name})")
    return benchmark


def _strategy(benchmark: Mapping[str, Any]) -> Mapping[str, Any]:
    places = (("config", "strategy"), ("scheduler", "strategy"), ("args", "strategy"))
    found = (_at(benchmark, *place) for place in places)
    return next((each for each in found if isinstance(each, dict)), {})


def _describe(benchmark: object) -> str:
    """Return what tells a benchmark from the others of its report: its kind of load, and how much of it."""
    strategy = _strategy(benchmark) if isinstance(benchmark, dict) else {}
    rate = strategy.get("rate") or strategy.get("streams")
    kind = str(strategy.get("type_", "benchmark"))[:40]
    return f"{kind} {rate:g}" if _is_number(rate) else kind


def _rows(benchmark: Mapping[str, Any], *, scheduled: bool, file: str) -> list[_Row]:
    rows: list[_Row] = []
    for group, status in _STATUS.items():
        for place, said in enumerate(benchmark["requests"].get(group) or ()):
            where = f"requests.{group}[{place}]"
            try:
                row = _row(said, status=status, scheduled=scheduled)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as fault:
                raise TraceError(f"{where}: got {type(fault).__name__}: {fault}, {_HINT} ({file})") from fault
            if row is not None:
                rows.append(row)
    return rows


def _row(said: Mapping[str, Any], *, status: str, scheduled: bool) -> _Row | None:
    """Return one request, None if it was never sent."""
    info = said.get("info") or said.get("scheduler_info") or {}
    times = _times(said, info)
    start = _seconds(times, "request_start", "resolve_start")
    if start is None:
        return None
    itl_ms = said.get("inter_token_latency_ms")
    due = _seconds(times, "targeted_start") if scheduled else None
    error = info.get("error") or said.get("error")
    return _Row(
        start_s=start,
        due_s=due,
        first_event_s=_seconds(times, "first_request_iteration", "first_token_iteration"),
        first_token_s=_seconds(times, "first_token_iteration"),
        last_token_s=_seconds(times, "last_token_iteration", "request_end"),
        last_event_s=_seconds(times, "last_request_iteration", "last_token_iteration", "request_end"),
        num_events=_count(times.get("request_iterations") or times.get("token_iterations")),
        num_token_events=_count(times.get("token_iterations")),
        prompt=_count(said.get("prompt_tokens")),
        output=_count(said.get("output_tokens")),
        cached=_count(said.get("cached_tokens")),
        max_tokens=_asked(said.get("request_args")),
        itl_us=None if itl_ms is None else finite(itl_ms) * 1e3,
        name=_text(said.get("request_id")),
        session=_text(info.get("conversation_id")),
        turn=_count(info.get("turn_index")),
        status=status,
        error=_one_line(error) if status == "error" else _unfinished(status),
    )


def _times(said: Mapping[str, Any], info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a request's times under the names of today, of whatever version the report is."""
    times = info.get("timings") or info.get("request_timings")
    if isinstance(times, dict):
        older = {"first_token_iteration": "first_iteration", "last_token_iteration": "last_iteration"}
        return {
            **{name: times.get(old) for name, old in older.items()},
            "targeted_start": info.get("targeted_start"),
            **times,
        }
    return {
        "request_start": said.get("start_time", said.get("request_start_time")),
        "first_token_iteration": said.get("first_token_time"),
        "last_token_iteration": said.get("last_token_time"),
        "request_end": said.get("end_time"),
        "targeted_start": info.get("targeted_start_time"),
    }


def _seconds(times: Mapping[str, Any], *names: str) -> float | None:
    """Return the first of these times that is known."""
    return next((_moment(times[name]) for name in names if times.get(name) is not None), None)


def _moment(value: object) -> float:
    """Return a Unix time. Raises ValueError or TypeError for an impossible one."""
    seconds = finite(value)
    if not abs(seconds) <= MOST_S:
        raise ValueError(f"{seconds:g} s, expected a Unix time")
    return seconds


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str | int | float):
        raise TypeError(f"{type(value).__name__}, expected text")
    return None if value is None else short_name(str(value))


def _count(value: object) -> int | None:
    return round(finite(value)) if isinstance(value, int | float) else None


def _asked(arguments: object) -> int | None:
    """Return the output length that the request's body asked for, where it is recorded."""
    try:
        said = parse_value(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return None
    body = said.get("body", said) if isinstance(said, dict) else None
    if not isinstance(body, dict):
        return None
    return _count(body.get("max_completion_tokens") or body.get("max_tokens"))


def _one_line(error: object) -> str:
    return " ".join(str(error or "error").split())[:500]


def _unfinished(status: str) -> str | None:
    return "not finished when the benchmark ended" if status == "aborted" else None


def _header(
    report: Mapping[str, Any], source: Source, *, strategy: Mapping[str, Any], origin_s: float
) -> Header:
    metadata = report.get("metadata")
    version = metadata.get("guidellm_version") if isinstance(metadata, dict) else None
    arguments = report.get("args")
    model = arguments.get("model") if isinstance(arguments, dict) else None
    streams = strategy.get("streams") if strategy.get("type_") in ("concurrent", "synchronous") else None
    if strategy.get("type_") == "synchronous":
        streams = 1
    return Header(
        tool="guidellm",
        tool_version=version if isinstance(version, str) else None,
        mode="real",
        start_unix_us=round(origin_s * 1e6),
        server=ServerInfo().learn("args.model", model=model if isinstance(model, str) else None),
        client=ClientInfo(library="httpx", finished=True),
        closed_loop=loop_of(streams),
        source=source,
    )
