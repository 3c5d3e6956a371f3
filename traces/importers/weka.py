"""Sessions of agents with block hashes, as kv-cache-tester records them ("weka"): a JSON file each, or a folder."""

from __future__ import annotations

from collections import Counter
from lazy_dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from traces.errors import TraceError, cut, quoted
from traces.header import Header, Source
from traces.importers.short_names import short_name
from traces.strict.json_text import parse_value, read_bytes
from traces.trace import Trace, make_trace

SUFFIXES: Final = (".json", ".json.gz")
SLACK_US: Final = 1_000_000
"""Some times are rounded to a second: an answer counts as complete if it ended at most this much later."""
_US_PER_S: Final = 1_000_000
MOST_S: Final = 1e9
MOST_MODELS = 8
"""Models that a note names, and characters of each."""
MOST_SHARED_TOKENS: Final = 10_000_000
"""The most tokens of tools and system prompt: ten times the longest context of a model."""


@dataclass(slots=True)
class _Columns:
    """The rows so far, and the numbers of prefixes that sessions share."""

    rows: dict[str, list[Any]] = field(
        default_factory=lambda: {
            name: []
            for name in (
                *("request_id", "session_id", "round_index", "parent_request_id", "awaited_request_ids"),
                *("arrival_time_us", "think_time_us", "input_tokens", "output_tokens", "streaming"),
                *("num_parent_hashes", "prefix_hashes"),
            )
        }
    )
    next_id: int = 0
    common: dict[tuple[object, ...], int] = field(default_factory=dict)
    num_unawaited: int = 0
    num_silent: int = 0
    models: Counter[str] = field(default_factory=Counter)
    block_sizes: set[int] = field(default_factory=set)

    def number_of(self, block: tuple[object, ...]) -> int:
        """Return a block's number; a block of one session alone gets a new one."""
        if block[0] != "own" and block in self.common:
            return self.common[block]
        self.next_id += 1
        if block[0] != "own":
            self.common[block] = self.next_id - 1
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
    files = (
        sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES) and file.is_file())
        if path.is_dir()
        else [path]
    )
    if not files:
        raise TraceError(f"{path}: got no file, expected sessions as .json or .json.gz")
    columns = _Columns()
    for file in files:
        _Session(columns, file).read()
    if len(columns.block_sizes) > 1:
        raise TraceError(
            f"{path}: got block_size {sorted(columns.block_sizes)}, expected one for all sessions"
        )
    notes = [
        "sessions have no common clock: each begins at 0",
        "hashes are of prompts: an answer's blocks are none",
    ]
    if columns.num_unawaited:
        notes.append(
            f"{columns.num_unawaited} subagents had not ended when their parent went on: it does not wait"
        )
    if columns.num_silent:
        notes.append(f"{columns.num_silent} answers of 0 tokens are of 1: no server is asked for none")
    if len(columns.models) > 1:
        told = ", ".join(f"{name} {number}" for name, number in columns.models.most_common(MOST_MODELS))
        notes.append(f"models are left out, one server answers for all of them ({told})")
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
        self._name = self._document.get("id", file.name.split(".")[0])
        if not isinstance(self._name, str):
            self._refuse("top", "id", self._name, "text")
        self._name = short_name(self._name)
        self._ids: dict[int, int] = {}  # the file's number of a block -> the trace's
        self._said: set[tuple[object, ...]] = set()  # shared blocks that have a number here
        self._round = 0

    def read(self) -> None:
        """Append the session's requests."""
        top = self._document
        self._block_size = self._count({"block_size": 64, **top}, "block_size", "top")
        if self._block_size < 1:
            self._refuse("top", "block_size", self._block_size, "an integer >= 1")
        self._columns.block_sizes.add(self._block_size)
        self._is_global = top.get("hash_id_scope") == "global"
        self._entries(top, "", at_us=0, before=None)

    def _entries(self, agent: dict[str, Any], place: str, *, at_us: int, before: _Sent | None) -> list[_Sent]:
        """Append the requests of a session or subagent; return those that no request waits for yet, the last first."""
        open_: list[_Sent] = []  # subagents' last requests
        last = before
        shared = self._shared_blocks(agent)
        for number, entry in enumerate(self._list(agent, "requests", place or "top")):
            where = f"{place}requests[{number}]"
            if not isinstance(entry, dict):
                self._refuse(where, "entry", entry, "an object")
            start_us = at_us + self._us(entry, "t", where)
            if "requests" in entry:
                start_us -= min(self._duration_us(entry, where), start_us - at_us)
                open_ += self._entries(entry, f"{where}.", at_us=start_us, before=last)[:1]
                continue
            ended = [each for each in open_ if each.ended_us <= start_us + SLACK_US]
            self._columns.num_unawaited += len(open_) - len(ended)
            open_ = []
            last = self._request(entry, where, start_us=start_us, parent=last, awaited=ended, shared=shared)
        return [*([last] if last is not None and last is not before else []), *open_]

    def _duration_us(self, entry: dict[str, Any], where: str) -> int:
        """Return how long a subagent took: its ``t`` is when it ended.

        Of the published sessions those whose subagents were spawned together show it: ``t`` differs, and ``t`` less
        ``duration_ms`` is the same to the millisecond (trace_0004, entries 182 and 183).
        """
        if entry.get("duration_ms") is None:
            return 0
        return self._us({"duration_ms": _seconds(entry["duration_ms"])}, "duration_ms", where)

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
        hashes = self._list(entry, "hash_ids", where)
        kept = 0 if parent is None else _num_common(parent.hashes, hashes)
        new = self._numbers(hashes, kept, where, shared)
        think_us = None if entry.get("think_time") is None else self._us(entry, "think_time", where)
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
        model = entry.get("model")
        self._columns.models[cut(model) if isinstance(model, str) else "none"] += 1
        rows["num_parent_hashes"].append(kept if parent is not None else None)
        rows["prefix_hashes"].append(" ".join(map(str, new)) or None)
        self._round += 1
        took_us = 0 if entry.get("api_time") is None else self._us(entry, "api_time", where)
        return _Sent(name, start_us, start_us + took_us, hashes)

    def _shared_blocks(self, agent: dict[str, Any]) -> list[tuple[object, ...]]:
        """Return the numbers, in all sessions, of the blocks of a client's tools, then of its system prompt."""
        size, given = self._block_size, {"tool_tokens": 0, "system_tokens": 0, **agent}
        tools, system = (self._count(given, name, "top") for name in ("tool_tokens", "system_tokens"))
        if tools + system > MOST_SHARED_TOKENS:
            self._refuse(
                "top", "tool_tokens", tools + system, f"at most {MOST_SHARED_TOKENS:,} with system_tokens"
            )
        names: list[tuple[object, ...]] = [("tools", tools, i) for i in range(tools // size)]
        return names + [("system", tools, system, i) for i in range(tools // size, (tools + system) // size)]

    def _numbers(
        self, listed: list[Any], kept: int, where: str, shared: list[tuple[object, ...]]
    ) -> list[int]:
        """Return a prompt's blocks behind the first ``kept``, by the trace's numbers."""
        found: list[int] = []
        ids, columns = self._ids, self._columns
        for place, own in enumerate(listed[kept:], kept):
            if type(own) is not int:
                self._refuse(where, "hash_ids", own, "integers")
            number = ids.get(own)
            if number is None:
                key: tuple[object, ...] = ("own", self._name, own)
                if self._is_global:
                    key = ("global", own)
                elif place < len(shared) and shared[place] not in self._said:
                    key = shared[place]
                    self._said.add(key)
                number = ids[own] = columns.number_of(key)
            found.append(number)
        return found

    def _us(self, entry: dict[str, Any], key: str, where: str) -> int:
        """Return a time in seconds as µs."""
        value = entry.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MOST_S:
            self._refuse(where, key, value, "seconds >= 0")
        return round(value * _US_PER_S)

    def _count(self, entry: dict[str, Any], key: str, where: str) -> int:
        value = entry.get(key)
        if type(value) is not int or value < 0:
            self._refuse(where, key, value, "an integer >= 0")
        return value

    def _list(self, entry: dict[str, Any], key: str, where: str) -> list[Any]:
        value = entry.get(key, [])
        if not isinstance(value, list):
            self._refuse(where, key, value, "a list")
        return value

    def _refuse(self, where: str, key: str, value: object, expected: str) -> NoReturn:
        raise TraceError(f"{self._file}: {where}: {key}: got {quoted(value)}, expected {expected}")


def _seconds(milliseconds: object) -> object:
    """Return a number of milliseconds in seconds, anything else as it is."""
    is_number = isinstance(milliseconds, (int, float)) and not isinstance(milliseconds, bool)
    return milliseconds / 1000 if is_number else milliseconds  # type: ignore[operator] # a number


def _num_common(before: list[Any], after: list[Any]) -> int:
    """Return how many leading blocks two prompts share."""
    if after[: len(before)] == before:
        return len(before)
    return next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )


def _load(file: Path) -> dict[str, Any]:
    """Return a file's JSON object. Raises TraceError."""
    expected = "a session of an agent"
    try:
        document = parse_value(read_bytes(file, expected=expected))
    except ValueError as error:
        raise TraceError(f"{file}: got no JSON ({error}), expected {expected}") from error
    if not isinstance(document, dict) or not isinstance(document.get("requests"), list):
        raise TraceError(
            f"{file}: got no requests, expected a session of an agent: an object with a list of them"
        )
    return document
