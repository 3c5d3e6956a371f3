"""Qwen-Bailian's usage traces of 2024 and 2025: conversations, lengths, one hash per 16 tokens of prompt.

Source of the format: github.com/alibaba-edu/qwen-bailian-usagetraces-anon, README: JSON lines with ``chat_id``,
``parent_chat_id`` (-1: the first of a conversation), ``timestamp`` in s, ``input_length``, ``output_length``,
``type``, ``turn`` and ``hash_ids``. Each line has its whole prompt, earlier turns included; docs/
qa-context-growth-pattern.md of the same place says that a later prompt need not hold all of the answer before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

import numpy as np

from traces.errors import TraceError
from traces.header import Header, Source
from traces.importers.jsonl import COUNT, INTEGERS, NUMBER, TEXT, Column, Kind, read_jsonl
from traces.importers.micros import micros
from traces.importers.noted import counted_kinds, grown, left_out, name_of
from traces.importers.prefix_numbers import PrefixNumbers
from traces.importers.reading_options import US_PER, TimeUnit
from traces.trace import Trace, make_trace

HASH_BLOCK_SIZE: Final = 16
"""Tokens that one of a trace's hash ids stands for."""
_ROOT: Final = -1


def _are_ids(values: Column) -> bool:
    return all(type(value) is int and abs(value) < 2**63 for value in values)


_ID: Final = Kind(words="an integer", fits=_are_ids)

_KINDS: Final = {"chat_id": _ID, "timestamp": NUMBER, "input_length": COUNT, "output_length": COUNT}
_OPTIONAL: Final = {"parent_chat_id": _ID, "type": TEXT, "turn": COUNT, "hash_ids": INTEGERS}


def read_bailian(path: Path, *, block_size: int = HASH_BLOCK_SIZE, time_unit: TimeUnit = "s") -> Trace:
    """Return the workload in ``path``: a request a line, those that name each other as parents in one session.

    Times count from the file's own origin. Raises TraceError that names file and line.
    """
    columns = read_jsonl(path, _KINDS, optional=_OPTIONAL)
    times = np.asarray(columns["timestamp"], dtype=np.float64)
    arrival = micros(times, US_PER[time_unit], what=f"{path.name}: timestamp")
    prompt, output = _counts(columns["input_length"]), _counts(columns["output_length"])
    known = [(row, ids) for row, ids in enumerate(columns["hash_ids"]) if ids is not None]
    answered = [row for row in range(len(arrival)) if output[row] > 0 and prompt[row] > 0]
    if not answered:
        raise TraceError(f"{path.name}: got no request with tokens in and out, expected one a line ({path})")
    roots, num_cut = _roots(_counts(columns["chat_id"]), columns["parent_chat_id"], file=path.name)
    order = sorted(answered, key=lambda row: int(arrival[row]))
    sessions, rounds = _rounds([roots[row] for row in order])
    notes = _notes(columns, known, prompt, block_size=block_size, num_cut=num_cut)
    added = None
    if not known:
        added, shared = grown(sessions, [prompt[row] for row in order], [output[row] for row in order])
        notes = (*notes, *shared)
    source = Source(
        format="bailian",
        file=path.name,
        left_out=left_out(failed=len(arrival) - len(answered)),
        notes=(*notes, f"times taken in {time_unit}"),
    )
    return make_trace(
        Header(
            mode="generated",
            hash_block_size=block_size if known else None,
            session_context_growth=None if added is None else "accumulate",
            source=source,
        ),
        {
            "request_id": [str(columns["chat_id"][row]) for row in order],
            "client_id": [name_of(columns["type"][row]) for row in order],
            "session_id": sessions,
            "round_index": rounds,
            "streaming": True,
            "input_tokens": [prompt[row] for row in order],
            "new_input_tokens": added,
            "output_tokens": [output[row] for row in order],
            "arrival_time_us": arrival[order],
            "prefix_hashes": _hashes([columns["hash_ids"][row] for row in order]),
        },
    )


def _hashes(ids: Column) -> list[str | None]:
    numbers = PrefixNumbers()
    return [numbers.of_blocks(cast("list[int]", each or [])) for each in ids]


def _counts(column: Column) -> list[int]:
    return cast("list[int]", column)


def _short(known: Sequence[tuple[int, object]], prompt: list[int], block_size: int) -> int:
    """Return how many prompts have fewer hashes than whole blocks."""
    return sum(len(cast("list[int]", ids)) < prompt[row] // block_size for row, ids in known)


def _roots(ids: list[int], parents: Column, *, file: str) -> tuple[list[int], int]:
    """Return the conversation of each row, as the id of its first request, and how many begin outside the file."""
    parent_of: dict[int, int] = {}
    for chat, parent in zip(ids, parents, strict=True):
        if chat in parent_of:
            raise TraceError(f"{file}: chat_id: got {chat} a second time, expected each once")
        parent_of[chat] = _ROOT if parent is None else cast("int", parent)
    root_of: dict[int, int] = {}
    cut_off = 0
    for chat in ids:
        path = [chat]
        while path[-1] not in root_of:
            parent = parent_of[path[-1]]
            if parent == _ROOT or parent not in parent_of:
                cut_off += parent != _ROOT
                root_of[path[-1]] = path[-1]
                break
            if len(path) > len(ids):
                raise TraceError(f"{file}: parent_chat_id: got a circle at {chat}, expected earlier requests")
            path.append(parent)
        for each in path:
            root_of[each] = root_of[path[-1]]
    return [root_of[chat] for chat in ids], cut_off


def _rounds(roots: list[int]) -> tuple[list[str], list[int]]:
    """Return each request's session and its place in it; the rows are in order of their times."""
    seen: dict[int, int] = {}
    rounds = []
    for root in roots:
        rounds.append(seen.get(root, 0))
        seen[root] = rounds[-1] + 1
    return [str(root) for root in roots], rounds


def _notes(
    columns: dict[str, Column],
    known: Sequence[tuple[int, object]],
    prompt: list[int],
    *,
    block_size: int,
    num_cut: int,
) -> tuple[str, ...]:
    notes = []
    if short := _short(known, prompt, block_size):
        notes.append(
            f"{short:,} of {len(known):,} prompts have fewer hash_ids than blocks of {block_size} tokens: the rest of "
            "each shares nothing here (block_size=N behind # in the file's name says another size)"
        )
    kinds = [name for name in columns["type"] if name is not None]
    if kinds:
        notes.append(f"type is kept as client_id: {counted_kinds(kinds)}")
    if num_cut:
        notes.append(f"{num_cut:,} conversation{'s' if num_cut > 1 else ''} began before the file does")
    if known:
        notes.append("hash_ids, numbered anew from the prompt's beginning on, say what prompts share")
    return tuple(notes)
