"""A table of step times in some thirty kilobytes: times to 0.02 %, as differences along each axis, compressed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from replay.twin.profiled_table import StepTableFile

UNITS_PER_E = 3000.0
"""A time of t µs is kept as rint(3000·ln(1 + t)), in 16 bits, to 0.017 %."""
MOST_UNITS = np.iinfo(np.uint16).max
OF_COMPONENTS = ("time_us", "time_after_us")
"""Times of components that stand in a table's document."""
KEPT_OF_COMPONENTS = ("name", "group", "axis", "runs_per_step", "from")
"""What is kept of a component beside them: all that a simulation reads."""


def write_packed(path: Path, file: StepTableFile) -> None:
    """Write a table to ``path``, an .npz. Raises ValueError on a time of an hour."""
    times = {name: np.asarray(table) for name, table in file.tables.items()}
    components = []
    for number, each in enumerate(_components(file)):
        components.append({key: each[key] for key in KEPT_OF_COMPONENTS})
        times |= {f"{number} {key}": np.array(each[key]) for key in OF_COMPONENTS if key in each}
    about = {
        **file.about,
        "components": components,
        "domain": dict(file.domain),
        "step_us": file.step_us,
        "shapes": {name: table.shape for name, table in times.items()},
    }
    np.savez_compressed(
        path,
        about=np.frombuffer(json.dumps(about, separators=(",", ":")).encode(), np.uint8),
        differences=np.concatenate([_differences(table).ravel() for table in times.values()]),
    )


def read_packed(path: Path) -> StepTableFile:
    """Return the table that ``write_packed`` wrote."""
    with np.load(path) as packed:
        about, rest = json.loads(packed["about"].tobytes()), packed["differences"]
    times = {}
    for name, shape in about.pop("shapes").items():
        size = math.prod(shape)
        times[name], rest = _summed(rest[:size].reshape(shape)), rest[size:]
    for number, each in enumerate(about["components"]):
        found = {key: times.pop(f"{number} {key}", None) for key in OF_COMPONENTS}
        each |= {key: table.tolist() for key, table in found.items() if table is not None}
    return StepTableFile(tables=times, step_us=about.pop("step_us"), domain=about.pop("domain"), about=about)


def _components(file: StepTableFile) -> list[Mapping[str, object]]:
    found = file.about["components"]
    assert isinstance(found, list)  # noqa: S101 - as ``predictor train`` makes it
    return found


def _differences(times: np.ndarray) -> np.ndarray:
    """Return times in units, less their neighbour's along each axis; modulo 2^16, which sums undo."""
    units = np.rint(UNITS_PER_E * np.log1p(times))
    if units.max() > MOST_UNITS:
        raise ValueError(f"got a time of {times.max() / 1e6:g} s, expected less than an hour")
    found: np.ndarray = units.astype(np.uint16)
    for axis in range(found.ndim):
        found = np.diff(found, axis=axis, prepend=np.uint16(0))
    return found


def _summed(differences: np.ndarray) -> np.ndarray:
    """Return the times in µs, float64."""
    units: np.ndarray = differences
    for axis in range(units.ndim):
        units = np.cumsum(units, axis=axis, dtype=np.uint16)
    return np.asarray(np.expm1(units / UNITS_PER_E), np.float64)
