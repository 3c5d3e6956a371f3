"""Newcomers wait for the step under way: the chance to wait longer, against sums over every point of a step."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sim.fleet.erlang import Wait
from sim.fleet.joining import Joining
from sim.fleet.sizing import percentile_with, pool_at
from tests.sim.fleet.test_by_hand import LENGTHS, PROFILE

STEPS = replace(PROFILE, reserves_context=False, max_concurrent_batches=2)
NEVER = Wait(probability=0.0, decay_per_s=1.0)


def test_the_formula_is_the_mean_over_the_points_of_a_step() -> None:
    """Two steps, the second of which is scheduled already, at work for 3/4 of the time; a wait with a tail."""
    joining, wait = Joining(busy_frac=0.75, step_s=0.2, steps_ahead=1), Wait(probability=0.3, decay_per_s=4.0)
    points = (np.arange(100_000) + 0.5) / 100_000 * 0.2
    for seconds in (-0.1, 0.0, 0.1, 0.2, 0.25, 0.31, 0.4, 0.5, 2.0):
        late = float(wait.longer_than(seconds - 0.2 - points).mean())
        expected = 0.75 * late + 0.25 * float(wait.longer_than(np.array([seconds]))[0])
        found = joining.longer_than(wait, np.array([seconds]))
        assert found[0] == pytest.approx(expected, abs=1e-5)


def test_without_a_queue_the_percentile_is_a_point_of_the_step() -> None:
    """An engine always at work: 99 of 100 wait 0.99 of a step; and one step more where one is scheduled ahead."""
    own = np.array([0.5])
    for ahead in (0, 1):
        joining = Joining(busy_frac=1.0, step_s=0.1, steps_ahead=ahead)
        found = percentile_with(NEVER, own, share=0.99, joining=joining)
        assert found == pytest.approx(0.5 + 0.099 + 0.1 * ahead, abs=2e-6)
    assert percentile_with(NEVER, own, share=0.99) == pytest.approx(0.5, abs=2e-6)


def test_steps_of_no_length_and_idle_engines_leave_the_wait_alone() -> None:
    wait, seconds = Wait(probability=0.3, decay_per_s=4.0), np.array([0.0, 0.5])
    for joining in (Joining(busy_frac=0.7), Joining(step_s=0.2)):
        assert joining.longer_than(wait, seconds).tolist() == wait.longer_than(seconds).tolist()
    assert Joining(busy_frac=1.0, step_s=1.0).longer_than(NEVER, seconds) == pytest.approx([1.0, 0.5])


def test_joining_is_of_the_pool_it_is_asked_for() -> None:
    busy = STEPS.busy(LENGTHS)
    found = Joining.of(STEPS, busy, 3.0)
    assert found == Joining(busy_frac=1 - math.exp(-3.0), step_s=busy.iteration_s(3.0), steps_ahead=1)
    assert found.most_s == 2 * busy.iteration_s(3.0)
    assert Joining.of(replace(STEPS, reserves_context=True), busy, 3.0) == Joining()


def test_a_first_token_waits_for_its_steps_other_outputs() -> None:
    """A request's place is one behind those that decode: 40 of 44 of a request's iterations bring an output."""
    rate = 20.0
    plain, later = (
        pool_at(replace(STEPS, max_slots=64, handed_on_s=each), LENGTHS, rate, context=400, engines=1)
        for each in (0.0, 0.01)
    )
    assert later.active == plain.active > 1
    added = 0.01 * (1 + plain.active * 40 / 44)
    assert later.ttft_p99_s - plain.ttft_p99_s == pytest.approx(added, abs=4e-6)
    assert later.tpot_s == plain.tpot_s
