"""LLMServingSim's workload files: requests, or sessions of calls, that its simulator is run with.

Source of the format: github.com/casys-kaist/LLMServingSim, docs/docs/workloads/jsonl-format.md and
agentic-sessions.md: a JSON object a line. A request has ``input_toks``, ``output_toks``, ``arrival_time_ns`` and, if
its maker had a tokenizer, ``input_tok_ids`` and ``output_tok_ids``. A session has ``session_id``, ``arrival_time_ns``
of its first call and ``sub_requests``; after each call's answer passes its ``tool_duration_ns`` (0 without one) until
the next is sent. Both kinds may stand in one file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from traces.errors import TraceError, quoted
from traces.header import Header, Source
from traces.importers.noted import SHARE_UNKNOWN, left_out
from traces.importers.prefix_numbers import PrefixNumbers
from traces.importers.short_names import MOST_CHARACTERS
from traces.strict.json_text import parser_of
from traces.strict.limits import MOST_US
from traces.trace import Trace, make_trace

BLOCK_SIZE: Final = 16
"""Tokens of a block that is hashed: vLLM's default, and that of the simulator."""
_NAMES: Final = (
    *("request_id", "session_id", "round_index", "arrival_time_us", "think_time_us"),
    *("input_tokens", "new_input_tokens", "output_tokens", "prefix_hashes"),
)


def is_workload(content: bytes) -> bool:
    """Return whether a file is a workload, not a run: by its first line, which has an arrival in ns or calls."""
    first = next((line for line in content.splitlines() if line.strip()), b"")
    return b'"sub_requests"' in first or (b'"arrival_time_ns"' in first and b'"queued_ts"' not in first)


def read_workload(path: Path, content: bytes) -> Trace:
    """Return the workload in a file's ``content``; times count from the file's own origin, 0.

    Equal token ids share a prefix, in blocks of ``BLOCK_SIZE``. Raises TraceError that names file and line.
    """
    file = _Workload(path.name)
    parse = parser_of(content)
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            file.take(line, parse, number)
    if not file.rows["request_id"]:
        raise TraceError(f"{path.name}: got no request with tokens in and out, expected one a line ({path})")
    source = Source(
        format="llmservingsim",
        file=path.name,
        left_out=left_out(failed=file.num_empty),
        notes=file.notes(),
    )
    header = Header(
        mode="generated",
        hash_block_size=BLOCK_SIZE if any(file.rows["prefix_hashes"]) else None,
        session_context_growth="accumulate"
        if any(n is not None for n in file.rows["new_input_tokens"])
        else None,
        source=source,
    )
    return make_trace(header, file.rows)


