"""A CSV of one's own and Vidur's CSVs become traces; what does not fit is named by file, line and column."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.traces.made import shared
from traces import ConfigError, TraceError, convert, read_trace, request_metrics
from traces.cli import trace_app

COLUMNS = "arrival=arrived_at:s,input=num_prefill_tokens,output=num_decode_tokens"


def written(folder: Path, text: str, name: str = "log.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_columns_become_requests_in_microseconds_from_the_earliest(tmp_path: Path) -> None:
    path = written(tmp_path, "when,in,out,who\n1700000000.5,10,2.0,a\n1700000000.25,20,3,\n")
    trace = convert("csv", path, columns="arrival=when:s,input=in,output=out,tenant_id=who")
    assert trace.requests["arrival_time_us"].tolist() == [250_000, 0]
    assert trace.requests["output_tokens"].tolist() == [2, 3]
    assert trace.column("tenant_id").fillna("").tolist() == ["a", ""]
    assert trace.requests["request_id"].tolist() == ["0", "1"]
    assert trace.header.source is not None
    assert trace.header.source.notes == (
        "times count from the earliest arrival, 1700000000250000 µs in the file",
    )


@pytest.mark.parametrize(("unit", "us"), [("s", 1_500_000), ("ms", 1_500), ("us", 2)])
def test_times_have_the_unit_that_is_said(tmp_path: Path, unit: str, us: int) -> None:
    path = written(tmp_path, "t,i,o,first\n0,1,1,1.5\n")
    trace = convert(
        "csv", path, columns=f"arrival=t:{unit},input=i,output=o,first_chunk_time_us=first:{unit}"
    )
    assert trace.requests["first_chunk_time_us"].tolist() == [us]
    assert trace.header.mode == "real"


def test_lengths_alone_all_arrive_at_0_and_the_trace_says_so(tmp_path: Path) -> None:
    trace = convert("csv", written(tmp_path, "i,o\n4,5\n6,7\n"), columns="input=i,output=o")
    assert trace.requests["arrival_time_us"].tolist() == [0, 0]
    assert trace.header.source is not None
    assert (
        trace.header.source.load_unknown
        == "no column of arrivals, so when requests are due is not in the file"
    )


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ("0,1,1\n1,x,1\n", r"log.csv:3: in: got 'x', expected"),
        ("0,1,1\n1,2.5,1\n", r"log.csv:3: in: got 2.5, expected an integer >= 0"),
        ("0,1,1\n1,-2,1\n", r"log.csv:3: in: got -2, expected an integer >= 0"),
        ("0,1,1\n,2,1\n", r"log.csv:3: when: got an empty cell, expected a number >= 0"),
        ("0,1,1\n1,2\n", r"log.csv:3: row: got 2 cells, expected 3"),
        ("", r"log.csv: got no rows"),
    ],
)
def test_a_cell_that_does_not_fit_is_named_by_line_and_column(tmp_path: Path, rows: str, line: str) -> None:
    path = written(tmp_path, "when,in,out\n" + rows)
    with pytest.raises(TraceError, match=line) as caught:
        convert("csv", path, columns="arrival=when:s,input=in,output=out")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ("arrival=t,input=i,output=o", "got arrival=t, expected its unit: one of arrival=t:s, arrival=t:ms"),
        ("arrival=t:h,input=i,output=o", "got arrival=t:h, expected its unit"),
        ("input=i", "got no output, expected output=COLUMN"),
        ("inputs=i,output=o", "got 'inputs', did you mean input"),
        ("input=i,output=o,output=o", "got output twice"),
        ("input", "got 'input', expected TRACE_COLUMN=COLUMN"),
        (None, "got none for --from csv, expected arrival=COLUMN:UNIT"),
    ],
)
def test_columns_that_cannot_be_are_refused(tmp_path: Path, columns: str | None, line: str) -> None:
    with pytest.raises(ConfigError, match=f"--columns: {line}"):
        convert("csv", written(tmp_path, "t,i,o\n0,1,1\n"), columns=columns)


def test_columns_are_of_a_csv_alone(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="--columns: cannot be combined with --from azure, expected --from csv"
    ):
        convert("azure", written(tmp_path, ""), columns=COLUMNS)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="column num_decode_tokens: got a table without it"):
        convert("csv", written(tmp_path, "arrived_at,num_prefill_tokens\n0,1\n"), columns=COLUMNS)


def test_the_command_converts_a_csv(tmp_path: Path) -> None:
    path = written(tmp_path, "arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,6\n0.5,7,8\n")
    arguments = [
        "convert",
        str(path),
        "--from",
        "csv",
        "--columns",
        COLUMNS,
        "--output",
        str(tmp_path / "out"),
    ]
    result = CliRunner().invoke(trace_app, arguments)
    assert result.exit_code == 0, result.output
    assert read_trace(tmp_path / "out").requests["arrival_time_us"].tolist() == [0, 500_000]


def test_vidurs_trace_has_arrivals_or_lengths_alone(tmp_path: Path) -> None:
    path = written(
        tmp_path, "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n"
    )
    assert convert("vidur", path).requests["arrival_time_us"].tolist() == [0, 4_314_579]
    lengths = written(
        tmp_path, "num_prefill_tokens,num_decode_tokens,pd_ratio\n3772,54,69.8\n", "lengths.csv"
    )
    trace = convert("vidur", lengths)
    assert trace.requests[["input_tokens", "output_tokens"]].to_numpy().tolist() == [[3772, 54]]
    assert trace.header.source is not None
    assert trace.header.source.format == "vidur"


def test_vidurs_copy_of_azures_trace_is_azures_trace() -> None:
    ours = convert("azure", shared("azure_llm_2023", "AzureLLMInferenceTrace_code.csv"))
    theirs = convert("vidur", shared("vidur_profiling", "processed_traces", "splitwise_code.csv"))
    for name in ("input_tokens", "output_tokens"):
        assert theirs.requests[name].tolist() == ours.requests[name].tolist()[: len(theirs)]


METRICS = (
    "Request Id,request_e2e_time,request_scheduling_delay,prefill_e2e_time,request_inter_arrival_delay,"
    "request_num_prefill_tokens,request_num_decode_tokens,request_num_restarts\n"
    "0,1.5,0.25,0.5,,100,11,0\n"
    "1,,0.0,0.75,2.0,200.0,1,1.0\n"
)


def test_vidurs_request_metrics_are_outcomes(tmp_path: Path) -> None:
    written(tmp_path, METRICS, "request_metrics.csv")
    trace = convert("vidur", tmp_path)
    requests = trace.requests
    assert requests["arrival_time_us"].tolist() == [0, 2_000_000]
    assert requests["scheduled_time_us"].tolist() == [250_000, 2_000_000]
    assert requests["num_preemptions"].tolist() == [0, 1]
    assert requests["status"].tolist() == ["ok", "incomplete"]
    metrics = request_metrics(trace)
    assert metrics.iloc[0][["ttft_us", "e2e_us", "tpot_us"]].tolist() == [500_000, 1_500_000, 100_000]
    assert np.isnan(metrics.iloc[1]["e2e_us"])
    assert (trace.header.mode, trace.header.tool) == ("replayed", "vidur")


def test_vidurs_metrics_that_do_not_fit_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, METRICS.replace(",100,", ",1.5,"), "request_metrics.csv")
    with pytest.raises(TraceError, match=r"request_metrics.csv:2: request_num_prefill_tokens: got 1.5"):
        convert("vidur", path)
