"""A trace's requests stay whole in the planner: what they share, how they are drawn, and what formulas are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from replay.fleet.check.cluster_load import load_of
from replay.fleet.check.drawn_requests import Stream
from replay.fleet.inputs.fleet_workload import workload_of_trace
from replay.fleet.inputs.profiles import from_profile
from replay.fleet.inputs.shared_prefixes import known_to, with_hits
from replay.fleet.inputs.whole_requests import WholeRequests
from sim import Blackbox, EngineConfig
from sim.cluster import ClusterConfig, Pool
from sim.fleet import GpuProfile, Lengths
from sim.fleet.sizing import pool_at
from traces import ConfigError, Header, Trace, make_trace

ENGINE = EngineConfig(num_gpu_blocks=1001, max_num_seqs=8, async_scheduling=False)
LATENCY = Blackbox(alpha0=0, beta0=5000, beta1=10, beta2=10)
CLUSTER = ClusterConfig(pools=(Pool(engine=ENGINE, latency=LATENCY),))
N = 12


def trace(header: Header | None = None, **columns: object) -> Trace:
    plain: dict[str, object] = {
        "request_id": [str(i) for i in range(N)],
        "arrival_time_us": np.arange(N) * 100_000,
        "input_tokens": np.arange(N) + 40,
        "output_tokens": np.arange(N) + 5,
    }
    return make_trace(header or Header(mode="generated", tool="vtwin"), plain | columns)


def sessions() -> Trace:
    """Four sessions of three rounds; a round comes 2 s after the answer to the one before it."""
    place = np.arange(N) % 3
    return trace(
        Header(mode="generated", tool="vtwin", session_context_growth="accumulate"),
        session_id=[f"s{i // 3}" for i in range(N)],
        round_index=place,
        new_input_tokens=[30] * N,
        input_tokens=30 + place * 40,
        output_tokens=[10] * N,
        think_time_us=[None if each == 0 else 2_000_000 for each in place],
        arrival_time_us=[int(i // 3) * 1_000_000 if i % 3 == 0 else None for i in range(N)],
    )


def requests_of(given: Trace) -> tuple[Lengths, WholeRequests]:
    found = workload_of_trace(given, name="a trace")
    assert found.whole is not None
    return found.lengths, found.whole


def drawn(given: Trace, number: int = 40) -> tuple[Stream, object]:
    lengths, whole = requests_of(given)
    stream = Stream(lengths=lengths, rate_per_s=10.0, requests=whole)
    return stream, load_of(stream, number, CLUSTER, seed=1)


COLUMNS: Mapping[str, Mapping[str, object]] = {
    "adapter": {"adapter": ["a", "b", None] * 4},
    "is_guided": {"guided": [True, False, False] * 4},
    "encoder_tokens": {"image_tokens": [20, 0, 0] * 4},
    "deadline_us": {"deadline_us": np.arange(N) * 100_000 + 700_000},
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_simulated_request_has_what_its_recorded_row_has(name: str) -> None:
    stream, load = drawn(trace(**COLUMNS[name]))
    rows, requests = load.rows, load.work.requests  # type: ignore[attr-defined]
    assert requests.prompt_tokens.tolist() == stream.lengths.input_tokens[rows].tolist()
    own = getattr(requests, name)
    assert own is not None
    if name == "deadline_us":
        assert (own - requests.arrival_us == 700_000).all()
    elif name == "adapter":
        assert ((own < 0) == (rows % 3 == 2)).all()
    else:
        assert ((own > 0) == (rows % 3 == 0)).all()


def test_prompts_of_a_group_share_their_blocks() -> None:
    _, load = drawn(trace(prefix_group=["g"] * N, prefix_length=[64] * N))
    requests = load.work.requests  # type: ignore[attr-defined]
    assert (requests.num_hashes == 4).all()
    assert len(np.unique(requests.hash_ids)) == 4


def test_a_session_is_one_draw_whose_rounds_wait_for_answers_and_the_rate_counts_requests() -> None:
    stream, load = drawn(sessions(), number=3000)
    work = load.work  # type: ignore[attr-defined]
    assert stream.rounds == 3
    assert len(work.requests) == 3000
    assert work.clients is not None
    begins = work.requests.arrival_us[::3] / 1e6
    assert len(begins) / begins[-1] == pytest.approx(10.0 / 3, rel=0.1)
    done = load.simulated(CLUSTER)  # type: ignore[attr-defined]
    waits = done.outcomes.arrival_us[1::3] - done.outcomes.last_token_us[::3]
    assert (waits == 2_000_000).all()


def test_the_rounds_that_a_pool_does_not_take_are_left_out_of_its_sessions() -> None:
    lengths, whole = requests_of(sessions())
    short, long, share = lengths.up_to(80)
    assert short is not None
    assert long is not None
    assert share == pytest.approx(2 / 3)
    assert (whole.of(short).num_sessions, len(whole.of(short).trace)) == (4, 8)
    assert (whole.of(long).num_sessions, len(whole.of(long).trace)) == (4, 4)
    stream = Stream(lengths=long, rate_per_s=5.0, requests=whole.of(long))
    load = load_of(stream, 20, CLUSTER, seed=1)
    assert (load.work.requests.prompt_tokens == 110).all()


def test_a_session_lasts_as_long_as_its_pauses_and_answers() -> None:
    _, whole = requests_of(sessions())
    assert whole.span_s(0.5) == pytest.approx(2 * (2 + 0.5))
    _, plain = requests_of(trace())
    assert plain.span_s(0.5) == 0


def test_a_trace_without_output_is_refused_and_rows_without_any_are_left_out() -> None:
    outputs: list[int | None] = [None] * N
    with pytest.raises(ConfigError, match="without a request that has output"):
        workload_of_trace(trace(output_tokens=outputs), name="t")
    lengths, _ = requests_of(trace(output_tokens=[None, *range(1, N)]))
    assert lengths.output_tokens.tolist() == list(range(1, N))


def test_what_no_formula_knows_is_told_in_one_note() -> None:
    found = workload_of_trace(trace(adapter=["a", "b"] * 6, guided=[True] * N), name="t")
    assert "the formulas do not know adapters and grammars; the simulated number counts them" in found.notes
    assert workload_of_trace(trace(), name="t").notes == ()
    notes = workload_of_trace(sessions(), name="t").notes
    assert any("sessions of 3 requests on average" in note for note in notes)


# -- what formulas take as cached ---------------------------------------------------------------------------------


def test_blocks_that_several_sessions_share_count_as_cached_but_for_the_last_token() -> None:
    lengths, whole = requests_of(trace(prefix_group=["g"] * N, prefix_length=[64] * N))
    known = with_hits(lengths, whole, ENGINE)
    assert known.cached_tokens is not None
    assert known.cached_tokens.tolist() == [64.0] * N
    assert known.shared_tokens == 64
    assert known.new_tokens.tolist() == (np.arange(N) + 40).tolist()
    exact, rows = requests_of(trace(prefix_group=["g"] * N, prefix_length=[64] * N, input_tokens=[0] * N))
    assert with_hits(exact, rows, ENGINE).new_tokens.tolist() == [16.0] * N


def test_what_one_session_repeats_is_not_counted_nor_is_anything_without_prefix_caching() -> None:
    lengths, whole = requests_of(sessions())
    assert with_hits(lengths, whole, ENGINE).cached_tokens is None
    shared, rows = requests_of(trace(prefix_group=["g"] * N, prefix_length=[64] * N))
    off = replace(ENGINE, enable_prefix_caching=False)
    assert with_hits(shared, rows, off).cached_tokens is None


def test_shared_prefixes_fill_half_of_the_cache_at_most_those_of_most_requests_first() -> None:
    groups = ["a", "a", "a", "a", "b", "b", "b", "c", "c", "d", "d", "e"]
    lengths, whole = requests_of(trace(prefix_group=groups, prefix_length=[64] * N))
    small = replace(ENGINE, num_gpu_blocks=17)  # 16 blocks, of which shared prefixes fill 8: two groups of 4
    known = with_hits(lengths, whole, small)
    assert known.cached_tokens is not None
    assert known.cached_tokens.tolist() == [64.0] * 7 + [0.0] * 5
    assert known.shared_tokens == 128


def test_a_cached_prefix_costs_no_compute_and_is_held_once() -> None:
    profile = GpuProfile(
        w_s=0.01, h_s=0.0001, prefill_token_s=1e-5, prefill_pair_s=1e-9, num_blocks=400, max_slots=64,
        reserves_context=False,
    )  # fmt: skip
    whole = Lengths(input_tokens=np.array([1100.0]), output_tokens=np.array([100.0]))
    known = replace(whole, cached_tokens=np.array([1024.0]), shared_tokens=1024.0)
    assert profile.prefill_compute_s(known)[0] == pytest.approx(
        76e-5 + 1e-9 * (1100 * 1101 - 1024 * 1025) / 2
    )
    assert profile.prefill_iterations(whole)[0] == 3
    assert profile.prefill_iterations(known)[0] == 1
    assert profile.slots_for(known, 2048) > 4 * profile.slots_for(whole, 2048)
    sizes = [pool_at(profile, each, 5.0, context=2048, engines=2) for each in (known, whole)]
    assert sizes[0].throughput > 4 * sizes[1].throughput
    assert sizes[0].ttft_p99_s < sizes[1].ttft_p99_s


def test_an_engine_without_prefix_caching_is_sized_without_hits() -> None:
    lengths = Lengths(
        input_tokens=np.array([100.0]),
        output_tokens=np.array([10.0]),
        cached_tokens=np.array([64.0]),
        shared_tokens=64.0,
    )
    table = from_profile("t", GpuProfile(w_s=0.01, h_s=0.0001), context=1024)
    assert known_to(lengths, [table]).new_tokens.tolist() == [100.0]
