"""What is written is what was there, whole or not at all, and the same bytes each time."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings

from tests.examples import examples
from tests.traces.made import events_of, small_trace, traces
from traces import ConfigError, Trace, make_trace, read_trace, select_rows, write_trace
from traces.files import write as write_module

ANY_PLACE = settings(examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_same(found: Trace, wanted: Trace) -> None:
    for name in wanted.requests.columns:
        pd.testing.assert_series_equal(found.column(name), wanted.requests[name])
    assert set(found.requests.columns) - set(wanted.requests.columns) <= {
        name for name in found.requests.columns if found.requests[name].isna().all()
    }
    if wanted.events is None:
        assert found.events is None
    else:
        assert found.events is not None
        pd.testing.assert_frame_equal(found.events, wanted.events)


@pytest.mark.parametrize("suffix", ["", ".parquet"])
@ANY_PLACE
@given(trace=traces())
def test_a_trace_comes_back_as_it_was_written(trace: Trace, suffix: str, tmp_path: Path) -> None:
    stem = tmp_path / f"t{suffix}"
    write_trace(trace, stem)
    assert_same(read_trace(stem), trace)


def test_the_header_comes_back_and_says_who_wrote_it(tmp_path: Path) -> None:
    trace = small_trace().with_header(seed=7, command="vtwin observe --api-key ***")
    write_trace(trace, tmp_path / "t")
    header = read_trace(tmp_path / "t").header
    assert (header.tool, header.seed, header.command) == ("vtwin", 7, "vtwin observe --api-key ***")
    assert header.start_unix_us == trace.header.start_unix_us


@pytest.mark.parametrize("suffix", ["", ".parquet"])
def test_the_same_trace_gives_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    trace = make_trace(
        small_trace().header, small_trace().requests, events=events_of([("a", 0, 400, 1), ("a", 1, 900, 4)])
    )
    one, two = (write_trace(trace, tmp_path / f"{name}{suffix}") for name in ("one", "two"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


@pytest.mark.parametrize("name", ["t", "t.yaml", "t.csv", "t.itl.csv"])
def test_any_of_its_files_names_the_trace(name: str, tmp_path: Path) -> None:
    write_trace(small_trace(), tmp_path / "t")
    assert len(read_trace(tmp_path / name)) == 3


def test_a_stem_may_have_dots_of_its_own(tmp_path: Path) -> None:
    write_trace(small_trace(), tmp_path / "run.v1.2")
    assert (tmp_path / "run.v1.2.csv").is_file()
    assert len(read_trace(tmp_path / "run.v1.2")) == 3


def test_cells_are_quoted_only_where_they_must_be(tmp_path: Path) -> None:
    write_trace(small_trace(error_message=['say "no"', "a,b\r\nc", "plain words"]), tmp_path / "t")
    text = (tmp_path / "t.csv").read_bytes().decode()
    assert '"say ""no"""' in text
    assert '"a,b\r\nc"' in text
    assert ",plain words," in text


def test_line_breaks_in_cells_survive_where_the_file_is_read_in_blocks(tmp_path: Path) -> None:
    num = 40_000
    columns = {"request_id": [str(row) for row in range(num)], "error_message": "a\nb\nc,\n" * 9}
    times = dict.fromkeys(("arrival_time_us", "input_tokens", "output_tokens"), 1)
    write_trace(make_trace(small_trace().header, columns | times), tmp_path / "t")
    assert (tmp_path / "t.csv").stat().st_size > 2**21  # two of pyarrow's blocks
    assert read_trace(tmp_path / "t").requests["error_message"].unique().tolist() == ["a\nb\nc,\n" * 9]


def test_floats_are_written_as_plain_decimals_that_read_back_the_same(tmp_path: Path) -> None:
    values = [1e-9, 1.5e17, 0.1 + 0.2]
    write_trace(small_trace(itl_mean_us=values), tmp_path / "t")
    text = (tmp_path / "t.csv").read_text()
    assert "0.000000001" in text
    assert ",150000000000000000" in text
    assert read_trace(tmp_path / "t").requests["itl_mean_us"].tolist() == values


def test_a_column_that_nobody_knows_is_kept(tmp_path: Path) -> None:
    write_trace(small_trace(region=["eu", None, "us"]), tmp_path / "t")
    assert read_trace(tmp_path / "t").requests["region"].fillna("").tolist() == ["eu", "", "us"]


def test_an_absent_column_reads_as_all_missing_of_its_type() -> None:
    column = small_trace().column("itl_mean_us")
    assert column.dtype == "Float64"
    assert column.isna().all()


def test_the_newer_trace_at_a_stem_leaves_nothing_of_the_older(tmp_path: Path) -> None:
    with_events = make_trace(
        small_trace().header, small_trace().requests, events=events_of([("a", 0, 400, 1)])
    )
    write_trace(with_events, tmp_path / "t.parquet")
    write_trace(small_trace(), tmp_path / "t")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.yaml"]
    assert read_trace(tmp_path / "t").events is None


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_write_that_fails_changes_nothing(
    fault: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trace(small_trace(), tmp_path / "t")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(_: object) -> str:
        raise fault

    monkeypatch.setattr(write_module, "header_yaml", fail)
    with pytest.raises((KeyboardInterrupt, ConfigError)):
        write_trace(small_trace(input_tokens=[1, 2, 3]), tmp_path / "t")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="Permission denied"):
        write_trace(small_trace(), tmp_path / "t")


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(ConfigError, match=r"--output: .*, expected a place that can be written \(.*f/t\)"):
        write_trace(small_trace(), tmp_path / "f" / "t")


def test_a_dash_is_no_place_for_several_files() -> None:
    with pytest.raises(ConfigError, match="--output: got -"):
        write_trace(small_trace(), "-")


def test_an_empty_trace_is_a_trace(tmp_path: Path) -> None:
    columns: dict[str, list[object]] = {
        name: [] for name in ("request_id", "arrival_time_us", "input_tokens", "output_tokens")
    }
    write_trace(make_trace(small_trace().header, columns), tmp_path / "t")
    assert len(read_trace(tmp_path / "t")) == 0


def test_rows_are_selected_with_their_events() -> None:
    trace = make_trace(
        small_trace().header, small_trace().requests, events=events_of([("a", 0, 400, 1), ("b", 0, 1500, 1)])
    )
    kept = select_rows(trace, np.array([False, True, True]))
    assert kept.requests["request_id"].tolist() == ["b", "c"]
    assert kept.events is not None
    assert kept.events["request_id"].tolist() == ["b"]


def test_a_scalar_fills_its_column_and_none_leaves_it_out() -> None:
    trace = small_trace(model="m", tenant_id=None)
    assert trace.requests["model"].tolist() == ["m", "m", "m"]
    assert "tenant_id" not in trace.requests.columns
