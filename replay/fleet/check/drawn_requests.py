"""The requests of a simulated run: when they come, and their lengths."""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from replay.fleet.inputs.whole_requests import WholeRequests, gaps_cv2
from sim import Requests
from sim.fleet import Lengths
from traces.workload import Arrival, unit_gaps

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

POISSON = Arrival(process="poisson")
SPARE = 4.0
"""For a thinned stream, gaps are drawn beyond the mean need by this many standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """When requests arrive. ``gaps``: their family, its mean from the rate; None: those of the recording itself."""

    gaps: Arrival | None = POISSON

    @property
    def is_poisson(self) -> bool:
        """Whether they are a Poisson process."""
        return self.gaps is not None and self.gaps.process == "poisson"

    def of(self, lengths: Lengths, requests: WholeRequests | None = None) -> Lengths:
        """Return lengths whose ``arrival_cv2`` is that of these gaps, for the formulas.

        ``requests``: those of the lengths; the gaps of sessions are those between their beginnings.
        """
        if self.gaps is not None:
            cv2 = {"poisson": 1.0, "constant": 0.0}.get(self.gaps.process, self.gaps.cv**2)
            return replace(lengths, arrival_cv2=cv2)
        return replace(lengths, arrival_cv2=gaps_cv2(_known(lengths, requests)))

    def text(self, lengths: Lengths) -> str:
        """Return what is assumed of them, and what the formulas know of it. ``lengths``: with these arrivals."""
        cv2 = lengths.arrival_cv2
        name = "the recording's arrivals" if self.gaps is None else f"{self.gaps.process} arrivals"
        return (
            f"{name}: gaps with a squared coefficient of variation of {cv2:.3g} (Poisson's: 1), which is all that the "
            "formulas use; the simulation has the gaps themselves"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The requests that some engines get: ``rate_per_s``, of these lengths.

    ``share``: of the whole fleet's requests, those that have such lengths; the fleet's gaps are of the family. A
    recording's own rows have their own times. ``part``: of these, each request comes here with that chance.
    ``requests``: those that have these lengths, drawn whole, sessions with their rounds; None: lengths are all.
    """

    lengths: Lengths
    rate_per_s: float
    arrivals: Arrivals = Arrivals()
    share: float = 1.0
    part: float = 1.0
    requests: WholeRequests | None = None

    @property
    def num_draws(self) -> int:
        """How many different draws there are: sessions, or rows."""
        return len(self.lengths) if self.requests is None else self.requests.num_sessions

    @property
    def rounds(self) -> float:
        """How many requests a draw is, on average."""
        return len(self.lengths) / self.num_draws

    @property
    def is_recorded(self) -> bool:
        """Whether the gaps are a recording's own."""
        return self.arrivals.gaps is None

    @property
    def kept(self) -> float:
        """The chance with which each request of the stream that is drawn comes here."""
        return self.part if self.is_recorded else self.share * self.part

    @property
    def once(self) -> int:
        """How many requests come here while a recording lasts; 0 where there is none."""
        return math.ceil(len(self.lengths) * self.part) if self.is_recorded else 0


def drawn(stream: Stream, number: int, *, seed: int) -> Requests:
    """Return this many requests of a stream, of which lengths are all that counts; a function of the seed alone."""
    arrival_s, rows = drawn_rows(stream, number, seed=seed)
    return requests_at(arrival_s, stream.lengths.at(rows))


def requests_at(arrival_s: Floats, lengths: Lengths) -> Requests:
    """Return requests that arrive at these times, float64 [n] ascending seconds, and share no prefixes."""
    return Requests(
        arrival_us=np.rint(arrival_s * 1e6).astype(np.int64),
        prompt_tokens=lengths.input_tokens.astype(np.int64),
        output_tokens=lengths.output_tokens.astype(np.int64),
        priority=np.zeros(len(lengths), np.int64),
        hash_offsets=np.zeros(len(lengths) + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


def drawn_rows(stream: Stream, number: int, *, seed: int) -> tuple[Floats, Ints]:
    """Return when draws begin, seconds, and which row of the lengths, or session of the requests, each is.

    A function of the seed alone; ``number``: of requests, as many as there are with sessions of mean length.
    A part of a Poisson stream is one again. Of other gaps, those of the larger stream are drawn and thinned: a part of
    a bursty stream is less bursty than the whole. A recording's rows keep their order and the proportions of their
    gaps, and start again at the end; the seed decides which comes first.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    number, rate_per_s = math.ceil(number / stream.rounds), stream.rate_per_s / stream.rounds
    if stream.arrivals.is_poisson:
        arrival_s = np.cumsum(rng.exponential(1 / rate_per_s, number))
        return arrival_s, rng.integers(0, stream.num_draws, number)
    share = stream.kept
    most = number if share == 1 else math.ceil((number + SPARE * math.sqrt(number) + SPARE**2) / share)
    if stream.arrivals.gaps is None:
        unit, rows = _replayed(_known(stream.lengths, stream.requests), most, rng)
    else:
        unit = unit_gaps(stream.arrivals.gaps, seed=seed, stream="fleet", n=most)
        rows = rng.integers(0, stream.num_draws, most)
    arrival_s = np.cumsum(unit) * share / rate_per_s
    kept = np.flatnonzero(rng.random(most) < share)[:number] if share < 1 else slice(None)
    return arrival_s[kept], rows[kept]


def _replayed(times: Floats, number: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Return gaps of mean 1 and rows of a recording, over and over; after its last row comes a gap of the mean."""
    gaps = np.diff(times, prepend=times[0])
    gaps[0] = gaps[1:].mean()
    rows = (np.arange(number) + rng.integers(len(times))) % len(times)
    return gaps[rows] / gaps.mean(), rows


def _known(lengths: Lengths, requests: WholeRequests | None) -> Floats:
    times = lengths.arrival_s
    if times is None and requests is not None:
        times = requests.begins_s
    assert times is not None  # noqa: S101 - callers have checked that the recording has arrivals
    return times
