"""The receiver's files beside a plain model of them: lists of ids, whatever comes in whatever order."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from observe.receive.time_windows import AHEAD_S, LATE_S, MOST_OPEN, QUIET_S, Windows
from tests.examples import few_or_all
from tests.observe.receive.test_receive import NOW_S, Clock, spans_of
from tests.traces.importers.otel.spans import span, vllm
from traces import companion_file, read_trace

EVERY_S = 3600
FIRST_HOUR = int(NOW_S) // EVERY_S
MOST_ROWS = 3
TIMES = "began more than a day ago, or have yet to"
NO_ID = "have no span id"


@dataclass
class File:
    """A window's file that is open: which part it is, and when it was last written to."""

    part: int
    touched_s: float


@dataclass
class Plain:
    """What a receiver should have: the ids of each (hour, part), which are open, and what it counts."""

    ids: dict[tuple[int, int], list[int]]
    is_resumed: bool
    open: dict[int, File] = field(default_factory=dict)
    parts: dict[int, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def finish(self, hour: int) -> tuple[int, int, int]:
        file = self.open.pop(hour)
        return hour, file.part, len(self.ids[hour, file.part])

    def opened(self, hour: int, now_s: float) -> list[int]:
        """Return the ids of the file that takes the hour's next request."""
        file = self.open.get(hour)
        if file is None and len(self.open) == MOST_OPEN:
            self.finish(min(self.open, key=lambda each: self.open[each].touched_s))
        while file is None or len(self.ids[hour, file.part]) == MOST_ROWS:
            part = self.parts.get(hour, 1) if file is None else file.part + 1
            if file is not None:
                self.finish(hour)
            if not (self.is_resumed or self.parts.get(hour) == part):
                self.ids[hour, part] = []
            self.ids.setdefault((hour, part), [])
            self.parts[hour] = part
            self.open[hour] = file = File(part, now_s)
        file.touched_s = now_s
        return self.ids[hour, file.part]

    def take(self, spans: list[tuple[str, int, float]], now_s: float) -> Counter[str]:
        """Take (kind, id, start in s) of each span; return what is rejected."""
        rejected: Counter[str] = Counter()
        of_hour: dict[int, list[int]] = {}
        for kind, number, start_s in spans:
            if kind == "other":
                self.counts["other"] += 1
            elif kind == "no id":
                rejected[NO_ID] += 1
            elif not now_s - LATE_S <= start_s <= now_s + AHEAD_S:
                rejected[TIMES] += 1
            else:
                of_hour.setdefault(int(start_s // EVERY_S), []).append(number)
        for hour, numbers in of_hour.items():
            for number in numbers:
                ids = self.opened(hour, now_s)
                self.counts["repeated" if number in ids else "requests"] += 1
                ids += [number] * (number not in ids)
        return rejected

    def put_in_order(self, now_s: float, *, all_of_them: bool) -> list[tuple[int, int, int]]:
        over = [
            hour
            for hour, file in self.open.items()
            if all_of_them or now_s >= max((hour + 1) * EVERY_S, file.touched_s) + QUIET_S
        ]
        return [self.finish(hour) for hour in over]


def drawn_spans(rng: random.Random, now_s: float) -> list[tuple[str, int, float]]:
    """Return spans of the last hours, some of which came before, and a few that are not to be taken."""
    spans = []
    for _ in range(rng.randint(0, 5)):
        kind = rng.choice(["request"] * 9 + ["other", "no id"])
        hour = min(int(now_s) // EVERY_S, FIRST_HOUR + rng.randint(0, 6))
        start_s = rng.choice(
            [hour * EVERY_S + rng.choice([0, 1, 3599])] * 9 + [now_s - LATE_S - 1, now_s + 301]
        )
        spans.append((kind, rng.randint(1, 12), float(start_s)))
    return spans


def stem_of(folder: Path, hour: int, part: int) -> Path:
    from datetime import UTC, datetime

    start = datetime.fromtimestamp(hour * EVERY_S, tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    return folder / (f"prod-{start}" + (f"-{part}" if part > 1 else ""))


@pytest.mark.parametrize("seed", range(few_or_all(8, 200)))
def test_files_are_those_of_a_plain_model(tmp_path: Path, seed: int) -> None:
    rng, clock = random.Random(seed), Clock()
    plain = Plain(ids={}, is_resumed=False)
    windows = Windows(tmp_path / "prod", every_s=EVERY_S, clock=clock, most_rows=MOST_ROWS)
    for _ in range(rng.randint(4, 12)):
        clock.now_s += rng.choice([0, 1, QUIET_S - 1, QUIET_S, 1800, 3600])
        happens = rng.random()
        if happens < 0.1:
            windows.put_in_order(all_of_them=True)
            is_resumed = rng.random() < 0.7
            windows = Windows(
                tmp_path / "prod", every_s=EVERY_S, clock=clock, most_rows=MOST_ROWS, resume=is_resumed
            )
            plain = Plain(ids=plain.ids, is_resumed=is_resumed)
        elif happens < 0.3:
            ends = rng.random() < 0.2
            done = windows.put_in_order(all_of_them=ends)
            expected = plain.put_in_order(clock.now_s, all_of_them=ends)
            assert done == [(stem_of(tmp_path, hour, part), num) for hour, part, num in expected]
        else:
            spans = drawn_spans(rng, clock.now_s)
            made = []
            for kind, number, start_s in spans:
                each = vllm(number, start_s=start_s - NOW_S)
                if kind == "other":
                    each = span(number, {}, name="tool")
                elif kind == "no id":
                    each.span_id = b"\1"
                made.append(each)
            assert windows.take(spans_of(*made)) == plain.take(spans, clock.now_s)
        assert windows.tally.num_requests == plain.counts["requests"]
        assert windows.tally.num_repeated == plain.counts["repeated"]
        assert windows.tally.num_other == plain.counts["other"]
        assert windows.num_files == sum(plain.parts.values())
    for (hour, part), ids in plain.ids.items():
        if not ids:
            continue
        trace = read_trace(stem_of(tmp_path, hour, part))
        found = [int(name, 16) for name in trace.column("request_id")]
        is_open = hour in plain.open and plain.open[hour].part == part
        assert trace.header.client is not None
        assert trace.header.client.finished != is_open
        assert trace.header.start_unix_us == hour * EVERY_S * 1_000_000
        assert (found if is_open else sorted(found)) == (ids if is_open else sorted(ids))
        if not is_open:
            arrival = trace.column("arrival_time_us").tolist()
            assert arrival == sorted(arrival)
    windows.put_in_order(all_of_them=True)
    assert len(list(tmp_path.glob("*.yaml"))) == len(plain.ids)
    assert companion_file(tmp_path / "prod", ".yaml").exists() is False
