"""Strangers' JSON: half characters and packed bytes, each in time that grows with their size."""

from __future__ import annotations

import gzip
import json
import time

import numpy as np
import pytest

from traces.strict.json_text import DAMAGED, TooLarge, parse_value, unpacked


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
