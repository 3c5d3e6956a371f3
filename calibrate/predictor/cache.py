"""An operator's learned times, cached by everything that they depend on: data, features, regressions, code."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Collection
from contextlib import suppress
from functools import lru_cache
from lazy_dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
import sklearn

from calibrate.predictor.estimators import candidates
from calibrate.predictor.measured import Floats, OperatorTable
from calibrate.predictor.training import RegressionReport, Score, train_operator
from traces import ConfigError, atomic_file

UNREADABLE: Final = (
    *(OSError, EOFError, BadZipFile, zlib.error, struct.error),
    *(ValueError, KeyError, IndexError, TypeError, AttributeError, SyntaxError),  # an array's head is Python
    *(
        NotImplementedError,
        RuntimeError,
        MemoryError,
        OverflowError,
        ImportError,
    ),  # a zip's, or an array's size
)
"""What reading a damaged file of the cache raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedOperator:
    """An operator's predicted times at the points asked for, int order cached, and the report of its regression."""

    report: RegressionReport
    time_us: Floats
    was_cached: bool


def learn(
    table: OperatorTable, points: Floats, *, names: Collection[str] = (), cache: Path | None = None
) -> PredictedOperator:
    """Return an operator's times at ``points`` (rows of features), trained now or cached from an equal training.

    ``cache``: a folder, made when absent; None: nothing is cached. A file in it that cannot be read counts as none.
    """
    if cache is None:
        return _train(table, points, names)
    file = cache / f"{cache_key(table, points, names=names)}.npz"
    cached = read_cached(file)
    if cached is not None:
        return cached
    learned = _train(table, points, names)
    write_cached(file, learned)
    return learned


def cache_key(table: OperatorTable, points: Floats, *, names: Collection[str] = ()) -> str:
    """Return a digest of all that the answer depends on; notes and file names are part of the report and so of it."""
    tried = [
        (each.name, repr(each.estimator), sorted(each.grid.items()))
        for each in candidates(table.features, names)
    ]
    digest = hashlib.sha256(
        repr((table.operator, table.features, table.source, table.notes, tried, _code_digest())).encode()
    )
    for array in (table.points, table.time_us, points):
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def default_cache() -> Path:
    """Return where trainings are cached: in ``$VTWIN_CACHE_DIR``, else in the user's cache."""
    root = os.environ.get("VTWIN_CACHE_DIR") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "vtwin"
    return Path(root).expanduser() / "predictor"


@lru_cache(maxsize=1)
def _code_digest() -> str:
    """Return a digest of this folder's sources and scikit-learn's version: either may change an answer."""
    digest = hashlib.sha256(f"{sklearn.__version__} {np.__version__}".encode())
    for name in ("estimators.py", "training.py", "cache.py"):
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()


def _train(table: OperatorTable, points: Floats, names: Collection[str]) -> PredictedOperator:
    trained = train_operator(table, names=names)
    return PredictedOperator(report=trained.report, time_us=trained.predict(points), was_cached=False)


def read_cached(file: Path) -> PredictedOperator | None:
    """Return a file of the cache; None if there is none, or it is damaged."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as cached:
            report, time_us, written = str(cached["report"]), cached["time_us"].copy(), str(cached["digest"])
    except UNREADABLE:
        return None
    if written != _digest(report, time_us):
        return None
    fields = json.loads(report)
    fields |= {
        "features": tuple(fields["features"]),
        "score": Score(**fields["score"]),
        "domain": tuple((low, high) for low, high in fields["domain"]),
        "notes": tuple(fields["notes"]),
    }
    return PredictedOperator(report=RegressionReport(**fields), time_us=time_us, was_cached=True)


def write_cached(file: Path, learned: PredictedOperator) -> None:
    """Write a regression into the cache, where that can be written; a reader never sees half of it."""
    with suppress(OSError, ConfigError):
        file.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        if file.parent == default_cache():
            file.parent.chmod(0o700)  # one that was made before, with the usual mode
        with atomic_file(file, is_durable=False) as temporary, temporary.open("wb") as out:
            report = json.dumps(asdict(learned.report))
            digest = _digest(report, learned.time_us)
            np.savez(out, report=np.array(report), time_us=learned.time_us, digest=np.array(digest))


def _digest(report: str, time_us: np.ndarray[tuple[int, ...], np.dtype[Any]]) -> str:
    """Return the sha256 of an answer, its times' kind and shape included."""
    whole = hashlib.sha256(f"{time_us.dtype} {time_us.shape} {report}".encode("utf-8", "surrogatepass"))
    whole.update(np.ascontiguousarray(time_us).tobytes())
    return whole.hexdigest()
