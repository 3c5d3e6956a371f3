"""What a verdict rests on, counted by hand: who comes and leaves, what piles up, the requests once more, the words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from replay.verdict.again import (
    Repeatable,
    after_a_burst,
    again,
    faster,
    first_part,
    work_of_rows,
)
from replay.verdict.growth import FOREVER, Customers, Growth, customers_of, growth_of, piles_up
from replay.verdict.judge import _rounded_up, is_overloaded, judge_load, tells_rate
from replay.verdict.judged import Judged, LoadFacts
from replay.verdict.sentences import Verdict
from sim import Outcomes, Requests, Status
from sim.cluster.client_plans import ClientPlan
from sim.cluster.cluster_work import ClusterWork

OK, REJECTED, STUCK = Status.OK, Status.REJECTED, Status.STUCK
TIMEOUT, UNFINISHED = Status.TIMEOUT, Status.UNFINISHED


def int64s(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def outcomes_of(
    arrival: Sequence[int],
    scheduled: Sequence[int],
    last: Sequence[int],
    *,
    status: Sequence[int] | None = None,
    first: Sequence[int] | None = None,
    tokens: int = 1,
    cached: int = 0,
) -> Outcomes:
    """Return outcomes of requests that join the queue as they arrive."""
    n = len(arrival)
    return Outcomes(
        status=np.array([OK] * n if status is None else status, np.int8),
        arrival_us=int64s(arrival),
        queued_us=int64s(arrival),
        taken_in_us=int64s(arrival),
        scheduled_us=int64s(scheduled),
        first_token_us=int64s(last if first is None else first),
        last_token_us=int64s(last),
        num_output_tokens=np.full(n, tokens),
        num_preemptions=np.zeros(n, np.int64),
        preempted_us=np.zeros(n, np.int64),
        num_cached_tokens=np.full(n, cached),
        num_loaded_tokens=np.full(n, -1),
        load_wait_us=np.full(n, -1),
    )


# -- who comes and leaves ------------------------------------------------------------------------------------


MIXED = outcomes_of(
    [30, 10, 20, 40, 50, -1, 60],
    [31, -1, -1, 45, 51, -1, 61],
    [99, -1, -1, -1, -1, -1, 88],
    status=[OK, STUCK, REJECTED, UNFINISHED, TIMEOUT, UNFINISHED, OK],
)


def columns(found: Customers) -> list[list[int]]:
    return [found.came_us.tolist(), found.began_us.tolist(), found.left_us.tolist()]


def test_customers_are_whoever_was_answered_or_waits_forever_in_the_order_of_their_coming() -> None:
    assert columns(customers_of(MIXED, None)) == [
        [10, 30, 40, 60],
        [FOREVER, 31, 45, 61],
        [FOREVER, 99, FOREVER, 88],
    ]


def test_a_session_comes_with_its_first_round_begins_with_it_and_leaves_with_its_last() -> None:
    """Two of its rounds count; rounds of none are customers of their own, and so is a session of one round."""
    found = customers_of(MIXED, int64s([2, 2, 0, -1, 0, -1, -1]))
    assert columns(found) == [[10, 40, 60], [31, 45, 61], [FOREVER, FOREVER, 88]]
    assert len(found) == 3
    found = customers_of(outcomes_of([5, 1, 7], [6, 2, 8], [9, 4, 30]), int64s([0, 0, 1]))
    assert columns(found) == [[1, 7], [2, 8], [9, 30]]
    found = customers_of(outcomes_of([5, 1, 7], [6, 2, 8], [9, 4, 30]), int64s([0, -1, 0]))
    assert columns(found) == [[1, 5], [2, 6], [4, 30]]


# -- what piles up -------------------------------------------------------------------------------------------


START = 1000


def leaving(left: Sequence[int], *, gap: int = 10, began: Sequence[int] | None = None) -> Customers:
    """Return customers who come one gap after another from START on, which all times count from."""
    came = np.arange(len(left)) * gap
    began_us = came if began is None else int64s(began)
    return Customers(came_us=START + came, began_us=START + began_us, left_us=START + int64s(left))


def test_what_piles_up_between_quarters_counted_by_hand() -> None:
    """Before each of eight there are 0, 0, 1, 2, 3, 4, 5, 6, as the first leaves at once; the last four count."""
    found = growth_of(leaving([5, *[100] * 7]))
    assert found == Growth(
        num_sent=8,
        sent_per_s=1e5,
        in_system=7,
        growth_frac=(5.5 - 3.5) / 2,
        waiting_frac=0.0,
        generations=0,  # the first five stay 61 µs on average, beyond the half, 35
        falls_back=False,  # 1, 2, 3, then 4 at least
        waiting_falls_back=True,  # none at any time
    )
    assert found.served_per_s == 0.0
    assert replace(found, growth_frac=0.25).served_per_s == pytest.approx(0.75 * 7 / 70e-6)


def test_who_comes_at_half_belongs_to_the_second_half() -> None:
    """Nine of whom nobody leaves: 4, 5, 6 from half on, then 7, 8."""
    found = growth_of(leaving([1000] * 9))
    assert found is not None
    assert found.growth_frac == (7.5 - 5) / 2


def test_it_falls_back_where_the_last_third_is_once_as_low_as_the_third_before() -> None:
    """Before each of nine there are 0, 1, 2, 3, 4, 5, 6, 7 and, as LEFT leave just before the last, 8 - LEFT."""
    for left, falls in ((3, False), (4, True), (5, True)):  # (3 + 4 + 5) / 3 is 4
        found = growth_of(leaving([79] * left + [1000] * (9 - left)))
        assert found is not None
        assert found.falls_back is falls
        waits = growth_of(leaving([1000] * 9, began=[79] * left + [1000] * (9 - left)))
        assert waits is not None
        assert waits.waiting_falls_back is falls


def test_who_leaves_as_the_last_one_comes_was_there_before_it() -> None:
    """Eight before the last one, where five of them leave: not as few as the 4 of the third before."""
    found = growth_of(leaving([80] * 5 + [1000] * 4))
    assert found is not None
    assert found.falls_back is False


@pytest.mark.parametrize(
    ("value", "number"), [(0.3, 1), (7.2, 8), (99, 99), (99.1, 100), (101, 110), (1234, 1300), (12001, 13000)]
)
def test_numbers_of_requests_have_two_digits_and_are_no_less(value: float, number: int) -> None:
    assert _rounded_up(value) == number


def test_who_leaves_as_the_last_one_comes_is_no_longer_there() -> None:
    for left, there in ((69, 1), (70, 1), (71, 8)):
        found = growth_of(leaving([left] * 7 + [1000]))
        assert found is not None
        assert found.in_system == there


def test_two_customers_are_a_load_one_or_all_at_once_are_none() -> None:
    found = growth_of(leaving([3, 13]))
    assert found is not None
    assert (found.num_sent, found.growth_frac) == (2, 0.0)
    assert found.sent_per_s == pytest.approx(1e5)
    assert growth_of(leaving([3])) is None
    assert growth_of(leaving([3, 3, 3], gap=0)) is None


@pytest.mark.parametrize(
    ("came", "left", "period_us", "growth"),
    [
        ([0, 1, 2, 3], [3, 99, 99, 99], 1, 1 / 2),  # laps of 1 µs: two before the third, three before a fifth
        ([0, 5, 10], [99, 99, 99], 10, 1.0),  # one comes in the second of two laps, and stays
        ([0, 9, 10], [99, 99, 99], 10, 1.0),  # who comes just before the second lap is of the first
    ],
)
def test_short_laps_are_laps(came: list[int], left: list[int], period_us: int, growth: float) -> None:
    found = growth_of(
        Customers(came_us=int64s(came), began_us=int64s(came), left_us=int64s(left)), period_us=period_us
    )
    assert found is not None
    assert (found.growth_frac, found.falls_back) == (growth, False)


def test_like_times_of_laps_are_compared() -> None:
    """Four laps of three, of whom one each stays, but for the second's: one at half, three in the end; six come."""
    came = int64s([lap * 100 + at for lap in range(4) for at in (0, 10, 20)])
    stays = np.tile([5, 1000, 5], 4)
    stays[4] = 89  # just before half: it is gone by then
    found = growth_of(Customers(came_us=came, began_us=came + 2, left_us=came + stays), period_us=100)
    assert found is not None
    assert found.growth_frac == pytest.approx(2 / 6)
    assert found.sent_per_s == pytest.approx(12 / 400e-6)
    assert found.in_system == 3
    assert (found.waiting_frac, found.falls_back, found.waiting_falls_back) == (0.0, False, False)
    waits = growth_of(Customers(came_us=came, began_us=came + stays, left_us=came + 1000), period_us=100)
    assert waits is not None
    assert waits.growth_frac == 1.0
    assert waits.waiting_frac == pytest.approx(2 / 6)


