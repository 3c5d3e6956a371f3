"""A trace's requests, whole: what simulated engines of a fleet are sent, drawn as ``--like`` draws them.

Formulas know the lengths alone; the number of each row (``Lengths.row``) leads back to the request here. A session is
one draw, so its rounds find what was said before, and come after the simulated answers.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import partial
from lazy_dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from replay.trace.request_columns import MODALITIES
from sim.fleet import Lengths
from traces import ConfigError, Trace, prompt_tokens, select_rows, served_output
from traces.workload import DrawnTrace, Recorded, answer_decides, drawn_trace, requests_to_draw, some_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BEYOND_LENGTHS = {
    "adapter": "adapters",
    "guided": "grammars",
    "images": "images",
    "deadline_us": "deadlines",
    "vllm_priority": "priorities",
}
"""Columns that the simulation goes by and no formula knows, and their names in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WholeRequests:
    """Requests of a trace to draw from. ``recorded``: its sessions, each of one round or more.

    ``loads``: what was drawn of them last, kept by those who draw.
    """

    recorded: Recorded
    loads: dict[Hashable, object] = field(default_factory=dict, repr=False)
    _parts: dict[bytes, WholeRequests] = field(default_factory=dict, repr=False)

    @property
    def trace(self) -> Trace:
        """The requests, a session's rounds together."""
        return self.recorded.requests

    @property
    def num_sessions(self) -> int:
        """How many sessions there are; a request of none is one of its own."""
        return len(self.recorded.first_row) - 1

    @property
    def rounds(self) -> float:
        """How many requests a session has, on average."""
        return len(self.trace) / self.num_sessions

    @property
    def has_sessions(self) -> bool:
        """Whether any session has several rounds."""
        return self.num_sessions < len(self.trace)

    @property
    def begins_s(self) -> Floats | None:
        """When each session began, seconds ascending; None where that is not known, out of order, or all at once."""
        source = self.trace.header.source
        if source is not None and source.load_unknown is not None:
            return None
        arrival = self.trace.cells("arrival_time_us")
        first = np.array(self.recorded.first_row[:-1], np.int64)
        if not arrival.is_known[first].all():
            return None
        begins = np.asarray(arrival.values[first] / 1e6, np.float64)
        gaps = np.diff(begins)
        return begins if len(gaps) and bool((gaps >= 0).all() and gaps.sum() > 0) else None

    def of(self, lengths: Lengths) -> WholeRequests:
        """Return the requests of these lengths alone, in their order; of a session, the rounds among them."""
        assert lengths.row is not None  # noqa: S101 - lengths of a trace say their rows
        if len(lengths) == len(self.trace):
            return self
        key = lengths.row.tobytes()
        if key not in self._parts:
            self._parts[key] = WholeRequests(recorded=some_rows(self.recorded, lengths.row))
        return self._parts[key]

    def drawn(self, begins_s: Floats, session: Ints) -> DrawnTrace:
        """Return these sessions as a trace, each beginning at its time."""
        return drawn_trace(self.recorded, begins_us=np.rint(begins_s * 1e6).astype(np.int64), session=session)

    def span_s(self, service_s: float) -> float:
        """Return how long a session lasts from its first to its last request, seconds, 95th percentile.

        ``service_s``: how long an answer takes that a round waits for.
        """
        if not self.has_sessions:
            return 0.0
        first = np.array(self.recorded.first_row, np.int64)
        begins, rounds = first[:-1], np.diff(first)
        waits, arrival = answer_decides(self.trace), self.trace.cells("arrival_time_us")
        think_s = self.trace.cells("think_time_us").filled(0) / 1e6
        since_s = (arrival.values - np.repeat(arrival.values[begins], rounds)) / 1e6
        is_later = np.arange(len(self.trace)) != np.repeat(begins, rounds)
        paused = np.add.reduceat(np.where(waits & is_later, think_s + service_s, 0.0), begins)
        timed = np.maximum.reduceat(np.where(~waits & is_later & arrival.is_known, since_s, 0.0), begins)
        return float(np.percentile(paused + timed, 95))

    def beyond_lengths(self) -> list[str]:
        """Return in words what its requests have that no formula knows."""
        found = [name for column, name in BEYOND_LENGTHS.items() if self._varies(column)]
        return [*found, *(["sessions"] if self.has_sessions else [])]

    def _varies(self, column: str) -> bool:
        cells = self.trace.cells(column)
        if column == "guided":
            return bool(cells.values.any())
        if column == "vllm_priority":
            return len(np.unique(cells.filled(0))) > 1
        if column == "images":
            parts = [self.trace.cells(f"{kind}_tokens").values for kind in MODALITIES]
            return bool(cells.is_known.any()) or any(bool(each.any()) for each in parts)
        return bool(cells.is_known.any())

    def notes(self) -> list[str]:
        """Return what a reader should know of requests that are more than their lengths."""
        beyond, said = self.beyond_lengths(), []
        if self.has_sessions:
            said.append(
                f"sessions of {self.rounds:.3g} requests on average: --rate counts requests, so sessions begin "
                f"{self.rounds:.3g} times less often"
            )
        if beyond:
            said.append(f"the formulas do not know {in_words(beyond)}; the simulated number counts them")
        return said


def in_words(names: Sequence[str]) -> str:
    """Return names in a sentence: a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def whole_requests(trace: Trace, *, name: str) -> WholeRequests:
    """Return a trace's requests that have an output length. Raises ConfigError, with ``name``, where none has."""
    wanted = served_output(trace)
    wanted = wanted.where(wanted.values >= 1).or_else(trace.cells("max_tokens"))
    known = wanted.is_known & (wanted.values >= 1)
    if not known.any():
        raise ConfigError(f"--workload: got {name} without a request that has output, expected some")
    return WholeRequests(recorded=requests_to_draw(select_rows(trace, known), name))


def lengths_of_requests(whole: WholeRequests) -> Lengths:
    """Return the requests' lengths, in their order, with the rows that lead back to them."""
    build = partial(
        Lengths,
        input_tokens=prompt_tokens(whole.trace).astype(np.float64),
        output_tokens=whole.trace.cells("output_tokens").values.astype(np.float64),
        row=np.arange(len(whole.trace)),
    )
    begins = None if whole.has_sessions else whole.begins_s
    return build() if begins is None else build(arrival_s=begins)


def gaps_cv2(begins_s: Floats) -> float:
    """Return the squared coefficient of variation of the gaps between times."""
    gaps = np.diff(begins_s)
    return float(gaps.var() / gaps.mean() ** 2) if len(gaps) and gaps.mean() > 0 else math.nan
