"""An answer that was not streamed: one JSON object, all of whose tokens came at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import orjson

from observe.response.reading import Reading
from observe.response.stream_reader import StreamReader, error_message
from traces import quoted


def read_unstreamed(
    blobs: Sequence[bytes],
    last_stamp: int | None,
    *,
    whole: bool,
    with_reply: bool = False,
    asked: int | None = None,
    hide: Callable[[str], str] = str,
) -> Reading:
    """Return the body's reading. The time of the first token is not known; the last came with the last byte."""
    body = b"".join(blobs)
    reader = StreamReader(streamed=False, with_reply=with_reply, asked=asked, hide=hide)
    if not body or last_stamp is None or not whole:
        return reader.finish(last_stamp, whole=False)
    fault = _fault(body, hide)
    if fault is not None:
        return reader.finish(last_stamp, whole=False, fault=fault)
    reader.take(b"data: " + orjson.dumps(orjson.loads(body)) + b"\n\n", last_stamp)
    return reader.finish(last_stamp, whole=False)  # an end that is not a stream's has no further meaning


def _fault(body: bytes, hide: Callable[[str], str]) -> str | None:
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = None
    if not isinstance(said, dict):
        start = hide(body[:4096].decode("utf-8", "replace"))
        return f"body: got {quoted(start)}, expected a JSON object"
    message = error_message(said)
    return None if message is None else hide(message)