@pytest.mark.parametrize(
    ("stays", "generations"),
    [
        ([10] * 8, 3),  # at 10, 20, 30; 40 is beyond 35
        ([0] * 8, 35),  # as if 1 µs each
        ([35] * 8, 1),  # at 35, which is not beyond
        ([36] * 8, 0),
        ([20, 20, 20, 20, 20, 1, 1, 1], 2),  # at 20; with rows 2 to 6 at 32.4; with 3 to 7 at 41
    ],
)
def test_generations_are_stays_one_after_another_up_to_the_half(stays: list[int], generations: int) -> None:
    found = growth_of(leaving((np.arange(8) * 10 + stays).tolist()))
    assert found is not None
    assert found.generations == generations


def test_generations_of_fewer_than_five_are_all_of_them_and_of_many_at_most_a_hundred() -> None:
    few = growth_of(
        Customers(came_us=int64s([0, 10, 60]), began_us=int64s([0, 10, 60]), left_us=int64s([10, 20, 61]))
    )
    assert few is not None
    assert few.generations == 4  # 7 µs each: at 7, 14, 21, 28; the half is 30
    many = growth_of(leaving([1] * 1000, gap=1))
    assert many is not None
    assert many.generations == 100


def test_of_many_the_nearest_fiftieth_tells_how_long_they_stay() -> None:
    """A thousand, 1 µs apart; the first 20 stay 100, all others 1000: at 100, and then beyond the half."""
    stays = np.where(np.arange(1000) < 20, 100, 1000)
    found = growth_of(leaving((np.arange(1000) + stays).tolist(), gap=1))
    assert found is not None
    assert found.generations == 1
    stays = np.where(np.arange(1000) < 19, 100, 9100)  # 0.95 · 100 + 0.05 · 9100 is 550
    found = growth_of(leaving((np.arange(1000) + stays).tolist(), gap=1))
    assert found is not None
    assert found.generations == 0


