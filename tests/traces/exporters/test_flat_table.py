"""The flat table of a trace: what a spreadsheet would run is text in its CSV."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tests.traces.made import small_trace
from traces.exporters.flat_table import write_table


def test_what_a_spreadsheet_would_run_is_quoted_in_csv_and_kept_in_parquet(tmp_path: Path) -> None:
    trace = small_trace()
    names = ["=1+1", "-2", *map(str, range(2, len(trace)))]
    trace = trace.with_columns(request_id=names)
    for suffix in (".csv", ".parquet"):
        write_table(trace, tmp_path / f"t{suffix}", metrics=False)
    assert pd.read_parquet(tmp_path / "t.parquet")["request_id"].tolist() == names
    written = pd.read_csv(tmp_path / "t.csv", dtype="string")
    assert written["request_id"].tolist() == ["'=1+1", "'-2", *names[2:]]
    assert (written["arrival_time_us"].astype(int) == trace.requests["arrival_time_us"]).all()
