"""Whether the number of requests in a server grows while they are sent: a run's own evidence of an overload.

A customer is a request, or a session whose rounds wait for their answers. While customers arrive at an even rate, the
share of them that piles up shows the load. In a new server it shows little: all that arrive before the first answers
pile up, whether it is overloaded or not. So growth is compared with the number of generations that have passed. The
first lasts as long as the first customer stays, the next as long as a customer stays who arrives when the first leaves,
and so on.

If a stay grows by ``u`` for each customer in the server (in units of 1/rate), the stays of generations are 1, 1 + u,
1 + u + u², …; of those that come in generation k the share u^k / (1 + u + … + u^k) piles up. ``u`` below 1 is a
server that keeps up, with the stay 1 / (1 - u) in the end; above 1, one that does not. A server with a queue in front
of full seats is the same with more generations: there the share is 1 - 1 / u at once.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim import Outcomes, Status

Int64s = NDArray[np.int64]
FOREVER = 1 << 62
"""The time of leaving of a customer that never leaves."""
NEAR = 0.02
"""A customer's stay is the mean over this share of all, those that arrive around the same time,"""
FEWEST_NEAR = 5
"""and at least of this many."""
MOST_GENERATIONS = 100
"""A larger number shows nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Customers:
    """When customers come, are first scheduled and leave, in the order of their coming; µs, int64.

    Customers that were turned away, or gave up, are not among them; one that never leaves does so at ``FOREVER``.
    """

    came_us: Int64s
    began_us: Int64s
    left_us: Int64s

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.came_us)


def customers_of(outcomes: Outcomes, session: Int64s | None) -> Customers:
    """Return the customers of a run; ``session``: the number of each request's, -1 none, where rounds wait."""
    left = outcomes.last_token_us.copy()
    waits_forever = (outcomes.status == Status.STUCK) | (outcomes.status == Status.UNFINISHED)
    left[waits_forever] = FOREVER
    began = np.where(outcomes.scheduled_us < 0, FOREVER, outcomes.scheduled_us)
    counts = (outcomes.arrival_us >= 0) & ((outcomes.status == Status.OK) | waits_forever)
    came = outcomes.arrival_us
    if session is not None:
        came, began, left, counts = _by_session(session, came, began, left, counts)
    rows = np.flatnonzero(counts)
    rows = rows[np.argsort(came[rows], kind="stable")]
    return Customers(came_us=came[rows], began_us=began[rows], left_us=left[rows])


