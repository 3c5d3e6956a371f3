"""Which file a request belongs to: one for each window of time, by the request's start.

Spans arrive late and in any order. A window's file is sorted when none has arrived for it for a while, and opened again
if one does. Memory is bounded: open files, and ids of their requests.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import Final

from observe.receive.window_file import WindowFile
from traces import ConfigError, TraceError, check_place, companion_file, make_folder, stem_of
from traces.importers.otel import LeftOut, Span, SpanRequest, Tally, request_of

LATE_S: Final = 86_400
"""A request that began longer ago is rejected: its file is not opened again."""
AHEAD_S: Final = 300
"""So is one that begins in the future by more than clocks may differ."""
QUIET_S: Final = 60
"""A file whose window is over is sorted when it has received nothing for this long."""
MOST_OPEN: Final = 4
MOST_ROWS: Final = 500_000
"""The most requests of a file; the window continues in another. Their ids take some 50 MB."""
_NAME: Final = "%Y%m%dT%H%M%SZ"
_FILE: Final = re.compile(r"-\d{8}T\d{6}Z(-\d+)?\.(yaml|csv|parquet)")


def check_output(output: Path, *, resume: bool, overwrite: bool) -> None:
    """Make the folder. Raises ConfigError if it has files of an earlier run, and neither option allows it."""
    stem = stem_of(output)
    make_folder(stem.absolute().parent, option="--output")
    check_place(stem, option="--output")
    there = sorted(
        file.name
        for file in stem.absolute().parent.iterdir()
        if file.name.startswith(stem.name) and _FILE.fullmatch(file.name.removeprefix(stem.name))
    )
    if there and not (resume or overwrite):
        raise ConfigError(
            f"--output: {there[-1]} was received before, expected another place, --resume to go on with it, or "
            "--overwrite to replace it"
        )


@dataclass(slots=True)
class _Open:
    """A file that takes rows, which part of its window it is, and when it last got one (s of the clock)."""

    file: WindowFile
    part: int
    touched_s: float


class Windows:
    """The files of a receiver. Its methods may be called from any thread, and wait for each other.

    ``unfinished``: files that could not be put in order, and why; their rows are as they came.
    """

    def __init__(
        self,
        output: Path,
        *,
        every_s: float,
        resume: bool = False,
        command: str = "vtwin receive",
        clock: Callable[[], float] = time.time,
        most_rows: int = MOST_ROWS,
    ) -> None:
        self._stem = stem_of(output)
        self._every_us = round(every_s * 1e6)
        self._resume = resume
        self._command = command
        self._clock = clock
        self._most_rows = most_rows
        self._open: dict[int, _Open] = {}
        self._parts: dict[int, int] = {}
        self._lock = threading.Lock()
        self.tally = Tally()
        self.rejected = Counter[str]()
        self.unfinished: dict[Path, str] = {}

    @property
    def num_files(self) -> int:
        """How many files were begun or opened again."""
        return sum(self._parts.values())

    def take(self, spans: Iterable[Span]) -> Counter[str]:
        """Put requests on the disk; return how many spans of requests were not taken, by the reason.

        Raises OSError or TraceError if writing fails: rows that were written stay, and are not written twice.
        """
        with self._lock:
            rejected, found = self._sorted(spans)
            for key, requests in found.items():
                self._append(key, requests)
            self.rejected += rejected
            return rejected

    def put_in_order(self, *, all_of_them: bool = False) -> list[tuple[Path, int]]:
        """Finish the files that are over and quiet, or all; return each with how many requests it has.

        One that cannot be finished is in ``unfinished``, with the reason, and the others are finished all the same.
        """
        now_s = self._clock()
        with self._lock:
            over = [
                key
                for key, each in self._open.items()
                if all_of_them
                or (now_s >= (key + 1) * self._every_us / 1e6 + QUIET_S and now_s >= each.touched_s + QUIET_S)
            ]
            done = [self._finish(key) for key in over]
        return [each for each in done if each is not None]

    def _sorted(self, spans: Iterable[Span]) -> tuple[Counter[str], dict[int, list[SpanRequest]]]:
        """Return the requests by their windows, and how many spans are rejected."""
        now_us = self._clock() * 1e6
        rejected, found = Counter[str](), defaultdict[int, list[SpanRequest]](list)
        for span in spans:
            request = request_of(span)
            if request is None:
                self.tally.num_other += 1
            elif isinstance(request, LeftOut):
                self.tally.left_out[request] += 1
                rejected[str(request)] += 1
                self._tell_file(span, request)
            elif not now_us - LATE_S * 1e6 <= request.start_us <= now_us + AHEAD_S * 1e6:
                rejected["began more than a day ago, or have yet to"] += 1
            else:
                found[request.start_us // self._every_us].append(request)
        return rejected, found

    def _tell_file(self, span: Span, reason: LeftOut) -> None:
        """Note in the file that a request is missing from it, if the file is open."""
        within = self._open.get(span.start_ns // 1000 // self._every_us)
        if within is not None:
            within.file.tally.left_out[reason] += 1

    def _append(self, key: int, requests: list[SpanRequest]) -> None:
        place = 0
        while place < len(requests):
            opened = self._opened(key)
            room = self._most_rows - opened.file.num_rows
            before = opened.file.tally.num_repeated
            self.tally.num_requests += opened.file.append(requests[place : place + room])
            self.tally.num_repeated += opened.file.tally.num_repeated - before
            opened.touched_s = self._clock()
            place += room

    def _opened(self, key: int) -> _Open:
        """Return the window's file, begun, opened again, or, where it is full, the next."""
        opened = self._open.get(key)
        if opened is not None and opened.file.num_rows < self._most_rows:
            return opened
        part = self._parts.get(key, 1)
        if opened is not None:
            self._finish(key)
            part += 1
        elif len(self._open) >= MOST_OPEN:
            self._finish(min(self._open, key=lambda each: self._open[each].touched_s))
        is_known = self._parts.get(key) == part
        stem = self._stem_of(key, part)
        if is_known or (self._resume and companion_file(stem, ".yaml").is_file()):
            file = WindowFile.reopen(stem)
        else:
            file = WindowFile.begin(stem, origin_us=key * self._every_us, command=self._command)
        self._parts[key] = part
        self._open[key] = _Open(file, part, self._clock())
        return self._opened(key)

    def _stem_of(self, key: int, part: int) -> Path:
        start = datetime.fromtimestamp(key * self._every_us / 1e6, tz=UTC).strftime(_NAME)
        return companion_file(self._stem, f"-{start}" + (f"-{part}" if part > 1 else ""))

    def _finish(self, key: int) -> tuple[Path, int] | None:
        opened = self._open.pop(key)
        stem = self._stem_of(key, opened.part)
        try:
            done = opened.file.finish()
        except (OSError, TraceError) as fault:
            self.unfinished[stem] = str(fault)
            return None
        self.unfinished.pop(stem, None)
        return stem, done
