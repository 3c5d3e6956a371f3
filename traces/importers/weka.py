"""Sessions of agents with block hashes, as kv-cache-tester records them ("weka"): a JSON file each, or a folder of them."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from traces.errors import TraceError
from traces.header import Header, Source
from traces.trace import Trace, make_trace

SUFFIXES: Final = (".json", ".json.gz")
SLACK_US: Final = 1_000_000
"""Times are rounded to a second here and there: an answer is in by then where it ended at most so much later."""
_US_PER_S: Final = 1_000_000
_NUMBERS: Final = (int, float)
MOST_S: Final = 1e9


@dataclass(slots=True)
class _Columns:
    """The rows so far, and what equal prefixes of other sessions are called."""

    rows: dict[str, list[Any]] = field(
        default_factory=lambda: {
            name: []
            for name in (
                *("request_id", "session_id", "round_index", "parent_request_id", "awaited_request_ids"),
                *("arrival_time_us", "think_time_us", "input_tokens", "output_tokens", "streaming", "model"),
                *("num_parent_hashes", "prefix_hashes"),
            )
        }
    )
    next_id: int = 0
    common: dict[tuple[object, ...], int] = field(default_factory=dict)
    num_unawaited: int = 0
    num_silent: int = 0
    block_sizes: set[int] = field(default_factory=set)

    def new_id(self) -> int:
        """Return a number that no block has."""
        self.next_id += 1
        return self.next_id - 1


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request of the session as it was recorded: its id, when it was sent and answered (µs), its hashes as listed."""

    name: str
    sent_us: int
    ended_us: int
    hashes: list[int]


def read_weka(path: Path) -> Trace:
    """Return the sessions of a file, or of all files of a folder, in the order of their names.

    A request waits for the answer before it and ``think_time``; subagents branch off, and the next request of the
    parent waits for those that had ended when it was sent. Sessions have no common clock: each begins at 0. Equal
    ``tool_tokens`` and ``system_tokens`` are equal blocks in all sessions. Raises TraceError, naming file and entry.
    """
    files = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES)) if path.is_dir() else [path]
    if not files:
        raise TraceError(f"{path}: got no file, expected sessions as .json or .json.gz")
    columns = _Columns()
    for file in files:
        _Session(columns, file).read()
    if len(columns.block_sizes) > 1:
        raise TraceError(f"{path}: got block_size {sorted(columns.block_sizes)}, expected one for all sessions")
    notes = ["sessions have no common clock: each begins at 0", "hashes are of prompts: an answer's blocks are none"]
    if columns.num_unawaited:
        notes.append(f"{columns.num_unawaited} subagents had not ended when their parent went on: it does not wait")
    if columns.num_silent:
        notes.append(f"{columns.num_silent} answers of 0 tokens are of 1: no server is asked for none")
    header = Header(
        mode="generated",
        hash_block_size=columns.block_sizes.pop() if columns.block_sizes else None,
        source=Source(format="weka", file=path.name, notes=tuple(notes)),
    )
    return make_trace(header, columns.rows)


