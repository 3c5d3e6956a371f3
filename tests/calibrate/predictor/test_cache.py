"""The cache of trainings: an equal question is answered at once, any other is asked anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrate.predictor import cache as cache_module
from calibrate.predictor import estimators
from calibrate.predictor.cache import cache_key, learn, read_cached
from calibrate.predictor.measured import OperatorTable, operator_table

POINTS = np.array([[3.0], [50.0], [2000.0]])
TABLE = operator_table(
    "x", {"tokens": [1.0, 2, 4, 8, 16, 32, 64]}, [2.0, 2, 3, 4, 6, 10, 18], source="a.csv", notes=("n",)
)


def test_what_was_kept_is_what_was_learned(tmp_path: Path) -> None:
    first = learn(TABLE, POINTS, names=("grid",), cache=tmp_path)
    again = learn(TABLE, POINTS, names=("grid",), cache=tmp_path)
    assert (first.was_cached, again.was_cached) == (False, True)
    assert again.report == first.report
    np.testing.assert_array_equal(again.time_us, first.time_us)


CHANGED: dict[str, OperatorTable] = {
    "a time": replace(TABLE, time_us=TABLE.time_us + np.eye(7)[3] * 1e-9),
    "a point": replace(TABLE, points=TABLE.points + np.eye(7)[:, 3:4] * 1e-9),
    "a row": replace(TABLE, points=TABLE.points[:-1], time_us=TABLE.time_us[:-1]),
    "the feature": replace(TABLE, features=("sequences",)),
    "the operator": replace(TABLE, operator="y"),
    "the file": replace(TABLE, source="b.csv"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_changed_profile_is_never_answered_from_an_old_cache(what: str, tmp_path: Path) -> None:
    learn(TABLE, POINTS, names=("grid",), cache=tmp_path)
    assert not learn(CHANGED[what], POINTS, names=("grid",), cache=tmp_path).was_cached


def test_other_regressions_other_parameters_and_other_points_are_asked_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = {
        cache_key(TABLE, POINTS, names=("grid",)),
        cache_key(TABLE, POINTS, names=("polynomial",)),
        cache_key(TABLE, POINTS),
        cache_key(TABLE, POINTS + 1, names=("grid",)),
    }
    tried = estimators.candidates

    def finer(num_features: int, names: tuple[str, ...] = ()) -> tuple[estimators.RegressionKind, ...]:
        return tuple(
            replace(each, grid={"degree": (1, 2, 3, 4)}) if each.name == "polynomial" else each
            for each in tried(num_features, names)
        )

    monkeypatch.setattr(cache_module, "candidates", finer)
    keys.add(cache_key(TABLE, POINTS, names=("polynomial",)))
    monkeypatch.setattr(cache_module, "_code_digest", lambda: "another version of the code")
    keys.add(cache_key(TABLE, POINTS, names=("grid",)))
    assert len(keys) == 6


def test_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    learn(TABLE, POINTS, names=("grid",), cache=tmp_path)
    file = next(tmp_path.glob("*.npz"))
    file.write_bytes(file.read_bytes()[:100])
    assert not learn(TABLE, POINTS, names=("grid",), cache=tmp_path).was_cached
    assert learn(TABLE, POINTS, names=("grid",), cache=tmp_path).was_cached
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]


@pytest.mark.parametrize("is_there", [False, True])
def test_the_cache_is_its_users_alone(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTWIN_CACHE_DIR", str(tmp_path / "vtwin"))
    folder = cache_module.default_cache()
    if is_there:
        folder.mkdir(parents=True, mode=0o755)
    learn(TABLE, POINTS, names=("grid",), cache=folder)
    assert [path.suffix for path in folder.iterdir()] != []
    assert folder.stat().st_mode & 0o777 == 0o700
    assert is_there or folder.parent.stat().st_mode & 0o777 == 0o700


def test_an_altered_answer_is_not_believed(tmp_path: Path) -> None:
    first = learn(TABLE, POINTS, names=("grid",), cache=tmp_path)
    file = next(tmp_path.glob("*.npz"))
    with np.load(file) as kept:
        arrays = dict(kept)
    np.savez(file, **{**arrays, "time_us": arrays["time_us"] * 2})
    again = learn(TABLE, POINTS, names=("grid",), cache=tmp_path)
    assert not again.was_cached
    np.testing.assert_array_equal(again.time_us, first.time_us)


@pytest.mark.parametrize("report", ["[]", "{}", "null", "x"])
def test_a_report_of_another_kind_counts_as_none(tmp_path: Path, report: str) -> None:
    learn(TABLE, POINTS, names=("grid",), cache=tmp_path)
    file = next(tmp_path.glob("*.npz"))
    np.savez(file, report=np.array(report), time_us=np.zeros(3))
    assert read_cached(file) is None
