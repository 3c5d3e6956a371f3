"""The noise of simulated fleets: batches, verdicts by the upper end, the second seed, and other arrivals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import replay.fleet.plans.size
import vtwin
from replay.fleet.check.drawn_requests import Arrivals, Stream, drawn_rows
from replay.fleet.check.engine_search import EngineSearch
from replay.fleet.check.fewest_engines import MOST_CONFIRMED, MOST_TIMES, Counts, FleetRuns, terms
from replay.fleet.check.pool import Verification, room_of, spells_of, taken_at, verify
from replay.fleet.check.slo_limits import keeps, limits_of
from replay.fleet.check.steady import (
    MOST_REQUESTS,
    STAYS_A_BATCH,
    BatchedMean,
    RunLength,
    batch_means,
)
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.profiles import from_profile, shipped_profiles
from replay.fleet.plans.size import SizeCheck, plan_pool
from sim.fleet import Lengths
from sim.fleet.sizing import Objective, pool_at
from traces.workload.model import Arrival

LENGTHS = Lengths(input_tokens=np.array([200.0, 400.0]), output_tokens=np.array([20.0, 40.0]))
A100 = from_profile("A100", shipped_profiles()["A100"], context=2048)
OBJECTIVE = Objective(ttft_p99_s=0.5)


@pytest.fixture(scope="module")
def seen() -> Verification:
    return verify(A100, LENGTHS, 20.0, engines=1, service_s=1.0, seed=1, asked=RunLength(num_requests=1000))


def with_ttft(seen: Verification, value: float, half: float) -> Verification:
    return replace(seen, ttft_p99=BatchedMean(value=value, low=value - half, high=value + half))


@pytest.mark.parametrize("rate", [5.0, 200.0, 5000.0])
def test_a_run_is_as_long_as_batches_of_five_stays_take(rate: float) -> None:
    """44.6 s is how long requests with the lengths of Azure's stay in a full A100; batches of 13.6 s say too little."""
    asked, stay = RunLength(num_requests=1000), 44.6
    last = asked.number(rate, stay) / rate
    window = asked.window(last, stay)
    if rate * 32.5 * stay <= MOST_REQUESTS:
        assert window.has_long_batches
        assert window.batch_s >= STAYS_A_BATCH * stay * (1 - 1e-9)
    else:
        assert last == MOST_REQUESTS / rate
        assert not window.has_long_batches


def test_a_run_of_short_batches_is_not_long_enough_however_narrow_its_interval() -> None:
    narrow = BatchedMean(value=1.0, low=0.99, high=1.01)
    for last, is_enough in ((2000.0, True), (248.0, False)):
        assert RunLength(num_requests=1).window(last, 44.6).is_enough_for(narrow) is is_enough
    long = RunLength(num_requests=1).window(2000.0, 44.6)
    assert not long.is_enough_for(BatchedMean(value=1.0, low=0.9, high=1.1))
    assert not long.is_enough_for(BatchedMean(value=1.0, low=math.nan, high=math.nan))


def test_an_objective_is_kept_where_the_upper_end_of_the_noise_keeps_it(seen: Verification) -> None:
    assert keeps(with_ttft(seen, 0.45, 0.04), OBJECTIVE)
    broken = with_ttft(seen, 0.45, 0.06)
    assert not keeps(broken, OBJECTIVE)
    assert (
        limits_of(broken, OBJECTIVE)[0].text == "TTFT p99 450 ms (with its noise up to 510 ms), limit 500 ms"
    )
    assert keeps(with_ttft(seen, 0.45, math.nan), OBJECTIVE)  # no interval: the figure itself


def test_a_time_has_no_interval_below_nothing() -> None:
    """Batches of 0.1, 0.1 and 4 seconds scatter by more than their mean."""
    values = np.repeat([0.1, 0.1, 4.0], 20)
    found = batch_means(values, lambda part: float(part.mean()), num_batches=3)
    assert (found.low, found.value) == (0.0, pytest.approx(1.4))
    assert found.half == pytest.approx(2.92 * np.std([0.1, 0.1, 4.0], ddof=1) / math.sqrt(3), rel=1e-3)
    assert found.high == pytest.approx(found.value + found.half)


