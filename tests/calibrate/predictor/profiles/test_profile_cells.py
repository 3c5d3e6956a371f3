"""Cells of measured tables: what is of another kind, out of range or empty is named with its file, column and row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from calibrate.predictor.measured import ProfileError
from calibrate.predictor.profiles.profile_cells import sound_cells
from calibrate.predictor.profiles.sources import read_profiles
from tests.calibrate.predictor import made_profiles as profiles

WRONG: dict[str, tuple[str, object, str]] = {
    "a count that is text": ("m", "many", "'many', expected a whole number"),
    "a count that is empty": ("n", None, "nothing, expected a whole number"),
    "a count that is negative": ("k", -1, "-1, expected a whole number"),
    "a count that is not whole": ("k", 0.5, "0.5, expected a whole number"),
    "a count without an end": ("m", float("inf"), "inf, expected a whole number"),
    "a name that is empty": ("gemm_dtype", None, "nothing, expected text"),
    "a name that is a number": ("gemm_dtype", 4, "4, expected text"),
    "a time that is negative": ("latency", -2.0, "-2.0, expected a time"),
    "a time of years": ("latency", 1e12, "1000000000000.0, expected a time"),
    "a time that is 0": ("latency", 0.0, "0.0, expected ms > 0"),
    "a time that is empty": ("latency", None, "nan, expected ms > 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_cell_of_a_kernel_table_is_named_with_its_row(tmp_path: Path, case: str) -> None:
    column, value, said = WRONG[case]
    path = profiles.gemm_parquet(tmp_path)
    table = pd.read_parquet(path)
    cells = table[column].tolist()
    cells[3] = value
    is_mixed = isinstance(value, str) or column == "gemm_dtype"
    table[column] = pd.Series(cells, dtype="string" if is_mixed and value is not None else None)
    if column == "gemm_dtype" and value is not None:
        table[column] = 4
    table.to_parquet(path)
    row = 1 if column == "gemm_dtype" and value is not None else 4
    with pytest.raises(ProfileError) as error:
        read_profiles([path], profiles.wanted(tmp_path))
    assert f"{path}: column '{column}': got {said}" in str(error.value)
    assert str(error.value).endswith(f"(row {row})")


@pytest.mark.parametrize(
    "write", [profiles.mlp_csv, profiles.attention_csv, profiles.network_csv, profiles.cpu_csv]
)
def test_an_empty_cell_of_a_csv_is_named_with_its_line(write: Callable[[Path], Path], tmp_path: Path) -> None:
    path = write(tmp_path)
    table = pd.read_csv(path, dtype=str)
    counted = next(name for name in table.columns if name in ("num_tokens", "batch_size", "size"))
    table.loc[2, counted] = None
    table.to_csv(path, index=False)
    with pytest.raises(
        ProfileError, match=rf"column '{counted}': got nothing, expected a whole number .* \(row 4\)"
    ):
        read_profiles([path], profiles.wanted(tmp_path))


def test_a_column_twice_is_refused(tmp_path: Path) -> None:
    path = profiles.mlp_csv(tmp_path)
    table = pd.read_csv(path)
    table.assign(**{"N_HEAD": 8}).to_csv(path, index=False)
    with pytest.raises(ProfileError, match="column 'n_head': got it twice"):
        read_profiles([path], profiles.wanted(tmp_path))


@pytest.mark.parametrize("cell", [True, [4], {}])
def test_true_and_lists_are_no_numbers(cell: object, tmp_path: Path) -> None:
    """A CSV has neither; tables that another program makes may have both, beside numbers."""
    table = pd.DataFrame({"tokens": pd.Series([1, cell, "3"], dtype=object)})
    with pytest.raises(ProfileError, match=r"column 'tokens': got .*, expected a whole number .* \(row 2\)"):
        sound_cells(table, tmp_path, needed=["tokens"], times=[])
    table["tokens"] = pd.Series([1, "2", 3.0], dtype=object)
    assert sound_cells(table, tmp_path, needed=["tokens"], times=[])["tokens"].tolist() == [1, 2, 3]
