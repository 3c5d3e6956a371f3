"""Damage to files: values of another kind or size, lines lost, doubled and swapped, bytes cut and flipped.

The chances come from a ``random.Random``, a plain one or one of hypothesis's, so that a survey of many thousand files
and a search for the smallest fault damage them alike.
"""

from __future__ import annotations

import re
from random import Random

Files = dict[str, bytes]

_VALUE = re.compile(rb"""[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?|"(?:[^"\\\n]|\\.)*"|[\w.-]+""")
VALUES = (
    *(b"", b"0", b"-1", b"1", b"0.5", b"1e-300", b"1e300", b"-1e300", b"1e400", b"nan", b"NaN", b"inf", b"Infinity"),
    *(b"2147483647", b"2147483648", b"4294967296", b"9223372036854775807", b"9223372036854775808"),
    *(b"-9223372036854775809", b"18446744073709551616", b"1" * 400, b"9" * 5000, b"1e999999999", b"0x10", b"1_000"),
    *(b"true", b"false", b"null", b"~", b'""', b'"x"', b"[]", b"{}", b"[1]", b"[[1]]", b'{"a": 1}', b"[null]", b'[""]'),
    *(b'"\\ud800"', b'"\\u0000"', b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"a\nb"', b"*x", b"&x"),
    *(b"'", b'"', b",", b":", b"\t", b"\r", b"\x1b[2J", b"::error::x", b"<b>x</b>", "\u2028".encode(), b"2024-13-45"),
)  # fmt: skip
"""What a value may have become: ends of ranges, other kinds, text that means something to somebody."""

_DEEP = 3000


def damaged_files(random: Random, files: Files) -> Files:
    """Return the files with one of them damaged, once or a few times; rarely missing, empty or deep."""
    name = random.choice(sorted(files))
    kind = random.randrange(60)
    if kind == 0 and len(files) > 1:
        return {key: value for key, value in files.items() if key != name}
    if kind == 1:
        return {**files, name: b""}
    if kind == 2:
        return {**files, name: _nested(random, files[name])}
    data = files[name]
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        data = _damaged(random, data)
    return {**files, name: data}


def _damaged(random: Random, data: bytes) -> bytes:
    kind = random.randrange(12)
    if kind < 6:
        return _with_other_value(random, data)
    if kind < 9:
        return _with_other_lines(random, data)
    start = random.randint(0, len(data))
    end = min(len(data), start + random.choice((0, 1, 1, 4, 64)))
    if kind == 9:
        return data[:start]
    if kind == 10:
        return data[:start] + data[end:]
    return data[:start] + random.choice((*VALUES, bytes([random.randrange(256)]))) + data[end:]


def _with_other_value(random: Random, data: bytes) -> bytes:
    """Return the data with a number, a text or a word in it replaced, or swapped for another of the file's own."""
    places = [match.span() for match in _VALUE.finditer(data, 0, 1 << 16)]
    if not places:
        return data + random.choice(VALUES)
    start, end = random.choice(places)
    if random.randrange(5) == 0:
        other = random.choice(places)
        return data[:start] + data[slice(*other)] + data[end:]
    return data[:start] + random.choice(VALUES) + data[end:]


def _with_other_lines(random: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    i, j = random.randrange(len(lines)), random.randrange(len(lines))
    kind = random.randrange(4)
    if kind == 0:
        del lines[i]
    elif kind == 1:
        lines[i:i] = [lines[j]] * random.choice((1, 1, 50))
    elif kind == 2:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        cells = lines[i].split(b",")
        k = random.randrange(len(cells))
        cells[k : k + 1] = random.choice(([], [cells[k]] * 2, [random.choice(VALUES)]))
        lines[i] = b",".join(cells)
    return b"\n".join(lines)


def _nested(random: Random, data: bytes) -> bytes:
    """Return the data with one of its values nested deeper than anyone reads."""
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"- ", b"")))
    places = [match.span() for match in _VALUE.finditer(data, 0, 1 << 16)] or [(0, 0)]
    start, end = random.choice(places)
    return data[:start] + opening * _DEEP + b"1" + closing * _DEEP + data[end:]


def packed(files: Files) -> bytes:
    """Return several files as one, for the corpus: a line with name and length before each."""
    return b"".join(f"{name} {len(data)}\n".encode() + data for name, data in sorted(files.items()))


def unpacked(data: bytes) -> Files:
    """Return the files that ``packed`` made one of."""
    files: Files = {}
    while data:
        head, _, rest = data.partition(b"\n")
        name, _, length = head.decode().rpartition(" ")
        files[name], data = rest[: int(length)], rest[int(length) :]
    return files
