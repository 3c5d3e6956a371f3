"""One operator: its regression is chosen and scored on points it has not seen; a zero is a measurement like another."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.predictor.estimators import (
    CrossedTimes,
    GridTimes,
    IsotonicTimes,
    absolute_errors,
    check_names,
)
from calibrate.predictor.measured import OperatorTable, operator_table
from calibrate.predictor.training import (
    capped_error,
    frontier_of,
    held_out,
    inner_folds,
    train_operator,
    undisturbed,
)
from traces.errors import ConfigError

TOKENS = np.array([1, *range(8, 513, 8)], float)


def curve(time_us: np.ndarray) -> OperatorTable:
    return operator_table("x", {"tokens": TOKENS}, time_us, source="s")


def test_an_error_against_zero_is_none_for_zero_and_whole_for_anything_else() -> None:
    measured, predicted = np.array([0.0, 0.0, 10.0, 10.0]), np.array([0.0, 0.5, 11.0, 0.0])
    assert absolute_errors(measured, predicted).tolist() == [0.0, 1.0, pytest.approx(0.1), 1.0]
    assert absolute_errors(measured, predicted).mean() == pytest.approx(2.1 / 4)
    assert capped_error(measured, predicted) == pytest.approx((0.25 + 0.1 + 0.25) / 4)


def test_what_is_a_polynomial_is_found_exactly() -> None:
    trained = train_operator(curve(5.0 + 0.2 * TOKENS + 0.001 * TOKENS**2))
    assert trained.report.estimator == "polynomial"
    assert trained.report.parameters["degree"] >= 2
    assert trained.report.score.mape < 1e-6
    assert trained.predict(np.array([[100.0]]))[0] == pytest.approx(35.0, rel=1e-6)


def test_what_jumps_is_left_to_the_measured_points() -> None:
    """A kernel for every 64 tokens: no polynomial is near, and the choice says what each was off by."""
    trained = train_operator(curve(10.0 * np.ceil(TOKENS / 64)))
    tried = trained.report.tried
    assert trained.report.estimator != "polynomial"
    assert tried[trained.report.estimator] == min(tried.values())
    assert tried["polynomial"] > tried[trained.report.estimator]


def test_the_score_is_of_points_that_chose_and_fitted_nothing() -> None:
    """A profile whose held-out points are all twice as long: the regression cannot know, and the score says 50 %."""
    times = 5.0 + 0.2 * TOKENS
    held = held_out(TOKENS[:, None])
    score = train_operator(curve(np.where(held, 2 * times, times)), names=("polynomial",)).report.score
    assert score.is_held_out
    assert score.num_points == held.sum()
    assert score.mape == pytest.approx(0.5, abs=0.02)


def test_held_out_points_are_about_a_fifth_and_never_the_ends() -> None:
    held = held_out(TOKENS[:, None])
    assert 0.1 < held.mean() < 0.3
    assert not held[0]
    assert not held[-1]
    assert not held_out(TOKENS[:10, None]).any()


def test_few_points_are_scored_by_folds() -> None:
    table = operator_table("x", {"tokens": TOKENS[:10]}, 1.0 + TOKENS[:10], source="s")
    score = train_operator(table, names=("grid", "polynomial")).report.score
    assert not score.is_held_out
    assert score.num_points == 10


def test_beyond_the_profile_times_grow_with_the_work_and_below_it_they_stay() -> None:
    for name in ("grid", "forest", "polynomial", "isotonic", "spline"):
        trained = train_operator(curve(5.0 + 0.2 * TOKENS), names=(name,))
        edge, beyond, below = trained.predict(np.array([[512.0], [1024.0], [0.5]]))
        assert beyond == pytest.approx(2 * edge)
        assert below == pytest.approx(trained.predict(np.array([[1.0]]))[0])


def test_beyond_a_ragged_profile_a_point_is_brought_back_along_its_own_direction() -> None:
    """Measured up to batch x keys = 1024: (32, 128) has four times that, and takes four times what (16, 64) does."""
    points = [(b, k) for b in (1, 2, 4, 8, 16, 32) for k in (32, 64, 128, 256, 512, 1024) if b * k <= 1024]
    batch, keys = np.array(points, float).T
    table = operator_table("x", {"batch": batch, "keys": keys}, 0.01 * batch * keys, source="s")
    trained = train_operator(table, names=("grid",))
    assert trained.predict(np.array([[32.0, 128.0]]))[0] == pytest.approx(40.96, rel=1e-9)
    assert {tuple(each) for each in frontier_of(table.points)} == {
        (1, 1024),
        (2, 512),
        (4, 256),
        (8, 128),
        (16, 64),
        (32, 32),
    }


def test_a_point_longer_than_one_with_more_of_everything_is_left_out() -> None:
    batch, keys = (each.ravel() for each in np.meshgrid([1.0, 2, 4, 8], [64.0, 128, 256, 512, 1024]))
    times = 100.0 + batch * keys
    times[(batch == 2) & (keys == 128)] = 5000.0
    table = operator_table("x", {"batch": batch, "keys": keys}, times, source="s")
    kept = undisturbed(table)
    assert table.points[~kept].tolist() == [[2.0, 128.0]]
    assert train_operator(table, names=("grid",)).report.num_left_out == 1


def test_kernels_that_a_profiler_missed_are_left_out() -> None:
    """A third of a real profile's projections took 1.8 µs whatever the batch."""
    times = 50.0 + 2.0 * TOKENS
    missed = (TOKENS > 200) & (np.arange(len(TOKENS)) % 3 == 0)
    table = curve(np.where(missed, 1.8, times))
    np.testing.assert_array_equal(undisturbed(table), ~missed)
    assert train_operator(table, names=("polynomial",)).report.score.mape < 1e-6


