"""A text of 100,000 characters anywhere in a file: no line quotes more than 80 of it, no name in a trace has it all."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.mutate import Files
from tests.fuzz.readers_targets import READERS
from traces import VtwinError, read_trace

SOLID = "q" * 100_000
SPACED = "qq qqq " * 15_000
VALUE = re.compile(rb"""[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?|"(?:[^"\\\n]|\\.)*"|[\w.-]+""")
LISTS = ("prefix_hashes", "images", "awaited_request_ids")
PLACES = 4
"""Of a file, from its beginning to its end."""


def with_long_texts(files: Files) -> Iterator[Files]:
    for name, content in files.items():
        if b"\x00" in content:
            continue
        places = list(VALUE.finditer(content))
        for number, found in enumerate(places[:: max(1, len(places) // PLACES)]):
            text = (SOLID, SPACED)[number % 2].encode()
            if content.lstrip()[:1] in (b"{", b"[") or found[0].startswith(b'"'):
                text = b'"' + text + b'"'
            yield {**files, name: content[: found.start()] + text + content[found.end() :]}


def longest_name(folder: Path) -> int:
    """Return the length of the longest name in the trace that a converter wrote; 0 where it wrote none."""
    if not (folder / "out.csv").exists():
        return 0
    trace = read_trace(folder / "out")
    assert max(map(longest, trace.header.source.lines()), default=0) <= 80 if trace.header.source else True
    columns = [trace.table[name] for name in trace.table.names if name not in LISTS]
    texts = [cells.known().tolist() for cells in columns if cells.values.dtype == object]
    return max((len(str(each)) for each in itertools.chain(*texts)), default=0)


def longest(line: str) -> int:
    return max((len(found.strip()) for found in re.findall(r"q[q ]*", line)), default=0)


@pytest.mark.parametrize("reader", READERS)
def test_a_long_text_is_cut_in_the_line_of_every_reader(reader: str) -> None:
    made, read = READERS[reader]
    for files in with_long_texts(made()[0]):
        with tempfile.TemporaryDirectory() as name:
            for file, content in files.items():
                (Path(name) / file).parent.mkdir(parents=True, exist_ok=True)
                (Path(name) / file).write_bytes(content)
            try:
                read(Path(name))
                assert longest_name(Path(name)) <= 520
            except VtwinError as error:
                assert longest(str(error)) <= 80, str(error)[:300]
                assert longest(error.whole) <= 4000
