"""A data set of texts: ShareGPT's JSON, JSON lines, CSV, Parquet, lines, a folder of these or of ``datasets``.

A record becomes what a client sends, and the answer that was given to it:

* ``messages``, ``conversations`` (ShareGPT's ``from`` and ``value``), ``conversation``: all before the first answer;
* ``prompt``, ``question``, ``instruction`` (with its ``input``), ``text``, ``turns`` (the first): a message of a user,
  behind ``system_prompt`` or ``system``;
* the ``body`` of a request of a batch API: its messages or prompt.

``answer``, ``response``, ``completion``, ``output`` or ``chosen`` is the answer, ``output_tokens`` or ``max_tokens``
its length. A record without a text is left out. A line of a ``.txt`` file is a prompt as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from observe.settings import TextColumns
from traces import TraceError
from traces.strict.json_text import parse_value, read_bytes

_TALKS: Final = ("messages", "conversations", "conversation")
_PROMPTS: Final = ("prompt", "question", "instruction", "text", "turns")
_SYSTEMS: Final = ("system_prompt", "system")
_ANSWERS: Final = ("answer", "response", "completion", "output", "chosen")
_LENGTHS: Final = ("output_tokens", "max_tokens", "max_completion_tokens")
_ROLES: Final = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
}
_KNOWN_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_SUFFIXES: Final = (".json", ".jsonl", ".ndjson", ".csv", ".parquet", ".txt", ".gz")
_OF_LIBRARY: Final = ("state.json", "dataset_dict.json")
"""What ``save_to_disk`` of the ``datasets`` library leaves in its folder."""
EXPECTED: Final = (
    "expected texts: ShareGPT's JSON, JSON lines, a CSV or Parquet file with prompts, a prompt a line in a .txt file, "
    "or a folder of them"
)


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a conversation; ``role`` is user, assistant, system or developer."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Text:
    """What a client sends, and the answer that was given to it; ``output_tokens``: its length, where it is stated."""

    messages: tuple[Message, ...]
    answer: str | None = None
    output_tokens: int | None = None


def read_texts(path: Path, columns: TextColumns | None = None) -> tuple[list[Text], int]:
    """Return the texts of a file or a folder, in its order, and how many records have none.

    Raises TraceError, one line, for what cannot be read or holds no text; ConfigError for a library that is missing.
    """
    columns = columns or TextColumns()
    texts: list[Text] = []
    left_out = 0
    keys: list[str] = []
    for record in _records(path):
        text = text_of(record, columns)
        if text is not None and _can_be_sent(text):
            texts.append(text)
            continue
        left_out += 1
        keys = keys or [str(key)[:40] for key in record][:8] if isinstance(record, Mapping) else keys
    if not texts:
        seen = f" of keys {', '.join(keys)}" if keys else ""
        wanted = "--texts-columns prompt=KEY says which has the prompts" if keys else EXPECTED
        raise TraceError(f"--texts: got {left_out:,} records{seen} and no text, {wanted} ({path})")
    return texts, left_out


def _can_be_sent(text: Text) -> bool:
    """Return whether nothing has half a character (a surrogate alone), which JSON can write and UTF-8 cannot."""
    try:
        "".join([*(each.content for each in text.messages), text.answer or ""]).encode()
    except UnicodeEncodeError:
        return False
    return True


def text_of(record: object, columns: TextColumns) -> Text | None:
    """Return the text of a record; None where it has none."""
    if isinstance(record, str):
        return Text((Message("user", record),)) if record.strip() else None
    if not isinstance(record, Mapping):
        return None
    body = record.get("body")
    said = body if isinstance(body, Mapping) and "custom_id" in record else record
    prompt = said.get(columns.prompt) if columns.prompt is not None else _first(said, (*_TALKS, *_PROMPTS))
    messages, answered = _messages(prompt)
    if messages is None:
        return None
    if columns.prompt is None and prompt is said.get("instruction") and _is_text(said.get("input")):
        messages = (Message("user", f"{prompt}\n\n{said['input']}"),)
    system = _first(said, _SYSTEMS)
    if _is_text(system) and messages[0].role != "system":
        messages = (Message("system", str(system)), *messages)
    answer = said.get(columns.answer) if columns.answer is not None else _first(said, _ANSWERS)
    words = answer if _is_text(answer) else answered
    return Text(messages, None if words is None else str(words), _count(_first(said, _LENGTHS)))


def _messages(prompt: object) -> tuple[tuple[Message, ...] | None, str | None]:
    """Return the messages before the first answer, and that answer; None where there is nothing to send."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return ((Message("user", prompt),) if prompt.strip() else None), None
    if not isinstance(prompt, list):
        return None, None
    messages: list[Message] = []
    for each in prompt:
        message = _message(each)
        if message is None:
            return None, None
        if message.role == "assistant" and any(one.role == "user" for one in messages):
            return tuple(messages), message.content
        if message.role != "assistant" and message.content.strip():
            messages.append(message)
    return (tuple(messages) if any(one.role == "user" for one in messages) else None), None