def _by_session(
    session: Int64s, came: Int64s, began: Int64s, left: Int64s, counts: NDArray[np.bool_]
) -> tuple[Int64s, Int64s, Int64s, NDArray[np.bool_]]:
    """Return the same columns of sessions: from the first round's coming to the last one's end."""
    alone = session < 0
    numbers = np.where(alone, session.max(initial=-1) + 1 + np.arange(len(session)), session)
    _, of = np.unique(numbers, return_inverse=True)
    num = int(of.max(initial=-1)) + 1
    first_came, first_began = np.full(num, FOREVER), np.full(num, FOREVER)
    last_left, has_one = np.zeros(num, np.int64), np.zeros(num, np.bool_)
    np.minimum.at(first_came, of[counts], came[counts])
    np.minimum.at(first_began, of[counts], began[counts])
    np.maximum.at(last_left, of[counts], left[counts])
    has_one[of[counts]] = True
    return first_came, first_began, last_left, has_one


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How many customers piled up over the second half of the sending.

    ``num_sent``: customers until the last one came, at a mean ``sent_per_s``. ``in_system``: of them, how many had not
    left when the last one came. ``growth_frac``: of those that came in the second half, the share that piled up;
    ``waiting_frac``: the share that piled up without having begun. ``generations``: that had passed by then.
    ``falls_back``, ``waiting_falls_back``: whether fewer were there, at some time of the last third, than on average in
    the third before.
    """

    num_sent: int
    sent_per_s: float
    in_system: int
    growth_frac: float
    waiting_frac: float
    generations: int
    falls_back: bool
    waiting_falls_back: bool

    @property
    def served_per_s(self) -> float:
        """How many customers left per second, in the second half of the sending."""
        return self.sent_per_s * (1 - self.growth_frac)


def growth_of(customers: Customers, *, period_us: int = 0) -> Growth | None:
    """Return how a run grew, None if all arrived at once.

    ``period_us``: of a periodic load; then equal times of the period are compared.
    """
    came = customers.came_us
    if len(came) < 2 or came[-1] <= came[0]:
        return None
    start, end = int(came[0]), int(came[-1])
    half = start + (end - start) // 2
    if period_us > 0:
        laps = (end - start) // period_us + 1
        half, end = start + (laps // 2) * period_us, start + laps * period_us
    left, began = np.sort(customers.left_us), np.sort(customers.began_us)
    grew = _between_laps if period_us > 0 else _between_quarters
    growth, falls_back = grew(came, left, (half, end))
    waiting, waiting_falls_back = grew(came, began, (half, end))
    return Growth(
        num_sent=len(came),
        sent_per_s=(len(came) - (period_us == 0)) / (end - start) * 1e6,
        in_system=int(_present(came, left, np.array([end]))[0]),
        growth_frac=growth,
        waiting_frac=waiting,
        generations=_generations(customers, until_us=half),
        falls_back=falls_back,
        waiting_falls_back=waiting_falls_back,
    )


def _present(came: Int64s, gone: Int64s, times: Int64s) -> Int64s:
    """Return how many had arrived and not left at each time."""
    there = np.searchsorted(came, times, side="right") - np.searchsorted(gone, times, side="right")
    return np.asarray(there, np.int64)


def _between_laps(came: Int64s, gone: Int64s, window: tuple[int, int]) -> tuple[float, bool]:
    """Return the share that piled up between two equal times of a periodic load; never a fall."""
    half, end = window
    before, after = _present(
        came, gone, np.array([half, end]) - 1
    )  # just before the first one of a lap comes
    num = np.searchsorted(came, end, side="left") - np.searchsorted(came, half, side="left")
    return float(after - before) / max(int(num), 1), False


def _between_quarters(came: Int64s, gone: Int64s, window: tuple[int, int]) -> tuple[float, bool]:
    """Return the share that piled up from the third quarter to the last, on average over each, and whether it fell.

    Counted at arrivals, before each. It fell where in the last third fewer were there at some time than on average
    in the third before.
    """
    there = _present(came, gone, came - 1)
    later = np.flatnonzero(came >= window[0])
    third, fourth = np.array_split(there[later], 2)
    growth = float(fourth.mean() - third.mean()) / len(fourth) if len(third) and len(fourth) else 0.0
    middle, last = there[len(came) // 3 : 2 * len(came) // 3], there[2 * len(came) // 3 :]
    return growth, bool(len(middle) and last.min() <= middle.mean())


def _generations(customers: Customers, *, until_us: int) -> int:
    """Return how many generations of customers had passed at a time."""
    came = customers.came_us
    near = max(FEWEST_NEAR, int(NEAR * len(came)))
    stays = np.minimum(customers.left_us, FOREVER) - came
    sums = np.concatenate([np.zeros(1), np.cumsum(stays.astype(np.float64))])
    now, passed, times = float(came[0]), 0, came.astype(np.float64)  # once, not in each look
    while passed < MOST_GENERATIONS:
        place = min(int(times.searchsorted(now)), len(came) - near)
        first = max(place, 0)
        last = min(first + near, len(came))
        now += max((sums[last] - sums[first]) / (last - first), 1.0)
        if now > until_us:
            return passed
        passed += 1
    return passed


def piles_up(load: float, generations: int) -> float:
    """Return the share of customers that piles up at a load ``u``, after this many generations (see above)."""
    powers = load ** np.arange(generations + 1)
    return float(powers[-1] / powers.sum())
