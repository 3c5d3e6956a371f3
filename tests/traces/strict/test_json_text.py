"""Strangers' JSON: half characters and packed bytes, each in time that grows with their size."""

from __future__ import annotations

import gzip
import json
import time

import numpy as np
import pytest

from traces.strict import json_text
from traces.strict.json_text import DAMAGED, TooLarge, finite, parse_value, unpacked


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'["a\\ud800b", "\\ud83d\\ude00", "\\udc00"]', ["a\ufffdb", "\U0001f600", "\ufffd"]),
        (b'{"\\uD800": {"x": "\\uDFFF"}}', {"\ufffd": {"x": "\ufffd"}}),
        ('["\ud800"]', ["\ufffd"]),
        (b'[1234567890123456789, "\\udbff"]', [1234567890123456789, "\ufffd"]),
    ],
)
def test_half_a_character_is_replaced_and_the_text_can_be_written(text: bytes | str, value: object) -> None:
    found = parse_value(text)
    assert found == value
    json.dumps(found, ensure_ascii=False).encode()


def unpacking_cpu_s(content: bytes) -> float:
    began = time.process_time()
    unpacked(content, most=1 << 30)
    return time.process_time() - began


@pytest.mark.parametrize("kind", ["empty members", "one member"])
def test_the_time_to_unpack_grows_with_the_size_and_not_with_its_square(kind: str) -> None:
    piece = gzip.compress(b"") * 5_000 if kind == "empty members" else b""
    sizes = {}
    for times in (1, 8):
        random = np.random.default_rng(0).bytes(times << 21)
        sizes[times] = piece * times if piece else gzip.compress(random, 0)
    assert min(unpacking_cpu_s(sizes[8]) for _ in range(3)) < 24 * min(
        unpacking_cpu_s(sizes[1]) for _ in range(3)
    )


def test_members_one_behind_the_other_and_zeros_behind_them_are_one_file() -> None:
    content = gzip.compress(b"a") + gzip.compress(b"") + gzip.compress(b"bc") + bytes(7)
    assert b"".join(unpacked(content, most=10)) == b"abc"
    with pytest.raises(TooLarge):
        unpacked(content, most=2)
    for broken in (content[:-12], b"\x1f\x8b\x07" + content[3:], content[:-7] + b"more"):
        with pytest.raises(DAMAGED):
            unpacked(broken, most=10)


def test_long_numbers_are_read_digit_by_digit_and_not_rounded() -> None:
    for text in (b"[12345678901234567890]", "[12345678901234567890]"):
        assert parse_value(text) == [12345678901234567890]
    with pytest.raises(ValueError, match="a number of 21 digits"):
        parse_value(b"[123456789012345678901]")
    with pytest.raises(ValueError, match="nested too deep"):
        parse_value("[" * 100_000)
    with pytest.raises(ValueError, match="bytes that are no text, at 2"):
        parse_value(b'["\xff"]')


def test_the_fast_reader_reads_what_has_no_long_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text.json, "loads", lambda *_, **__: pytest.fail("the slow one"))
    assert parse_value(b'{"a": [1, 2.5]}') == {"a": [1, 2.5]}
    assert json_text.parser_of(b"1\n[2]\n") is not parse_value
    assert json_text.parser_of(b"1234567890123456789\n") is parse_value


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", float("inf"), "1e400"])
def test_what_is_no_finite_number_is_refused(value: object) -> None:
    assert finite("-1.5e3") == -1500
    with pytest.raises(ValueError, match="which is no finite number"):
        finite(value)


def test_just_as_many_bytes_as_are_allowed_are_unpacked() -> None:
    assert b"".join(unpacked(gzip.compress(b"abc"), most=3)) == b"abc"
    with pytest.raises(TooLarge):
        unpacked(gzip.compress(b"abcd"), most=3)
