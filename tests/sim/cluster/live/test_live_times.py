"""One server in real time, over an injected clock: when each token is handed out, and when to look again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig
from sim.cluster import ClusterConfig, LiveCluster, Pool
from tests.examples import examples
from tests.sim.strategies import Case, any_model, cases

LATENCY = Blackbox(alpha0=100, alpha1=1, alpha2=0, beta0=1000, beta1=10, beta2=5)


def realtime(*, latency: Blackbox = LATENCY, **engine: object) -> LiveCluster:
    settings = {"async_scheduling": False, "enable_prefix_caching": False, "num_gpu_blocks": 1000, **engine}
    return LiveCluster(
        ClusterConfig(pools=(Pool(engine=EngineConfig(**settings), latency=latency),)), num_keys=1
    )


def play(cluster: LiveCluster, *, start_us: int = 0) -> Iterator[tuple[int, int, int]]:
    """Look when the cluster asks to be looked at; yield (now, request, time) of each token."""
    now_us = start_us
    for _ in range(100_000):
        for request, time_us in cluster.tokens(now_us):
            yield now_us, request, time_us
        following = cluster.next_time_us()
        if following is None:
            return
        assert following > now_us, "the cluster asks to be looked at again at once"
        now_us = following
    pytest.fail("the cluster never comes to rest")


def test_each_token_is_handed_out_at_its_time_and_not_before() -> None:
    cluster = realtime()
    _, arrival_us = cluster.submit(5_000, prompt_tokens=20, output_tokens=3)
    first = arrival_us + 100 + 20 + 1000 + 200
    assert list(play(cluster, start_us=5_000)) == [(t, 0, t) for t in (first, first + 1005, first + 2010)]


def test_tokens_seen_late_wait_here_beyond_the_engine_s_clock() -> None:
    cluster = realtime(latency=Blackbox(alpha2=700, beta0=1000))
    _, arrival_us = cluster.submit(0, prompt_tokens=1, output_tokens=3)
    expected = [arrival_us + 1000 * k + 700 * k for k in (1, 2, 3)]
    assert [(now, time) for now, _, time in play(cluster)] == [(t, t) for t in expected]


def test_one_that_looks_too_late_gets_everything_that_is_due_in_order() -> None:
    cluster = realtime()
    for prompt in (5, 50, 10):
        cluster.submit(0, prompt_tokens=prompt, output_tokens=4)
    times = [time for _, time in cluster.tokens(10**9)]
    assert len(times) == 12
    assert times == sorted(times)


def test_an_aborted_request_gives_no_more_tokens_and_the_others_go_on() -> None:
    cluster = realtime()
    for _ in range(2):
        cluster.submit(0, prompt_tokens=5, output_tokens=10)
    seen = []
    for now_us, request, _ in play(cluster):
        seen.append(request)
        if len(seen) == 6:
            cluster.abort(now_us, 0)
    assert seen.count(1) == 10
    assert seen.count(0) == 3
    assert cluster.views(10**9)[0].num_running == 0


@given(
    requests=st.lists(
        st.tuples(st.integers(0, 20_000), st.integers(1, 100), st.integers(1, 20)), min_size=1, max_size=12
    ),
    late_us=st.integers(0, 3_000),
    asynchronous=st.booleans(),
)
def test_looking_late_changes_no_tokens_time(
    requests: list[tuple[int, int, int]], late_us: int, asynchronous: bool
) -> None:
    """What a busy machine delays is the sending, never the simulation."""

    def times(delay_us: int) -> list[tuple[int, int]]:
        cluster = realtime(async_scheduling=asynchronous, max_num_seqs=4)
        out: list[tuple[int, int]] = []
        for arrival_us, prompt, output in sorted(requests):
            while (following := cluster.next_time_us()) is not None and following + delay_us < arrival_us:
                out += cluster.tokens(following + delay_us)
            cluster.submit(arrival_us, prompt_tokens=prompt, output_tokens=output)
        return sorted(out + cluster.tokens(10**9))

    assert times(0) == times(late_us)


@examples(100)
@given(cases(model=any_model), st.lists(st.integers(0, 6_000), min_size=12, max_size=12))
def test_aborted_requests_leave_nothing_behind(case: Case, patience_us: list[int]) -> None:
    """Whatever the engine is like and whatever a request is doing when its client goes, or just before it comes."""
    case = case if case.config.num_gpu_blocks else case.under(num_gpu_blocks=400)
    pool, requests = Pool(engine=case.config, latency=case.latency), case.requests
    num_keys = int(requests.hash_ids.max(initial=0)) + 1
    cluster = LiveCluster(ClusterConfig(pools=(pool,)), num_keys=num_keys, num_rows=8)
    free = cluster.views(0)[0].num_free_blocks
    ends: list[tuple[int, int]] = []
    for row in np.argsort(requests.arrival_us, kind="stable").tolist():
        arrival_us = int(requests.arrival_us[row])
        while ends and ends[0][0] <= arrival_us:
            cluster.abort(*ends.pop(0))
        first = requests.hash_starts[row]
        end = first + requests.num_hashes[row]
        number, _ = cluster.submit(
            arrival_us,
            prompt_tokens=int(requests.prompt_tokens[row]),
            output_tokens=int(requests.output_tokens[row]),
            priority=int(requests.priority[row]),
            hash_ids=requests.hash_ids[first:end].tolist(),
        )
        ends = sorted([*ends, (arrival_us + patience_us[row % 12], number)])
    for now_us, number in ends:
        cluster.abort(now_us, number)
        assert number not in [each for each, _ in cluster.tokens(now_us)]
    (view,) = cluster.views(ends[-1][0])
    assert (view.num_running, view.num_waiting) == (0, 0), "somebody goes on whose client has gone"
    cluster.tokens(10**9)
    (view,) = cluster.views(10**9)
    assert (view.num_running, view.num_waiting, view.num_free_blocks) == (0, 0, free)
    assert view.kv_cache_usage_frac == 0
    assert cluster.next_time_us() is None
