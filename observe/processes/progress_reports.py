"""The counters of several processes as those of one run: each child reports, the parent adds up."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from observe.processes.messages import CounterReport
from observe.record.recorder import AnswerCounts
from observe.run.run_counts import LogHistogram, Progress

_OF_THE_RUN = frozenset({"num_planned", "num_at_once", "peak_in_flight"})
"""Integers of ``Progress`` that are not sums of the processes' own."""


class Reporter:
    """Reports the changes of a child's ``progress`` since the last report."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._told: Counter[str] = Counter()
        self.outcomes: list[bool] = []

    def report(self) -> CounterReport:
        """Return the next report."""
        totals: dict[str, int] = {}
        by_name: dict[str, dict[str, int]] = {}
        histograms: dict[str, list[int]] = {}
        tails: dict[str, bytes] = {}
        for name in (member.name for member in fields(Progress)):
            value = getattr(self._progress, name)
            if isinstance(value, LogHistogram):
                histograms[name] = list(value.counts)
            elif isinstance(value, array):
                tails[name] = value[self._told[name] :].tobytes()
                self._told[name] = len(value)
            elif isinstance(value, Counter):
                by_name[name] = dict(value)
            elif isinstance(value, int) and not name.endswith("_ns"):
                totals[name] = value
        outcomes = tuple(self.outcomes)
        self.outcomes.clear()
        return CounterReport(
            totals=totals, by_name=by_name, histograms=histograms, tails=tails, outcomes=outcomes
        )


class ProgressTotals:
    """Keeps ``progress`` the sum of what ``number`` processes have reported, and each one's own beside it."""

    def __init__(self, progress: Progress, number: int) -> None:
        self._progress = progress
        self._last: list[CounterReport | None] = [None] * number
        self.each = [Progress(num_planned=0) for _ in range(number)]

    def take(self, place: int, report: CounterReport) -> None:
        """Take the next report of process ``place``."""
        self._last[place] = report
        _set(self.each[place], [report])
        _set(self._progress, [each for each in self._last if each is not None])
        for name, tail in report.tails.items():
            getattr(self.each[place], name).frombytes(tail)
            getattr(self._progress, name).frombytes(tail)
        self._progress.peak_in_flight = max(self._progress.peak_in_flight, self._progress.in_flight)

    def finish(self) -> None:
        """Replace the peak seen in the reports by the true one."""
        self._progress.peak_in_flight = peak_in_flight(self._progress.dispatched_ns, self._progress.ended_ns)


def _set(progress: Progress, reports: Sequence[CounterReport]) -> None:
    """Set the counters of ``progress`` to the sum of the reports' own; arrays are left alone."""
    for name in reports[0].totals:
        if name not in _OF_THE_RUN:
            setattr(progress, name, sum(report.totals[name] for report in reports))
    for name in reports[0].by_name:
        total: Counter[str] = Counter()
        for report in reports:
            total.update(report.by_name[name])
        setattr(progress, name, total)
    for name in reports[0].histograms:
        getattr(progress, name).replace_by_sum([report.histograms[name] for report in reports])


def peak_in_flight(begins_ns: Sequence[int], ends_ns: Sequence[int]) -> int:
    """Return how many of the intervals overlap at most; one that ends as another begins does not overlap it."""
    if len(begins_ns) == 0:
        return 0
    moments = np.concatenate([np.array(ends_ns, dtype=np.int64), np.array(begins_ns, dtype=np.int64)])
    steps = np.repeat([-1, 1], [len(ends_ns), len(begins_ns)])
    return int(np.cumsum(steps[np.argsort(moments, kind="stable")]).max())


def add_up(answer_counts: Sequence[AnswerCounts]) -> AnswerCounts:
    """Return the quality of all answers."""
    total = AnswerCounts()
    for each in answer_counts:
        for member in fields(AnswerCounts):
            setattr(total, member.name, getattr(total, member.name) + getattr(each, member.name))
    return total
