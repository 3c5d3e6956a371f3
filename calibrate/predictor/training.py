"""One operator: the regression that best predicts points it has not seen, and its error."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict

from calibrate.predictor.estimators import RegressionKind, absolute_errors, candidates
from calibrate.predictor.measured import Floats, OperatorTable

FOLDS = 5
HELD_OUT = 5
"""One point in this many is held out, drawn by a hash of its features: the same ones on every machine."""
MOST_COUNTED = 0.25
"""Where a kernel changes, whatever goes between two points is far off: these points alone must not choose."""
FEWEST_TO_HOLD_OUT = 15
"""With fewer points none is held out: the folds' error is reported instead."""
LONGEST_ANOMALY = 1.5
"""A point that took this many times as long as one with more of everything was disturbed, and is left out."""
WORK: Mapping[tuple[str, ...], Callable[[Floats], Floats]] = {
    ("tokens",): lambda x: x[:, 0],
    ("sequences",): lambda x: x[:, 0],
    ("bytes",): lambda x: x[:, 0],
    ("batch",): lambda x: x[:, 0],
    ("batch", "length"): lambda x: x[:, 0] * x[:, 1],
    ("batch", "keys"): lambda x: x[:, 0] * x[:, 1],
    ("keys", "tokens"): lambda x: x[:, 0] * x[:, 1],
    ("kv", "chunk"): lambda x: x[:, 1] * (x[:, 0] + (x[:, 1] + 1) / 2),
}
"""What an operator's time grows with beyond the points measured, by its features."""

EMPTY_SHARE = 5.0
"""A point that took this share of what three points of less work took measured nothing, and is left out."""
ANOMALY_SLACK_US = 5.0
"""Differences between the shortest kernels that are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How far predictions are off: absolute errors as fractions of what was measured."""

    num_points: int
    mape: float
    median: float
    p90: float
    is_held_out: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionReport:
    """Which regression an operator got, and what it did on points it had not seen.

    ``tried``: the error in k folds of every kind (``capped_error``); ``domain``: each feature's smallest and largest
    value.
    """

    operator: str
    features: tuple[str, ...]
    estimator: str
    parameters: dict[str, float | str]
    score: Score
    tried: dict[str, float]
    domain: tuple[tuple[float, float], ...]
    num_points: int
    num_left_out: int
    source: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """An operator's regression, fitted to all its points."""

    report: RegressionReport
    frontier: Floats
    fitted: BaseEstimator

    def predict(self, points: Floats) -> Floats:
        """Return µs at rows of features, >= 0.

        Points beyond the measured ones are brought back to them, first axis by axis, then toward the origin, and the
        time found there grows in proportion to the work: a forest is constant beyond its data, and a polynomial
        extrapolates wildly.
        """
        low, high = np.array(self.report.domain).T
        inside = np.clip(points, low, high)
        if points.shape[1] > 1:
            ratios = np.divide(
                self.frontier[None],
                inside[:, None],
                out=np.full((len(inside), *self.frontier.shape), np.inf),
                where=inside[:, None] > 0,
            )
            inside = np.maximum(inside * np.minimum(ratios.min(axis=2).max(axis=1), 1.0)[:, None], low)
        work = WORK[self.report.features]
        grown = np.maximum(work(points) / np.maximum(work(inside), 1e-9), 1.0)
        found: Floats = np.maximum(self.fitted.predict(inside), 0.0) * np.where(
            np.any(points > high, axis=1) | np.any(inside < points, axis=1), grown, 1.0
        )
        return found


def train_operator(table: OperatorTable, *, names: Collection[str] = ()) -> Trained:
    """Return the best candidate by its error in k folds, parameters by grid search, scored on held-out points.

    The choice and the score are made without the held-out points; the regression that is returned has seen all.
    """
    kept = undisturbed(table)
    x, y = table.points[kept], table.time_us[kept]
    held = held_out(x)
    found = {each.name: _search(each, x[~held], y[~held]) for each in candidates(table.features, names)}
    best = min(found, key=lambda name: -found[name].best_score_)
    chosen = found[best].best_estimator_
    predicted = chosen.predict(x[held]) if held.any() else cross_val_predict(chosen, x, y, cv=_folds(len(x)))
    report = RegressionReport(
        operator=table.operator,
        features=table.features,
        estimator=best,
        parameters=dict(found[best].best_params_),
        score=_score(predicted, y[held] if held.any() else y, is_held_out=bool(held.any())),
        tried={name: float(-search.best_score_) for name, search in found.items()},
        domain=table.domain,
        num_points=len(x),
        num_left_out=int((~kept).sum()),
        source=table.source,
        notes=table.notes,
    )
    return Trained(report=report, frontier=frontier_of(x), fitted=clone(chosen).fit(x, y))


