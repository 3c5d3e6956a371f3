"""Looks on the way of a run: they change nothing of it, and are few however long it is."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, Simulation, simulate
from sim.cluster.by_events import simulate_by_events
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.results.watching import FleetOverTime
from tests.examples import examples
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases, requests_of

REQUEST = {"arrival_us": 0, "prompt": 8}


@examples(150)
@given(
    cases(closed=None, model=any_model, impatient=True, costly=True, stopping=True),
    st.sampled_from((1, 2, 7, 400)),
    st.sampled_from((None, None, 30, 900)),
)
def test_to_look_changes_nothing(case: Case, points: int, until_us: int | None) -> None:
    case = replace(case, until_us=until_us)
    seen, unseen = (case.run(record="spans", points=each) for each in (points, None))
    assert_same_outcomes(seen.outcomes, unseen.outcomes)
    for name in Simulation.__dataclass_fields__:
        if name not in ("outcomes", "engine_cpu_s", "written", "num_jumps", "looks"):
            assert getattr(seen, name) == getattr(unseen, name), name
    for mine, its in (
        (seen.inter_token_latencies(), unseen.inter_token_latencies()),
        (seen.batch_sizes(), unseen.batch_sizes()),
        (seen.step_times(), unseen.step_times()),
    ):
        for each in fields(mine):
            np.testing.assert_array_equal(
                getattr(mine, each.name), getattr(its, each.name), err_msg=each.name
            )
    assert seen.looks is not None
    assert len(seen.looks.time_us) == len(seen.looks.rows) <= 2 * points
    assert seen.looks.time_us[-1] == seen.duration_us
    assert (np.diff(seen.looks.time_us) > 0).all()


@examples(100)
@given(cases(model=any_model, impatient=True, costly=True), st.sampled_from((3, 40)))
def test_one_engine_is_seen_as_a_cluster_of_one_that_goes_from_event_to_event(
    case: Case, points: int
) -> None:
    config = ClusterConfig(
        pools=(Pool(engine=case.config, latency=case.latency),), compatibility=case.config.compatibility
    )
    work = ClusterWork(requests=case.requests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.cluster.results.watching.LEAST_INTERVAL_US", 1)
        theirs = simulate_by_events(work, config, record="spans", points=points).over_time
    ours = simulate_cluster(work, config, record="spans", points=points).over_time
    assert ours is not None
    assert theirs is not None
    # events end with the last step's beginning, and no look follows: only the beginning is alike where it is long
    _, places, others = np.intersect1d(ours.time_us[:-1], theirs.time_us[:-1], return_indices=True)
    assert len(places) >= min(len(ours.time_us), len(theirs.time_us)) // 2
    for each in fields(FleetOverTime):
        mine, its = getattr(ours, each.name), getattr(theirs, each.name)
        assert mine.dtype == its.dtype
        np.testing.assert_array_equal(mine[-1], its[-1], err_msg=each.name)
        if each.name != "num_blocks":
            np.testing.assert_array_equal(mine[places], its[others], err_msg=each.name)


@pytest.mark.parametrize("num_outputs", [3, 40, 3000])
def test_however_long_a_run_is_its_looks_are_few_and_evenly_apart(num_outputs: int) -> None:
    requests = requests_of([{**REQUEST, "output": num_outputs}])
    done = simulate(
        requests,
        EngineConfig(num_gpu_blocks=900, max_model_len=8192, async_scheduling=False),
        Blackbox(beta0=700),
        record="spans",
        points=10,
    )
    assert done.looks is not None
    time_us, rows = done.looks.time_us, done.looks.rows
    assert 10 <= len(time_us) <= 20
    assert len(set(np.diff(time_us[:-1], prepend=0).tolist())) == 1
    np.testing.assert_array_equal(rows["busy_us"], time_us)  # one step follows another
    assert rows["num_running"].tolist() == [1] * (len(rows) - 1) + [0]
    # what a sequence has computed up to the step in progress, in blocks of 16
    expected = -(-(8 + time_us[:-1] // 700) // 16)
    free = rows["num_free_blocks"]
    np.testing.assert_array_equal(free[-1] - free[:-1], expected)


@examples(100)
@given(st.integers(0, 900), st.integers(1, 50), st.integers(1, 70))
def test_thinned_looks_are_evenly_apart_and_end_with_the_run(num: int, distance_us: int, points: int) -> None:
    end_us = num * distance_us + distance_us // 2 + 1
    time_us = np.append((np.arange(num) + 1) * distance_us, end_us)
    column = time_us[:, None] * 3
    whole = FleetOverTime(
        time_us=time_us,
        num_waiting=column,
        num_running=column,
        num_free_blocks=column,
        busy_us=column,
        num_blocks=np.ones(1, np.int64),
    )
    found = whole.thinned(points)
    assert min(points, num + 1) <= len(found.time_us) <= 2 * points
    assert found.time_us[-1] == end_us
    assert len(set(np.diff(found.time_us[:-1], prepend=0).tolist())) <= 1
    np.testing.assert_array_equal(found.busy_us, found.time_us[:, None] * 3)
    gaps = np.diff(found.time_us, prepend=0)
    assert gaps[-1] >= gaps[0] / 2
    assert found.num_blocks.tolist() == [1]
