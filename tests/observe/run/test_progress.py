"""What a run counts while it goes on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observe.run.run_counts import LogHistogram, Progress
from observe.run.sent_request import SentRequest
from observe.senders.exchange import Exchange

MS = 1_000_000


@given(values=st.lists(st.floats(1, 1e9), min_size=1, max_size=200), q=st.floats(0, 1))
def test_a_histograms_quantile_is_right_to_two_percent(values: list[float], q: float) -> None:
    histogram = LogHistogram()
    for value in values:
        histogram.add(value)
    found = histogram.quantile(q)
    exact = sorted(values)[math.floor(q * (len(values) - 1))]
    assert found is not None
    assert found == pytest.approx(exact, rel=0.021)


def test_nothing_has_no_quantile_and_counts_weigh() -> None:
    histogram = LogHistogram()
    assert histogram.quantile(0.5) is None
    histogram.add(10, 99)
    histogram.add(1000, 1)
    assert histogram.quantile(0.5) == pytest.approx(10, rel=0.02)
    assert histogram.quantile(1.0) == pytest.approx(1000, rel=0.02)


def test_a_clients_own_lag_is_neither_the_caps_nor_the_connections() -> None:
    progress = Progress(num_planned=1)
    progress.note_launch(held_back=True)
    exchange = Exchange(ready_ns=40 * MS, x_request_id="x")
    exchange.dispatched_ns, exchange.connection_wait_ns = 50 * MS, 7 * MS
    progress.note_end(SentRequest(row=0, exchange=exchange))
    assert list(progress.dispatch_lag_us) == [50_000]
    assert list(progress.own_lag_us) == [3_000]
    assert (progress.num_held_back, progress.num_connections, progress.in_flight) == (1, 1, 0)


def test_the_first_round_of_a_closed_loop_says_nothing_of_how_the_client_keeps_up() -> None:
    progress = Progress(num_planned=3, num_at_once=2)
    for row in range(3):
        progress.note_launch(held_back=False)
        exchange = Exchange(x_request_id="x", dispatched_ns=(row + 1) * MS)
        progress.note_end(SentRequest(row=0, number=row, exchange=exchange))
    assert list(progress.dispatch_lag_us) == [1000, 2000, 3000]
    assert list(progress.own_lag_us) == [3000]
