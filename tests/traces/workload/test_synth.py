"""A workload becomes a trace: the right number of rows, at the right times, the same for the same seed."""

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.examples import examples
from traces.errors import ConfigError
from traces.files.check import check_trace
from traces.files.read import read_trace
from traces.files.write import write_trace
from traces.trace import Trace
from traces.workload import PRESETS, WorkloadOptions, load_spec, preset, synth, trace_from_options
from traces.workload.lengths import Constant, Exponential, Gaussian, Separate
from traces.workload.model import ActiveWindow, Arrival, Client, OpenLoop, UserLoop, Workload

S = 1_000_000
BLIS_SAMPLE = Path(__file__).parent / "data" / "workload_v2.yaml"
LENGTHS = Separate(prompt=Gaussian(mean=200, std_dev=80), output=Exponential(mean=100))

clients = st.builds(
    Client,
    id=st.just("a"),
    lengths=st.just(LENGTHS),
    arrival=st.sampled_from(
        [Arrival(), Arrival(process="gamma", cv=3.0), Arrival(process="constant", cv=0.0)]
    ),
    rate_fraction=st.floats(0.1, 3),
    windows=st.sampled_from(
        [
            (),
            (ActiveWindow(start_us=0, end_us=3 * S), ActiveWindow(start_us=5 * S, end_us=3600 * S)),
            (ActiveWindow(start_us=S, end_us=3600 * S, arrival=Arrival(process="weibull", cv=2.0)),),
        ]
    ),
)
several = st.lists(clients, min_size=1, max_size=4).map(
    lambda row: tuple(replace(client, id=f"c{i}") for i, client in enumerate(row))
)


def arrivals(trace: Trace) -> np.ndarray:
    return trace.requests["arrival_time_us"].to_numpy(dtype=np.int64)


def plain(**given: object) -> Trace:
    return trace_from_options(WorkloadOptions(**given))  # type: ignore[arg-type]


@examples(40)
@given(several, st.integers(1, 150), st.integers(1, 100), st.integers(0, 2**32))
def test_the_first_requests_do_not_change_when_more_are_asked_for(
    drawn: tuple[Client, ...], n: int, more: int, seed: int
) -> None:
    short, long = (
        synth(Workload(clients=drawn, load=OpenLoop(rate_per_s=20.0), num_requests=k), seed=seed).requests
        for k in (n, n + more)
    )
    assert len(short) == n
    assert len(long) == n + more
    pd.testing.assert_frame_equal(short, long.head(n))


@examples(20)
@given(several, st.floats(0.1, 20), st.floats(0.1, 20), st.integers(0, 2**32))
def test_a_longer_duration_only_adds_requests_after_it(
    drawn: tuple[Client, ...], first: float, second: float, seed: int
) -> None:
    short, long = sorted((round(first * S), round(second * S)))
    rows = []
    for duration in (short, long):
        workload = Workload(clients=drawn, load=OpenLoop(rate_per_s=30.0), duration_us=duration)
        try:
            rows.append(synth(workload, seed=seed).requests)
        except ConfigError:  # none came within it
            return
    kept = rows[1][rows[1]["arrival_time_us"] <= short]
    pd.testing.assert_frame_equal(rows[0], kept)


@examples(20)
@given(several, st.integers(0, 2**32))
def test_arrivals_never_go_back_and_ids_are_their_order(drawn: tuple[Client, ...], seed: int) -> None:
    trace = synth(Workload(clients=drawn, load=OpenLoop(rate_per_s=50.0), num_requests=100), seed=seed)
    assert (np.diff(arrivals(trace)) >= 0).all()
    assert trace.requests["request_id"].tolist() == [str(i) for i in range(100)]


