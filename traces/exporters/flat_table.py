"""A trace as one flat table for pandas, Excel or SQL: its columns, and each request's latencies beside them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from traces.atomic import atomic_file
from traces.errors import ConfigError
from traces.metrics import METRIC_COLUMNS, request_metrics
from traces.strict.escape import spreadsheet
from traces.trace import Trace

SUFFIXES = (".csv", ".parquet")


def flat_table(trace: Trace, *, metrics: bool) -> pd.DataFrame:
    """Return the trace's columns; with ``metrics`` its latencies (``METRIC_COLUMNS``, µs) in addition.

    A column of a trace with a latency's name (``itl_mean_us``) is replaced by the latency.
    """
    if not metrics:
        return trace.requests
    latencies = request_metrics(trace)[list(METRIC_COLUMNS)].reset_index(drop=True)
    columns = trace.requests.drop(columns=list(METRIC_COLUMNS), errors="ignore").reset_index(drop=True)
    return pd.concat([columns, latencies], axis=1)


def write_table(trace: Trace, path: Path, *, metrics: bool) -> None:
    """Write the table; CSV or Parquet by the path's ending. In CSV, text that a spreadsheet would run is quoted.

    Raises ConfigError for another ending, or no place.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"--output: got {path}, expected a name that ends in .csv or .parquet")
    table = flat_table(trace, metrics=metrics)
    with atomic_file(path, option="--output") as temporary:
        if path.suffix == ".csv":
            texts: list[str] = list(table.select_dtypes("string").columns)
            table = table.assign(**{name: table[name].map(spreadsheet, na_action="ignore") for name in texts})
            table.to_csv(temporary, index=False, lineterminator="\n")
        else:
            table.to_parquet(temporary, index=False, compression="zstd")
