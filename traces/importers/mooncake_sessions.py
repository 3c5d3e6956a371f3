"""Sessions in Mooncake's format, as aiperf replays them and its ``synthesize agentic-code`` writes them.

Source of the rules: aiperf's "Agentic Code Dataset Generator", "Trace Replay with Mooncake Traces" and "Conversation
Context Mode" (2026): the lines of a session are its turns, in order. ``input_length`` and ``hash_ids`` of a later turn
are of what it adds; before it stand the earlier turns and the answers (``deltas_without_responses``). With
``context_mode`` ``message_array_with_responses`` every line has the whole prompt. ``timestamp``, in ms, is when a
session's first turn is due; ``delay``, in ms, is how long a later turn waits after the answer before it. Later turns
keep a timestamp only where all of the file have one and none a delay.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from traces.errors import TraceError, quoted
from traces.header import Header, Source
from traces.importers.short_names import short_name
from traces.strict.limits import MOST_US
from traces.trace import Trace, make_trace

DELTAS: Final = "deltas_without_responses"
WHOLE: Final = "message_array_with_responses"
_NAMES: Final = (
    *("request_id", "session_id", "round_index", "arrival_time_us", "think_time_us"),
    *("input_tokens", "new_input_tokens", "output_tokens", "prefix_hashes"),
)


def read_sessions(
    path: Path, columns: dict[str, list[Any]], *, block_size: int, us_per_unit: int = 1000
) -> Trace:
    """Return the sessions of a file's lines.

    ``columns``: a cell per line for each key, None where a line lacks it. ``us_per_unit``: of its times. The
    ``hash_ids`` of later turns are left out: after the first turn a session's text is its own. Raises TraceError,
    naming session and turn.
    """
    rows: dict[str, list[Any]] = {name: [] for name in _NAMES}
    turns: dict[str, list[int]] = defaultdict(list)
    for row, name in enumerate(columns["session_id"]):
        turns[f"line {row + 1}" if name is None else short_name(name)].append(row)
    has_times = _have_times(columns, [place for places in turns.values() for place in places[1:]])
    for name, places in turns.items():
        _Session(path.name, name, columns, block_size, us_per_unit, has_times=has_times).read(places, rows)
    header = Header(
        mode="generated",
        hash_block_size=block_size,
        session_context_growth="accumulate",
        source=Source(
            format="mooncake",
            file=path.name,
            notes=(
                "every turn has its time"
                if has_times
                else "a session's turns wait for its answers: a later turn has its delay, 0 without one, and no time",
                "of a session's first prompt, hash_ids name the whole blocks that other sessions may share",
            ),
        ),
    )
    return make_trace(header, rows)


def _have_times(columns: dict[str, list[Any]], later: list[int]) -> bool:
    """Return whether later turns have times of their own: all have a timestamp, and none a delay."""
    times, delays = columns["timestamp"], columns["delay"]
    return bool(later) and all(times[place] is not None and delays[place] is None for place in later)


class _Session:
    """One session: its lines become rounds."""

    def __init__(
        self,
        file: str,
        name: str,
        columns: dict[str, list[Any]],
        block_size: int,
        us_per_unit: int,
        *,
        has_times: bool,
    ) -> None:
        self._has_times = has_times
        self._where = f"{file}: session {quoted(name)}"
        self._name = name
        self._columns = columns
        self._block_size = block_size
        self._us_per_unit = us_per_unit

    def read(self, places: list[int], rows: dict[str, list[Any]]) -> None:
        """Append the session's rounds. ``places``: its lines."""
        is_whole = self._is_whole(places)
        said = 0
        for turn, place in enumerate(places):
            given = {key: cells[place] for key, cells in self._columns.items()}
            new = given["input_length"]
            prompt = new if is_whole else said + new
            rows["request_id"].append(f"{self._name}/{turn}")
            rows["session_id"].append(self._name)
            rows["round_index"].append(turn)
            rows["arrival_time_us"].append(self._due_us(given, turn))
            rows["think_time_us"].append(None if turn == 0 else self._us(given, "delay", turn) or 0)
            rows["input_tokens"].append(prompt)
            rows["new_input_tokens"].append(None if is_whole else new)
            rows["output_tokens"].append(given["output_length"])
            self._check_hashes(given, turn)
            has_hashes = is_whole or turn == 0
            rows["prefix_hashes"].append(self._hashes(given, prompt) if has_hashes else None)
            said = prompt + given["output_length"]

    def _is_whole(self, places: list[int]) -> bool:
        """Return whether every line has its whole prompt. Raises TraceError for other modes, or both in one session."""
        modes = {self._columns["context_mode"][place] or DELTAS for place in places}
        if len(modes) > 1 or not modes <= {DELTAS, WHOLE}:
            shown = ", ".join(sorted(modes))
            raise TraceError(
                f"{self._where}: context_mode: got {shown}, expected one of {DELTAS} and {WHOLE}"
            )
        return modes == {WHOLE}

    def _due_us(self, given: dict[str, Any], turn: int) -> int | None:
        """Return when a turn is due: a session's first at its ``timestamp``, at 0 without one."""
        at_us = self._us(given, "timestamp", turn)
        if turn > 0:
            return at_us if self._has_times else None
        return (self._us(given, "delay", turn) or 0) if at_us is None else at_us

    def _us(self, given: dict[str, Any], key: str, turn: int) -> int | None:
        """Return a time of the file in µs."""
        value: float | None = given[key]
        if value is None:
            return None
        if not 0 <= value * self._us_per_unit <= MOST_US:
            most = MOST_US // self._us_per_unit
            where = f"{self._where}, turn {turn}: {key}"
            raise TraceError(f"{where}: got {value!r}, expected a time from 0 to {most}")
        return round(value * self._us_per_unit)

    def _check_hashes(self, given: dict[str, Any], turn: int) -> None:
        """Raise TraceError where a line has more hashes than its tokens have blocks, the partial one included."""
        number, most = len(given["hash_ids"] or []), -(-given["input_length"] // self._block_size)
        if number > most + 1:  # a turn's addition may begin and end within a block
            raise TraceError(
                f"{self._where}, turn {turn}: hash_ids: got {number} hashes, expected at most {most + 1} for "
                f"{given['input_length']} tokens in blocks of {self._block_size}"
            )

    def _hashes(self, given: dict[str, Any], prompt: int) -> str | None:
        """Return the hashes of a prompt's whole blocks: a partial block continues differently in the next turn."""
        whole = (given["hash_ids"] or [])[: prompt // self._block_size]
        return " ".join(map(str, whole)) or None