def frontier_of(x: Floats) -> Floats:
    """Return the points that no other has as much of everything as: the edge of what was measured."""
    edge: Floats = x[frontier_places(x)]
    return edge


def frontier_places(x: Floats) -> NDArray[np.int64]:
    """Return where in ``x`` they are."""
    dominated = [bool(np.any(np.all(x >= point, axis=1) & np.any(x > point, axis=1))) for point in x]
    return np.flatnonzero(~np.array(dominated))


def undisturbed(table: OperatorTable) -> NDArray[np.bool_]:
    """Return which points are plausible.

    With two features, whose kernels grow with both: those that took no longer than LONGEST_ANOMALY times any point with
    at least as much of everything. With one, where a product of few tokens may well be slower than one of more, on
    another kernel: those not EMPTY_SHARE times shorter than three points of less work, as when a profiler's window
    closed before the kernel ran.
    """
    x, y = table.points, table.time_us
    if x.shape[1] > 1:
        least = np.array([y[np.all(x >= point, axis=1)].min() for point in x])
        kept: NDArray[np.bool_] = y <= LONGEST_ANOMALY * least + ANOMALY_SLACK_US
        return kept
    third = np.array([np.sort(y[:i])[-3] if i > 2 else 0.0 for i in range(len(y))])  # points are in order
    sound: NDArray[np.bool_] = y * EMPTY_SHARE + ANOMALY_SLACK_US >= third
    return sound


def held_out(x: Floats) -> NDArray[np.bool_]:
    """Return which points are held out: one in HELD_OUT by a hash, none that bounds the domain of a feature."""
    if len(x) < FEWEST_TO_HOLD_OUT:
        return np.zeros(len(x), np.bool_)
    drawn = [
        int.from_bytes(hashlib.sha256(point.tobytes()).digest()[:4], "big") % HELD_OUT == 0 for point in x
    ]
    is_edge = np.any((x == x.min(axis=0)) | (x == x.max(axis=0)), axis=1)
    chosen: NDArray[np.bool_] = np.array(drawn) & ~is_edge
    return chosen


def _search(candidate: RegressionKind, x: Floats, y: Floats) -> GridSearchCV:
    """Return the grid search of one candidate, fitted."""
    scorer = make_scorer(capped_error, greater_is_better=False)
    search = GridSearchCV(candidate.estimator, dict(candidate.grid), scoring=scorer, cv=inner_folds(x))
    return search.fit(x, y)


def capped_error(measured: Floats, predicted: Floats) -> float:
    """Return the mean absolute error as a fraction, no point's counted beyond MOST_COUNTED."""
    errors = absolute_errors(np.asarray(measured, float), np.asarray(predicted, float))
    return float(np.minimum(errors, MOST_COUNTED).mean())


def inner_folds(x: Floats) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return (to fit to, to judge by) of each fold: like what is held out, no point at an edge of what was measured.

    Tables are asked for what lies within; a regression that goes on badly beyond its points is no worse for them. With
    few points inside, all take part.
    """
    edge = np.any((x == x.min(axis=0)) | (x == x.max(axis=0)), axis=1)
    if x.shape[1] > 1:
        edge |= np.isin(np.arange(len(x)), frontier_places(x))
    inside, outside = np.flatnonzero(~edge), np.flatnonzero(edge)
    if len(inside) < 2 * FOLDS:
        inside, outside = np.arange(len(x)), np.zeros(0, np.int64)
    return [
        (np.sort(np.concatenate([inside[fitted], outside])), inside[judged])
        for fitted, judged in _folds(len(inside)).split(inside)
    ]


def _folds(num_points: int) -> KFold:
    return KFold(min(FOLDS, num_points), shuffle=True, random_state=0)


def _score(predicted: Floats, measured: Floats, *, is_held_out: bool) -> Score:
    errors = absolute_errors(measured, predicted)
    return Score(
        num_points=len(errors),
        mape=float(errors.mean()),
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        is_held_out=is_held_out,
    )
