"""What a fuzz target is, and inputs for it: valid ones, damaged."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hypothesis import strategies as st

Inputs = st.SearchStrategy[bytes]


class Target(NamedTuple):
    """Something that reads bytes of strangers.

    ``check`` takes one input and returns; it raises for a fault: a reader's own error (a VtwinError) is none, and
    ``check`` must catch it. Slower than ``MOST_S`` is a fault, too. ``name`` names the corpus' folder.
    ``num_in_suite``: inputs that the suite runs, of one seed; few of a slow target.
    """

    name: str
    inputs: Inputs
    check: Callable[[bytes], object]
    num_in_suite: int = 40


NASTY = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\r",
    b"\n",
    b"\r\n\r\n",
    b'"',
    b"{",
    b"[" * 64,
    b"-1",
    b"0",
    b"1e308",
    b"-1e308",
    b"1e400",
    b"NaN",
    b"Infinity",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"1" * 400,
    b"\\ud800",
    b"=1+1",
    b"::error::",
    b"\x1b[2J",
    b"A" * 300,
)
"""What breaks readers: ends of number ranges, half characters, nesting, control characters."""


_SEPARATORS = re.compile(rb"""[ \t\r\n,:;"{}\[\]()=]+""")


@st.composite
def damaged(
    draw: st.DrawFn, originals: Sequence[bytes], tokens: Sequence[bytes] = (), most_edits: int = 6
) -> bytes:
    """Draw one of ``originals`` with some of its bytes cut, doubled, or replaced by ``tokens`` or what is nasty.

    Places are drawn as bytes or at the ends of words, numbers and lines, where a change still parses.
    """
    data = draw(st.sampled_from(originals))
    pieces = st.sampled_from((*tokens, *NASTY)) | st.binary(max_size=8)
    for _ in range(draw(st.integers(0, most_edits))):
        marks = _marks(data)
        start = draw(st.sampled_from(marks) | st.integers(0, len(data)))
        end = draw(st.sampled_from([mark for mark in marks if mark >= start] or [start]))
        kind = draw(st.sampled_from(("replace", "replace", "insert", "delete", "double", "cut")))
        if kind == "replace":
            data = data[:start] + draw(pieces) + data[end:]
        elif kind == "insert":
            data = data[:start] + draw(pieces) + data[start:]
        elif kind == "delete":
            data = data[:start] + data[end:]
        elif kind == "double":
            data = data[:end] + data[start:end] * draw(st.integers(1, 4)) + data[end:]
        else:
            data = data[:start]
        data = data[: 1 << 16]
    return data


def _marks(data: bytes) -> list[int]:
    """Return the places where something begins or ends, at most 200 of them."""
    found = {0, len(data)}
    for match in _SEPARATORS.finditer(data):
        found |= {match.start(), match.end()}
    return sorted(found)[:: max(len(found) // 200, 1)]
