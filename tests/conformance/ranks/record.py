"""``python -m tests.conformance.ranks.record SEED NUMBER FOLDER``, by a Python that has vLLM: random cases of ranks.

Each rank is a scheduler of vLLM's. All start their steps together, and a step lasts as long as the slowest rank's, at
least as long as a dummy's: one decode. The step whose number since all were idle is no multiple of
``prefill_schedule_interval`` is told so, as ``DPEngineCoreProc._should_throttle_prefills`` does. The requests, in their
order of arrival, go to the ranks in turn. An async scheduler plans a step ahead. What is made up here, not vLLM's: a
request that comes in the very microsecond in which all ranks are done goes on with the wave.
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.conformance.conventions import DEFAULTS
from tests.conformance.draw import draw
from tests.conformance.draw_adapters import with_adapters
from tests.conformance.draw_grammars import with_grammars
from tests.conformance.vllm_engine import Batch, VllmEngine


@dataclass(slots=True, kw_only=True)
class Rank(VllmEngine):
    """A scheduler that gets every ``num_ranks``-th request, and what it has planned, the batch on the device first."""

    rank: int
    num_ranks: int
    planned: list[Batch] = field(default_factory=list)
    is_blocked: bool = False

    def add(self, number: int) -> None:
        """Take a request in if it is this rank's."""
        if number % self.num_ranks == self.rank:
            self.is_blocked = self.is_blocked and self.is_refused(number)
            super(Rank, self).add(number)

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to decide."""
        has_news = self.settings["async_scheduling"] and self.planned and self.scheduler.has_requests()
        if self.is_blocked and any(ready_us <= self.now_us for ready_us in self.awaited_us):
            self.is_blocked = False
        return self.is_blocked or not (self.scheduler.has_unfinished_requests() or has_news)

    def plan(self, now_us: int, num_steps: int) -> None:
        """Decide ahead what there is to decide; ``num_steps``: of the wave so far."""
        self.now_us = now_us
        self.add_arrived(now_us)
        depth = 1 + self.settings["async_scheduling"]
        while True:
            if self.is_idle or len(self.planned) == depth:
                if not self.planned or self.planned[0].has_tokens:
                    return
                self.update(self.planned.pop(0), now_us)
                continue
            ahead = sum(batch.has_tokens for batch in self.planned)
            self.throttles_prefills = (num_steps + ahead) % self.settings["prefill_schedule_interval"] != 0
            batch = self.schedule(now_us)
            if batch.goes_in_circles:
                raise RuntimeError("preempts without end")
            self.is_blocked = batch.does_nothing and ahead == 0
            self.planned.append(batch)


def run(ranks: list[Rank]) -> None:
    """Let all ranks run in step to the end."""
    now_us, num_steps = 0, 0
    dummy_us = ranks[0].duration_us(0, 1)
    while True:
        for rank in ranks:
            rank.plan(now_us, num_steps)
        if any(rank.planned for rank in ranks):
            num_steps += 1
            now_us += max(rank.planned[0].line["dur"] if rank.planned else dummy_us for rank in ranks)
            for rank in ranks:
                if rank.planned:
                    rank.update(rank.planned.pop(0), now_us)
            continue
        num_steps = 0
        events = [rank.next_event_us for rank in ranks if rank.next_event_us is not None]
        if not events:
            return
        now_us = max(now_us, min(events))


def case_of(seed: int, index: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a drawn case's settings and rows, for two or three ranks; a quarter has grammars, a quarter LoRA."""
    case, rng = draw(seed, index), Random(f"{seed} {index} ranks")
    for share, change in ((1 / 4, with_adapters), (1 / 4, with_grammars)):
        case = change(case, seed, index) if rng.random() < share else case
    settings = case.settings | {
        "pipeline_parallel_size": 1,
        "num_ranks": rng.choice([2, 2, 3]),
        "prefill_schedule_interval": rng.choice([1, 2, 2, 3, 4, 8]),
    }
    if settings.get("guided_compile_us") == 0:  # vLLM sets such requests aside, too; the twin does not
        settings["guided_compile_us"] = 1
    return settings, sorted(case.rows, key=lambda row: row["arrival_us"])


def main(arguments: list[str]) -> int:
    """Record the cases that vLLM runs to an end."""
    seed, number, folder = int(arguments[0]), int(arguments[1]), Path(arguments[2])
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(number):
        settings, rows = case_of(seed, index)
        num_ranks = settings["num_ranks"]
        try:
            ranks = [
                Rank(settings=DEFAULTS | settings, rows=rows, rank=i, num_ranks=num_ranks)
                for i in range(num_ranks)
            ]
            run(ranks)
        except Exception as error:  # whatever vLLM raises is this case's result
            sys.stderr.write(f"case {index}: {type(error).__name__}: {str(error)[:100]}\n")
            continue
        outcomes = [asdict(ranks[i % num_ranks].outcomes[i]) for i in range(len(rows))]
        text = json.dumps(
            {
                "settings": settings,
                "rows": rows,
                "steps": [rank.steps for rank in ranks],
                "outcomes": outcomes,
            },
            separators=(",", ":"),
        )
        (folder / f"ranks_{seed}_{index:04d}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
