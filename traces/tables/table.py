"""The table of requests in memory: its columns as cells, and as a pandas frame on demand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from traces.schema import FIELDS, DType
from traces.tables.cells import Cells, plain_cells

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


class Table:
    """Columns of one length, in their order. The given form is kept; the other is made on demand."""

    __slots__ = ("_cells", "_frame", "_num_rows", "names")

    def __init__(self, columns: Mapping[str, Cells] | pd.DataFrame) -> None:
        """Hold cells by name, or a frame of pandas' nullable dtypes."""
        self.names: tuple[str, ...] = tuple(str(name) for name in columns)
        self._cells: dict[str, Cells] = {}
        self._frame: pd.DataFrame | None = None
        if isinstance(columns, Mapping):
            self._cells.update(columns)
            self._num_rows = len(next(iter(self._cells.values()), ()))
        else:
            self._frame, self._num_rows = columns, len(columns)
        odd = [name for name, cells in self._cells.items() if len(cells) != self._num_rows]
        assert not odd, f"of another length: {odd}"  # noqa: S101  our own fault, never the user's

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._num_rows

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a column."""
        return name in self.names

    def __getitem__(self, name: str) -> Cells:
        """Return a column's cells."""
        if name not in self._cells and self._frame is not None:
            from traces.tables.frames import cells_of

            self._cells[name] = cells_of(self._frame[name], dtype_of(name))
        return self._cells[name]

    def columns(self) -> dict[str, Cells]:
        """Return all columns' cells, in their order."""
        return {name: self[name] for name in self.names}

    @property
    def frame(self) -> pd.DataFrame:
        """The columns as a frame: read-only, since it is the only one."""
        if self._frame is None:
            from traces.tables.frames import frame_of

            self._frame = frame_of(self._cells)
        return self._frame

    def with_columns(self, columns: Mapping[str, Cells]) -> Table:
        """Return a copy that has these columns instead of or beside its own."""
        if self._frame is None:
            return Table({**self._cells, **columns})
        from traces.tables.frames import array_of

        return Table(self._frame.assign(**{name: array_of(cells) for name, cells in columns.items()}))

    def without(self, names: Iterable[str]) -> Table:
        """Return a copy without these columns, as far as it has them."""
        if self._frame is None:
            return Table({name: cells for name, cells in self._cells.items() if name not in set(names)})
        return Table(self._frame.drop(columns=list(names), errors="ignore"))

    def take(self, rows: NDArray[Any]) -> Table:
        """Return the table of these rows: their numbers, in a new order, or a bool for each of its own."""
        if self._frame is None:
            return Table({name: cells.take(rows) for name, cells in self._cells.items()})
        frame = self._frame.loc[rows] if rows.dtype == bool else self._frame.iloc[rows]
        return Table(frame.reset_index(drop=True))


def dtype_of(name: str) -> DType:
    """Return the dtype that TraceV2 gives a column of requests, text for a foreign one."""
    return FIELDS[name].dtype if name in FIELDS else "string"


def typed(name: str, values: object) -> Cells:
    """Return an array, list or series as cells of the dtype that TraceV2 gives ``name``, text for a foreign column.

    Raises UnfitColumn, a ValueError, for a value that does not fit its column.
    """
    plain = plain_cells(values, dtype_of(name))
    if plain is not None:
        return plain
    from traces.tables.frames import cells_of, typed_array

    return cells_of(typed_array(name, values, dtype_of(name)), dtype_of(name))
