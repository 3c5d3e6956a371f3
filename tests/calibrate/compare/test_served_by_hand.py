"""The requests that are furthest off, the phases of an error and the curve of latency over rate, by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibrate.compare.metric_errors import Bootstrap
from calibrate.compare.pair import PHASES, Pairs, concat, pair_sides
from calibrate.compare.phases import origin_of, simulated_phases
from calibrate.compare.served import (
    LEAST_REQUESTS,
    MOST_REQUESTS,
    RatePoint,
    _first_rows,
    _mean_lengths,
    _observed,
    _observed_point,
    rate_curve,
    served_sides,
)
from calibrate.compare.worst_requests import worst_of
from replay import TwinConfig
from replay.search import evaluation
from replay.twin.fitted.fitted_range import FittedRange
from sim import Blackbox, EngineConfig
from tests.calibrate.sides import side
from tests.replay.verdict.test_verdict_by_hand import outcomes_of
from traces import ClosedLoop, Header, Trace, make_trace

NAN = math.nan


def phases(*rows: tuple[float, float, float, float]) -> dict[str, list[float]]:
    return {name: [row[at] for row in rows] for at, name in enumerate(PHASES)}


# -- the worst requests --------------------------------------------------------------------------------------


def off_by(observed: list[float], simulated: list[float], **columns: Any) -> Pairs:  # noqa: ANN401 - of any type
    ids = [str(i) for i in range(len(observed))]
    return pair_sides(side(ids, e2e_us=observed, **columns), side(ids, e2e_us=simulated))


def test_the_worst_come_first_by_their_share_and_who_is_right_or_took_no_time_is_none_of_them() -> None:
    """Half too long, nothing, a quarter too short, half too short; of nothing there is no share."""
    pairs = off_by([100, 100, 400, 200, 0, 0], [150, 100, 300, 100, 50, 0])
    found = worst_of(pairs, ["a"])
    assert [(each.request_id, each.rel_error) for each in found] == [("0", 0.5), ("3", -0.5), ("2", -0.25)]
    assert [each.observed_e2e_us for each in found] == [100, 200, 400]
    assert [each.simulated_e2e_us for each in found] == [150, 100, 300]
    assert [each.arrival_us for each in found] == [0, 3000, 2000]
    assert [each.request_id for each in worst_of(pairs, ["a"], most=1)] == ["0"]


def test_ten_are_shown_of_the_trace_that_they_are_of() -> None:
    first = off_by([100.0] * 3, [110.0] * 3, prompt_tokens=[1.0, NAN, 3.0])
    second = off_by([100.0] * 9, [150.0 - i for i in range(9)])
    second = replace(second, requests=second.requests.assign(output_tokens=np.arange(9.0)))
    found = worst_of(concat([first, second]), ["one", "two"])
    assert [(each.trace, each.request_id) for each in found] == [
        *(("two", str(i)) for i in range(9)),
        ("one", "0"),
    ]
    assert [each.output_tokens for each in found] == [*range(9), 11]
    last = worst_of(first, ["one"])
    assert [each.prompt_tokens for each in last] == [1, None, 3]
    assert [each.in_flight for each in worst_of(off_by([2500.0] * 4, [9.0] * 4), ["a"])] == [0, 1, 2, 2]


def test_a_worst_request_has_the_phases_that_were_timed_else_what_came_before_and_after_the_first_token() -> (
    None
):
    """TTFT is 100 of all but the third, which has none."""
    simulated = phases((1, 2, 3, 4), (5, 6, 7, 8), (9, 9, 9, 9))
    ids = ["a", "b", "c"]
    ttft = {"ttft_us": [100.0, 100.0, NAN]}
    slow = side(ids, e2e_us=[900.0, 800.0, 700.0], **ttft, **simulated)
    timed = side(ids, e2e_us=[110.0, 120.0, 130.0], **ttft, **phases((1, 1, 1, 1), (2, 2, 2, 2), (NAN,) * 4))
    found = worst_of(pair_sides(timed, slow), ["t"])
    assert [each.request_id for each in found] == ["a", "b", "c"]
    assert [each.observed_phases for each in found] == [(1, 1, 1, 1), (2, 2, 2, 2), (130.0,)]
    assert [each.simulated_phases for each in found] == [(1, 2, 3, 4), (5, 6, 7, 8), (9, 9, 9, 9)]
    one = side(
        ids, e2e_us=[110.0, 120.0, 130.0], **ttft, **phases((1, 1, 1, 1), (NAN,) * 4, (NAN,) * 4)
    )  # of the three that the simulator tells, the server tells less than half: none is shown
    found = worst_of(pair_sides(one, slow), ["t"])
    assert [each.observed_phases for each in found] == [(100, 10), (100, 20), (130.0,)]
    other = worst_of(pair_sides(timed, side(ids, e2e_us=[900.0, 800.0, 700.0], **ttft)), ["t"])
    assert [each.simulated_phases for each in other] == [(100, 800), (100, 700), (700,)]


# -- phases --------------------------------------------------------------------------------------------------


def test_phases_of_simulated_requests_add_up_to_e2e_by_either_clock() -> None:
    """Come at 0, in the queue at 10, taken in at 15, scheduled at 20, first token at 50, last at 90; E2E of 100."""
    outcomes = replace(
        outcomes_of([0, 0, 0, 0], [20, 0, -1, 20], [90, 80, 90, -1], first=[50, 30, 50, 50]),
        queued_us=np.array([10, 0, 10, 10]),
        taken_in_us=np.array([15, 0, 15, 15]),
    )
    e2e = np.array([100.0, 90.0, 100.0, 100.0])
    found = simulated_phases(outcomes, e2e_us=e2e, by_server_clock=False)
    assert list(found.columns) == list(PHASES)
    assert found.to_numpy()[:2].tolist() == [[20, 10, 30, 40], [10, 0, 30, 50]]
    assert np.isnan(found.to_numpy()[2:]).all()
    found = simulated_phases(outcomes, e2e_us=e2e, by_server_clock=True)
    assert found.to_numpy()[:2].tolist() == [[25, 5, 30, 40], [10, 0, 30, 50]]
    unknown = simulated_phases(outcomes, e2e_us=np.full(4, NAN), by_server_clock=False)
    assert unknown.isna().all(axis=None)
    at_zero = outcomes_of([0], [0], [0], first=[0])
    assert simulated_phases(at_zero, e2e_us=np.zeros(1), by_server_clock=False).to_numpy().tolist() == [
        [0, 0, 0, 0]
    ]


def timed_pairs(n: int, *, decode: list[float]) -> Pairs:
    ids = [str(i) for i in range(n)]
    seen, made = [(10.0, 20.0, 30.0, 40.0)] * n, [(10.0, 25.0, 24.0, each) for each in decode]
    return pair_sides(side(ids, e2e_us=100.0, **phases(*seen)), side(ids, e2e_us=99.0, **phases(*made)))


def test_the_error_of_e2e_by_phase_and_its_share_of_what_was_observed() -> None:
    """Seven requests: without intervals, which eight have."""
    found = origin_of(timed_pairs(7, decode=[40.0] * 6 + [54.0]), bootstrap=Bootstrap(replicates=50))
    assert found is not None
    assert (found.basis, found.n) == ("server", 7)
    errors = [each.error.value for each in found.phases.values()]
    assert errors == pytest.approx([0, 5, -6, 2])
    assert [each.share.value for each in found.phases.values()] == pytest.approx([0, 0.05, -0.06, 0.02])
    assert [each.observed for each in found.phases.values()] == [10, 20, 30, 40]
    assert [each.simulated for each in found.phases.values()] == pytest.approx([10, 25, 24, 42])
    assert found.phases["decode_phase_us"].error.low is None
    found = origin_of(timed_pairs(8, decode=[40.0] * 8), bootstrap=Bootstrap(replicates=50))
    assert found is not None
    queue, decode = found.phases["queue_phase_us"], found.phases["decode_phase_us"]
    assert (queue.error.low, queue.error.high) == pytest.approx((5, 5))
    assert (queue.share.low, queue.share.high) == pytest.approx((0.05, 0.05))
    assert (decode.error.low, decode.error.high) == (0, 0)


def test_an_error_that_comes_in_runs_is_drawn_in_runs() -> None:
    """Decode is 20 too long in one half and 20 too short in the other: a mean of nothing, less sure in runs."""

    def width(decode: list[float]) -> float:
        found = origin_of(timed_pairs(400, decode=decode), bootstrap=Bootstrap(replicates=200))
        assert found is not None
        error = found.phases["decode_phase_us"].error
        assert error.value == pytest.approx(0)
        assert error.low is not None
        assert error.high is not None
        return error.high - error.low

    halves = [60.0] * 200 + [20.0] * 200
    shuffled = np.random.default_rng(1).permutation(halves).tolist()
    assert width(halves) > 2 * width(shuffled)


def test_of_requests_that_took_no_time_there_is_no_share() -> None:
    ids = ["a", "b"]
    nothing = phases((0.0,) * 4, (0.0,) * 4)
    found = origin_of(
        pair_sides(side(ids, e2e_us=0.0, **nothing), side(ids, e2e_us=4.0, **phases((1,) * 4, (1,) * 4))),
        bootstrap=Bootstrap(replicates=20),
    )
    assert found is not None
    assert found.phases["decode_phase_us"].error.value == 1.0
    assert found.phases["decode_phase_us"].share.value is None


# -- what a run comes to -------------------------------------------------------------------------------------


def test_of_a_run_without_a_span_or_an_end_there_is_no_rate() -> None:
    """One request that was answered as it came; and two of which nobody knows when they ended."""
    at_once = pair_sides(*[side(["a"], e2e_us=[0.0])] * 2)
    assert served_sides(at_once)[0].requests_per_s is None
    assert served_sides(at_once)[0].output_tokens_per_s is None
    pairs = pair_sides(*[side(["a", "b"])] * 2)
    unknown = replace(pairs, observed=pairs.observed * NAN)
    found, other = served_sides(unknown)
    assert (found.requests_per_s, found.output_tokens_per_s) == (None, None)
    assert found.latencies_us == {"ttft_us": None, "tpot_us": None, "e2e_us": None}
    assert other.requests_per_s is not None


def test_answers_whose_tokens_are_not_counted_are_answers_all_the_same() -> None:
    """Two in half a second; seven tokens of the one that is counted."""
    ids = ["a", "b"]
    pairs = pair_sides(*[side(ids, arrival_us=[0.0, 1e5], e2e_us=[5e5, 1e5])] * 2)
    pairs = replace(pairs, requests=pairs.requests.assign(output_tokens=[7.0, NAN]))
    found, _ = served_sides(pairs)
    assert found.requests_per_s == pytest.approx(4)
    assert found.output_tokens_per_s == pytest.approx(14)


# -- the curve -----------------------------------------------------------------------------------------------

TWIN = TwinConfig(engine=EngineConfig(), latency=Blackbox(beta0=1000, beta1=1, beta2=10))


def run_of(
    name: str,
    n: int,
    *,
    rate: float = 10.0,
    prompt: int = 100,
    output: int = 10,
    compared: int | None = None,
    is_loop: bool = False,
) -> tuple[str, Trace, Pairs]:
    """Return a run of one request every 1/rate, of which the first so many are compared."""
    ids = [str(i) for i in range(n)]
    arrival = (np.arange(n) * 1e6 / rate).astype(np.int64)
    trace = make_trace(
        Header(
            tool="vtwin",
            mode="generated",
            closed_loop=ClosedLoop(concurrency=2, think_time_us=0) if is_loop else None,
        ),
        {"request_id": ids, "arrival_time_us": arrival, "input_tokens": prompt, "output_tokens": output},
    )
    some = ids[: n if compared is None else compared]
    times = arrival[: len(some)].astype(np.float64)
    return name, trace, pair_sides(*[side(some, arrival_us=times)] * 2)


def curve_of(
    *runs: tuple[str, Trace, Pairs],
    most: float | None,
    monkeypatch: pytest.MonkeyPatch,
    twin: TwinConfig = TWIN,
) -> Any:  # noqa: ANN401 - a curve, or none
    """Return the curve of a twin that answers at most so many requests per second."""
    monkeypatch.setattr("replay.search.ceiling_of", lambda _loads: most)
    monkeypatch.setattr(
        evaluation.Evaluator,
        "at",
        lambda _self, rate: SimpleNamespace(
            curve_us={"ttft": (rate, 2 * rate), "tpot": (0, 0), "e2e": (3 * rate, 4 * rate)}
        ),
    )
    return rate_curve(list(runs), twin)


def test_the_curve_goes_from_a_tenth_of_what_is_answered_to_a_twentieth_above_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 100/s: fourteen rates from 10 to 105, each 95 / 13 further; an observed 10/s stands for the first."""
    found = curve_of(run_of("a", 30), run_of("b", 30, rate=61.0), most=100.0, monkeypatch=monkeypatch)
    grid = [10 + i * 95 / 13 for i in range(14)]
    assert [each.rate_per_s for each in found.points] == pytest.approx(
        sorted([10.0, *grid[1:7], *grid[8:], 61.0]), rel=1e-5
    )  # 61.15 is but a quarter of a hundredth beside 61
    assert found.points[3].latencies_us == {
        "ttft": pytest.approx((grid[3], 2 * grid[3])),
        "e2e": pytest.approx((3 * grid[3], 4 * grid[3])),
    }
    assert (found.trace, found.capacity_per_s, found.fitted_to_per_s) == ("a", 100.0, None)
    assert {name: each.rate_per_s for name, each in found.observed.items()} == pytest.approx(
        {"a": 10, "b": 61}, rel=1e-5
    )
    assert found.elsewhere == {}


