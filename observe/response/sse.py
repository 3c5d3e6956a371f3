"""Server-sent events, parsed incrementally: bytes in, event payloads out, however the bytes were split.

Source of the rules: WHATWG HTML, "Parsing an event stream" (lines end in LF, CR or CRLF; a line of its
own that is empty ends an event; several ``data`` lines join with LF; lines that open with a colon are
comments; a byte order mark may open the stream). Field names other than ``data`` carry nothing that a
load generator needs and are passed over. ``[DONE]`` is a payload like any other: it does not end the body.
"""

from __future__ import annotations

_BOM = b"\xef\xbb\xbf"


class SseParser:
    """The state between two blobs of one event stream.

    Cost: linear in the bytes, also for one enormous line that arrives in many blobs.
    """

    __slots__ = ("_cut_line", "_data", "_first_line", "_skip_lf")

    def __init__(self) -> None:
        self._cut_line: list[bytes] = []  # pieces of the line that has no end yet
        self._data: list[bytes] = []  # data lines of the event that has no end yet
        self._first_line = True
        self._skip_lf = False  # the last blob ended in CR: an LF that opens the next belongs to it

    def feed(self, blob: bytes) -> list[bytes]:
        """Take ``blob``; return the payloads of the events that it completes, in order."""
        if self._has_only_complete_events(blob):
            return self._feed_complete_events(blob)
        return self._feed_lines(blob)

    def close(self) -> list[bytes]:
        """Return the payload of an event that the body's end left without its empty line, if any.

        The standard drops it; but servers exist that forget that line, and their usage would be lost.
        """
        return self._feed_lines(b"\n\n")

    def _has_only_complete_events(self, blob: bytes) -> bool:
        """Return whether ``blob`` holds whole LF-ended events and nothing is left over from before."""
        fresh = not self._cut_line and not self._data and not self._skip_lf
        return fresh and blob.endswith(b"\n\n") and b"\r" not in blob and not self._first_line

    def _feed_complete_events(self, blob: bytes) -> list[bytes]:
        """Split whole events at C speed; one of any but the usual form takes the general way."""
        payloads: list[bytes] = []
        for event in blob[:-2].split(b"\n\n"):
            if event.startswith(b"data: ") and b"\n" not in event:
                payloads.append(event[6:])
            else:
                payloads.extend(self._feed_lines(event + b"\n\n"))
        return payloads

    def _feed_lines(self, blob: bytes) -> list[bytes]:
        if self._skip_lf and blob:
            self._skip_lf = False
            if blob.startswith(b"\n"):
                blob = blob[1:]
        if b"\n" not in blob and b"\r" not in blob:
            if blob:
                self._cut_line.append(blob)
            return []
        lines = b"".join((*self._cut_line, blob)).splitlines(keepends=True)
        self._cut_line = [] if lines[-1].endswith((b"\n", b"\r")) else [lines.pop()]
        self._skip_lf = not self._cut_line and lines[-1].endswith(b"\r")
        payloads: list[bytes] = []
        for line in lines:
            self._take_line(line.rstrip(b"\r\n"), payloads)
        return payloads

    def _take_line(self, line: bytes, payloads: list[bytes]) -> None:
        """Add one line, its end stripped, to the event; an event that it ends goes to ``payloads``."""
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                payloads.append(b"\n".join(self._data))
                self._data = []
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