def searched(
    seen: Verification, least: tuple[int, int], *, first: int, guess: int | None
) -> tuple[int, EngineSearch]:
    """Return what a search finds where each seed asks for so many engines."""

    def tried_at(fleet: Counts, seed: int) -> Verification:
        (engines,) = fleet
        return replace(with_ttft(seen, 0.4 if engines >= least[seed] else 0.6, 0.01), engines=engines)

    runs = FleetRuns(tried_at=tried_at, objective=OBJECTIVE)
    search = EngineSearch(runs=runs, is_smallest=guess is not None)
    (found,) = search.found((first,), guess=guess) or search.runs.last
    return found, search


@pytest.mark.parametrize("first", [1, 7, 25, 40])
@pytest.mark.parametrize("guess", [1, 6, 22, 39])
def test_the_smallest_number_is_found_from_anywhere_and_a_second_seed_decides(
    seen: Verification, first: int, guess: int
) -> None:
    """As trying every number from one on would find it."""
    for least in ((1, 1), (5, 5), (5, 6), (20, 18), (20, 23)):
        found, search = searched(seen, least, first=first, guess=guess)
        assert found == max(least)
        assert {((found,), 0), ((found,), 1)} <= set(search.runs.seen)


@pytest.mark.parametrize("least", [5, 13, 20])
def test_a_glance_spares_the_long_runs_of_numbers_that_are_clear(seen: Verification, least: int) -> None:
    """TTFT p99 falls with the engines; a glance is as noisy as it is short, and only what is near the limit runs on."""

    def tried_at(fleet: Counts, run: int) -> Verification:
        (engines,) = fleet
        half = 0.1 if run == -1 else 0.01
        return replace(
            with_ttft(seen, 0.45 * least / engines + (2.0 if engines < least else 0), half), engines=engines
        )

    search = EngineSearch(runs=FleetRuns(tried_at=tried_at, objective=OBJECTIVE, has_glances=True))
    assert search.found((30,), guess=25) == (least,)
    assert {engines for (engines,), run in search.runs.seen if run == 0} == {least}
    assert {engines for (engines,), run in search.runs.seen if run == 1} <= set(range(least, 2 * least))
    assert {each.engines for each in search.runs.tried} == {engines for (engines,), _ in search.runs.seen}


def test_the_search_begins_where_the_formula_has_no_cap_and_the_formulas_number_is_spared(
    seen: Verification,
) -> None:
    found, search = searched(seen, (20, 20), first=25, guess=22)
    assert (found, {engines for (engines,), _ in search.runs.seen}) == (20, {22, 19, 20})
    found, search = searched(seen, (24, 24), first=25, guess=22)  # too few: the formula's number is the next
    assert (found, [each.engines for each in search.runs.tried][:2]) == (24, [22, 25])


def test_where_runs_are_long_the_harder_one_decides_and_only_what_it_keeps_is_run_twice(
    seen: Verification,
) -> None:
    """A queue that grows has batches that differ: that is no noise, and the value decides."""

    def tried_at(fleet: Counts, _run: int) -> Verification:
        (engines,) = fleet
        value, half, room = (0.4, 0.01, 5.0) if engines >= 20 else (0.9, 0.6, 1.0)
        return replace(with_ttft(seen, value, half), engines=engines, room=room)

    search = EngineSearch(runs=FleetRuns(tried_at=tried_at, objective=OBJECTIVE, has_glances=True))
    assert search.found((25,), guess=22) == (20,)
    assert {run for (engines,), run in search.runs.seen if engines < 20} == {-1}
    assert list(search.runs.seen)[-1] == ((20,), 0)


@pytest.mark.parametrize("run", [-1, 0, 1])
def test_a_glance_is_a_short_piece_of_the_run_that_confirms(run: int) -> None:
    asked = RunLength(num_requests=1000)
    rate, seed, made = terms(200.0, 1, asked, run=run, stay_s=44.6)
    assert (rate, seed) == ((200.0, 1) if run == 0 else (204.0, 1_000_004))
    number = asked.number(rate, 44.6)
    assert made.number(rate, 44.6) == pytest.approx(
        number * {-1: 0.125, 0: 1, 1: 300_000 / number}[run], rel=0.02
    )


