"""Which runs begin cold, and that ordinary ones do not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from traces import ClosedLoop, Header, Source, Trace, make_trace
from traces.findings.cold_start import cold_start

Floats = NDArray[np.float64]


def run(sent_us: Floats, ttft_us: Floats, prompt: object = 64, *, loop: ClosedLoop | None = None) -> Trace:
    first = (sent_us + ttft_us).astype(np.int64)
    return make_trace(
        Header(mode="real", tool="vtwin", closed_loop=loop),
        {
            "request_id": [str(row) for row in range(len(sent_us))],
            "arrival_time_us": sent_us.astype(np.int64),
            "send_time_us": sent_us.astype(np.int64),
            "input_tokens": prompt,
            "output_tokens": 40,
            "status": "ok",
            "content_first_time_us": first,
            "last_token_time_us": first + 390_000,
        },
    )


def poisson(seed: int, *, number: int = 60, load: float = 0.7) -> Trace:
    """An M/G/1 queue of prefills: lognormal prompts, service that grows with them, noise of a tenth."""
    draw = np.random.default_rng(seed)
    prompt = np.maximum(draw.lognormal(5.5, 1.0, number), 8).astype(np.int64)
    service = (20_000 + 100.0 * prompt) * draw.lognormal(0, 0.1, number)
    gap = float(20_000 + 100.0 * np.exp(5.5 + 0.5)) / load
    sent = np.cumsum(draw.exponential(gap, number))
    done = np.zeros(number)
    for row in range(number):
        done[row] = max(done[row - 1] if row else 0.0, sent[row]) + service[row]
    return run(sent, done - sent, prompt)


@pytest.mark.parametrize("load", [0.2, 0.7, 0.95, 1.3])
@pytest.mark.parametrize("number", [30, 100])
def test_at_most_one_in_a_hundred_ordinary_poisson_runs_is_said_to_begin_cold(
    load: float, number: int
) -> None:
    seeds = 400
    alarms = sum(cold_start(poisson(seed, number=number, load=load)) is not None for seed in range(seeds))
    assert alarms <= 0.01 * seeds


@pytest.mark.parametrize("factor", [5, 10])
def test_the_first_requests_of_a_cold_server_are_found(factor: int) -> None:
    sent = np.arange(60) * 50_000.0
    ttft = np.random.default_rng(1).lognormal(np.log(100_000), 0.1, 60)
    ttft[:12] *= factor
    found = cold_start(run(sent, ttft))
    assert found is not None
    assert (found.num, found.of) == (12, 60)
    assert found.ttft_us / found.later_us == pytest.approx(factor, rel=0.15)


def test_a_single_first_request_must_be_slower_by_more() -> None:
    sent, ttft = np.arange(60) * 50_000.0, np.full(60, 100_000.0)
    ttft[0] = 300_000
    assert cold_start(run(sent, ttft)) is None
    ttft[0] = 500_000
    found = cold_start(run(sent, ttft))
    assert found is not None
    assert found.num == 1


def test_a_first_prompt_that_is_longer_than_all_others_says_nothing() -> None:
    sent, ttft, prompt = np.arange(60) * 50_000.0, np.full(60, 100_000.0), np.full(60, 64)
    ttft[:3], prompt[:3] = 1_000_000, 4_096
    assert cold_start(run(sent, ttft, prompt)) is None


def test_the_first_wave_of_a_closed_loop_waits_for_itself_and_is_judged_by_its_fastest() -> None:
    sent = np.concatenate([np.zeros(16), 500_000 + np.arange(64) * 30_000.0])
    ttft = np.concatenate([100_000 + np.arange(16) * 90_000.0, np.full(64, 100_000.0)])
    loop = ClosedLoop(concurrency=16)
    assert cold_start(run(sent, ttft, loop=loop)) is None
    ttft[:16] += 900_000
    found = cold_start(run(sent, ttft, loop=loop))
    assert found is not None
    assert found.num == 16


def test_twenty_requests_are_the_fewest_that_tell() -> None:
    sent, ttft = np.arange(19) * 50_000.0, np.full(19, 100_000.0)
    ttft[:4] = 1_000_000
    assert cold_start(run(sent, ttft)) is None


def test_a_slow_request_is_twice_as_slow_and_five_ms_more() -> None:
    sent = np.arange(60) * 50_000.0
    for first, usual, num in (
        (200_000, 100_000, None),  # just twice
        ((200_000, 300_000), 100_000, None),
        ((300_000, 200_000), 100_000, None),
        (201_000, 100_000, 2),
        (6_000, 1_000, None),  # just five ms more
        (6_001, 1_000, 2),
    ):
        ttft = np.full(60, float(usual))
        ttft[:2] = first
        found = cold_start(run(sent, ttft))
        assert (None if found is None else found.num) == num
        assert found is None or (found.ttft_us, found.later_us) == (first, usual)


def test_of_a_load_that_is_not_known_nothing_is_said() -> None:
    sent, ttft = np.arange(60) * 50_000.0, np.full(60, 100_000.0)
    ttft[:3] = 1_000_000
    for unknown in (None, "the file has no times"):
        trace = run(sent, ttft).with_header(source=Source(format="a", file="b", load_unknown=unknown))
        assert (cold_start(trace) is None) == (unknown is not None)


def test_one_slow_request_alone_is_cold_from_more_than_four_times_on() -> None:
    sent, ttft = np.arange(60) * 50_000.0, np.full(60, 100_000.0)
    ttft[0] = 400_000
    assert cold_start(run(sent, ttft)) is None
    ttft[0] = 401_000
    assert cold_start(run(sent, ttft)) is not None


def test_the_slow_ones_end_with_the_first_half() -> None:
    sent, ttft = np.arange(40) * 50_000.0, np.full(40, 1_000_000.0)
    ttft[20:] = 100_000
    found = cold_start(run(sent, ttft))
    assert found is not None
    assert found.num == 20


def test_prompts_of_nine_tenths_are_long_enough_to_compare_and_five_of_them_are_needed() -> None:
    sent, ttft, prompt = np.arange(60) * 50_000.0, np.full(60, 100_000.0), np.full(60, 64)
    ttft[:3], prompt[:3] = 1_000_000, 1_000
    prompt[55:] = 900
    assert cold_start(run(sent, ttft, prompt)) is not None
    prompt[55] = 899
    assert cold_start(run(sent, ttft, prompt)) is None


def test_a_loop_of_half_the_requests_is_judged_and_a_larger_one_is_not() -> None:
    sent, ttft = np.arange(40) * 50_000.0, np.full(40, 100_000.0)
    for first, users, found in ((900_000, 20, True), (900_000, 21, False), (200_000, 20, False)):
        ttft[:20] = first  # the last: just twice as slow as later ones
        loop = ClosedLoop(concurrency=users)
        assert (cold_start(run(sent, ttft, loop=loop)) is not None) == found


def test_the_wait_for_a_connection_is_not_the_server_s() -> None:
    sent, ttft = np.arange(20) * 50_000.0, np.full(20, 100_000.0)
    ttft[:3] = 1_000_000
    assert cold_start(run(sent, ttft)) is not None
    waited = np.zeros(20, np.int64)
    waited[:3] = 900_000
    assert cold_start(run(sent, ttft).with_columns(connection_wait_us=waited)) is None


def test_a_run_that_is_slow_from_its_second_request_on_did_not_begin_cold() -> None:
    sent, ttft = np.arange(60) * 50_000.0, np.full(60, 100_000.0)
    ttft[1:4] = 1_000_000
    assert cold_start(run(sent, ttft)) is None
