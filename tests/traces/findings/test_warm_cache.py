"""What a cache knew of prompts that were meant to be new, and what a load repeats by itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.traces.measured.test_stream_shape import STEADY, answers
from traces import ClientInfo, CounterReading, Trace
from traces.findings.prefix_ceiling import prefix_hit_ceiling_frac
from traces.findings.warm_cache import _by_counters, warm_cache


def observed(**more: Any) -> Trace:  # noqa: ANN401
    trace = answers(*[STEADY] * 4, **{"input_tokens": [100, 200, 300, 400], **more})
    return trace.with_header(client=ClientInfo(finished=True))


def counters(**increases: int) -> dict[str, CounterReading]:
    return {
        f'vllm:{name}_total{{engine="0"}}': CounterReading(before=5, after=5 + by)
        for name, by in increases.items()
    }


@pytest.mark.parametrize(
    ("hits", "queries", "share"), [(0, 8, 0.0), (8, 8, 1.0), (9, 8, None), (-1, 8, None), (0, 0, None)]
)
def test_counters_tell_a_share_that_can_be(hits: int, queries: int, share: float | None) -> None:
    assert _by_counters(counters(prefix_cache_hits=hits, prefix_cache_queries=queries)) == share


def test_a_hundredth_of_new_prompts_is_a_warm_cache() -> None:
    found = warm_cache(observed(cached_input_tokens=[0, 0, 10, 0]))
    assert found is not None
    assert (found.found_frac, found.shared_frac, found.num, found.of, found.source) == (
        0.01,
        0,
        1,
        4,
        "usage",
    )
    assert warm_cache(observed(cached_input_tokens=[0, 0, 9, 0])) is None
    assert warm_cache(observed()) is None


def test_later_rounds_and_requests_that_were_sent_again_are_not_counted() -> None:
    found = warm_cache(
        observed(cached_input_tokens=[50, 200, 300, 0], round_index=[0, 1, None, None], attempt=[1, 1, 2, 1])
    )
    assert found is not None
    assert (found.found_frac, found.num, found.of) == (50 / 500, 1, 2)


def test_the_server_s_counters_tell_where_the_answers_do_not() -> None:
    trace = observed()
    said = counters(prefix_cache_queries=1000, prefix_cache_hits=1000)
    found = warm_cache(trace.with_header(metrics_delta=said))
    assert found is not None
    assert (found.found_frac, found.num, found.source) == (1.0, 4, "/metrics")
    for none in (
        counters(prefix_cache_queries=0, prefix_cache_hits=0),
        counters(prefix_cache_queries=10, prefix_cache_hits=11),
        said | counters(num_preemptions=1),
    ):
        assert warm_cache(trace.with_header(metrics_delta=none)) is None
    assert warm_cache(observed(attempt=[1, 1, 2, 1]).with_header(metrics_delta=said)) is None


def test_what_a_load_repeats_is_found_by_an_unlimited_cache() -> None:
    groups = observed(prefix_group=["g", "g", None, "g"], prefix_length=[50, 80, 0, 60])
    assert prefix_hit_ceiling_frac(groups) == (50 + 60) / 1190
    rounds = observed(
        session_id=["s", "s", "t", None], round_index=[0, 1, 0, None], new_input_tokens=[100, 60, 300, None]
    )
    assert prefix_hit_ceiling_frac(rounds) == 140 / 1000
    assert prefix_hit_ceiling_frac(observed()) is None
    # the first round's group is known by when the second comes, which finds it and what was said before
    both = {
        "prefix_group": ["g", "g", None, None],
        "prefix_length": [80, 80, 0, 0],
        "session_id": ["s", "s", None, None],
    }
    both |= {"round_index": [0, 1, None, None], "new_input_tokens": [100, 20, None, None]}
    assert prefix_hit_ceiling_frac(observed(**both)) == 260 / 1160
    late = observed(**both, arrival_time_us=[None, 0, 0, 0], send_time_us=None)
    assert prefix_hit_ceiling_frac(late) == (260 + 80) / 1160, "an unknown time is the last"
    # a tenth more than a load that shares is a warm cache
    for cached, is_warm in ((230, True), (228, False)):
        found = warm_cache(groups.with_columns(cached_input_tokens=[0, 0, 0, cached]))
        assert (found is not None) == is_warm
        assert found is None or found.shared_frac == pytest.approx(110 / 1190)