@pytest.mark.parametrize("first", [1, 10, 300])
def test_where_no_number_keeps_it_no_more_than_so_many_times_the_formulas_are_tried(
    seen: Verification, first: int
) -> None:
    """A limit that no engine helps, such as the pace of one request, asked for ever more: 10, 11 … 10¹² of them."""
    found, search = searched(seen, (10**15, 10**15), first=first, guess=max(first - 1, 1))
    assert found == max(engines for (engines,), _ in search.runs.seen) == MOST_TIMES * first
    assert len(search.runs.tried) <= 11


@pytest.mark.parametrize("first", [2, 10, 19])
def test_how_far_off_the_formula_was_leaves_the_confirmation_as_many_numbers(
    seen: Verification, first: int
) -> None:
    for more in (0, 1, MOST_CONFIRMED - 1):
        assert searched(seen, (20, 20 + more), first=first, guess=None)[0] == 20 + more
    found, search = searched(seen, (20, 20 + MOST_CONFIRMED), first=first, guess=None)
    assert found == 20 + MOST_CONFIRMED - 1
    assert not search.runs.keeps_both((found,))


def test_without_smallest_no_fewer_than_the_formulas_are_tried(seen: Verification) -> None:
    found, search = searched(seen, (5, 5), first=25, guess=None)
    assert (found, set(search.runs.seen)) == (25, {((25,), 0), ((25,), 1)})


# -- arrivals --------------------------------------------------------------------------------------------------


def cv2_of(stream: Stream, number: int = 40_000) -> float:
    gaps = np.diff(drawn_rows(stream, number, seed=3)[0])
    assert 1 / gaps.mean() == pytest.approx(stream.rate_per_s, rel=0.05)
    return float(gaps.var() / gaps.mean() ** 2)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_a_pool_gets_its_part_of_a_bursty_stream(share: float) -> None:
    """Of a renewal process every request is kept with a chance p: cv² of its gaps is p·cv² + 1 - p."""
    bursty = Arrivals(gaps=Arrival(process="gamma", cv=2.0))
    found = cv2_of(Stream(lengths=LENGTHS, rate_per_s=50.0 * share, arrivals=bursty, share=share))
    assert found == pytest.approx(4 * share + 1 - share, rel=0.12)


def test_a_traces_arrivals_keep_their_order_and_proportions_and_begin_anew() -> None:
    lengths = replace(LENGTHS.at(np.array([0, 1, 0, 1])), arrival_s=np.array([0.0, 1.0, 4.0, 4.0]))
    arrival_s, rows = drawn_rows(
        Stream(lengths=lengths, rate_per_s=2.0, arrivals=Arrivals(gaps=None)), 400, seed=1
    )
    assert (np.diff(rows) % 4 == 1).all()
    gaps = np.diff(arrival_s)
    before = {row: gaps[rows[1:] == row] for row in range(4)}
    assert all(np.ptp(each) < 1e-9 for each in before.values())
    assert before[2].mean() == pytest.approx(3 * before[1].mean())
    assert before[3].mean() == pytest.approx(0, abs=1e-9)
    assert 400 / arrival_s[-1] == pytest.approx(2.0, rel=0.02)


def test_bursts_need_more_engines_than_poisson_and_the_formula_says_what_it_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cdf.json").write_text("[[512, 0.4], [2048, 1.0]]")
    asked = ["fleet", "size", "--workload", str(tmp_path / "cdf.json"), "--rate", "40", "--profile", "A100"]
    asked += ["--slo", "ttft_p99=150ms", "--num-requests", "2000", "--json"]
    engines = []
    for more in ([], ["--burstiness", "0.02"]):
        assert vtwin.main([*asked, *more]) == 0
        told = json.loads(capsys.readouterr().out)
        engines.append((told["pools"][0]["engines"], told["pools"][0]["analytic"]["engines"]))
        assert any("gamma arrivals: gaps with a squared" in note for note in told["notes"]) is bool(more)
    assert engines[1][0] > engines[0][0]
    assert engines[1][1] >= engines[0][1]
    for options, complaint in (
        (["--arrival", "trace"], "--arrival trace: got a --workload without arrivals"),
        (["--arrival", "gamma"], "--arrival gamma: needs --burstiness"),
    ):
        assert vtwin.main([*asked, *options]) == 2
        assert complaint in capsys.readouterr().err


# -- what is told ----------------------------------------------------------------------------------------------


