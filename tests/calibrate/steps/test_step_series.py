"""What a fit makes of a log of steps, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.steps.step_series import (
    MIN_PREFILLS,
    MIN_STEPS,
    MOST_REQUESTS,
    StepSeries,
    _batch,
    _own_times,
    series_of,
)
from traces import TraceError
from traces.steps import LoggedSteps

MS = 1000.0


def log(prefill: list[int], decode: list[int], took_ms: list[float], *, whole: bool = False) -> LoggedSteps:
    """Return steps of one engine that follow each other; a prompt in each that has prefill tokens."""
    tokens, n = np.array(prefill, float), len(prefill)
    return LoggedSteps(
        engine=np.zeros(n),
        number=np.arange(n, dtype=float),
        prefill_requests=np.minimum(tokens, 1),
        prefill_tokens=tokens,
        decode_requests=np.array(decode, float),
        decode_tokens=np.array(decode, float),
        duration_us=np.array(took_ms) * MS,
        end_us=1e9 + np.cumsum(took_ms) * MS,
        is_whole=whole,
    )


def enough(prefill: list[int], decode: list[int], took_ms: list[float]) -> LoggedSteps:
    """Return a log that begins with these steps and goes on long enough to be fitted."""
    more = [0, 0, 9] * max(MIN_STEPS, MIN_PREFILLS)
    return log(prefill + more, decode + [1] * len(more), took_ms + [5.0] * len(more))


def only(logged: LoggedSteps, *, is_async: bool = True) -> StepSeries:
    (found,), _ = series_of(logged, name="a.log", is_async=is_async)
    return found


def test_a_step_with_prompts_is_timed_with_the_step_before_it() -> None:
    found = only(enough([0, 0, 0, 50, 40, 0, 0], [3, 3, 3, 3, 4, 5, 5], [4, 4, 14, 30, 28, 3, 4]))
    assert list(found.group[:7]) == [0, 1, 2, 2, 2, 3, 4]
    assert list(found.took_us[1:5]) == [4 * MS, 72 * MS, 3 * MS, 4 * MS]
    assert list(found.has_prompts[:5]) == [False, False, True, False, False]
    assert len(found.took_us) == len(found.has_prompts) == found.group.max() + 1


def test_the_time_of_a_step_before_which_the_engine_may_have_waited_is_not_known() -> None:
    found = only(enough([0, 60, 0, 0], [1, 0, 1, 1], [4, 900, 4, 4]))
    assert np.isnan(found.took_us[found.group[1]])
    assert np.isnan(found.begin_us[1])
    assert found.took_us[found.group[2]] == 4 * MS


def test_a_step_of_no_time_or_of_ten_seconds_was_none() -> None:
    logged = log([0] * 4, [1] * 4, [0.0, 10_000.0, 9_999.0, 0.001], whole=True)
    found = _own_times(logged, np.ones(4, bool))
    assert found == pytest.approx([np.nan, np.nan, 9_999_000.0, 1.0], nan_ok=True)


def test_what_was_cached_is_a_part_of_the_prompts_context() -> None:
    """Two prompts of 10 tokens behind 30 cached ones each: 10 x 30 pairs with those, and 1 + 2 + … + 10."""
    plain = log([20], [0], [5.0])
    logged = replace(plain, prefill_requests=np.array([2.0]), prefill_cached=np.array([60.0]))
    batch = _batch(logged)
    assert batch.prefill_context_tokens.tolist() == [80]
    assert batch.prefill_pairs.tolist() == [2 * (10 * 30 + 55)]
    assert (batch.num_prefill_tokens.tolist(), batch.num_prefill_seqs.tolist()) == ([20], [2])


def test_forward_passes_know_it() -> None:
    logged = enough([0, 60, 0, 0], [1, 0, 1, 1], [4, 30, 4, 4])
    assert only(replace(logged, is_whole=True)).took_us[0] == 34 * MS


def test_a_heartbeat_is_no_step_and_parts_its_neighbours() -> None:
    logged = replace(enough([0, 0, 60, 0], [1, 0, 0, 1], [4, 0, 30, 4]), is_whole=True)
    found = only(logged)
    assert len(found) == len(logged) - 1
    assert list(found.group[:3]) == [0, 1, 2]
    assert np.isnan(found.begin_us[1])


def test_contexts_are_counted_along_the_log() -> None:
    found = only(enough([100, 0, 40, 0, 0], [0, 1, 1, 2, 1], [9, 4, 9, 4, 4]))
    # One of 100 tokens decodes from the second step on; one of 40 from the fourth; the oldest is done first.
    assert list(found.batch.decode_context_tokens[:5]) == [0, 101, 102, 103 + 41, 42]


def test_pairs_are_of_equal_prompts_unless_their_variance_is_known() -> None:
    logged = enough([0, 40, 0], [1, 1, 3], [4, 9, 4])
    logged = replace(
        logged, prefill_requests=np.where(logged.prefill_tokens == 40, 2, logged.prefill_requests)
    )
    assert only(logged).batch.prefill_pairs[1] == 2 * (20 * 21 / 2)
    variance = np.where(logged.prefill_tokens == 40, 100.0, 0.0)  # 10 and 30
    known = only(replace(logged, prompt_variance=variance))
    assert known.batch.prefill_pairs[1] == 10 * 11 / 2 + 30 * 31 / 2
    cached = np.where(logged.prefill_tokens == 40, 64.0, 0.0)
    assert only(replace(logged, prefill_cached=cached)).batch.prefill_pairs[1] == 2 * (20 * 21 / 2 + 20 * 32)


def test_gaps_a_clock_that_goes_back_and_several_engines_are_told_and_their_times_left_out() -> None:
    logged = enough([0, 0, 0], [1, 1, 1], [4, 4, 4])
    number, ends = logged.number.copy(), logged.end_us.copy()
    number[10:] += 5
    ends[20:] -= 60_000 * MS
    engine = (np.arange(len(number)) >= 100).astype(float)
    found, said = series_of(
        replace(logged, number=number, end_us=ends, engine=engine), name="a.log", is_async=True
    )
    assert len(found) == 2
    assert np.isnan(found[0].took_us[found[0].group[10]])
    assert np.isnan(found[0].took_us[found[0].group[20]])
    assert said == [
        "a.log: 2 engines, each taken as a server of its own",
        "a.log: the clock goes back 1 times; the steps there are left out",
        "a.log: steps are missing in 1 places; the times across them are left out",
    ]


def test_as_many_known_times_as_must_be_are_enough_and_nothing_is_left_out() -> None:
    """A prompt and the step before it have one time together."""
    for others, known in ((90, 110), (80, 100)):
        work = [0, 0, 9] * MIN_PREFILLS + [0] * others
        just = replace(log(work, [1] * len(work), [5.0] * len(work)), is_whole=True)
        (found,), said = series_of(just, name="a.log", is_async=True)
        assert (int(found.known().sum()), int(found.has_prompts.sum()), said) == (known, MIN_PREFILLS, [])


def test_waits_are_no_steps_where_the_next_one_is_prepared_meanwhile() -> None:
    logged = enough([0], [1], [4])
    waits = replace(logged, end_us=np.full(len(logged), np.nan))
    with pytest.raises(TraceError, match="got times of waiting for a step's result"):
        series_of(waits, name="a.log", is_async=True)
    assert only(waits, is_async=False).took_us[0] == 4 * MS


@pytest.mark.parametrize(
    ("logged", "said"),
    [
        (log([0], [1], [4]), "a.log: got 0 known times of steps, expected at least 100"),
        (log([0] * 200, [1] * 200, [4.0] * 200), "a.log: got 0 known times of steps with prompts, expected"),
        (log([0, 0], [1, 10**9], [4, 4]), "a.log: got a step of 1e\\+09 requests, expected at most 100,000"),
        (log([0], [MOST_REQUESTS], [4]), "a.log: got 0 known times of steps, expected at least 100"),
    ],
)
def test_too_little_or_too_much_is_one_line(logged: LoggedSteps, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        series_of(logged, name="a.log", is_async=True)
