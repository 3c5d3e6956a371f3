"""Data sets of texts: each format that people have, by hand; what holds no text is left out or refused."""

from __future__ import annotations

import gzip
import json
import sys
import types
from pathlib import Path

import pandas as pd
import pytest

from observe.settings import TextColumns
from observe.texts.data_set import Message, Text, read_texts, text_of
from traces import ConfigError, TraceError

TALK = [
    {"from": "system", "value": "Be brief."},
    {"from": "human", "value": "Hello?"},
    {"from": "gpt", "value": "Hi."},
    {"from": "human", "value": "And you?"},
]
SENT = (Message("system", "Be brief."), Message("user", "Hello?"))


def user(words: str, answer: str | None = None, tokens: int | None = None) -> Text:
    """Return the text of one message of a user."""
    return Text((Message("user", words),), answer, tokens)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"conversations": TALK}, Text(SENT, "Hi.")),
        (
            {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
            user("a", "b"),
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}, user("a")),
        ({"conversation": [{"role": "user", "content": "a"}]}, user("a")),
        ({"prompt": "a", "output_tokens": 7}, user("a", None, 7)),
        ({"prompt": [{"role": "user", "content": "a"}], "chosen": "b"}, user("a", "b")),
        ({"question": "a", "response": "b"}, user("a", "b")),
        ({"instruction": "a", "input": "b", "output": "c"}, user("a\n\nb", "c")),
        ({"instruction": "a", "input": "", "output": "c"}, user("a", "c")),
        ({"system_prompt": "s", "question": "a"}, Text((Message("system", "s"), Message("user", "a")))),
        ({"turns": ["a", "b"]}, user("a")),
        ({"custom_id": "1", "body": {"prompt": "a", "max_tokens": 9}}, user("a", None, 9)),
        ("a", user("a")),
        ({"conversations": [{"from": "gpt", "value": "first"}, *TALK[1:]]}, Text(SENT[1:], "Hi.")),
    ],
)  # fmt: skip
def test_a_record_is_what_a_client_sends(record: object, text: Text) -> None:
    assert text_of(record, TextColumns()) == text


@pytest.mark.parametrize(
    "record",
    [
        *(
            None,
            3,
            "",
            {},
            {"prompt": " "},
            {"prompt": 5},
            {"messages": []},
            {"conversations": [{"from": "gpt"}]},
        ),
        {"messages": [{"role": "assistant", "content": "alone"}]},
        {"messages": [{"role": "tool", "content": "x"}, {"role": "user", "content": "a"}]},
        {"messages": [{"role": "system", "content": "alone"}]},
    ],
)
def test_a_record_without_a_text_is_none(record: object) -> None:
    assert text_of(record, TextColumns()) is None


def test_columns_by_name() -> None:
    record = {"prompt": "not this", "asked": "a", "said": "b"}
    assert text_of(record, TextColumns(prompt="asked", answer="said")) == user("a", "b")


def test_files_of_every_kind_hold_the_same_texts(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "answer": "b"}, {"prompt": "c", "answer": "d"}]
    lines = "\n".join(map(json.dumps, rows))
    (tmp_path / "list.json").write_text(json.dumps(rows))
    (tmp_path / "parts.json").write_text(json.dumps({"train": rows[:1], "test": rows[1:]}))
    (tmp_path / "lines.jsonl").write_text(lines + "\n\n")
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    frame = pd.DataFrame(rows)
    frame.to_csv(tmp_path / "table.csv", index=False)
    frame.to_parquet(tmp_path / "table.parquet")
    expected = [user("a", "b"), user("c", "d")]
    for path in sorted(tmp_path.iterdir()):
        assert read_texts(path) == (expected, 0), path
    assert read_texts(tmp_path) == (expected * 6, 0)


def test_a_parquet_file_of_messages(tmp_path: Path) -> None:
    talks = [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]]
    pd.DataFrame({"messages": talks}).to_parquet(tmp_path / "t.parquet")
    assert read_texts(tmp_path / "t.parquet") == ([user("a", "b")], 0)


def test_records_without_a_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"prompt": "a"}\n{"prompt": null}\n{"id": 1}\n')
    assert read_texts(tmp_path / "t.jsonl") == ([user("a")], 2)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"a": 1}\n{"b": 2}\n', "got 2 records of keys a and no text"),
        ('{"prompt": "a"}\n{oops\n', "t.jsonl:2: got"),
        ("[]", "got 0 records and no text"),
    ],
)
def test_what_holds_no_text_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises(TraceError, match=words):
        read_texts(tmp_path / "t.jsonl")


def test_an_empty_folder_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"got a folder without \.json"):
        read_texts(tmp_path)
    with pytest.raises(TraceError, match="got no such file or folder"):
        read_texts(tmp_path / "none.json")


def library(found: object, monkeypatch: pytest.MonkeyPatch) -> type:
    """Put a library in place of ``datasets``; return its class of several splits."""
    splits = type("DatasetDict", (dict,), {})
    module = types.ModuleType("datasets")
    vars(module).update(DatasetDict=splits, load_from_disk=lambda _: found)
    monkeypatch.setitem(sys.modules, "datasets", module)
    return splits


def test_a_saved_data_set_is_read_by_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state.json").write_text("{}")
    library([{"prompt": "a"}], monkeypatch)
    assert read_texts(tmp_path) == ([user("a")], 0)


def test_one_of_several_splits_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dataset_dict.json").write_text("{}")
    found: dict[str, list[object]] = {"train": [], "test": []}
    splits = library(found, monkeypatch)
    library(splits(found), monkeypatch)
    monkeypatch.setattr(sys.modules["datasets"], "DatasetDict", splits)
    with pytest.raises(TraceError, match=r"2 splits, expected one of .*train, .*test"):
        read_texts(tmp_path)


def test_a_saved_data_set_needs_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"vtwin\[datasets\]"):
        read_texts(tmp_path)
