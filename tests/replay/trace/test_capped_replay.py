"""A run whose client had a cap is replayed as one: what is due waits for an answer of the simulated server."""

from dataclasses import replace

import numpy as np
import pytest

from replay import TwinConfig, pacing_of, simulate_trace
from sim import Blackbox, EngineConfig
from traces import ClientInfo, ConfigError, Header, Trace, make_trace

CAP = 3
SERVER = TwinConfig(engine=EngineConfig(async_scheduling=False), latency=Blackbox(beta0=10_000, beta1=50))


def capped_trace(*, num_held_back: int | None = None) -> Trace:
    """Return what SERVER makes of requests due every 20 ms, when so many at most are in flight."""
    n = 30
    planned = make_trace(
        Header(tool="vtwin", client=ClientInfo(max_concurrency=CAP, num_held_back=num_held_back)),
        {
            "request_id": [str(i) for i in range(n)],
            "arrival_time_us": np.arange(n) * 20_000,
            "input_tokens": np.full(n, 20),
            "output_tokens": np.full(n, 10),
        },
    )
    return simulate_trace(planned, SERVER)[0]


def most_in_flight(trace: Trace) -> int:
    sent = trace.requests["send_time_us"].to_numpy(np.int64)
    ends = trace.requests["last_token_time_us"].to_numpy(np.int64)
    return max(int(((sent <= t) & (t < ends)).sum()) for t in sent)


def test_a_capped_run_replayed_on_a_slower_server_still_keeps_its_cap() -> None:
    observed = capped_trace()
    slower = replace(SERVER, latency=Blackbox(beta0=20_000, beta1=50))
    as_capped, _ = simulate_trace(observed, slower)
    as_sent, _ = simulate_trace(observed, slower, closed_loop="open")
    assert most_in_flight(observed) == most_in_flight(as_capped) == CAP
    assert most_in_flight(as_sent) > CAP
    due = observed.requests["arrival_time_us"]
    assert (as_capped.requests["arrival_time_us"] == due).all()
    assert (as_capped.requests["send_time_us"] >= due).all()


def test_a_capped_run_replayed_on_its_own_server_comes_out_as_it_was() -> None:
    observed = capped_trace()
    again, _ = simulate_trace(observed, SERVER)
    for name in ("send_time_us", "content_first_time_us", "last_token_time_us"):
        assert (again.requests[name] == observed.requests[name]).all()


def test_the_recorded_times_count_where_asked_for_or_where_the_cap_never_held_anyone_back() -> None:
    assert pacing_of(capped_trace(num_held_back=7)).at == "arrival"
    free = pacing_of(capped_trace(num_held_back=0))
    assert (free.at, free.max_concurrency) == ("auto", CAP)
    assert pacing_of(capped_trace(), at="send").max_concurrency is None
    assert pacing_of(capped_trace(), "closed", at="send").max_concurrency == CAP
    assert pacing_of(capped_trace(), "open").note() is None
    assert "at most 3 in flight" in (pacing_of(capped_trace()).note() or "")


def test_a_closed_loop_asked_of_a_trace_without_one_is_refused() -> None:
    bare = capped_trace().with_header(client=None)
    with pytest.raises(ConfigError, match="expected how many were in flight"):
        pacing_of(bare, "closed")