@pytest.mark.parametrize(
    ("rate", "num"), [(50 / 1.019, 13), (50 / 1.021, 14), (50 / 0.979, 14), (50 / 0.981, 13)]
)
def test_a_rate_two_hundredths_beside_an_observed_one_makes_way(
    rate: float, num: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 650/s the grid has rates of 65 + 47.5 i: the fifth is 255. One observed beside it replaces it, or joins it."""
    factor = rate / 50
    found = curve_of(run_of("a", 30, rate=255 * factor), most=650.0, monkeypatch=monkeypatch)
    assert len(found.points) == num + 1


def test_an_observed_rate_far_above_what_the_twin_answers_is_not_simulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = curve_of(run_of("a", 30, rate=11.0), most=10.0, monkeypatch=monkeypatch)
    assert [each.rate_per_s for each in found.points] == pytest.approx(np.linspace(1, 10.5, 14))
    assert found.observed["a"].rate_per_s == pytest.approx(11.0)
    fitted = FittedRange(rate_per_s=(2.0, 7.0))
    found = curve_of(
        run_of("a", 30, rate=10.4), most=10.0, monkeypatch=monkeypatch, twin=replace(TWIN, fitted=fitted)
    )
    assert found.fitted_to_per_s == 7.0
    assert found.points[-1].rate_per_s == pytest.approx(10.4)


def test_the_curve_is_of_the_first_run_with_times_to_scale_and_twenty_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert LEAST_REQUESTS == 20
    runs = [run_of("loop", 30, is_loop=True), run_of("few", 30, compared=19), run_of("a", 30, compared=20)]
    found = curve_of(*runs, most=10.0, monkeypatch=monkeypatch)
    assert found.trace == "a"
    assert found.elsewhere == {
        "loop": "its pace was set by the answers",
        "few": "fewer than 20 of its requests are compared",
    }
    assert list(found.observed) == ["a"]
    assert curve_of(*runs[:2], most=10.0, monkeypatch=monkeypatch) is None


def test_where_no_run_tells_the_most_it_is_what_the_twin_answers_of_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from replay.search import load

    run = run_of("a", 30)
    at_once = load.load_of(run[1], TWIN).scale_per_s()
    assert at_once > 0
    assert curve_of(run, most=None, monkeypatch=monkeypatch).capacity_per_s == pytest.approx(at_once)
    monkeypatch.setattr(load.Load, "scale_per_s", lambda _self: 0.0)
    assert curve_of(run, most=None, monkeypatch=monkeypatch) is None
    monkeypatch.setattr(load.Load, "scale_per_s", lambda _self: 0.5)
    assert curve_of(run, most=None, monkeypatch=monkeypatch).capacity_per_s == 0.5


def test_requests_of_other_lengths_are_not_on_the_curve() -> None:
    """A fifth longer or shorter, of prompts or of answers, is alike."""
    _, like, _ = run_of("a", 30)
    names = {
        "same": (100, 10),
        "120": (120, 10),
        "121": (121, 10),
        "12": (100, 12),
        "13": (100, 13),
        "7": (100, 7),
    }
    runs = [run_of(name, 30, prompt=prompt, output=output) for name, (prompt, output) in names.items()]
    found, others = _observed(runs, like=like, elsewhere={})
    assert list(found) == ["same", "120", "12"]
    assert others == {
        "121": "its requests are of other lengths (121 + 10 tokens on average)",
        "13": "its requests are of other lengths (100 + 13 tokens on average)",
        "7": "its requests are of other lengths (100 + 7 tokens on average)",
    }
    assert _mean_lengths(like).tolist() == [100, 10]
    shorter = like.with_columns(output_tokens=[4, 5] * 15)
    assert _mean_lengths(shorter).tolist() == [100, 4.5]
    name, trace, pairs = run_of("burst", 30)
    pairs = pair_sides(*[side([str(i) for i in range(30)], arrival_us=[7.0] * 30)] * 2)
    assert _observed([(name, trace, pairs)], like=like, elsewhere={}) == (
        {},
        {"burst": "its requests came all at once"},
    )
    _, short, _ = run_of("a", 30, output=1)
    assert list(_observed([run_of("one", 30, output=1)], like=short, elsewhere={})[0]) == ["one"]
    kept = {"same": "of another kind"}
    assert _observed(runs[:1], like=like, elsewhere=kept) == ({}, kept)


def test_a_long_trace_gives_its_first_requests_by_the_time_they_were_sent() -> None:
    n = MOST_REQUESTS + 2
    _, trace, _ = run_of("a", n)
    assert len(_first_rows(trace)) == MOST_REQUESTS
    backwards = trace.with_columns(arrival_time_us=np.arange(n)[::-1])
    assert _first_rows(backwards).requests["arrival_time_us"].max() == MOST_REQUESTS - 1
    _, exact, _ = run_of("a", MOST_REQUESTS)
    assert _first_rows(exact) is exact


def test_a_latency_that_nobody_has_is_not_observed() -> None:
    ids = [str(i) for i in range(20)]
    pairs = pair_sides(*[side(ids, ttft_us=[NAN] * 20, e2e_us=[50.0] * 20)] * 2)
    point = _observed_point(pairs, drawn_per_s=None)
    assert point == RatePoint(rate_per_s=pytest.approx(1000.0), latencies_us={"e2e": (50.0, 50.0)})
