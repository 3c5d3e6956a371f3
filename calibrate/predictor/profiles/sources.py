"""Which files of the profiles given have an operator of the model: the first --profile that has it counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from lazy_dataclasses import dataclass
from pathlib import Path

from calibrate.predictor.components import ESSENTIAL, WINDOWED, needed
from calibrate.predictor.measured import Complaint, MissingRows, OperatorTable, ProfileError, ProfileQuery
from calibrate.predictor.profiles.kernel_tables import read_kernels
from calibrate.predictor.profiles.unmeasured import refuse_unmeasured
from calibrate.predictor.profiles.vidur_profiles import read_vidur

SUFFIXES = (".csv", ".parquet")

_NVIDIA = ("v100", "t4", "a10", "a10g", "a30", "a40", "a100", "l4", "l40", "l40s", "h20", "h100", "h200")
_OTHERS = ("b200", "b300", "gb200", "gb300", "b60", "mi300x", "mi325x", "mi355x", "4090", "6000")
GPU_NAMES_IN_PATHS = frozenset((*_NVIDIA, *_OTHERS))
"""Parts of a path that say which GPU it was measured on."""

VERSION = re.compile(r"^\d+\.\d+\.\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The operators found, by name, and why files lack what they might have had."""

    tables: dict[str, OperatorTable]
    complaints: tuple[Complaint, ...]


def read_profiles(paths: Sequence[Path], wanted: ProfileQuery) -> Sources:
    """Return every operator of a step that the profiles (files or folders) have; earlier ones win.

    Raises ProfileError when a path is absent, a file is malformed, two files of one folder measure the same operator,
    layers were not measured that no roofline may stand in for, or nothing essential was found.
    """
    tables: dict[str, OperatorTable] = {}
    complaints: list[Complaint] = []
    for path in paths:
        if not path.exists():
            raise ProfileError(f"{path}: no such file or folder, expected a profile")
        found = _read_file(path, wanted) if path.is_file() else _read_folder(path, wanted, complaints)
        for table in found:
            tables.setdefault(table.operator, table)
    names = [name for each in needed(wanted) for name in (each.name, each.name + WINDOWED)]
    kept = {name: tables[name] for name in names if name in tables}
    where = ", ".join(map(str, paths))
    refuse_unmeasured(kept.keys(), complaints, wanted, where=where)
    if not any(each.name in kept for each in needed(wanted) if each.base in ESSENTIAL):
        reason = complaints[0].text if complaints else f"{where}: no profile of {wanted.gpu}"
        raise ProfileError(
            f"{reason}; expected projections or attention of {wanted.shape.name} at tp {wanted.tp}"
        )
    return Sources(tables=kept, complaints=tuple(complaints))


def _read_file(path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    """Return what one file has; raises ProfileError when it has nothing, or is another GPU's."""
    other = _other_gpu(path.name, wanted)
    if other:
        raise ProfileError(f"{path}: a profile of {other}, expected {wanted.gpu}")
    found, complaints = _read(path, wanted)
    if not found and complaints:
        raise MissingRows(complaints[0].text)
    if not found:
        raise ProfileError(
            f"{path}: no operator of a step in it, expected Vidur's columns or an operator table"
        )
    return found


def _read_folder(folder: Path, wanted: ProfileQuery, complaints: list[Complaint]) -> list[OperatorTable]:
    """Return what the files below a folder have; what has only other shapes is noted in ``complaints``."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    if not files:
        raise ProfileError(f"{folder}: no {' or '.join(SUFFIXES)} files below it, expected a profile")
    files = [path for path in files if not _other_gpu(str(path), wanted)]
    found: dict[str, OperatorTable] = {}
    for path in _of_version(files, wanted.vllm_version):
        tables, lacking = _read(path, wanted)
        complaints += lacking
        for table in tables:
            if table.operator in found:
                raise ProfileError(
                    f"{table.operator}: measured in {found[table.operator].source} and in {path}, expected one of "
                    "them: name the file or a smaller folder with --profile"
                )
            found[table.operator] = table
    return list(found.values())


def _read(path: Path, wanted: ProfileQuery) -> tuple[list[OperatorTable], list[Complaint]]:
    """Return what a file has of the model, and why it lacks what it might have."""
    if path.suffix == ".parquet":
        return read_kernels(path, wanted)
    try:
        return read_vidur(path, wanted), []
    except MissingRows as error:
        return [], [Complaint(kind=None, text=str(error))]


def _other_gpu(path: str, wanted: ProfileQuery) -> str | None:
    """Return the GPU that a path names last, if it is another than the one wanted."""
    named = [part for part in _path_parts(path) if part in GPU_NAMES_IN_PATHS]
    return named[-1].upper() if named and named[-1] not in _path_parts(wanted.gpu) else None


def _path_parts(text: str) -> list[str]:
    return [part for part in re.split(r"[^a-z0-9]+", text.lower()) if part]


def _of_version(files: Iterable[Path], wanted: str | None) -> list[Path]:
    """Return the files of one version of each table: of the newest, or of ``wanted`` and, lacking it, the next older.

    A table's version is the folder it lies in; files that lie in no such folder are all returned.
    """
    unversioned: list[Path] = []
    versioned: dict[tuple[Path, str], dict[tuple[int, ...], Path]] = {}
    for path in files:
        if not VERSION.match(path.parent.name):
            unversioned.append(path)
            continue
        version = version_of(path.parent.name)
        if wanted is None or version <= version_of(wanted):
            versioned.setdefault((path.parent.parent, path.name), {})[version] = path
    return unversioned + [of_version[max(of_version)] for of_version in versioned.values()]


def version_of(text: str) -> tuple[int, ...]:
    """Return a version's numbers, for comparing."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])