def test_one_clients_lengths_do_not_move_another() -> None:
    a, b = Client(id="a", lengths=LENGTHS), Client(id="b", lengths=LENGTHS)
    other = replace(b, lengths=Separate(prompt=Constant(value=9), output=Constant(value=9)))
    base, changed = (
        synth(Workload(clients=row, load=OpenLoop(rate_per_s=9.0), num_requests=200), seed=1).requests
        for row in ((a, b), (a, other))
    )
    mine = (base["client_id"] == "a").to_numpy(dtype=bool)
    pd.testing.assert_frame_equal(base[mine], changed[mine])
    assert base["arrival_time_us"].equals(changed["arrival_time_us"])
    assert (changed["input_tokens"][~mine] == 9).all()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for stem, seed in (("one", 7), ("two", 7), ("other", 8)):
        write_trace(plain(rate=5.0, num_requests=500, burstiness=0.3, seed=seed), tmp_path / stem)
    texts = {stem: (tmp_path / f"{stem}.csv").read_bytes() for stem in ("one", "two", "other")}
    assert texts["one"] == texts["two"]
    assert texts["one"] != texts["other"]
    assert (tmp_path / "one.yaml").read_bytes() == (tmp_path / "two.yaml").read_bytes()


def test_what_is_drawn_is_pinned() -> None:
    """Golden: a seed names a workload; a release that moves it says so by changing this."""
    trace = plain(preset="chatbot", rate=2.0, num_requests=4)
    columns = ["arrival_time_us", "input_tokens", "output_tokens"]
    assert trace.requests[columns].to_numpy(dtype=np.int64).tolist() == GOLDEN_ROWS


GOLDEN_ROWS = [[234163, 275, 404], [409922, 219, 295], [1865582, 369, 255], [2000000, 468, 401]]


def test_a_drawn_trace_passes_the_check_and_survives_the_disk(tmp_path: Path) -> None:
    trace = synth(load_spec(BLIS_SAMPLE), seed=5)
    for stem in ("csv", "table.parquet"):
        write_trace(trace, tmp_path / stem)
        assert check_trace(tmp_path / stem) == []
        again = read_trace(tmp_path / stem)
        written = again.requests[trace.requests.columns]
        pd.testing.assert_frame_equal(written, trace.requests)
        assert again.header.mode == "generated"
        assert again.header.seed == 5


def test_without_bounds_there_are_a_hundred_requests() -> None:
    assert len(plain(rate=3.0)) == 100
    assert len(plain(concurrency=3)) == 100


def test_the_default_seed_is_42_and_stands_in_the_header() -> None:
    assert plain(rate=3.0).header.seed == 42
    assert plain(rate=3.0, seed=9).header.seed == 9
    assert trace_from_options(WorkloadOptions(workload=BLIS_SAMPLE)).header.seed == 5
    assert trace_from_options(WorkloadOptions(workload=BLIS_SAMPLE, seed=6)).header.seed == 6


def test_a_duration_holds_as_many_requests_as_its_rate_says() -> None:
    drawn = arrivals(plain(rate=50.0, duration=100.0))
    assert drawn.max() <= 100 * S
    assert abs(drawn.size - 5000) < 4 * math.sqrt(5000)
    assert stats.kstest(np.diff(drawn) / S, stats.expon(scale=1 / 50).cdf).pvalue > 1e-3


def test_a_constant_rate_is_exact_to_the_microsecond() -> None:
    drawn = arrivals(plain(rate=3.0, arrival="constant", duration=60.0))
    assert drawn.tolist() == [round(i * 1e6 / 3) for i in range(1, 181)]


def test_the_smaller_of_number_and_duration_holds() -> None:
    assert len(plain(rate=10.0, num_requests=5, duration=100.0)) == 5
    assert len(plain(rate=10.0, num_requests=500, duration=1.0)) < 50


def test_an_infinite_rate_sends_all_at_once_and_draws_the_same_lengths() -> None:
    at_once, spread = plain(rate=math.inf, num_requests=50), plain(rate=1.0, num_requests=50)
    assert (arrivals(at_once) == 0).all()
    assert at_once.requests["input_tokens"].equals(spread.requests["input_tokens"])