def test_who_never_leaves_stays_very_long() -> None:
    found = growth_of(leaving([FOREVER] * 8))
    assert found is not None
    assert (found.generations, found.in_system) == (0, 8)


# -- the verdict from it -------------------------------------------------------------------------------------


GROWTH = Growth(
    num_sent=3000,
    sent_per_s=10.0,
    in_system=100,
    growth_frac=0.0,
    waiting_frac=0.0,
    generations=10,
    falls_back=False,
    waiting_falls_back=False,
)


@pytest.mark.parametrize(
    ("changes", "is_one"),
    [
        ({}, False),
        ({"waiting_frac": 0.11}, True),
        ({"waiting_frac": 0.1}, False),
        ({"waiting_frac": 0.11, "waiting_falls_back": True}, False),
        ({"waiting_frac": 0.11, "waiting_falls_back": True, "growth_frac": 0.9}, True),
        ({"growth_frac": 0.9}, True),
        ({"growth_frac": 0.9, "falls_back": True}, False),
        ({"growth_frac": 0.9, "generations": 0}, False),
        # of one generation a load of 1.2 piles up 1.2 / 2.2; of two, 1.44 / 3.64
        ({"growth_frac": 0.545, "generations": 1}, False),
        ({"growth_frac": 0.546, "generations": 1}, True),
        ({"growth_frac": 0.395, "generations": 2}, False),
        ({"growth_frac": 0.396, "generations": 2}, True),
        # of ten a load of 1.1: 1.1^10 · 0.1 / (1.1^11 - 1) is 0.13996
        ({"growth_frac": 0.1399}, False),
        ({"growth_frac": 0.1400}, True),
        # of a hundred a load of 1.05: 1.05^100 · 0.05 / (1.05^101 - 1) is 0.04797
        ({"growth_frac": 0.0479, "generations": 100}, False),
        ({"growth_frac": 0.0481, "generations": 100}, True),
    ],
)
def test_what_is_an_overload(changes: dict[str, Any], is_one: bool) -> None:
    assert is_overloaded(replace(GROWTH, **changes)) is is_one


def test_who_left_tells_a_rate_after_three_generations_or_from_a_queue() -> None:
    assert [tells_rate(replace(GROWTH, generations=each)) for each in (2, 3)] == [False, True]
    waits = [tells_rate(replace(GROWTH, generations=0, waiting_frac=each)) for each in (0.1, 0.11)]
    assert waits == [False, True]


def test_the_share_that_piles_up() -> None:
    assert piles_up(0.5, 2) == pytest.approx(0.25 / 1.75)
    assert piles_up(3.0, 0) == 1.0


# -- the same requests once more -----------------------------------------------------------------------------


class Served:
    """Who serves requests: keeps what it was given, and answers each 4 µs after it came."""

    requests: Requests
    rows: list[int]
    num_each: int

    def __call__(self, requests: Requests, rows: NDArray[np.int64], num_each: int) -> Outcomes:
        self.requests, self.rows, self.num_each = requests, rows.tolist(), num_each
        came = requests.arrival_us.tolist()
        return outcomes_of(came, came, (requests.arrival_us + 4).tolist())


def run_of(
    arrival: Sequence[int],
    *,
    hashes: Sequence[Sequence[int]] | None = None,
    session: Sequence[int] | None = None,
    first: Sequence[bool] | None = None,
    deadline: Sequence[int] | None = None,
) -> tuple[Repeatable, Served]:
    """Return a run of requests of these contents, and who serves it."""
    n, served = len(arrival), Served()
    hashes = [()] * n if hashes is None else hashes
    requests = Requests(
        arrival_us=int64s(arrival),
        prompt_tokens=int64s([100 + row for row in range(n)]),
        output_tokens=np.full(n, 7),
        priority=np.zeros(n, np.int64),
        hash_offsets=int64s([0, *np.cumsum([len(each) for each in hashes])]),
        hash_ids=int64s([number for each in hashes for number in each]),
        deadline_us=None if deadline is None else int64s(deadline),
    )
    return (
        Repeatable(
            requests=requests,
            session=None if session is None else int64s(session),
            first=np.ones(n, bool) if first is None else np.array(first),
            serve=served,
        ),
        served,
    )


