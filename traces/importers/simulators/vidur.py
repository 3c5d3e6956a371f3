"""Vidur's CSVs: traces of lengths, with or without arrivals, and the ``request_metrics.csv`` of a simulation.

Source of the formats: github.com/microsoft/vidur, data/processed_traces (arrived_at in s, num_prefill_tokens,
num_decode_tokens) and vidur/metrics/metrics_store.py (one row per request; times in s, counted from the request's
arrival; ``request_inter_arrival_delay`` since the request before, empty for the first). The first output token is
there when the prefill is.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from traces.errors import TraceError
from traces.header import Header, Source
from traces.importers.csvfile import US_PER, CsvColumn, read_columns, read_csv_file, whole
from traces.trace import Trace, make_trace

METRICS_FILE: Final = "request_metrics.csv"
_ARRIVAL: Final = "arrived_at"
_LENGTHS: Final = {
    "input_tokens": CsvColumn(name="num_prefill_tokens"),
    "output_tokens": CsvColumn(name="num_decode_tokens"),
}
_GAP: Final = "request_inter_arrival_delay"
_METRICS: Final = (
    *("Request Id", "request_e2e_time", "request_scheduling_delay", "prefill_e2e_time"),
    *("request_num_prefill_tokens", "request_num_decode_tokens"),
)


def read_vidur(path: Path) -> Trace:
    """Return the requests in one of Vidur's CSVs, or of a run's folder, with outcomes if it has them.

    Raises TraceError that names file, line and column.
    """
    file = path / METRICS_FILE if path.is_dir() else path
    if not file.is_file():
        raise TraceError(f"{file}: got no such file, expected a trace of Vidur or its {METRICS_FILE}")
    names = file.read_text(encoding="utf-8-sig", errors="replace").partition("\n")[0].strip().split(",")
    if "request_e2e_time" in names:
        return _read_metrics(file, names=names)
    columns = dict(_LENGTHS)
    if _ARRIVAL in names:
        columns["arrival_time_us"] = CsvColumn(name=_ARRIVAL, us_per_unit=US_PER["s"])
    trace = read_csv_file(file, columns)
    assert trace.header.source is not None  # noqa: S101 - the reader has set it
    return trace.with_header(source=replace(trace.header.source, format="vidur"))


def _read_metrics(file: Path, *, names: list[str]) -> Trace:
    timed = _ARRIVAL if _ARRIVAL in names else _GAP
    optional = [name for name in ("request_num_restarts",) if name in names]
    frame = read_columns(file, dict.fromkeys((*_METRICS, timed, *optional), "float"))

    def us(name: str, *, empty: bool = True) -> pd.Series[int]:
        return whole(frame[name], file=file.name, times=US_PER["s"], empty=empty)

    def count(name: str) -> pd.Series[int]:
        return whole(frame[name], file=file.name)

    arrival = us(timed, empty=timed == _GAP)
    if timed == _GAP:
        seconds = frame[_GAP].to_numpy(dtype=np.float64, na_value=0.0)
        arrival = pd.Series(np.rint(np.cumsum(seconds) * US_PER["s"]).astype(np.int64), dtype="Int64")
    arrival -= int(arrival.min())
    first, last = arrival + us("prefill_e2e_time"), arrival + us("request_e2e_time")
    output = count("request_num_decode_tokens")
    gaps = (last - first).astype("Float64") / (output - 1).where(output > 1)
    columns: dict[str, object] = {
        "request_id": [str(number) for number in count("Request Id")],
        "streaming": True,
        "input_tokens": count("request_num_prefill_tokens"),
        "output_tokens": output,
        "arrival_time_us": arrival,
        "send_time_us": arrival,
        "first_chunk_time_us": first,
        "last_chunk_time_us": last,
        "content_first_time_us": first,
        "last_token_time_us": last,
        "scheduled_time_us": arrival + us("request_scheduling_delay"),
        "itl_mean_us": gaps,
        "status": np.where(last.isna(), "incomplete", "ok"),
    }
    if "request_num_restarts" in optional:
        columns["num_preemptions"] = whole(frame["request_num_restarts"], file=file.name, empty=True)
    notes = (f"arrivals from {timed}; the first token is there when the prefill is",)
    source = Source(format="vidur", file=file.name, notes=notes)
    return make_trace(Header(mode="replayed", tool="vidur", source=source), columns)
