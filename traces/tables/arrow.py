"""Between cells and Arrow's columns, by their buffers.

Not by ``pa.array`` and ``pa.scalar``, which import pandas to check for its types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from traces.schema import DType, Field
from traces.tables.cells import NUMPY_DTYPE, Cells, cells_where, no_cells, text_cells

if TYPE_CHECKING:
    from numpy.typing import NDArray

ARROW_TYPE: Final[Mapping[DType, Any]] = {
    "string": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
}
_MOST_BYTES: Final = 2**31 - 1
"""The most text that one Arrow array of strings holds."""


def to_cells(table: pa.Table) -> dict[str, Cells]:
    """Return the columns of an Arrow table, which are of the types in ``ARROW_TYPE``."""
    dtype_of = {arrow_type: dtype for dtype, arrow_type in ARROW_TYPE.items()}
    return {
        name: _to_cells(column, dtype_of[column.type])
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def _to_cells(column: pa.ChunkedArray, dtype: DType) -> Cells:
    if column.null_count == len(column):
        return no_cells(dtype, len(column))
    if dtype == "string":
        return text_cells(column.to_pylist())
    values = np.concatenate([_values(chunk, dtype) for chunk in column.chunks])
    return cells_where(values, np.concatenate([_is_valid(chunk) for chunk in column.chunks]))


def _values(array: pa.Array, dtype: DType) -> NDArray[Any]:
    buffer = array.buffers()[1]
    if dtype == "bool":
        return _flags(buffer, array)
    return np.frombuffer(buffer, NUMPY_DTYPE[dtype])[array.offset : array.offset + len(array)]


def _is_valid(array: pa.Array) -> NDArray[np.bool_]:
    valid = array.buffers()[0]
    return np.ones(len(array), dtype=np.bool_) if valid is None else _flags(valid, array)


def _flags(buffer: pa.Buffer, array: pa.Array) -> NDArray[np.bool_]:
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little", count=array.offset + len(array))
    return bits[array.offset :].astype(np.bool_)


def to_arrow(columns: Mapping[str, Cells], fields: Sequence[Field], *, num_rows: int) -> pa.Table:
    """Return the columns as an Arrow table, in the order and the types of ``fields``; null what they lack."""
    empty = {
        dtype: pa.chunked_array([pa.nulls(num_rows, ARROW_TYPE[dtype])])
        for dtype in {field.dtype for field in fields}
    }  # one for all empty columns of a type: a long trace has some thirty
    arrays = [
        _to_arrow(columns[field.name], ARROW_TYPE[field.dtype])
        if field.name in columns and columns[field.name].is_known.any()
        else empty[field.dtype]
        for field in fields
    ]
    return pa.table(arrays, names=[field.name for field in fields])


def _to_arrow(cells: Cells, arrow_type: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_string(arrow_type):
        return pa.chunked_array(_text_chunks(cells.filled("").tolist(), cells.is_known))
    values = cells.values
    data = _bits(values) if pa.types.is_boolean(arrow_type) else pa.py_buffer(np.ascontiguousarray(values))
    array = pa.Array.from_buffers(arrow_type, len(cells), [_validity(cells.is_known), data])
    return pa.chunked_array([array])


def _text_chunks(texts: Sequence[str], is_known: NDArray[np.bool_]) -> list[pa.Array]:
    """Return texts as one array, or as several if one cannot hold them."""
    joined = "".join(texts)
    lengths = map(len, texts if joined.isascii() else (text.encode() for text in texts))
    ends = np.cumsum(np.fromiter(lengths, np.int64, count=len(texts)))
    if len(texts) > 1 and ends[-1] > _MOST_BYTES:
        half = len(texts) // 2
        return [*_text_chunks(texts[:half], is_known[:half]), *_text_chunks(texts[half:], is_known[half:])]
    offsets = np.append(0, ends).astype(np.int32)
    buffers = [_validity(is_known), pa.py_buffer(offsets), pa.py_buffer(joined.encode())]
    return [pa.Array.from_buffers(pa.string(), len(texts), buffers)]


def _validity(is_known: NDArray[np.bool_]) -> pa.Buffer | None:
    return None if is_known.all() else _bits(is_known)


def _bits(flags: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def text_scalar(text: str) -> pa.Scalar:
    """Return a text as Arrow's compute functions take it."""
    return _text_chunks([text], np.ones(1, dtype=np.bool_))[0][0]


def arrow_type(name: str, fields: Mapping[str, Field]) -> pa.DataType:
    """Return the type of a column: its field's, text for a column without a field."""
    return ARROW_TYPE[fields[name].dtype] if name in fields else pa.string()


def first_line(error: Exception) -> str:
    """Return an error message of Arrow's, in one line."""
    return str(error).splitlines()[0].strip()