def test_laps_follow_each_other_at_the_same_rate() -> None:
    """Three from 100 to 140, 20 apart on average: the next lap begins at 160."""
    run, served = run_of([110, 100, 140], deadline=[150, -1, 141])
    outcomes, session, period = again(run, 3)
    assert (period, session) == (60, None)
    assert served.rows == [0, 1, 2] * 3
    assert served.num_each == 3
    assert outcomes.arrival_us.tolist() == [110, 100, 140, 170, 160, 200, 230, 220, 260]
    assert served.requests.deadline_us is not None
    assert served.requests.deadline_us.tolist() == [150, -1, 141, 210, -1, 201, 270, -1, 261]
    assert served.requests.prompt_tokens.tolist() == [100, 101, 102] * 3


def test_a_lap_of_one_or_of_all_at_once_has_a_length_too() -> None:
    assert again(run_of([7])[0], 2)[2] == 1
    assert again(run_of([7, 17])[0], 2)[2] == 20
    assert again(run_of([7, 7])[0], 2)[2] == 1


def test_sessions_of_later_laps_are_others_and_later_rounds_wait_for_answers() -> None:
    run, served = run_of([0, 0, 30, 5], session=[0, 0, 1, -1], first=[True, False, True, True])
    _, session, period = again(run, 2)
    assert period == 45  # from 0 to 30 with two gaps
    assert session is not None
    assert session.tolist() == [0, 0, 1, -1, 2, 2, 3, -1]
    assert served.requests.arrival_us.tolist() == [0, 0, 30, 5, 45, 0, 75, 50]


def test_what_only_one_customer_has_is_new_in_each_lap_and_what_several_share_stays() -> None:
    run, served = run_of([0, 10, 20], hashes=[[0, 1], [0, 2], []])
    again(run, 3)
    ids = served.requests.hash_ids.tolist()
    system = ids[0]
    assert [ids[at] for at in (2, 4, 6, 8, 10)] == [system] * 5
    own = [ids[at] for at in (1, 3, 5, 7, 9, 11)]
    assert len({*own, system}) == 7
    assert max(ids) == 6  # dense
    assert served.requests.hash_starts.tolist() == [0, 2, 4, 4, 6, 8, 8, 10, 12]
    assert served.requests.num_hashes.tolist() == [2, 2, 0] * 3


def test_rounds_of_a_session_share_what_is_theirs_alone() -> None:
    """Rows 0 and 1 are a session's rounds, 2 and 3 stand alone: 0 is the session's, 1 the two others', 2 the last's."""
    run, served = run_of(
        [0, 0, 10, 20],
        hashes=[[0], [0], [1], [1, 2]],
        session=[0, 0, -1, -1],
        first=[True, False, True, True],
    )
    again(run, 2)
    once, twice = np.split(served.requests.hash_ids, 2)
    assert once[0] == once[1] != twice[0] == twice[1]
    assert once[2] == once[3] == twice[2] == twice[3]
    assert once[4] != twice[4]
    assert len({*once.tolist(), *twice.tolist()}) == 5
    no_session, served = run_of([0, 10], hashes=[[0], [0]])
    again(no_session, 2)
    assert served.requests.hash_ids.tolist() == [0, 0, 0, 0]


def test_a_first_part_is_those_who_come_first_in_the_order_of_their_rows() -> None:
    run, served = run_of([40, 10, 30, 20])
    part = first_part(run, 2)
    assert len(part) == 2
    assert part.requests.arrival_us.tolist() == [10, 20]
    assert part.requests.prompt_tokens.tolist() == [101, 103]
    part.serve(part.requests, int64s([0, 1, 1]), 2)
    assert (served.rows, served.num_each) == ([1, 3, 3], 2)
    assert first_part(run, 4) is run
    sessions = run_of([0, 1, 2], session=[0, 0, 0])[0]
    assert first_part(sessions, 1) is sessions


def test_faster_is_closer_to_the_first_arrival_and_patience_stays_as_long() -> None:
    run, served = run_of([100, 300, 205, 0], first=[True, True, True, False], deadline=[150, -1, 215, 9])
    assert faster(run, 2.0).arrival_us.tolist() == [100, 200, 152, 0]  # 152.5 rounds to even
    assert served.requests.deadline_us is not None
    assert served.requests.deadline_us.tolist() == [150, -1, 162, 9]
    assert (served.rows, served.num_each) == ([0, 1, 2, 3], 4)


def test_a_burst_is_the_first_fifth_at_once() -> None:
    run, served = run_of([60, 10, 20, 30, 40, 50], deadline=[99, 19, 29, 39, -1, 59])
    assert after_a_burst(run).arrival_us.tolist() == [60, 10, 10, 30, 40, 50]
    assert served.requests.deadline_us is not None
    assert served.requests.deadline_us.tolist() == [99, 19, 19, 39, -1, 59]
    rounds, _ = run_of([0, 5, 10, 20, 30, 40, 50], first=[True, False, True, True, True, True, True])
    assert after_a_burst(rounds).arrival_us.tolist() == [0, 5, 0, 20, 30, 40, 50]


