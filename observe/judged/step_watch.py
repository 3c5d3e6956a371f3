"""A run under way: looks at its answers now and then, and ends it once the limits are surely kept or broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from observe.judged.judged_step import StepAnswers, StepVerdict, judge
from traces import finished_ok, latencies_us, request_latencies, sent_or_due

if TYPE_CHECKING:
    from observe.judged.criteria import Criterion
    from observe.record.trace_row import Cell
    from traces import Trace

FIRST_LOOK: Final = 100
FURTHER: Final = 1.25
"""A look is taken at so many answers, and then each time there are so many times as many: a test at every answer
would be wrong at some time or other."""

Floats = NDArray[np.float64]


class StepWatch:
    """Collects the outcomes of a run and ends it at the look at which ``ends`` says why; by default its result is sure.

    ``has_ended``: it did.
    """

    def __init__(
        self, criteria: Sequence[Criterion], *, ends: Callable[[StepVerdict], str | None] | None = None
    ) -> None:
        self.has_ended = False
        self._criteria = criteria
        self._ends = ends or self._surely_known
        self._rows: dict[int, tuple[float, ...]] = {}
        self._num_whole = 0
        self._next_look = FIRST_LOOK
        self._stop: Callable[[str], None] = lambda _: None

    def begin(self, stop: Callable[[str], None]) -> None:
        """Take what ends the run."""
        self._stop = stop

    def note(self, row: int, cells: Mapping[str, Cell]) -> None:
        """Take one outcome; at a look, end the run if its result is sure."""
        first = _either(cells, "content_first_time_us", "first_chunk_time_us")
        last = _either(cells, "last_token_time_us", "last_chunk_time_us")
        values = [
            cells.get("send_time_us"),
            first,
            last,
            cells.get("output_tokens"),
            cells.get("dispatch_lag_us"),
        ]
        numbers = [float("nan") if value is None else float(value) for value in values]
        self._rows[row] = (*numbers, float(cells.get("status") == "ok"))
        while self._num_whole in self._rows:
            self._num_whole += 1
        if self._num_whole >= self._next_look:
            self._look()

    def _look(self) -> None:
        self._next_look = int(FURTHER * self._num_whole) + 1
        table = np.array([self._rows[row] for row in range(self._num_whole)]).T
        verdict = judge(_answers(table, self._criteria), self._criteria)
        if (said := self._ends(verdict)) is not None:
            self._next_look = 10**18
            self.has_ended = True
            self._stop(f"ended after {self._num_whole:,} answers: {said}")

    def _surely_known(self, verdict: StepVerdict) -> str | None:
        if verdict.is_met is None:
            return None
        return "surely within the SLO" if verdict.is_met else f"surely not: {verdict.broken(self._criteria)}"


def _either(cells: Mapping[str, Cell], name: str, other: str) -> Cell:
    value = cells.get(name)
    return cells.get(other) if value is None else value


def _answers(table: Floats, criteria: Sequence[Criterion]) -> StepAnswers:
    """Return the answers of a table [column, request] : sent, first, last token, tokens, lag, ok."""
    send, first, last, tokens, lag, ok = table
    ttft, e2e, tpot = latencies_us(send, first, last, output_tokens=tokens)
    latencies = {
        "ttft_us": ttft,
        "e2e_us": e2e,
        "tpot_us": tpot,
        "itl_mean_us": tpot,
        "ttft_from_due_us": ttft + lag,
    }
    failed = ok == 0.0
    sent = np.maximum.accumulate(np.nan_to_num(send))  # one that could not be sent: after the one before
    return StepAnswers(
        send_us=sent,
        end_us=np.where(np.isnan(last), sent, last),
        ratios={each.name: each.ratios(latencies, failed) for each in criteria},
    )


def answers_of(trace: Trace, criteria: Sequence[Criterion]) -> StepAnswers:
    """Return the answers of a step's trace, up to the first request that the client gave up at the end."""
    dropped = np.flatnonzero(np.asarray(trace.cells("status").values == "aborted"))
    was_ended = trace.header.client is not None and len(trace) < (trace.header.client.num_planned or 0)
    n = int(dropped[0]) if len(dropped) and was_ended else len(trace)
    latencies = request_latencies(trace)
    send = sent_or_due(trace).floats()
    end = np.where(np.isnan(latencies["e2e_us"]), send, send + latencies["e2e_us"])
    failed = ~finished_ok(trace)
    ratios = {each.name: each.ratios(latencies, failed)[:n] for each in criteria}
    return StepAnswers(send_us=np.nan_to_num(send[:n]), end_us=np.nan_to_num(end[:n]), ratios=ratios)