class _Session:
    """One file: its entries become rows."""

    def __init__(self, columns: _Columns, file: Path) -> None:
        self._columns = columns
        self._file = file
        self._document = _load(file)
        self._name = str(self._get(self._document, "id", str, "top", default=file.name.split(".")[0]))
        self._ids: dict[int, int] = {}  # the file's number of a block -> the trace's
        self._round = 0

    def read(self) -> None:
        """Append the session's requests."""
        top = self._document
        size = self._get(top, "block_size", int, "top", default=64)
        if size < 1:
            self._refuse("top", "block_size", size, "an integer >= 1")
        self._columns.block_sizes.add(size)
        self._is_global = top.get("hash_id_scope") == "global"
        self._entries(top, "", at_us=0, before=None)

    def _entries(self, agent: dict[str, Any], place: str, *, at_us: int, before: _Sent | None) -> list[_Sent]:
        """Append the requests of the session or of a subagent; return those that nothing has waited for, the last first."""
        open_: list[_Sent] = []  # subagents' last requests
        last = before
        shared = self._shared_blocks(agent)
        for number, entry in enumerate(self._get(agent, "requests", list, place or "top")):
            where = f"{place}requests[{number}]"
            if not isinstance(entry, dict):
                self._refuse(where, "entry", entry, "an object")
            start_us = at_us + self._us(entry, "t", where)
            if "requests" in entry:
                open_ += self._entries(entry, f"{where}.", at_us=start_us, before=last)[:1]
                continue
            ended = [each for each in open_ if each.ended_us <= start_us + SLACK_US]
            self._columns.num_unawaited += len(open_) - len(ended)
            open_ = []
            last = self._request(entry, where, start_us=start_us, parent=last, awaited=ended, shared=shared)
        return [*([last] if last is not None and last is not before else []), *open_]

    def _request(
        self,
        entry: dict[str, Any],
        where: str,
        *,
        start_us: int,
        parent: _Sent | None,
        awaited: list[_Sent],
        shared: list[tuple[object, ...]],
    ) -> _Sent:
        """Append one request; return it."""
        rows, name = self._columns.rows, f"{self._name}/{self._round}"
        hashes = self._get(entry, "hash_ids", list, where, default=[])
        kept = 0 if parent is None else _num_common(parent.hashes, hashes)
        new = self._numbers(hashes, kept, where, shared)
        think_us = self._us(entry, "think_time", where, default=None)
        if parent is not None and (think_us is None or awaited):
            think_us = max(start_us - max(each.ended_us for each in (parent, *awaited)), 0)
        tokens = self._count(entry, "in", where)
        rows["request_id"].append(name)
        rows["session_id"].append(self._name)
        rows["round_index"].append(self._round)
        rows["parent_request_id"].append(None if parent is None else parent.name)
        rows["awaited_request_ids"].append(" ".join(each.name for each in awaited) or None)
        rows["arrival_time_us"].append(start_us)
        rows["think_time_us"].append(None if parent is None else think_us)
        rows["input_tokens"].append(tokens)
        asked = self._count(entry, "out", where)
        self._columns.num_silent += asked == 0
        rows["output_tokens"].append(max(asked, 1))
        rows["streaming"].append(entry.get("type") == "s")
        rows["model"].append(entry.get("model") if isinstance(entry.get("model"), str) else None)
        rows["num_parent_hashes"].append(kept if parent is not None else None)
        rows["prefix_hashes"].append(" ".join(map(str, new)) or None)
        self._round += 1
        took_us = self._us(entry, "api_time", where, default=0)
        return _Sent(name, start_us, start_us + (took_us or 0), hashes)

    def _shared_blocks(self, agent: dict[str, Any]) -> list[tuple[object, ...]]:
        """Return what the leading blocks of a client's prompts are called in all sessions: of its tools, then its system prompt."""
        size = self._get(self._document, "block_size", int, "top", default=64)
        tools = self._get(agent, "tool_tokens", int, "top", default=0)
        system = self._get(agent, "system_tokens", int, "top", default=0)
        names: list[tuple[object, ...]] = [("tools", tools, i) for i in range(tools // size)]
        return names + [("system", tools, system, i) for i in range(tools // size, (tools + system) // size)]

    def _numbers(self, listed: list[Any], kept: int, where: str, shared: list[tuple[object, ...]]) -> list[int]:
        """Return a prompt's blocks behind the first ``kept`` by the trace's numbers."""
        found: list[int] = []
        ids, columns = self._ids, self._columns
        for place, own in enumerate(listed[kept:], kept):
            number = ids.get(own) if type(own) is int else self._refuse(where, "hash_ids", own, "integers")
            if number is None:
                key = ("global", own) if self._is_global else shared[place] if place < len(shared) else None
                number = columns.new_id() if key is None else columns.common.get(key)
                if number is None:
                    number = columns.common[key] = columns.new_id()  # type: ignore[index] # it has a key
                ids[own] = number
            found.append(number)
        return found

    def _us(self, entry: dict[str, Any], key: str, where: str, *, default: int | None = -1) -> Any:
        """Return a time in seconds as µs. ``default`` -1: it must be there."""
        value = entry.get(key)
        if value is None and default != -1:
            return default
        if isinstance(value, bool) or not isinstance(value, _NUMBERS) or not 0 <= value <= MOST_S:
            self._refuse(where, key, value, "seconds >= 0")
        return round(value * _US_PER_S)

    def _count(self, entry: dict[str, Any], key: str, where: str) -> int:
        value = entry.get(key)
        if type(value) is not int or value < 0:
            self._refuse(where, key, value, "an integer >= 0")
        return int(value)  # type: ignore[arg-type] # looked at above

    def _get(self, entry: dict[str, Any], key: str, kind: type, where: str, *, default: Any = None) -> Any:
        value = entry.get(key, default)
        if not isinstance(value, kind) or isinstance(value, bool):
            self._refuse(where, key, value, {list: "a list", str: "text", int: "an integer"}[kind])
        return value

    def _refuse(self, where: str, key: str, value: object, expected: str) -> Any:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        raise TraceError(f"{self._file}: {where}: {key}: got {shown}, expected {expected}")


def _num_common(before: list[Any], after: list[Any]) -> int:
    """Return how many leading blocks two prompts share."""
    if after[: len(before)] == before:
        return len(before)
    return next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))


def _load(file: Path) -> dict[str, Any]:
    """Return a file's JSON object. Raises TraceError."""
    try:
        raw = gzip.decompress(file.read_bytes()) if file.name.endswith(".gz") else file.read_bytes()
        document = json.loads(raw)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise TraceError(f"{file}: got no JSON ({error}), expected a session of an agent") from error
    if not isinstance(document, dict) or not isinstance(document.get("requests"), list):
        raise TraceError(f"{file}: got no requests, expected a session of an agent: an object with a list of them")
    return document