def test_the_work_of_a_cluster_in_laps() -> None:
    run, _ = run_of([0, 5, 10])
    plan = ClientPlan(
        arrives=np.array([True, False, True]),
        held=int64s([]),
        due_us=int64s([0, 50, 10]),
        think_us=int64s([3, 4, 5]),
        waiting=int64s([1]),
        awaited=int64s([0]),
        session=int64s([0, 0, -1]),
    )
    work = ClusterWork(
        requests=run.requests,
        session=int64s([0, 1, -1]),
        tenant=int64s([0, 1, 0]),
        adapter=int64s([2, 3, 4]),
        slo_priority=int64s([5, 6, 7]),
        slo_target_us=int64s([8, 9, 10]),
        clients=plan,
    )
    rows = int64s([0, 1, 2, 0, 1, 2])
    laps = work_of_rows(work, run.requests.take(rows), rows, num_each=3)
    assert laps.session is not None
    assert laps.session.tolist() == [0, 1, -1, 2, 3, -1]
    for name in ("tenant", "adapter", "slo_priority", "slo_target_us"):
        assert getattr(laps, name).tolist() == getattr(work, name).tolist() * 2
    assert laps.clients is not None
    assert laps.clients.waiting is not None
    assert laps.clients.awaited is not None
    assert laps.clients.session is not None
    assert (laps.clients.waiting.tolist(), laps.clients.awaited.tolist()) == ([1, 4], [0, 3])
    assert laps.clients.session.tolist() == [0, 0, -1, 1, 1, -1]
    assert laps.clients.arrives.tolist() == [True, False, True] * 2
    assert laps.clients.due_us.tolist() == [0, 50, 10] * 2
    assert laps.clients.think_us.tolist() == [3, 4, 5] * 2
    bare = work_of_rows(ClusterWork(requests=run.requests), run.requests, int64s([0, 1, 2]), num_each=3)
    assert (bare.session, bare.tenant, bare.clients) == (None, None, None)
    no_rounds = work_of_rows(
        replace(work, clients=replace(plan, session=None)), run.requests, rows, num_each=3
    )
    assert no_rounds.clients is not None
    assert no_rounds.clients.waiting is None


# -- runs and their repeats ----------------------------------------------------------------------------------

STEP_US = 10
"""Ten tokens a request, one per step."""


def staying(
    arrival: NDArray[np.int64], stay: int | NDArray[np.int64], *, waits: int = 0, cached: int = 0
) -> Outcomes:
    """Return outcomes of requests that stay so long, all ten tokens made at the end of it."""
    last = arrival + stay
    scheduled = (arrival + waits).tolist()
    first = (last - 9 * STEP_US).tolist()
    return outcomes_of(arrival.tolist(), scheduled, last.tolist(), first=first, tokens=10, cached=cached)


def one_by_one(arrival: NDArray[np.int64], service: int) -> Outcomes:
    """Return outcomes of a server that has one request at a time, first come first served."""
    free, scheduled = 0, []
    for came in arrival.tolist():
        scheduled.append(max(came, free))
        free = scheduled[-1] + service
    last = int64s(scheduled) + service
    return outcomes_of(
        arrival.tolist(), scheduled, last.tolist(), first=(last - 9 * STEP_US).tolist(), tokens=10
    )


def judged(
    outcomes: Outcomes,
    rerun: Callable[[NDArray[np.int64]], Outcomes] | None = None,
    *,
    unanswered: int = 0,
    session: Sequence[int] | None = None,
    first: Sequence[bool] | None = None,
) -> Judged | None:
    """Return the verdict on a run; ``rerun``: what becomes of its requests at other times, None: nobody may ask."""
    run, _ = run_of(outcomes.arrival_us.tolist(), session=session, first=first)

    def serve(requests: Requests, rows: NDArray[np.int64], num_each: int) -> Outcomes:
        assert rerun is not None, "simulated once more"
        assert len(rows) % num_each == 0
        return rerun(requests.arrival_us)

    are_unanswered = np.arange(len(outcomes.arrival_us)) < unanswered
    return judge_load(replace(run, serve=serve), outcomes, unanswered=are_unanswered)


def told(found: Judged | None) -> tuple[Verdict, int, int | None, int]:
    """Return a verdict's word, who was there in the end, how many requests would tell, how many were simulated."""
    assert found is not None
    facts = found.facts
    return found.verdict, facts["in_system"], facts["num_requests_to_tell"], facts["num_simulated"]


def every(n: int, gap: int = 1000) -> NDArray[np.int64]:
    return np.arange(n) * gap


def test_a_long_run_that_keeps_up_is_stable_by_itself() -> None:
    found = judged(staying(every(2000), 10_000))
    assert told(found) == ("stable", 10, None, 2000)
    assert found is not None
    assert found.facts["sent_per_s"] == pytest.approx(1000)
    assert found.facts["served_per_s"] == pytest.approx(1000)
    assert (found.facts["counts"], found.facts["num_sent"], found.facts["growth_frac"]) == (
        "requests",
        2000,
        0.0,
    )