def test_the_headline_has_the_formulas_number_and_its_cap_and_the_spare_for_99_percent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cdf.json").write_text("[[512, 0.4], [2048, 1.0]]")
    asked = ["fleet", "size", "--workload", str(tmp_path / "cdf.json"), "--rate", "30", "--profile", "A100"]
    asked += [
        "--slo",
        "ttft_p99=1s",
        "--num-requests",
        "2000",
        "--availability",
        "0.8",
        "--utilization-cap",
        "0.4",
    ]
    assert vtwin.main(asked) == 0
    shown = capsys.readouterr().out
    assert vtwin.main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (pool,), (line,) = told["pools"], told["headline"]
    assert pool["engines"] < pool["analytic"]["engines"]
    assert pool["analytic"]["engines_without_cap"] < pool["analytic"]["engines"]
    assert shown.startswith(line)
    assert f"The formula asks for {pool['analytic']['engines']}" in line
    assert "--utilization-cap lets the rate be 40% of what full engines serve" in line
    assert pool["confirmed"]["ttft_p99_high_us"] <= 1e6
    assert pool["confirmed"]["num_requests"] > 2.9 * pool["verified"]["num_requests"]
    assert 0.3 < pool["enough_up_frac"] < 0.99
    assert pool["provisioned_99"] > pool["provisioned"]
    assert f"{pool['enough_up_frac']:.1%} of the time" in shown


def test_the_second_run_has_its_own_seed_a_fiftieth_more_load_and_three_times_the_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = list[tuple[int, float, float, int]]()

    def spied(*of: object, engines: int, seed: int, asked: RunLength, **more: object) -> Verification:
        calls.append((engines, float(of[2]), asked.times, seed))  # type: ignore[arg-type]
        return verify(*of, engines=engines, seed=seed, asked=asked, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(replay.fleet.plans.size, "verify", spied)
    plan = plan_pool(
        A100,
        Need(lengths=LENGTHS, rate_per_s=20.0, objective=OBJECTIVE, context=2048),
        check=SizeCheck(asked=RunLength(num_requests=1000)),
    )
    assert plan.second is not None
    first, second = calls
    assert (first[1], first[2], first[3]) == (20.0, 1.0, 1)
    assert second[0] == first[0]
    assert second[1] == pytest.approx(20.4)
    assert second[2] == 3.0
    assert second[3] != 1


# -- near saturation -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "full_spells", "is_enough"),
    [(4.0, 0, True), (3.9, 29, False), (3.9, 30, True), (-1.0, 1, False)],
)
def test_a_nearly_full_fleet_must_be_seen_full_often(
    seen: Verification, room: float, full_spells: int, is_enough: bool
) -> None:
    window = RunLength(num_requests=1).window(2000.0, 44.6)
    known = BatchedMean(value=1.0, low=0.99, high=1.01)
    run = replace(seen, window=window, ttft_p99=known, room=room, full_spells=full_spells)
    assert run.is_long_enough is is_enough


def test_room_and_full_spells_are_those_of_the_requests_that_run() -> None:
    """Two slots: 1 runs from 0 to 10, 2 from 2 to 4 and another from 8 to 10; looked at every second."""
    begins, ends = np.array([0.0, 2.0, 8.0]), np.array([10.0, 4.0, 10.0])
    when = np.arange(1.0, 10.0)
    taken = taken_at(when, begins, ends)
    assert taken.tolist() == [1, 1, 2, 1, 1, 1, 1, 1, 2]
    assert room_of(taken, 2) == pytest.approx((2 - taken.mean()) / taken.std())
    assert [spells_of(when[taken >= 2], apart_s=apart) for apart in (5.0, 7.0)] == [2, 1]
    assert spells_of(np.array([]), apart_s=1.0) == 0


def test_a_fleet_at_all_of_its_slots_is_not_called_known() -> None:
    """Its TTFT p99 comes from a few spells: two runs of a million requests differ by more than such a run tells."""
    lengths = Lengths(input_tokens=np.array([100.0, 900.0]), output_tokens=np.array([50.0, 250.0]))
    size = pool_at(A100.profile, lengths, 1.0, context=2048, engines=1)
    run = verify(
        A100,
        lengths,
        1.18 * size.throughput,
        engines=1,
        service_s=size.service_s,
        seed=1,
        asked=RunLength(num_requests=5000),
    )
    assert run.room < 4
    assert not run.is_long_enough
