"""An answer that was not streamed: one JSON object, all of whose tokens came at its end."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from observe.response.reading import Reading
from observe.response.stream_reader import StreamReader, error_message
from traces import quoted


def read_unstreamed(
    reader: StreamReader, blobs: Sequence[bytes], last_stamp: int | None, *, whole: bool
) -> Reading:
    """Return the body's reading by a reader that is not ``streamed``.

    The time of the first token is not known; the last came with the last byte.
    """
    body = b"".join(blobs)
    if not body or last_stamp is None or not whole:
        return reader.finish(last_stamp, whole=False)
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = None
    if not isinstance(said, dict):
        start = reader.hide(body[:4096].decode("utf-8", "replace"))
        return reader.finish(
            last_stamp, whole=False, fault=f"body: got {quoted(start)}, expected a JSON object"
        )
    message = error_message(said)
    if message is not None:
        return reader.finish(last_stamp, whole=False, fault=reader.hide(message))
    reader.take_whole(said, last_stamp, num_bytes=len(body))
    return reader.finish(last_stamp, whole=False)  # an end that is not a stream's has no further meaning