class _Workload:
    """The rows of a file's lines so far."""

    def __init__(self, file: str) -> None:
        self.rows: dict[str, list[Any]] = {name: [] for name in _NAMES}
        self.num_empty = 0
        self._file = file
        self._numbers = PrefixNumbers()
        self._names: set[str] = set()
        self._shared_unknown = False
        self._has_ids = False
        self._num_taken = 0

    def take(self, line: bytes, parse: Callable[[bytes], object], number: int) -> None:
        """Append the requests of one line. Raises TraceError that names it."""
        where = f"{self._file}:{number}"
        try:
            said = parse(line)
        except ValueError as error:
            raise TraceError(f"{where}: got {error}, expected one JSON object") from error
        if not isinstance(said, dict):
            raise TraceError(f"{where}: got {type(said).__name__}, expected one JSON object")
        arrival_us = _us(said, "arrival_time_ns", where=where)
        if arrival_us is None:
            raise TraceError(f"{where}: arrival_time_ns: got nothing, expected an integer >= 0")
        if "sub_requests" in said:
            self._take_session(said, arrival_us, where=where)
        else:
            self._take_request(said, arrival_us, number=number, where=where)

    def notes(self) -> tuple[str, ...]:
        """Return what a reader should know, a line each."""
        notes = ["a workload of the simulator: no server answered it"]
        if self._has_ids:
            notes.append(f"token ids are numbered in blocks of {BLOCK_SIZE}: equal beginnings are shared")
        else:
            notes.append("no token ids: which prompts share a prefix is not known")
        if self._num_taken:
            notes.append(
                f"{self._num_taken:,} sessions without token ids: each prompt is taken to hold the prompt and the "
                "answer before it, as it is long enough for both"
            )
        return (*notes, SHARE_UNKNOWN) if self._shared_unknown else tuple(notes)

    def _take_request(self, said: Mapping[str, Any], arrival_us: int, *, number: int, where: str) -> None:
        prompt, output = _lengths(said, where=where)
        ids = self._ids(said, "input_tok_ids", prompt, where=where)
        if not prompt or not output:
            self.num_empty += 1
            return
        self._append(
            request_id=str(number - 1),
            session_id=None,
            round_index=None,
            arrival_time_us=arrival_us,
            think_time_us=None,
            input_tokens=prompt,
            new_input_tokens=None,
            output_tokens=output,
            prefix_hashes=None if ids is None else self._numbers.of_tokens(ids, BLOCK_SIZE),
        )

    def _take_session(self, said: Mapping[str, Any], arrival_us: int, *, where: str) -> None:
        name, calls = said.get("session_id"), said["sub_requests"]
        if not isinstance(name, str) or not 0 < len(name) <= MOST_CHARACTERS or name in self._names:
            raise TraceError(
                f"{where}: session_id: got {quoted(str(name))}, expected a name of its own, "
                f"of at most {MOST_CHARACTERS} characters"
            )
        if not isinstance(calls, list) or not calls or not all(isinstance(call, dict) for call in calls):
            raise TraceError(f"{where}: sub_requests: got no list of calls, expected at least one")
        self._names.add(name)
        lengths = [_lengths(call, where=where) for call in calls]
        if not all(prompt and output for prompt, output in lengths):
            self.num_empty += len(calls)  # what is sent after an answer that never came is not known
            return
        ids = [
            self._ids(call, "input_tok_ids", prompt, where=where)
            for call, (prompt, _) in zip(calls, lengths, strict=True)
        ]
        answers = [
            self._ids(call, "output_tok_ids", output, where=where)
            for call, (_, output) in zip(calls, lengths, strict=True)
        ]
        grows = [_contains(ids[turn], ids[turn - 1], answers[turn - 1]) for turn in range(1, len(calls))]
        added = [_added(lengths, turn) for turn in range(len(calls))]
        by_ids = bool(grows) and all(grows)
        by_length = len(calls) > 1 and None in ids and min(added) >= 0
        self._num_taken += by_length
        self._shared_unknown |= len(calls) > 1 and None in ids and not by_length
        pause_us: int | None = None
        for turn, (call, (prompt, output)) in enumerate(zip(calls, lengths, strict=True)):
            hashed = None if turn and (by_ids or by_length) else ids[turn]
            self._append(
                request_id=f"{name}/{turn}",
                session_id=name,
                round_index=turn,
                arrival_time_us=arrival_us if turn == 0 else None,
                think_time_us=pause_us,
                input_tokens=prompt,
                new_input_tokens=added[turn] if by_ids or by_length else None,
                output_tokens=output,
                prefix_hashes=None if hashed is None else self._numbers.of_tokens(hashed, BLOCK_SIZE),
            )
            pause_us = _us(call, "tool_duration_ns", where=where) or 0

    def _append(self, **cells: object) -> None:
        for name, cell in cells.items():
            self.rows[name].append(cell)

    def _ids(self, said: Mapping[str, Any], key: str, number: int, *, where: str) -> list[int] | None:
        """Return a text's token ids, None without them. Raises TraceError where they are not as many as counted."""
        ids = said.get(key)
        if ids is None:
            return None
        if not isinstance(ids, list) or not set(map(type, ids)) <= {int}:
            raise TraceError(f"{where}: {key}: got no list of integers, expected token ids")
        if len(ids) != number:
            raise TraceError(
                f"{where}: {key}: got {len(ids):,} ids, expected the {number:,} tokens that are counted"
            )
        self._has_ids |= key == "input_tok_ids"
        return ids


def _added(lengths: list[tuple[int, int]], turn: int) -> int:
    """Return how many tokens a call adds to the prompt and answer before it."""
    return lengths[turn][0] - (sum(lengths[turn - 1]) if turn else 0)


def _contains(prompt: list[int] | None, before: list[int] | None, answer: list[int] | None) -> bool:
    """Return whether a prompt begins with the prompt before it and its answer."""
    if prompt is None or before is None or answer is None:
        return False
    known = [*before, *answer]
    return prompt[: len(known)] == known


def _lengths(said: Mapping[str, Any], *, where: str) -> tuple[int, int]:
    found = []
    for key in ("input_toks", "output_toks"):
        value = said.get(key)
        if type(value) is not int or not 0 <= value < 2**63:
            got = quoted(value) if key in said else "nothing"
            raise TraceError(f"{where}: {key}: got {got}, expected an integer >= 0")
        found.append(value)
    return found[0], found[1]


def _us(said: Mapping[str, Any], key: str, *, where: str) -> int | None:
    """Return a time in ns as µs, halves to even; None without one. Raises TraceError for an impossible one."""
    value = said.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_US * 1000:
        raise TraceError(f"{where}: {key}: got {quoted(value)}, expected an integer >= 0")
    return int(np.rint(value / 1000))