def _message(said: object) -> Message | None:
    if not isinstance(said, Mapping):
        return None
    role, content = said.get("role", said.get("from")), said.get("content", said.get("value"))
    if isinstance(content, list):
        content = "".join(
            part["text"] for part in content if isinstance(part, Mapping) and _is_text(part.get("text"))
        )
    role = _ROLES.get(role, role) if isinstance(role, str) else None
    if role not in _KNOWN_ROLES or role == "tool" or not isinstance(content, str):
        return None
    return Message(str(role), content)


def _first(record: Mapping[str, Any], names: Iterable[str]) -> object:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _count(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None


def _records(path: Path) -> Iterator[object]:
    """Yield the records of a file, or of a folder's files by name."""
    if not path.exists():
        raise TraceError(f"--texts: got no such file or folder, {EXPECTED} ({path})")
    if not path.is_dir():
        yield from _of_file(path)
    elif any((path / name).exists() for name in _OF_LIBRARY):
        yield from _of_library(path)
    else:
        files = [file for file in sorted(path.rglob("*")) if file.suffix in _SUFFIXES]
        if not files:
            raise TraceError(
                f"--texts: got a folder without {', '.join(_SUFFIXES[:-1])}, {EXPECTED} ({path})"
            )
        for file in files:
            yield from _of_file(file)


def _of_file(path: Path) -> Iterator[object]:
    if path.suffix in (".csv", ".parquet"):
        return _of_table(path)
    return _of_plain_lines(path) if path.name.endswith((".txt", ".txt.gz")) else _of_json(path)


def _of_plain_lines(path: Path) -> Iterator[object]:
    """Yield the lines that say something. Raises TraceError for bytes that are no UTF-8."""
    content = read_bytes(path, expected=EXPECTED.removeprefix("expected "))
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as fault:
        raise TraceError(
            f"--texts: got a byte that is no UTF-8 ({fault.start}), expected text ({path})"
        ) from fault
    yield from (line for line in lines if line.strip())


def _of_json(path: Path) -> Iterator[object]:
    """Yield the records of one JSON value, a list or an object of lists, or of a value a line."""
    content = read_bytes(path, expected=EXPECTED.removeprefix("expected "))
    try:
        found = parse_value(content)
    except ValueError:
        yield from _of_lines(content, path)
        return
    if isinstance(found, Mapping) and not any(name in found for name in (*_TALKS, *_PROMPTS, "body")):
        found = [record for part in found.values() if isinstance(part, list) for record in part]
    yield from found if isinstance(found, list) else [found]


def _of_lines(content: bytes, path: Path) -> Iterator[object]:
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            try:
                yield parse_value(line)
            except ValueError as fault:
                raise TraceError(
                    f"--texts: {path.name}:{number}: got {fault}, expected a JSON value a line"
                ) from fault


def _of_table(path: Path) -> Iterator[object]:
    import pandas as pd

    try:
        frame = pd.read_csv(path, dtype=str) if path.suffix == ".csv" else pd.read_parquet(path)
    except (ValueError, OSError, pd.errors.ParserError) as fault:
        raise TraceError(f"--texts: got {' '.join(str(fault).split())[:200]}, {EXPECTED} ({path})") from fault
    names = [str(name) for name in frame.columns]
    for cells in frame.itertuples(index=False, name=None):
        yield {name: _plain(cell) for name, cell in zip(names, cells, strict=True)}


def _plain(cell: object) -> object:
    """Return a cell as JSON has it: lists for arrays, None for what is missing."""
    if hasattr(cell, "tolist"):
        cell = cell.tolist()
    if isinstance(cell, list):
        return [dict(each) if isinstance(each, Mapping) else each for each in cell]
    return None if isinstance(cell, float) and cell != cell else cell  # noqa: PLR0124  nan


def _of_library(path: Path) -> Iterator[object]:
    """Yield the rows of a data set that ``save_to_disk`` wrote. Raises TraceError for one of several splits."""
    from observe.texts.datasets_library import rows_of_data_set

    return rows_of_data_set(path)
