"""The regressions that are tried on an operator, and how they are scored."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import RandomForestRegressor
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, PolynomialFeatures, SplineTransformer

from calibrate.predictor.measured import nearest_name
from traces import ConfigError

Floats = NDArray[np.float64]

FOREST_SEED = 0


def absolute_errors(measured: Floats, predicted: Floats) -> Floats:
    """Return |predicted / measured - 1|; where 0 was measured, 0 for a prediction of 0 and 1 for any other.

    Dividing by zero would make a single idle measurement outweigh a whole profile.
    """
    is_zero = measured == 0
    safe = np.where(is_zero, 1.0, measured)
    errors: Floats = np.where(
        is_zero, (predicted != 0).astype(np.float64), np.abs(predicted - measured) / np.abs(safe)
    )
    return errors


class GridTimes(RegressorMixin, BaseEstimator):
    """The measured points themselves, linear between them along each axis: one or two features.

    With two, each measured value of the first has its own line over the second; a point between two of them is
    linear between their lines. Beyond the ends of a line its last slope goes on, if it does not fall.
    """

    def fit(self, x: Floats, y: Floats) -> Self:
        """Keep the points, those of equal features as their mean."""
        points, which = np.unique(np.asarray(x, float), axis=0, return_inverse=True)
        which = which.ravel()
        times = np.bincount(which, weights=np.asarray(y, float)) / np.bincount(which)
        first = points[:, 0] if points.shape[1] > 1 else np.zeros(len(points))
        last = points[:, -1]
        self.rows_ = np.unique(first)
        self.lines_ = [(last[first == row], times[first == row]) for row in self.rows_]
        return self

    def predict(self, x: Floats) -> Floats:
        """Return the times at these features."""
        x = np.asarray(x, float)
        if x.shape[1] == 1 or len(self.rows_) == 1:
            return _along(self.lines_[0][0], self.lines_[0][1], x[:, -1])
        above = np.clip(np.searchsorted(self.rows_, x[:, 0]), 1, len(self.rows_) - 1)
        found = np.empty(len(x))
        for i in np.unique(above):
            at = above == i
            low, high = (_along(self.lines_[j][0], self.lines_[j][1], x[at, 1]) for j in (i - 1, i))
            share = (x[at, 0] - self.rows_[i - 1]) / (self.rows_[i] - self.rows_[i - 1])
            slope = high - low
            beyond = (share > 1) | (share < 0)
            found[at] = np.where(beyond, np.where(share > 1, high, low), low + share * slope)
            rising = beyond & (slope > 0)
            found[at] += np.where(rising, (share - (share > 1)) * slope, 0.0)
        return found


def _along(known: Floats, times: Floats, at: Floats) -> Floats:
    """Return a line's values, its last slope going on beyond its end unless it falls; before its start, its first."""
    found = np.interp(at, known, times)
    if len(known) > 1:
        slope = max(0.0, (times[-1] - times[-2]) / (known[-1] - known[-2]))
        found = found + np.maximum(at - known[-1], 0.0) * slope
    return found


class CrossedTimes(RegressorMixin, BaseEstimator):
    """The measured grid with its lines along one feature and along the other: the geometric mean of both.

    ``of_prompts``: features are the keys that a query sees and tokens, of batches of equal prompts; the grid is that of
    what was measured: how many prompts, and how long each. ``order``: "both", or "one": lines along the last alone.
    """

    def __init__(self, of_prompts: bool = False, order: str = "both") -> None:
        self.of_prompts = of_prompts
        self.order = order

    def fit(self, x: Floats, y: Floats) -> Self:
        """Fit both grids; lines of one point, which tell nothing of how times grow, are left out beside others."""
        y = np.asarray(y, float)
        self.grids_ = []
        for ordered in self._ordered(x):
            _, which, sizes = np.unique(ordered[:, 0], return_inverse=True, return_counts=True)
            kept = (sizes > 1)[which.ravel()]
            kept |= not kept.any()
            self.grids_.append(GridTimes().fit(ordered[kept], y[kept]))
        return self

    def predict(self, x: Floats) -> Floats:
        """Return the times at these features."""
        logarithms = [
            np.log(np.maximum(grid.predict(ordered), 1e-9))
            for grid, ordered in zip(self.grids_, self._ordered(x), strict=True)
        ]
        found: Floats = np.exp(np.mean(logarithms, axis=0))
        return found

    def _ordered(self, x: Floats) -> list[Floats]:
        """Return the features in each order that has a say."""
        x = np.asarray(x, float)
        if self.of_prompts:
            length = np.maximum(2 * x[:, 0] - 1, 1.0)
            x = np.column_stack([x[:, 1] / length, length])
        return [x] if self.order == "one" else [x, x[:, ::-1]]


class _Relative(RegressorMixin, BaseEstimator):
    """Fits ``_pipeline()`` by least squares in relative terms: each point weighs one over its time squared.

    Predictions are never below the smallest time fitted to: a polynomial must not leave a step less than nothing.
    """

    def _pipeline(self) -> Pipeline:
        """Return the regression to fit, its last step called ``regress``."""
        raise NotImplementedError

    def fit(self, x: Floats, y: Floats) -> Self:
        """Fit with weights 1 / y², those of zeros as of the smallest time above zero."""
        y = np.asarray(y, float)
        smallest = y[y > 0].min(initial=1.0)
        self.floor_ = float(y.min())
        self.fitted_ = self._pipeline()
        self.fitted_.fit(np.asarray(x, float), y, regress__sample_weight=1.0 / np.maximum(y, smallest) ** 2)
        return self

    def predict(self, x: Floats) -> Floats:
        """Return the times at these features."""
        found: Floats = np.maximum(self.fitted_.predict(np.asarray(x, float)), self.floor_)
        return found


