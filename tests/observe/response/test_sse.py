"""The event-stream parser against a plain reading of the standard, at every place the bytes may be cut."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observe.response.sse import SseParser

BODIES = {
    "usual": b'data: {"a":1}\n\ndata: {"b":2}\n\ndata: [DONE]\n\n',
    "crlf": b"data: one\r\n\r\ndata: two\r\n\r\n",
    "cr": b"data: one\r\rdata: two\r\r",
    "mixed ends": b"data: one\r\n\ndata: two\n\r\ndata: three\r\r\n",
    "comments": b": ping\n\ndata: one\n: within\n\n:\n\ndata: two\n\n",
    "several data lines": b"data: one\ndata: two\ndata:\ndata:  indented\n\n",
    "other fields": b"event: delta\nid: 7\nretry: 10\ndata: one\n\nevent: ping\n\n",
    "no space": b"data:one\n\ndata:  two\n\ndata\n\n",
    "byte order mark": b"\xef\xbb\xbfdata: one\n\ndata: two\n\n",
    "extra blank lines": b"\n\n\ndata: one\n\n\n\ndata: two\n\n",
    "space inside a cut string": b'data: {"text":" a "}\n\ndata: {"text":"  "}\n\n',
    "event after done": b"data: [DONE]\n\ndata: late\n\n",
    "utf-8": 'data: {"text":"naïve \u65e5\u672c \U0001f600"}\n\n'.encode(),
    "vertical tab is text": b"data: a\x0bb\x0cc\x1cd\x85e\n\n",
}


def read_by_the_standard(body: bytes) -> list[bytes]:
    """An oracle that is slow and plain: cut into lines by the grammar, then line by line."""
    payloads: list[bytes] = []
    data: list[bytes] | None = None
    lines = re.split(rb"\r\n|\n|\r", body.removeprefix(b"\xef\xbb\xbf"))[:-1]
    for line in lines:
        if line == b"":
            if data is not None:
                payloads.append(b"\n".join(data))
            data = None
        elif line == b"data":
            data = [*(data or []), b""]
        elif line.startswith(b"data:"):
            value = line[5:]
            data = [*(data or []), value[1:] if value[:1] == b" " else value]
    return payloads


def parse(blobs: list[bytes]) -> list[bytes]:
    parser = SseParser()
    return [payload for blob in blobs for payload in parser.feed(blob)]


def test_a_payload_that_looks_like_a_field_is_one_payload_however_it_is_cut() -> None:
    assert parse([b"data: a\n\n", b"data: ", b"data: b\n\n"]) == [b"a", b"data: b"]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_whole_body_reads_as_the_standard_says(body: bytes) -> None:
    expected = read_by_the_standard(body)
    assert expected
    assert parse([body]) == expected


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_cut_at_any_byte_changes_nothing(body: bytes) -> None:
    expected = read_by_the_standard(body)
    for cut in range(len(body) + 1):
        assert parse([body[:cut], body[cut:]]) == expected, cut
    assert parse([body[i : i + 1] for i in range(len(body))]) == expected


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_two_cuts_at_any_bytes_change_nothing(body: bytes) -> None:
    expected = read_by_the_standard(body)
    for first in range(0, len(body) + 1):
        for second in range(first, len(body) + 1):
            assert parse([body[:first], body[first:second], body[second:]]) == expected, (first, second)


line = st.one_of(
    st.sampled_from(
        [b"", b"data: x", b"data:", b"data", b": c", b"event: e", b"dat", b"datab: x", b"data:  y"]
    ),
    st.binary(max_size=6).map(lambda raw: b"data: " + raw.translate(None, b"\r\n")),
)
body_strategy = st.lists(st.tuples(line, st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=12).map(
    lambda lines: b"".join(text + end for text, end in lines)
)


@given(body=body_strategy, cuts=st.lists(st.integers(0, 120), max_size=8))
def test_any_stream_cut_anywhere_reads_as_the_standard_says(body: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    blobs = [body[a:b] for a, b in itertools.pairwise(places)]
    assert parse(blobs) == read_by_the_standard(body)


def test_a_mark_of_byte_order_later_than_at_the_start_is_a_part_of_the_fields_name() -> None:
    assert parse([b"data: a\n\n", b"\xef\xbb\xbfdata: b\n\ndata: c\n\n"]) == [b"a", b"c"]


def test_whole_events_of_the_usual_form_are_not_cut_into_lines() -> None:
    """After the first, which a mark may open. An event that is left over, or another form, is read line by line."""

    class Noted(SseParser):
        def _feed_lines(self, blob: bytes) -> list[bytes]:
            by_line.append(blob)
            return super()._feed_lines(blob)

    by_line: list[bytes] = []
    parser = Noted()
    for blob in (b"data: a\n\n", b"data: b\n\ndata: c\n\n", b"data: d\n\n: e\n\n", b"data: f", b"\n\n"):
        parser.feed(blob)
    assert by_line == [b"data: a\n\n", b": e\n\n", b"data: f", b"\n\n"]
    by_line.clear()
    for blob in (b"data: a\r\r", b"\ndata: b\n\n", b"data: c\n\n"):
        parser.feed(blob)
    assert by_line == [b"data: a\r\r", b"\ndata: b\n\n"]


def test_an_event_is_given_with_the_blob_that_completes_it() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\n") == []
    assert parser.feed(b"\ndata: b\n\ndata: c") == [b"a", b"b"]
    assert parser.feed(b"\n\n") == [b"c"]


def test_an_event_without_its_last_empty_line_is_given_at_the_end() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\n\ndata: usage") == [b"a"]
    assert parser.close() == [b"usage"]
    assert parser.close() == []


def test_nothing_is_left_after_a_whole_stream() -> None:
    parser = SseParser()
    parser.feed(b"data: a\r\n\r\n")
    assert parser.close() == []


def test_an_enormous_line_in_many_blobs_costs_linear_time() -> None:
    parser = SseParser()
    piece = b"x" * 1000
    assert parser.feed(b"data: ") == []
    for _ in range(20_000):
        assert parser.feed(piece) == []
    assert parser.feed(b"\n\n") == [piece * 20_000]
