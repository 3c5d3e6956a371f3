"""``--session-priority``: what requests of sessions tell a server, against sorting the sessions by hand."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from traces import ConfigError, Header, Trace, make_trace
from traces.workload import SessionStarts, is_first, started


def sessions_of(rng: Random, number: int) -> Trace:
    """Return sessions of one to three rounds, rows shuffled, some starting in the same µs; some rows of no session."""
    rows = []
    for session in range(number):
        start = rng.choice([0, 5, 5, 9, 20]) if session else 0
        for round_index in range(rng.randint(1, 3)):
            rows.append((f"s{session}", round_index, start if round_index == 0 else 0, round_index == 0))
    rows += [("s0", 3, 0, False), *((None, None, rng.randint(0, 20), True) for _ in range(rng.randint(0, 2)))]
    rng.shuffle(rows)
    return make_trace(
        Header(mode="generated"),
        {
            "request_id": list(range(len(rows))),
            "session_id": [row[0] for row in rows],
            "round_index": [row[1] for row in rows],
            "arrival_time_us": [row[2] if row[3] else None for row in rows],
            "input_tokens": [10] * len(rows),
            "output_tokens": [1] * len(rows),
            "think_time_us": [None if row[3] else 1 for row in rows],
        },
    )


@given(seed=st.integers(0, 2**32), number=st.integers(1, 6))
@examples(60)
def test_the_session_that_starts_first_is_the_most_urgent(seed: int, number: int) -> None:
    trace = sessions_of(Random(seed), number)
    values = started(trace, SessionStarts(priority="first-started")).cells("vllm_priority").values
    codes, known = trace.cells("session_id").codes()
    names = [known[code] if code >= 0 else f"alone {row}" for row, code in enumerate(codes)]
    arrival = trace.cells("arrival_time_us")
    firsts = {
        names[row]: (int(arrival.values[row]), row)
        for row in reversed(range(len(trace)))
        if arrival.is_known[row]
    }
    expected = {name: turn for turn, name in enumerate(sorted(firsts, key=lambda name: firsts[name]))}
    assert values.tolist() == [expected[name] for name in names]


def test_what_goes_on_is_before_what_begins() -> None:
    trace = sessions_of(Random(3), 5)
    values = started(trace, SessionStarts(priority="running")).cells("vllm_priority").values
    begins = trace.cells("arrival_time_us").is_known
    assert values.tolist() == np.where(begins, 1, 0).tolist()


def test_the_turns_are_those_of_the_starts_that_are_asked_for() -> None:
    trace = sessions_of(Random(5), 6)
    drawn = started(trace, SessionStarts(rate_per_s=1.0, seed=7, priority="first-started"))
    first = drawn.cells("arrival_time_us")
    order = np.argsort(first.values[first.is_known], kind="stable")
    assert drawn.cells("vllm_priority").values[first.is_known][order].tolist() == list(range(len(order)))


def test_a_session_whose_first_rounds_are_cut_off_begins_with_the_first_that_is_left() -> None:
    trace = make_trace(
        Header(mode="generated"),
        {
            "request_id": [0, 1, 2],
            "session_id": ["late", "s", "s"],
            "round_index": [0, 3, 4],
            "arrival_time_us": [9, 5, None],
            "input_tokens": [1, 1, 2],
            "output_tokens": [1, 1, 1],
        },
    )
    assert is_first(trace).tolist() == [True, True, False]
    values = started(trace, SessionStarts(priority="first-started")).cells("vllm_priority").values
    assert values.tolist() == [1, 0, 0]


def test_a_trace_without_sessions_has_none_to_put_first() -> None:
    trace = make_trace(
        Header(mode="generated"),
        {"request_id": [0], "arrival_time_us": [0], "input_tokens": [1], "output_tokens": [1]},
    )
    with pytest.raises(ConfigError, match="--session-priority: got a trace without sessions, expected"):
        started(trace, SessionStarts(priority="running"))