@pytest.mark.parametrize(
    ("stay_ms", "verdict", "to_tell"),
    [
        (400, "stable", None),  # a fifth of 2001 is 400.2
        (401, "too short to tell", 4100),  # twice as many, rounded up to two digits
        (700, "too short to tell", 4200),  # six times those that were there
        (701, "too short to tell", 4300),
    ],
)
def test_a_run_much_of_which_is_under_way_is_too_short(
    stay_ms: int, verdict: str, to_tell: int | None
) -> None:
    assert told(judged(staying(every(2001), stay_ms * 1000))) == (verdict, stay_ms, to_tell, 2001)


@pytest.mark.parametrize(("one_of", "verdict"), [(21, "stable"), (19, "near saturation")])
def test_a_long_run_of_which_more_than_a_twentieth_piles_up_is_near_saturation(
    one_of: int, verdict: str
) -> None:
    """One of so many stays for ever: of 500 in each quarter of the second half."""
    stay = np.where(np.arange(2000) % one_of == 0, 1 << 40, 1000)
    found = judged(staying(every(2000), stay))
    assert found is not None
    assert found.verdict == verdict
    assert found.facts["growth_frac"] == pytest.approx(1 / one_of, abs=0.002)
    assert found.facts["served_per_s"] is None  # the first generation has not passed


def test_a_twentieth_exactly_is_not_more() -> None:
    """One of twenty stays for ever: of the 500 of each quarter 25, whose means differ by 25."""
    stay = np.where(np.arange(2000) % 20 == 19, 1 << 40, 1000)
    found = judged(staying(every(2000), stay))
    assert found is not None
    assert found.facts["growth_frac"] == 0.05
    assert found.verdict == "stable"


@pytest.mark.parametrize(("num", "is_none"), [(100, False), (101, True)])
def test_nothing_is_said_of_a_run_of_which_the_server_refuses_more_than_a_twentieth(
    num: int, is_none: bool
) -> None:
    outcomes = staying(every(2000), 10_000)
    outcomes.status[:num] = REJECTED
    assert (judged(outcomes) is None) is is_none
    assert judged(outcomes, unanswered=num) is not None  # the load has kept them from it


def test_a_run_of_which_more_than_a_twentieth_is_never_answered_is_overloaded() -> None:
    outcomes = staying(every(2000) + 5_000_000, 10_000)
    outcomes.status[:500] = TIMEOUT
    found = judged(outcomes, unanswered=500)
    assert told(found) == ("overloaded", 10, None, 2000)
    assert found is not None
    assert found.unanswered_frac == 0.25
    assert found.facts["sent_per_s"] == pytest.approx(1000)
    assert found.facts["served_per_s"] == pytest.approx(750)
    assert told(judged(outcomes, unanswered=100))[0] == "stable"
    assert told(judged(outcomes, unanswered=101))[0] == "overloaded"
    assert judged(outcomes, unanswered=2000) is None


def test_a_load_that_comes_at_once_has_no_verdict() -> None:
    assert judged(staying(every(2000, gap=0), 10_000)) is None


def test_few_requests_tell_nothing() -> None:
    assert told(judged(staying(every(19), 10_000))) == ("too short to tell", 10, 2000, 19)
    assert told(judged(staying(every(20), 3_000), lambda came: staying(came, 3_000)))[0] == "stable"


@pytest.mark.parametrize(
    ("stay_ms", "simulated"),
    [(10, 100), (11, 4000)],  # a tenth of a hundred may be under way; else forty laps of a hundred tell
)
def test_a_short_run_that_is_light_is_not_repeated(stay_ms: int, simulated: int) -> None:
    found = judged(staying(every(100), stay_ms * 1000), lambda came: staying(came, stay_ms * 1000))
    assert told(found) == ("stable", stay_ms, None, simulated)


def test_a_run_of_half_as_many_as_tell_is_repeated_at_least_once() -> None:
    found = judged(staying(every(1999), 250_000), lambda came: staying(came, 250_000))
    assert told(found) == ("stable", 250, None, 2 * 1999)


def test_a_short_run_that_keeps_up_repeated_says_so() -> None:
    """Half is under way at the end, and of forty laps hardly any: six times fifty would tell."""
    found = judged(staying(every(100), 50_000), lambda came: staying(came, 50_000))
    assert told(found) == ("too short to tell", 50, 300, 100)
    assert found is not None
    assert found.keeps_up_repeated
    few = judged(staying(every(100), 30_000), lambda came: staying(came, 30_000))
    assert told(few) == ("too short to tell", 30, 200, 100)  # twice as many


def test_a_short_run_whose_repeats_are_too_short_asks_for_more_than_they_were() -> None:
    found = judged(staying(every(100), 1_000_000), lambda came: staying(came, 1_000_000))
    assert told(found) == ("too short to tell", 100, 8000, 100)
    assert found is not None
    assert not found.keeps_up_repeated


@pytest.mark.parametrize(("again_us", "per_s"), [(1600, 625), (2500, 500)])
def test_a_short_run_that_is_overloaded_is_served_as_fast_as_it_or_its_repeats_are(
    again_us: int, per_s: int
) -> None:
    """A hundred, one a millisecond, each of 2 ms: 500 a second."""
    found = judged(one_by_one(every(100), 2000), lambda came: one_by_one(came, again_us))
    assert told(found) == ("overloaded", 51, None, 4000)
    assert found is not None
    assert found.facts["sent_per_s"] == pytest.approx(1000)
    assert found.facts["num_sent"] == 100
    assert found.facts["served_per_s"] == pytest.approx(per_s, rel=0.001 if again_us < 2000 else 1e-9)


