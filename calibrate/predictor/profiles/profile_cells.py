"""The cells of measured tables: of each column which kind, in which range, and that none is empty."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from calibrate.predictor.measured import ProfileError, nearest_name
from traces import quoted

TEXTS: Final = frozenset(
    (
        *(
            "op_name",
            "gemm_dtype",
            "kv_cache_dtype",
            "gemm_type",
            "moe_dtype",
            "model",
            "phase",
            "kernel_source",
        ),
        *("distribution", "collective", "model_name"),
    )
)
FLAGS: Final = frozenset(("use_gated_mlp", "is_prefill"))
_TRUTH: Final = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
MOST_COUNT: Final = 1 << 53
"""The largest number of tokens, bytes or heads: up to it a double has every whole number."""
MOST_MS: Final = 1e7
"""The longest time of an operator: three hours."""


def sound_cells(
    table: pd.DataFrame, path: Path, *, needed: Iterable[str], times: Iterable[str], first_row: int = 1
) -> pd.DataFrame:
    """Return a table whose columns are of their kinds: text, flags, whole numbers >= 0, and times in ms.

    ``needed``: the columns that must be there, and are looked at with ``times``, which may be empty where a row does
    not measure them. ``first_row``: the number of the first in the file. Raises ProfileError, with file, column and
    row.
    """
    names = list(map(str, table.columns))
    for name in needed:
        if name not in names:
            raise ProfileError(f"{path}: no column {name!r} (nearest: {nearest_name(name, names)!r})")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ProfileError(f"{path}: column {quoted(twice)}: got it twice, expected each column once")
    sound = dict.fromkeys(needed) | dict.fromkeys(times)
    return table.assign(
        **{name: _sound(table[name], path, is_time=name in times, first_row=first_row) for name in sound}
    )


def _sound(cells: pd.Series, path: Path, *, is_time: bool, first_row: int) -> pd.Series:
    name, is_empty = str(cells.name), cells.isna().to_numpy(bool)
    values: pd.Series
    if name in TEXTS:
        values, expected = cells, "text"
        is_bad = is_empty | ~cells.map(lambda each: isinstance(each, str)).to_numpy(bool)
    elif name in FLAGS:
        values, expected = cells.map(lambda each: _TRUTH.get(str(each).lower())), "true or false"
        is_bad = values.isna().to_numpy(bool)
    else:
        values, expected = _numbers(cells), f"a whole number of 0 to {MOST_COUNT:,}"
        numbers = values.to_numpy(float)
        with np.errstate(invalid="ignore"):
            is_bad = ~((numbers >= 0) & (numbers <= (MOST_MS if is_time else MOST_COUNT)))
            if is_time:
                is_bad, expected = is_bad & ~is_empty, f"a time of 0 to {MOST_MS:,.0f} ms"
            else:
                is_bad |= numbers != np.rint(numbers)
    if is_bad.any():
        row = int(np.flatnonzero(is_bad)[0])
        got = "nothing" if is_empty[row] else quoted(_plain(cells.iloc[row]))
        raise ProfileError(
            f"{path}: column {quoted(name)}: got {got}, expected {expected} (row {row + first_row})"
        )
    return values


def _numbers(cells: pd.Series) -> pd.Series:
    """Return cells as numbers, NaN where one is none; true and false are none."""
    if cells.dtype == bool:
        return pd.Series(np.nan, index=cells.index)
    if pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_complex_dtype(cells):
        return cells
    return cells.map(_number).astype(float)


def _number(cell: object) -> float:
    """Return a cell as a number, NaN where it is none."""
    if isinstance(cell, bool) or not isinstance(cell, (str, int, float)):
        return math.nan
    try:
        return float(cell)
    except (ValueError, OverflowError):
        return math.nan


def _plain(value: object) -> object:
    """Return a cell as Python has it."""
    return value.item() if isinstance(value, np.generic) else value