def test_a_rate_twice_as_high_halves_the_times_and_keeps_the_lengths() -> None:
    slow, fast = plain(rate=4.0, burstiness=0.5), plain(rate=8.0, burstiness=0.5)
    assert np.abs(arrivals(slow) - 2 * arrivals(fast)).max() <= 1
    assert slow.requests["output_tokens"].equals(fast.requests["output_tokens"])


@pytest.mark.parametrize("burstiness", [0.25, 4.0])
@pytest.mark.parametrize("process", [None, "gamma", "weibull"])
def test_burstiness_is_the_inverse_square_of_the_gaps_cv(burstiness: float, process: str | None) -> None:
    gaps = np.diff(arrivals(plain(rate=10.0, arrival=process, burstiness=burstiness, num_requests=100_000)))
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.04)
    if process != "weibull":
        levels = np.arange(0.1, 1.0, 0.05)  # a tenth of the gaps is long against the rounding to µs
        below = np.searchsorted(np.sort(gaps), stats.gamma(burstiness, scale=1e5 / burstiness).ppf(levels))
        assert np.abs(below / gaps.size - levels).max() < 1.95 / math.sqrt(gaps.size)  # KS, p = 1e-3


def test_burstiness_inf_is_constant_and_one_is_poisson() -> None:
    assert arrivals(plain(rate=4.0, burstiness=math.inf)).tolist() == arrivals(
        plain(rate=4.0, arrival="constant")
    ).tolist()  # fmt: skip
    assert arrivals(plain(rate=4.0, burstiness=1.0)).tolist() == arrivals(plain(rate=4.0)).tolist()


def test_a_closed_loop_has_arrivals_for_its_users_alone() -> None:
    trace = plain(concurrency=4, think_time=0.2, num_requests=10)
    assert trace.requests["arrival_time_us"].tolist()[:4] == [0, 50_000, 100_000, 150_000]
    assert trace.requests["arrival_time_us"].isna().tolist() == [False] * 4 + [True] * 6
    loop = trace.header.closed_loop
    assert loop is not None
    assert (loop.concurrency, loop.think_time_us) == (4, 200_000)


def test_a_closed_loop_of_more_users_than_requests_starts_them_all() -> None:
    trace = plain(concurrency=8, num_requests=3)
    assert trace.requests["arrival_time_us"].tolist() == [0, 0, 0]


def test_prefix_tokens_come_before_each_prompt_in_one_group() -> None:
    trace = plain(rate=1.0, prefix_tokens=300)
    assert (trace.requests["prefix_length"] == 300).all()
    assert trace.requests["prefix_group"].nunique() == 1
    assert trace.requests["input_tokens"].equals(plain(rate=1.0).requests["input_tokens"])


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_draws_the_lengths_of_its_table(name: str) -> None:
    trace = synth(preset(name, 10.0, num_requests=20_000), seed=1)
    assert trace.header.workload_spec == f"preset:{name}"
    for column, (mean, sd, low, high) in zip(("input_tokens", "output_tokens"), PRESETS[name], strict=True):
        drawn = trace.requests[column].to_numpy(dtype=float)
        assert drawn.min() >= low
        assert drawn.max() <= high
        assert drawn.mean() == pytest.approx(mean, rel=0.02)
        assert drawn.std() == pytest.approx(sd, rel=0.05)


def test_an_option_changes_one_number_of_a_preset() -> None:
    trace = plain(preset="chatbot", rate=1.0, prompt_tokens=700, prompt_tokens_stdev=0)
    assert set(trace.requests["input_tokens"]) == {700}
    assert trace.requests["output_tokens"].equals(plain(preset="chatbot", rate=1.0).requests["output_tokens"])


def test_clients_share_the_rate_by_their_fractions() -> None:
    row = tuple(Client(id=name, lengths=LENGTHS, rate_fraction=f) for name, f in (("a", 3.0), ("b", 1.0)))
    workload = Workload(clients=row, load=OpenLoop(rate_per_s=10.0), num_requests=20_000)
    shares = synth(workload, seed=2).requests["client_id"].value_counts(normalize=True)
    assert shares["a"] == pytest.approx(0.75, abs=0.015)


