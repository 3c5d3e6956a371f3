"""What is said of queues of every kind, whole, beside what was said before (``known_queues.jsonl``).

Stages, bursts, clients that give up, answers of uneven length, steps that take ever longer. What a stretch is by hand:
``test_stretches_by_hand.py``. ``python -m tests.replay.verdict.test_known_queues`` writes the file anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush, heapreplace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from replay.verdict.queued import Queued
from replay.verdict.sentences import (
    Verdict,
    bursts_told,
    is_material,
    is_whole,
    page_title,
    stretches_told,
    verdict_sentence,
)
from replay.verdict.stretches import Down, overloaded_stretches

KNOWN = Path(__file__).with_name("known_queues.jsonl")
S = 1_000_000
Int64s = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Load:
    """Stages of (seconds, requests/s), bursts of (second, requests), and who serves them; times in µs.

    ``patience_s``: who waits for longer gives up. ``slower``: with so many requests at once a step takes twice as long.
    ``spread``: of gaps and of lengths, 0: even, 1: from nothing to twice the mean.
    """

    stages: tuple[tuple[int, int], ...]
    bursts: tuple[tuple[int, int], ...] = ()
    seats: int = 4
    served_us: int = 400_000
    patience_s: float = 1e6
    slower: int = 0
    spread: float = 1.0
    limit_us: float | None = None
    seed: int = 1
    start_us: int = 0
    downs: tuple[tuple[float, float], ...] = ()

    def down(self) -> list[Down]:
        """Return the times, s from the first request on, in which an instance is said to have been down."""
        return [
            Down(
                instance=f"{number % 2}", from_us=self.start_us + int(a * S), to_us=self.start_us + int(b * S)
            )
            for number, (a, b) in enumerate(self.downs)
        ]

    def came_us(self) -> Int64s:
        draw, parts, start = np.random.default_rng(self.seed), [], 0
        for seconds, per_s in self.stages:
            mean = S // per_s
            low = round(mean * (1 - self.spread))
            gaps = draw.integers(low, 2 * mean - low + 1, seconds * per_s)
            parts.append(start + np.cumsum(gaps) * (seconds * S) // max(int(gaps.sum()), 1))
            start += seconds * S
        parts += [np.full(number, second * S) for second, number in self.bursts]
        return np.sort(np.concatenate(parts)).astype(np.int64) + self.start_us

    def queued(self) -> Queued:
        came = self.came_us()
        draw = np.random.default_rng(self.seed + 1)
        steps = draw.integers(max(round(100 * (1 - self.spread)), 1), 200, len(came))
        busy_until: list[int] = []
        began, left, lost = [], [], []
        for at, length in zip(came.tolist(), steps.tolist(), strict=True):
            while busy_until and busy_until[0] <= at:
                heappop(busy_until)
            present = len(busy_until)
            begin = busy_until[0] if present == self.seats else at
            gives_up = begin - at > self.patience_s * S
            took = self.served_us * length // 100
            took += took * present // self.slower if self.slower else 0
            lost.append(gives_up)
            began.append(at + int(self.patience_s * S) if gives_up else begin)
            left.append(began[-1] + (0 if gives_up else took))
            if not gives_up:
                (heapreplace if present == self.seats else heappush)(busy_until, left[-1])
        return Queued(
            came_us=came,
            began_us=np.array(began),
            left_us=np.array(left),
            is_lost=np.array(lost),
            step_us=np.full(len(came), self.served_us / 100),
            num_steps=steps.astype(np.float64),
        )


def any_load(seed: int) -> Load:
    """Return a load of three to six stages that are served at about ten requests a second, by draw."""
    draw = np.random.default_rng(seed)
    seconds, rates = draw.integers(20, 100, 6).tolist(), draw.integers(2, 25, 6).tolist()
    seats, num_stages, num_bursts = (int(each) for each in draw.integers((1, 3, 0), (9, 7, 3)))
    return Load(
        stages=tuple(zip(seconds, rates, strict=True))[:num_stages],
        bursts=tuple((int(draw.integers(10, 200)), int(draw.integers(10, 150))) for _ in range(num_bursts)),
        seats=seats,
        served_us=100_000 * seats,
        patience_s=(0.3, 2.0, 10.0, 1e6, 1e6)[int(draw.integers(5))],
        slower=(0, 0, 0, 8)[int(draw.integers(4))],
        spread=(0.0, 0.5, 1.0)[int(draw.integers(3))],
        start_us=int(draw.integers(50 * S)),
        seed=seed,
    )


def near_chance(seed: int) -> Load:
    """Return a load of which hardly more waits than chance explains: bursts of 5 to 45 requests, by draw."""
    draw = np.random.default_rng(seed)
    seats = int(draw.integers(1, 7))
    return Load(
        stages=((int(draw.integers(20, 200)), int(draw.integers(1, 10))),),
        bursts=tuple(
            (int(at), int(draw.integers(5, 45))) for at in draw.integers(5, 180, draw.integers(1, 6))
        ),
        seats=seats,
        served_us=100_000 * seats,
        patience_s=(1.0, 1e6, 1e6)[int(draw.integers(3))],
        spread=(0.0, 0.3, 1.0)[int(draw.integers(3))],
        limit_us=(None, None, 2e5)[int(draw.integers(3))],
        start_us=int(draw.integers(50 * S)),
        seed=seed,
    )


def down_for_a_time(seed: int) -> Load:
    """Return a load near chance, or of stages, with up to three times in which an instance was down, by draw."""
    draw = np.random.default_rng(seed)
    made = near_chance(seed) if seed % 3 else any_load(seed)
    seconds = sum(each for each, _ in made.stages)
    near = [second for second, _ in made.bursts] or [seconds / 2]
    starts = [draw.choice(near) + draw.uniform(-20, 2) for _ in range(int(draw.integers(1, 4)))]
    return replace(made, downs=tuple((max(at, 0.0), max(at, 0.0) + draw.uniform(5, 60)) for at in starts))


STAGED = ((100, 5), (60, 20), (200, 5))
LOADS = (
    *(Load(stages=STAGED, spread=spread, seed=seed) for spread, seed in ((0.0, 1), (0.5, 2), (1.0, 3))),
    *(Load(stages=STAGED, patience_s=each) for each in (0.5, 3.0, 30.0)),
    *(Load(stages=STAGED, limit_us=each) for each in (1e3, 3e5)),
    Load(stages=((60, 5), (30, 30), (60, 5), (30, 15), (100, 2), (20, 40), (60, 5))),
    Load(stages=((60, 5), (30, 30), (20, 3), (30, 30), (20, 3), (100, 12)), seed=5),
    Load(stages=((200, 8),), bursts=((50, 40), (120, 200), (180, 60)), seed=6),
    Load(stages=((200, 4),), bursts=((100, 300),), patience_s=5.0, seed=7),
    Load(stages=((300, 12),), patience_s=4.0, seed=8),
    Load(stages=((300, 9),), seed=9),
    Load(stages=((100, 30),), seats=1, served_us=30_000, seed=10),
    Load(stages=((100, 10), (100, 40)), seats=10_000, slower=4, seed=11),
    Load(stages=((40, 10), (100, 80), (100, 4)), seats=10_000, slower=16, seed=12),
    Load(stages=((60, 10), (60, 60), (60, 10)), seats=64, slower=8, seed=13),
    Load(stages=((30, 10), (8, 80), (60, 3), (8, 80), (60, 3)), seed=14, spread=0.8),
    Load(stages=((1000, 2),), bursts=((500, 30),), seats=2, seed=15),
    Load(stages=((100, 9), (6, 14), (100, 5)), seats=40, served_us=4_000_000, spread=0.2, seed=16),
    *map(any_load, range(20, 56)),
    Load(stages=((8, 1),), bursts=((4, 26),), seats=2, served_us=200_000, seed=17),
    *map(near_chance, range(60, 100)),
    *map(near_chance, range(200, 260)),
    *map(down_for_a_time, range(300, 390)),
)


def said_again() -> Iterator[dict[str, Any]]:
    """Yield, of each load, its stretches and what is told of them."""
    for load in LOADS:
        queued = load.queued()
        found = overloaded_stretches(
            queued,
            step_us=load.served_us / 100,
            served_us=float(load.served_us),
            limit_us=load.limit_us,
            downs=load.down(),
        )
        sending_us = float(queued.came_us[-1] - queued.came_us[0])
        told = [verdict_sentence("overloaded", found, sending_us=sending_us)]
        if found:
            told += [
                verdict_sentence("stable", found, good_frac=0.5, sending_us=sending_us),
                bursts_told(found),
                stretches_told(found, counts="rounds"),
                page_title(
                    "overloaded",
                    found,
                    subject="server",
                    is_slo_missed=True,
                    waits=None,
                    sending_us=sending_us,
                ),
            ]
        yield {
            "stretches": found,
            "is_whole": is_whole(found, sending_us),
            "is_material": is_material(found, sending_us=sending_us, num_sent=len(queued.came_us)),
            "told": told,
        }


def test_queues_are_told_as_before() -> None:
    known = [json.loads(line) for line in KNOWN.read_text().splitlines()]
    for before, now in zip(known, said_again(), strict=True):
        for one, other in zip(before.pop("stretches"), now.pop("stretches"), strict=True):
            assert other.pop("down") == one.pop("down")
            assert other == {name: value and pytest.approx(value, rel=1e-9) for name, value in one.items()}
        assert now == before


@pytest.mark.parametrize(
    ("verdict", "waits", "is_slo_missed", "title"),
    [
        ("stable", None, False, "The server keeps up with"),
        ("stable", "requests wait", False, "Requests wait: the server is sent"),
        ("near saturation", "requests wait", False, "The server is near saturation at"),
        ("near saturation", None, True, "The server misses the SLO at"),
        ("too short to tell", None, True, "Too short to tell whether the server keeps up with"),
    ],
)
def test_a_page_s_headline(verdict: Verdict, waits: str | None, *, is_slo_missed: bool, title: str) -> None:
    assert page_title(verdict, subject="server", is_slo_missed=is_slo_missed, waits=waits) == title


def test_a_sentence_tells_of_long_waits_and_of_a_missed_slo_behind_the_verdict() -> None:
    assert verdict_sentence("stable") == "stable: the server keeps up"
    waits = verdict_sentence("stable", waits="requests wait", good_frac=0.99)
    assert waits == "stable, but requests wait. The queue does not grow"
    missed = verdict_sentence("stable", waits="requests wait", good_frac=0.98)
    assert missed.startswith("stable, and the SLO is missed: only 98.0% of the requests meet the SLO")
    assert verdict_sentence("overloaded", good_frac=0.5).endswith("; only 50.0% of the requests meet the SLO")
    short = "too short to tell whether the server keeps up (see the note)"
    assert verdict_sentence("too short to tell") == short
    assert verdict_sentence("too short to tell", good_frac=0.5).startswith(f"{short}; only 50.0%")


if __name__ == "__main__":
    KNOWN.write_text("".join(json.dumps(each) + "\n" for each in said_again()))
