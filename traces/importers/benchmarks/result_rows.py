"""What a benchmark measured of its requests, row by row, as columns of a trace; readers of several tools share it."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass
from pathlib import Path

from traces.errors import TraceError, quoted
from traces.importers.conversation_turns import Conversations, Turn, conversations_of
from traces.importers.short_names import MOST_CHARACTERS
from traces.strict.json_text import finite, parse_value, read_bytes
from traces.strict.limits import MOST_S, MOST_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One request: times in µs from the run's start, None where the file has none.

    ``error``: in the tool's words; None of an answered request. ``events_us``: when its events with text came.
    """

    send_us: int
    prompt: int
    output: int | None
    first_us: int | None
    last_us: int | None
    error: str | None = None
    due_us: int | None = None
    streamed: bool = True
    itl_us: float | None = None
    session: str | None = None
    max_tokens: int | None = None
    cached: int | None = None
    events_us: tuple[int, ...] = ()


def columns_of(rows: Sequence[Measured]) -> dict[str, object]:
    """Return the rows as columns of a trace; a request that failed has no times of its answer."""
    ok = [row.error is None for row in rows]
    has_events = any(row.events_us for row in rows)
    return {
        "request_id": [str(place) for place in range(len(rows))],
        "streaming": [row.streamed if flag else None for row, flag in zip(rows, ok, strict=True)],
        "input_tokens": [row.prompt for row in rows],
        "output_tokens": [row.output for row in rows],
        "max_tokens": [row.max_tokens for row in rows],
        "cached_input_tokens": [row.cached for row in rows],
        "arrival_time_us": [row.send_us if row.due_us is None else row.due_us for row in rows],
        "send_time_us": [row.send_us for row in rows],
        "content_first_time_us": [
            row.first_us if flag and row.streamed else None for row, flag in zip(rows, ok, strict=True)
        ],
        "last_token_time_us": [row.last_us if flag else None for row, flag in zip(rows, ok, strict=True)],
        "num_token_chunks": [len(row.events_us) or None for row in rows] if has_events else None,
        "itl_mean_us": [row.itl_us if flag else None for row, flag in zip(rows, ok, strict=True)],
        "status": ["ok" if flag else "error" for flag in ok],
        "error_message": [row.error for row in rows],
    }


def events_of(rows: Sequence[Measured]) -> object | None:
    """Return the table of events of answered requests; None where no times of events are known."""
    found = [
        (str(place), index, time)
        for place, row in enumerate(rows)
        if row.error is None and row.streamed
        for index, time in enumerate(row.events_us)
    ]
    if not found:
        return None
    import pandas as pd

    frame = pd.DataFrame(found, columns=["request_id", "chunk_index", "timestamp_us"])
    return frame.assign(num_tokens=None)


def conversations_in(rows: Sequence[Measured], *, lengths_known: bool = True) -> Conversations:
    """Return the conversations of these requests; turns are in the order in which they were sent."""
    return conversations_of(
        [
            Turn(
                conversation=row.session,
                turn=row.send_us,
                prompt=row.prompt if lengths_known else None,
                output=row.output,
            )
            for row in rows
        ]
    )


def load_json(path: Path, *, hint: str) -> object:
    """Return the value in a JSON file. Raises TraceError, one line."""
    content = read_bytes(path, expected=hint.removeprefix("expected "))
    try:
        return parse_value(content)
    except ValueError as error:
        raise TraceError(f"{path.name}: got {' '.join(str(error).split())}, {hint}") from error


def seconds(value: object, *, what: str) -> float | None:
    """Return a time or a duration in s, None without one. Raises TraceError for an impossible one."""
    if value is None:
        return None
    try:
        number = finite(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise TraceError(f"{what}: got {quoted(str(value))}, expected a number of seconds") from error
    if isinstance(value, bool | str) or not 0 <= number <= MOST_S:
        raise TraceError(f"{what}: got {quoted(str(value))}, expected a number of seconds >= 0")
    return number


def tokens(value: object, *, what: str) -> int | None:
    """Return a count of tokens, None without one. Raises TraceError for an impossible one."""
    if value is None:
        return None
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not is_whole or not 0 <= value <= MOST_TOKENS:  # type: ignore[operator]  # a number
        raise TraceError(f"{what}: got {quoted(str(value))}, expected an integer >= 0, at most {MOST_TOKENS}")
    return int(value)  # type: ignore[call-overload, no-any-return]  # a number


def message(*parts: object) -> str:
    """Return an error's words in one line, cut; never empty."""
    said = ": ".join(
        " ".join(str(part).split())[:MOST_CHARACTERS] for part in parts if part not in (None, "")
    )
    return said[:MOST_CHARACTERS] or "error"
