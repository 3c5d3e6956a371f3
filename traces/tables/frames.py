"""Between cells and pandas: frames of the nullable dtypes, and back. The only module that uses both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from traces.errors import cut
from traces.schema import EVENT_FIELDS, PANDAS_DTYPE, DType, Field
from traces.tables.arrow import ARROW_TYPE
from traces.tables.cells import EMPTY, NUMPY_DTYPE, Cells, UnfitColumn, no_cells

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas.api.extensions import ExtensionArray


def frame_of(columns: Mapping[str, Cells]) -> pd.DataFrame:
    """Return the columns as a frame, dtypes Int64, Float64, string, boolean, numbers not copied."""
    return pd.DataFrame({name: array_of(cells) for name, cells in columns.items()}, copy=False)


def array_of(cells: Cells) -> ExtensionArray:
    """Return a column's cells as pandas has them."""
    masked: dict[str, type[Any]] = {
        "i": pd.arrays.IntegerArray,
        "f": pd.arrays.FloatingArray,
        "b": pd.arrays.BooleanArray,
    }
    kind = masked.get(cells.values.dtype.kind)
    array: ExtensionArray = (
        pd.array(cells.values, dtype="string") if kind is None else kind(cells.values, ~cells.is_known)
    )
    return array


def indexed(columns: Mapping[str, NDArray[Any]], index: ExtensionArray, *, name: str) -> pd.DataFrame:
    """Return numpy's columns as a frame, its rows named by ``index``."""
    return pd.DataFrame(dict(columns), index=pd.Index(index, name=name))


def cells_of(values: pd.Series[Any] | ExtensionArray, dtype: DType) -> Cells:
    """Return a column of a frame as cells."""
    is_known = ~np.asarray(values.isna(), dtype=np.bool_)
    if dtype == "string":
        texts = np.asarray(values, dtype=object).copy()
        texts[~is_known] = None
        return Cells(texts, is_known)
    return Cells(values.to_numpy(dtype=NUMPY_DTYPE[dtype], na_value=EMPTY[dtype]), is_known)


def typed_array(name: str, values: object, dtype: DType) -> ExtensionArray:
    """Return anything that pandas accepts as a column of ``dtype`` as such a column.

    Raises UnfitColumn, a ValueError, for a value that does not fit the column ``name``.
    """
    wanted = PANDAS_DTYPE[dtype]
    try:
        with np.errstate(invalid="raise"):  # else a number beyond 64 bits becomes another one
            array: ExtensionArray = pd.array(values, dtype=wanted)  # type: ignore[call-overload]
    except (ArithmeticError, TypeError, ValueError) as error:
        raise UnfitColumn(f"column {name}: got {cut(str(error))}, expected {wanted}") from error
    return array


def typed_events(events: pd.DataFrame | Mapping[str, object]) -> pd.DataFrame:
    """Return events in TraceV2's dtypes and order, ``num_tokens`` NA where it was not counted. Raises UnfitColumn."""
    columns = {
        field.name: typed_array(field.name, events[field.name], field.dtype)
        for field in EVENT_FIELDS
        if field.name in events
    }
    columns.setdefault("num_tokens", array_of(no_cells("int", len(columns["request_id"]))))
    return pd.DataFrame(columns)


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Return the Arrow table as a frame of pandas' nullable dtypes."""
    dtypes = {
        pa.string(): pd.StringDtype("pyarrow", na_value=pd.NA),
        pa.int64(): pd.Int64Dtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    frame: pd.DataFrame = table.to_pandas(types_mapper=dtypes.get)
    return frame


def arrow_of_frame(frame: pd.DataFrame, fields: Sequence[Field]) -> pa.Table:
    """Return the frame's columns of these fields as an Arrow table, in the fields' order and types."""
    arrays = [
        pa.array(
            pd.array(frame[field.name], dtype=PANDAS_DTYPE[field.dtype]),  # type: ignore[call-overload]
            type=ARROW_TYPE[field.dtype],
            from_pandas=True,
        )
        for field in fields
    ]
    return pa.table(arrays, names=[field.name for field in fields])
