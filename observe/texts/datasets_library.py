"""Data sets that the ``datasets`` library of Hugging Face saved on this disk; the library is an extra."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from traces import ConfigError, TraceError


def rows_of_data_set(path: Path) -> Iterator[object]:
    """Return the rows of a data set in the folder ``path``; nothing is loaded from elsewhere.

    Raises ConfigError without the library, TraceError for a folder of several splits or one that it cannot read.
    """
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            "--texts: got a data set of the datasets library, expected the extra: pip install 'vtwin[datasets]' "
            f"({path})"
        ) from error
    try:
        found = datasets.load_from_disk(str(path))
    except Exception as error:
        raise TraceError(
            f"--texts: got {' '.join(str(error).split())[:200]}, expected a data set ({path})"
        ) from error
    if isinstance(found, datasets.DatasetDict):
        if len(found) != 1:
            splits = ", ".join(str(path / name) for name in found)
            raise TraceError(f"--texts: got a data set of {len(found)} splits, expected one of {splits}")
        found = next(iter(found.values()))
    return iter(found)
