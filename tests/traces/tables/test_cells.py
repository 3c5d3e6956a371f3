"""Columns as numpy's arrays say what pandas says of the same values, and come back from files as they went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.sessions.prefix_hashes import TIGHT, _dense
from traces.schema import PANDAS_DTYPE, DType, Field
from traces.tables.arrow import to_arrow, to_cells
from traces.tables.cells import Cells, UnfitColumn, plain_cells, text_cells
from traces.tables.csv_parquet import read_table, write_csv, write_parquet
from traces.tables.frames import array_of, cells_of
from traces.tables.hash_chains import hashes_of_rows
from traces.tables.hash_lists import HashLists, hash_lists
from traces.tables.table import Table, typed

INT64 = st.integers(-(2**63), 2**63 - 1)
OF_DTYPE: dict[DType, st.SearchStrategy[Any]] = {
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    "int": INT64,
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[DType, list[Any]]:
    dtype = draw(st.sampled_from(sorted(OF_DTYPE)))
    return dtype, draw(st.lists(st.none() | OF_DTYPE[dtype], max_size=20))


@given(columns())
def test_a_list_becomes_the_cells_that_pandas_has(column: tuple[DType, list[Any]]) -> None:
    dtype, values = column
    cells = plain_cells(values, dtype)
    assert cells is not None
    wanted = pd.Series(pd.array(values, dtype=PANDAS_DTYPE[dtype]))
    pd.testing.assert_series_equal(pd.Series(array_of(cells)), wanted)
    again = cells_of(wanted, dtype)
    assert (again.is_known == cells.is_known).all()
    assert again.known().tolist() == cells.known().tolist()


@given(columns())
def test_codes_number_distinct_values_in_the_order_they_come(column: tuple[DType, list[Any]]) -> None:
    dtype, values = column
    codes, names = typed_as(dtype, values).codes()
    wanted, wanted_names = pd.factorize(pd.array(values, dtype=PANDAS_DTYPE[dtype]))
    assert codes.tolist() == wanted.tolist()
    assert names == list(wanted_names)
    ranks = typed_as(dtype, values).ranks()
    known = [value for value in values if value is not None]
    assert ranks[codes >= 0].tolist() == [sorted(set(known)).index(value) for value in known]


def typed_as(dtype: DType, values: list[Any]) -> Cells:
    cells = plain_cells(values, dtype)
    assert cells is not None
    return cells


@given(column=columns(), suffix=st.sampled_from([".csv", ".parquet"]))
def test_cells_come_back_from_a_file(
    tmp_path_factory: pytest.TempPathFactory, column: tuple[DType, list[Any]], suffix: str
) -> None:
    dtype, values = column
    values = [
        None if value == "" or (isinstance(value, str) and "\x00" in value) else value for value in values
    ]
    path = Path(tmp_path_factory.mktemp("file")) / f"table{suffix}"
    fields = [Field(name=name, dtype=kind, unit="", origin="vtwin", meaning="") for name, kind in
              (("row", "int"), ("cell", dtype))]  # fmt: skip
    cells = {"row": typed_as("int", list(range(len(values)))), "cell": typed_as(dtype, values)}
    write = write_csv if suffix == ".csv" else write_parquet
    write(to_arrow(cells, fields, num_rows=len(values)), path)
    table, problems = read_table(path, {field.name: field for field in fields})
    again = to_cells(table)["cell"]
    assert problems == []
    assert again.is_known.tolist() == cells["cell"].is_known.tolist()
    assert again.known().tolist() == cells["cell"].known().tolist()


@pytest.mark.parametrize(
    "values", [[1, 2.5], ["x"], np.array([1.5]), [2**64], np.array([2**63], dtype=np.uint64)]
)
def test_what_is_no_whole_number_fits_no_column_of_them(values: object) -> None:
    with pytest.raises(UnfitColumn, match="input_tokens"):
        typed("input_tokens", values)


@pytest.mark.parametrize("values", [[1.0, 2.0], ["1", "2"], np.array([1, 2], np.int32), pd.Series([1, 2])])
def test_what_pandas_takes_for_whole_numbers_is_taken(values: object) -> None:
    assert typed("input_tokens", values).values.tolist() == [1, 2]


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(UnfitColumn, match="request_id"):
        typed("request_id", ["\ud800"])


def test_a_table_is_the_same_by_cells_and_by_frame() -> None:
    columns = {
        "request_id": typed("request_id", ["a", "b", "c"]),
        "input_tokens": typed("input_tokens", [1, None, 3]),
    }
    by_cells, by_frame = Table(columns), Table(Table(columns).frame)
    rows, more = np.array([2, 0]), {"model": columns["request_id"]}
    for one, other in (
        (by_cells, by_frame),
        (by_cells.take(rows), by_frame.take(rows)),
        (by_cells.take(np.array([True, False, True])), by_frame.take(np.array([True, False, True]))),
        (by_cells.without(["request_id", "nothing"]), by_frame.without(["request_id", "nothing"])),
        (by_cells.with_columns(more), by_frame.with_columns(more)),
    ):
        assert one.names == other.names
        assert len(one) == len(other)
        pd.testing.assert_frame_equal(one.frame, other.frame)


@given(st.lists(INT64 | st.integers(0, 9), max_size=30))
def test_hashes_are_renumbered_in_their_order(values: list[int]) -> None:
    numbers = np.array(values, dtype=np.int64)
    wanted = np.unique(numbers, return_inverse=True)[1].tolist()
    assert _dense(numbers).tolist() == wanted


@given(st.lists(st.none() | st.lists(INT64 | st.integers(0, 20), max_size=4), max_size=9), st.data())
def test_lists_of_hashes_are_the_text_of_their_numbers(
    lists: list[list[int] | None], data: st.DataObject
) -> None:
    held = hash_lists(lists)
    assert isinstance(held, HashLists)
    written = text_cells([" ".join(map(str, ids or ())) or None for ids in lists])
    picked = np.array(
        data.draw(st.lists(st.sampled_from(range(len(lists))), max_size=5)) if lists else [], int
    )
    kept = np.array([data.draw(st.booleans()) for _ in lists], bool)
    for one, other in (
        (held, written),
        (held.take(picked), written.take(picked)),
        (held.take(kept), written.take(kept)),
    ):
        assert len(one) == len(other)
        assert one.values.tolist() == other.values.tolist()
        assert one.is_known.tolist() == other.is_known.tolist()
        (ids, names, counts), (same, texts, same_counts) = map(hashes_of_rows, (one, other))
        assert counts.tolist() == same_counts.tolist()
        called = [str(each) if names is None else names[each] for each in ids.tolist()]
        assert called == [str(each) if texts is None else texts[each] for each in same.tolist()]


def test_a_list_beyond_int64_is_held_as_text() -> None:
    cells = hash_lists([[1, 2], None, [2**63]])
    assert cells.values.tolist() == ["1 2", None, str(2**63)]


def test_hashes_close_together_are_renumbered_by_a_table() -> None:
    numbers = np.array([7, 7 + TIGHT * 3, 9], dtype=np.int64)
    assert _dense(numbers).tolist() == [0, 2, 1]