def test_a_slow_kernel_of_few_tokens_is_no_disturbance() -> None:
    times = np.where(TOKENS < 64, 100.0, 20.0)
    assert undisturbed(curve(times)).all()


def test_the_grid_is_linear_between_its_lines_and_along_them() -> None:
    rows, columns = (each.ravel() for each in np.meshgrid([1.0, 3, 9], [10.0, 20, 70]))
    times = 2.0 * rows + 0.5 * columns + 1.0
    grid = GridTimes().fit(np.column_stack([rows, columns]), times)
    asked = np.array([[2.0, 15.0], [9.0, 70.0], [6.0, 69.0], [1.0, 10.0], [12.0, 30.0], [4.0, 100.0]])
    np.testing.assert_allclose(grid.predict(asked), 2.0 * asked[:, 0] + 0.5 * asked[:, 1] + 1.0)


def test_an_isotonic_curve_never_falls() -> None:
    rng = np.random.default_rng(1)
    fitted = IsotonicTimes().fit(TOKENS[:, None], 10 + 0.1 * TOKENS + rng.normal(0, 2, len(TOKENS)))
    assert (np.diff(fitted.predict(np.arange(1.0, 900.0)[:, None])) >= 0).all()


def test_an_unknown_regression_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"--estimator: got 'splines', expected one of .* \(nearest: spline\)"
    ):
        check_names(["grid", "splines"])


@pytest.mark.parametrize("name", ["spline", "isotonic"])
def test_a_regression_of_one_feature_is_refused_for_two_in_one_line(name: str) -> None:
    table = operator_table("x", {"batch_size": TOKENS, "kv_tokens": TOKENS}, TOKENS, source="s")
    with pytest.raises(ConfigError) as caught:
        train_operator(table, names=[name])
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"--estimator: got only {name}, for operators of one feature")
    assert line.endswith("expected one of grid, polynomial, forest, crossed beside it")
    assert train_operator(table, names=[name, "grid"]).report.estimator == "grid"


BATCHES = np.array([(n, length) for n in (1, 2, 4, 8, 16) for length in (16, 64, 256, 1024)], float)


def test_no_fold_judges_by_a_point_at_an_edge_of_what_was_measured() -> None:
    judged = np.sort(np.concatenate([judged for _, judged in inner_folds(BATCHES)]))
    inner = (BATCHES[:, 0] > 1) & (BATCHES[:, 0] < 16) & (BATCHES[:, 1] > 16) & (BATCHES[:, 1] < 1024)
    assert judged.tolist() == list(range(len(BATCHES)))  # six points within are too few
    many = np.array([(a, b) for a in range(6) for b in range(6)], float)
    within = [i for i, (a, b) in enumerate(many.tolist()) if 0 < a < 5 and 0 < b < 5]
    folds = inner_folds(many)
    assert sorted(i for _, judged in folds for i in judged.tolist()) == within
    assert all(len(fitted) + len(judged) == len(many) for fitted, judged in folds)
    assert inner.sum() == 6


@pytest.mark.parametrize("order", ["both", "one"])
def test_a_crossed_grid_of_prompts_is_exact_along_their_number_and_their_length(order: str) -> None:
    """The law is linear in either: half the prompts of a batch, or half as long, lie on its lines."""
    number, length = BATCHES.T
    features = np.column_stack([(length + 1) / 2, number * length])
    fitted = CrossedTimes(of_prompts=True, order=order).fit(features, 5.0 + number * length)
    asked = np.array([(3, 256), (4, 160), (1, 512)], float)
    told = fitted.predict(np.column_stack([(asked[:, 1] + 1) / 2, asked.prod(axis=1)]))
    np.testing.assert_allclose(told, 5.0 + asked.prod(axis=1))


def test_a_line_of_one_point_has_no_say_where_others_have_two() -> None:
    x = np.array([(1, 10), (1, 20), (2, 10), (3, 10), (3, 20)], float)
    law = x[:, 0] * x[:, 1]
    told = CrossedTimes().fit(x, law).predict(np.array([(2.0, 20.0)]))
    assert told[0] == pytest.approx(40.0)