def test_a_window_with_lengths_of_its_own_draws_them_then_alone() -> None:
    windows = (
        ActiveWindow(start_us=0, end_us=10 * S),
        ActiveWindow(start_us=10 * S, end_us=20 * S, prompt=Constant(value=3)),
    )
    workload = Workload(
        clients=(Client(id="a", lengths=LENGTHS, windows=windows),),
        load=OpenLoop(rate_per_s=20.0),
        duration_us=30 * S,
    )
    trace = synth(workload, seed=2)
    inside = arrivals(trace) > 10 * S
    assert inside.any()
    assert (trace.requests["input_tokens"][inside] == 3).all()
    assert (trace.requests["input_tokens"][~inside] != 3).any()


def test_windows_that_end_bound_the_number_of_requests() -> None:
    short = Client(id="a", lengths=LENGTHS, windows=(ActiveWindow(start_us=0, end_us=S),))
    workload = Workload(clients=(short,), load=OpenLoop(rate_per_s=20.0), num_requests=10_000)
    assert 5 < len(synth(workload, seed=1)) < 50


def test_windows_without_a_request_are_said_to_be_empty() -> None:
    never = Client(
        id="a", lengths=LENGTHS, windows=(ActiveWindow(start_us=0, end_us=S, trace_rate_per_s=0.0),)
    )
    workload = Workload(clients=(never,), load=OpenLoop(rate_per_s=None), num_requests=10)
    with pytest.raises(ConfigError, match="got no request within its time"):
        synth(workload, seed=1)


def test_a_timeout_becomes_a_deadline() -> None:
    client = Client(id="a", lengths=LENGTHS, timeout_us=2 * S)
    trace = synth(Workload(clients=(client,), load=OpenLoop(rate_per_s=1.0), num_requests=5), seed=1)
    assert (trace.requests["deadline_us"] - trace.requests["arrival_time_us"] == 2 * S).all()
    loop = Workload(clients=(client,), load=UserLoop(concurrency=2), num_requests=5)
    assert synth(loop, seed=1).requests["deadline_us"].isna().tolist() == [False, False, True, True, True]


def test_a_hundred_thousand_requests_take_under_a_second() -> None:
    """The aim is 0.3 s on an idle core; the bound leaves room for a busy machine."""
    start = time.process_time()
    plain(rate=100.0, burstiness=0.5, num_requests=100_000)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("seed", range(30))
def test_the_burstiest_process_is_drawn_to_the_end_of_its_time(seed: int) -> None:
    bursty = Client(id="a", lengths=LENGTHS, arrival=Arrival(process="gamma", cv=10.0))
    timed, counted = (
        Workload(clients=(bursty,), load=OpenLoop(rate_per_s=10.0), duration_us=20 * S),
        Workload(clients=(bursty,), load=OpenLoop(rate_per_s=10.0), num_requests=20_000),
    )
    long = arrivals(synth(counted, seed=seed))
    assert arrivals(synth(timed, seed=seed)).tolist() == long[long <= 20 * S].tolist()


@pytest.mark.parametrize("seed", [1, 2, 42])
@pytest.mark.parametrize("burstiness", [None, 0.3])
def test_scaled_gaps_meet_the_rate_exactly_and_keep_their_proportions(
    seed: int, burstiness: float | None
) -> None:
    raw, scaled = (
        plain(rate=20.0, num_requests=60, burstiness=burstiness, arrival_scaling=how, seed=seed)
        .requests["arrival_time_us"]
        .to_numpy(dtype=float)
        for how in ("none", "rate")
    )
    assert scaled[-1] == 3_000_000  # 60 requests at 20 per second, as vllm bench scales them
    assert scaled == pytest.approx(raw * (scaled[-1] / raw[-1]), abs=3.0)  # both are rounded
    assert raw[-1] != scaled[-1]


def test_scaled_gaps_fill_a_duration() -> None:
    arrivals = plain(rate=20.0, duration=2.0, arrival_scaling="rate").requests["arrival_time_us"]
    assert (len(arrivals), arrivals.iloc[-1]) == (40, 2_000_000)