class PolynomialTimes(_Relative):
    """A polynomial of ``degree`` in all features and their products."""

    def __init__(self, degree: int = 2) -> None:
        self.degree = degree

    def _pipeline(self) -> Pipeline:
        powers = PolynomialFeatures(self.degree, include_bias=False)
        steps = [("scale", MaxAbsScaler()), ("powers", powers), ("again", MaxAbsScaler())]
        return Pipeline([*steps, ("regress", LinearRegression())])


class SplineTimes(_Relative):
    """Straight pieces between ``num_knots`` quantiles of the one feature, the last going on beyond."""

    def __init__(self, num_knots: int = 8) -> None:
        self.num_knots = num_knots

    def _pipeline(self) -> Pipeline:
        pieces = SplineTransformer(self.num_knots, degree=1, knots="quantile", extrapolation="linear")
        return Pipeline([("pieces", pieces), ("regress", LinearRegression())])


class IsotonicTimes(RegressorMixin, BaseEstimator):
    """The nearest curve in the one feature that never falls (relative least squares), its last slope going on."""

    def fit(self, x: Floats, y: Floats) -> Self:
        """Fit the curve."""
        y = np.asarray(y, float)
        weights = 1.0 / np.maximum(y, y[y > 0].min(initial=1.0)) ** 2
        curve = IsotonicRegression(out_of_bounds="clip").fit(
            np.asarray(x, float)[:, 0], y, sample_weight=weights
        )
        self.knots_, self.times_ = curve.X_thresholds_, curve.y_thresholds_
        return self

    def predict(self, x: Floats) -> Floats:
        """Return the times at these features."""
        return _along(self.knots_, self.times_, np.asarray(x, float)[:, 0])


class ForestTimes(RegressorMixin, BaseEstimator):
    """A random forest of the logarithm of the times, so that its squares are relative; constant beyond its data."""

    def __init__(self, min_samples_leaf: int = 1, num_trees: int = 30) -> None:
        self.min_samples_leaf = min_samples_leaf
        self.num_trees = num_trees

    def fit(self, x: Floats, y: Floats) -> Self:
        """Grow the trees; a time of zero counts as the smallest above it."""
        y = np.asarray(y, float)
        logarithms = np.log(np.maximum(y, y[y > 0].min(initial=1e-3)))
        leaf, seed = self.min_samples_leaf, FOREST_SEED
        self.forest_ = RandomForestRegressor(self.num_trees, min_samples_leaf=leaf, random_state=seed)
        self.forest_.fit(np.asarray(x, float), logarithms)
        return self

    def predict(self, x: Floats) -> Floats:
        """Return the times at these features."""
        found: Floats = np.exp(self.forest_.predict(np.asarray(x, float)))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionKind:
    """A kind of regression and the parameters it is tried with."""

    name: str
    estimator: BaseEstimator
    grid: Mapping[str, Sequence[object]]


def candidates(features: Sequence[str], names: Collection[str] = ()) -> tuple[RegressionKind, ...]:
    """Return the regressions to try on an operator of these features; only those in ``names``, if any are given.

    Raises ConfigError where none of ``names`` fits that many features.
    """
    num_features, of_prompts = len(features), tuple(features) == ("keys", "tokens")
    every: tuple[RegressionKind, ...] = (
        RegressionKind(name="grid", estimator=GridTimes(), grid={}),
        RegressionKind(name="polynomial", estimator=PolynomialTimes(), grid={"degree": (1, 2, 3)}),
        RegressionKind(name="forest", estimator=ForestTimes(), grid={"min_samples_leaf": (1, 3)}),
    )
    if num_features == 1:
        every += (
            RegressionKind(name="spline", estimator=SplineTimes(), grid={"num_knots": (4, 8, 16, 32)}),
            RegressionKind(name="isotonic", estimator=IsotonicTimes(), grid={}),
        )
    else:
        orders = ("both", "one") if of_prompts else ("both",)
        crossed = CrossedTimes(of_prompts=of_prompts)
        every += (RegressionKind(name="crossed", estimator=crossed, grid={"order": orders}),)
    chosen = tuple(each for each in every if not names or each.name in names)
    if not chosen:
        given = ", ".join(names)
        raise ConfigError(
            f"--estimator: got only {given}, for operators of one feature, but this profile has one of {num_features} "
            f"(attention); expected one of {', '.join(each.name for each in every)} beside it"
        )
    return chosen


ESTIMATORS = ("grid", "polynomial", "forest", "crossed", "spline", "isotonic")
"""The names of all kinds of regression."""


def check_names(names: Collection[str]) -> tuple[str, ...]:
    """Return the requested regressions' names; raises ConfigError on an unknown one."""
    for name in names:
        if name not in ESTIMATORS:
            near = nearest_name(name, ESTIMATORS)
            raise ConfigError(
                f"--estimator: got {name!r}, expected one of {', '.join(ESTIMATORS)} (nearest: {near})"
            )
    return tuple(names)