def test_a_long_run_that_is_overloaded_is_served_as_fast_as_the_whole_of_it_was() -> None:
    """Of 3000 the second half is slower: from 1000/s to half of that, in all 3000 in 4.5 s."""
    came = every(3000)
    last = np.where(np.arange(3000) < 1500, came + 1000, 1_500_000 + (np.arange(3000) - 1499) * 2000)
    scheduled = (last - 900).tolist()
    outcomes = outcomes_of(came.tolist(), scheduled, last.tolist(), first=(last - 90).tolist(), tokens=10)
    found = judged(outcomes)
    assert found is not None
    assert found.verdict == "overloaded"
    assert found.facts["served_per_s"] == pytest.approx(3000 / 4.5, rel=0.001)


# -- queues --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waits_us", "more_us", "verdict"),
    [
        (20, None, "stable"),  # two steps: nobody queues, nothing more is simulated
        (21, 500, "stable"),
        (21, 866, "stable"),  # 577.5 and half as much again are 866.25
        (21, 867, "near saturation"),
        (21, 288, "near saturation"),
        (21, 289, "stable"),
        (333, 500, "stable"),
        (334, 500, "near saturation"),  # more than half of 667.5 us, the whole stay
    ],
)
def test_a_queue_is_looked_at_with_a_little_more_load(
    waits_us: int, more_us: int | None, verdict: str
) -> None:
    """Of 2000 each stays 667 or 668 us, its first token 90 us before the end of it."""

    def rerun(came: NDArray[np.int64]) -> Outcomes:
        assert more_us is not None
        assert came.tolist() == np.rint(every(2000) / 1.05).astype(int).tolist()
        return staying(came, more_us + 90)

    stay = 667 + np.arange(2000) % 2
    found = judged(staying(every(2000), stay, waits=waits_us), None if more_us is None else rerun)
    assert found is not None
    assert found.verdict == verdict
    means = (found.facts["ttft_mean_us"], found.facts["ttft_mean_us_at_more"])
    assert means == ((None, None) if more_us is None else (577.5, more_us))


def test_of_a_very_long_run_half_is_looked_at_with_more_load() -> None:
    """Nine thousand, of whom those who come first, the last rows, have their first token sooner."""
    came = every(9000)[::-1].copy()
    stay = np.where(came < 4_500_000, 500, 900)
    sizes: list[int] = []

    def rerun(came: NDArray[np.int64]) -> Outcomes:
        sizes.append(len(came))
        return staying(came, 600)

    found = judged(staying(came, stay, waits=100), rerun)
    assert sizes == [4500]
    assert found is not None
    assert (found.facts["ttft_mean_us"], found.facts["ttft_mean_us_at_more"]) == (410, 510)


def burst(came: NDArray[np.int64]) -> bool:
    return bool(came[1] == came[0])


def after(one_of: int, *, stay: int = 600, since: int = 0) -> Callable[[NDArray[np.int64]], Outcomes]:
    """Return who after a burst keeps one of so many for ever, from a row on, and else serves all as ever."""

    def rerun(came: NDArray[np.int64]) -> Outcomes:
        rows = np.arange(len(came))
        keeps = (rows % one_of == 0) & (rows >= since) & burst(came)
        return staying(came, np.where(keeps, 1 << 40, stay), waits=100)

    return rerun


PROMPTS = 100 + (2000 - 1) / 2
"""Tokens of a prompt, on average over 2000 rows."""


@pytest.mark.parametrize(
    ("one_of", "cached", "verdict"),
    [
        (20, 110, "metastable"),  # a tenth of the prompts is 109.95 tokens each
        (20, 109, "stable"),
        (45, 110, "metastable"),
        (52, 110, "stable"),  # less than two in a hundred pile up
    ],
)
def test_a_server_that_a_burst_would_keep_slow_is_metastable(one_of: int, cached: int, verdict: str) -> None:
    outcomes = staying(every(2000), 600, waits=100, cached=cached)
    found = judged(outcomes, after(one_of))
    assert found is not None
    assert found.verdict == verdict
    cleared = found.facts["after_burst_per_s"]
    if verdict == "stable":
        assert cleared is None
    else:
        assert cleared == pytest.approx(1000 * (1 - 1 / one_of), rel=0.002)


@pytest.mark.parametrize(("one_of", "verdict"), [(40, "stable"), (36, "metastable")])
def test_after_a_burst_more_than_twice_as_many_are_there_or_it_changes_nothing(
    one_of: int, verdict: str
) -> None:
    """Of a thousand some stay, beside the 26 that are always there and were alone there before."""
    outcomes = staying(every(2000), 25_600, waits=100, cached=200)
    rerun = after(one_of, stay=25_600, since=1000)
    assert told(judged(outcomes, rerun))[:2] == (verdict, 26)


def test_up_to_forty_are_there_after_any_burst() -> None:
    outcomes = staying(every(2000), 600, waits=100, cached=200)
    assert told(judged(outcomes, after(25, since=1025)))[0] == "stable"  # 39 and the last one
    assert told(judged(outcomes, after(25, since=1000)))[0] == "metastable"


def test_a_burst_is_nothing_to_a_run_of_which_it_is_the_most() -> None:
    short = staying(every(1000), 600, waits=100, cached=200)
    assert told(judged(short, after(10)))[0] == "stable"


# -- sessions ------------------------------------------------------------------------------------------------


def test_sessions_are_counted_as_such_and_what_would_tell_is_in_requests() -> None:
    """A hundred sessions of two rounds are there for 50 ms each. Six times the 49 between laps have 588 requests."""
    came = np.repeat(every(100), 2)
    came[1::2] += 25_000
    session, first = (np.arange(200) // 2).tolist(), (np.arange(200) % 2 == 0).tolist()

    def rerun(arrival: NDArray[np.int64]) -> Outcomes:
        arrival = arrival.copy()
        arrival[1::2] = arrival[::2] + 25_000
        return staying(arrival, 25_000)

    found = judged(staying(came, 25_000), rerun, session=session, first=first)
    assert found is not None
    assert told(found) == ("too short to tell", 50, 590, 200)
    assert (found.facts["counts"], found.facts["num_sent"]) == ("sessions", 100)
    assert found.facts["sent_per_s"] == pytest.approx(1000)


# -- the words -----------------------------------------------------------------------------------------------

FACTS: LoadFacts = {
    "counts": "requests",
    "sent_per_s": 12.345,
    "served_per_s": 6.789,
    "in_system": 1234,
    "num_sent": 5678,
    "growth_frac": 0.4,
    "num_simulated": 5678,
    "num_requests_to_tell": 12000,
    "late_frac": 0.0,
    "waits_most": False,
    "num_at_more": None,
    "ttft_mean_us": 999_940.0,
    "ttft_mean_us_at_more": 1_234_567.0,
    "after_burst_per_s": 3.456,
}


@pytest.mark.parametrize(
    ("verdict", "more", "said"),
    [
        ("stable", {}, None),
        (
            "overloaded",
            {},
            "overloaded: 12.3 requests/s are sent, 6.79/s answered. Do not trust TTFT and E2E: what is under way grows "
            "as long as the run lasts",
        ),
        (
            "overloaded",
            {"unanswered_frac": 0.05, "served_per_s": None},
            "overloaded: 12.3 requests/s are sent. Do not trust TTFT and E2E: what is under way grows as long as "
            "the run lasts",
        ),
        (
            "overloaded",
            {"unanswered_frac": 0.051},
            "overloaded: 12.3 requests/s are sent, 5.1% of the requests are never answered",
        ),
        (
            "too short to tell",
            {},
            "too short to tell: 1,234 of 5,678 requests were under way when the last one came. --num-requests 12000 "
            "would tell",
        ),
        (
            "too short to tell",
            {"keeps_up_repeated": True, "counts": "sessions"},
            "too short to tell: 1,234 of 5,678 sessions were under way when the last one came. When they are "
            "repeated, the same requests are served as fast as they arrive. --num-requests 12000 would tell",
        ),
        (
            "metastable",
            {},
            "metastable: the server keeps up with 12.3 requests/s; after a burst it would clear 3.46/s and not recover "
            "until less is sent",
        ),
        (
            "near saturation",
            {},
            "near saturation: do not trust TTFT here. 5% more load moves its mean from 999.9 to 1,235 ms",
        ),
        (
            "near saturation",
            {"ttft_mean_us": 1_000_000.0, "ttft_mean_us_at_more": 1500.0},
            "near saturation: do not trust TTFT here. 5% more load moves its mean from 1,000 to 1.500 ms",
        ),
        (
            "near saturation",
            {"num_at_more": 4000, "ttft_mean_us_at_more": 1_500_000.0},
            "near saturation: do not trust TTFT here. 5% more load moves its mean over the first 4,000 requests from "
            "999.9 to 1,500 ms",
        ),
        (
            "near saturation",
            {"ttft_mean_us_at_more": None},
            "near saturation: do not trust TTFT here, small differences in speed decide it",
        ),
        (
            "near saturation",
            {"ttft_mean_us": None},
            "near saturation: do not trust TTFT here, small differences in speed decide it",
        ),
    ],
)
def test_the_line_of_a_verdict(verdict: Verdict, more: dict[str, Any], said: str | None) -> None:
    flags = {name: more.pop(name) for name in ("unanswered_frac", "keeps_up_repeated") if name in more}
    facts: Any = {**FACTS, **more}
    assert Judged(verdict=verdict, facts=facts, **flags).text() == said


def test_a_recording_that_is_too_short_has_no_more_requests_to_ask_for() -> None:
    facts: Any = FACTS
    said = Judged(verdict="too short to tell", facts=facts).text(is_recorded=True)
    assert said is not None
    assert said.endswith(
        "A longer recording, or requests drawn like it (vtwin run --like TRACE --num-requests 12000), would tell"
    )
