"""Workloads drawn from ServeGen's rates and histograms."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import vtwin
from traces import ConfigError, TraceError, check_trace, read_trace, write_trace
from traces.conversion import convert
from traces.workload import synth
from traces.workload.spec.servegen_data import Cut
from traces.workload.spec.spec_read import load_spec

TRACE = "0,0,0,,0,0\n600,5,1.0,Gamma,1.0,0.2\n1200,20,2.0,Gamma,0.25,0.2\n1800,0,0,,0,0\n"
OTHER = "0,0,0,,0,0\n600,2,9.0,Weibull,0.2,0.1\n1200,0,0,,0,0\n1800,0,0,,0,0\n"
LENGTHS = {
    "0": {
        "input_tokens": "{10: 0.25, 1000: 0.75}",
        "output_tokens": "{5: 1.0}",
        "reason_ratio": "{0.5: 1.0}",
    },
    "1200": {"input_tokens": "{77: 1.0}", "output_tokens": "{0: 0.5, 3: 0.5}", "reason_ratio": "{}"},
    "9999": {"input_tokens": "{}", "output_tokens": "{}", "reason_ratio": "{}"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    (data / "chunk-3-trace.csv").write_text(TRACE)
    (data / "chunk-3-dataset.json").write_text(json.dumps(LENGTHS))
    (data / "chunk-10-trace.csv.gz").write_bytes(gzip.compress(OTHER.encode()))
    (data / "chunk-10-dataset.json.gz").write_bytes(gzip.compress(json.dumps(LENGTHS).encode()))
    return data


def test_a_cut_has_the_rates_and_the_lengths_of_its_time(folder: Path, tmp_path: Path) -> None:
    trace = convert("servegen", folder, cut=Cut(start_s=600, span_s=1200))
    due = trace.column("arrival_time_us").to_numpy(dtype=np.int64)
    client = trace.column("client_id").to_numpy()
    assert due.max() <= 1_200_000_000
    first, second = due < 600_000_000, due >= 600_000_000
    assert set(client[second]) == {"chunk-3"}
    assert set(client[first]) == {"chunk-3", "chunk-10"}
    for rows, expected in ((first & (client == "chunk-3"), 3000), (second, 12_000)):
        assert abs(rows.sum() - expected) < 5 * 2 * expected**0.5
    prompt, output = trace.column("input_tokens").to_numpy(), trace.column("output_tokens").to_numpy()
    assert set(prompt[first]) == {10, 1000}
    assert np.mean(prompt[first] == 10) == pytest.approx(0.25, abs=0.04)
    assert (set(prompt[second]), set(output[second])) == ({77}, {1, 3})
    ratio = trace.column("reason_ratio")
    assert set(ratio[first]) == {0.5}
    assert ratio[second].isna().all()
    write_trace(trace, tmp_path / "t")
    assert check_trace(tmp_path / "t") == []
    assert trace.header.source is not None
    assert "1 of 3 intervals have gaps of a cv above 10: drawn with it" in trace.header.source.notes


def test_gaps_follow_the_family_that_was_fitted(folder: Path) -> None:
    trace = convert("servegen", folder, cut=Cut(start_s=1200))
    gaps = np.diff(trace.column("arrival_time_us").to_numpy(dtype=np.int64)) / 1e6
    law, least = stats.gamma(0.25, scale=0.05 / 0.25), 1e-4  # below it, whole microseconds show
    assert np.mean(gaps < least) == pytest.approx(law.cdf(least), abs=0.02)
    above = gaps[gaps >= least]
    assert stats.kstest(above, lambda x: 1 - law.sf(x) / law.sf(least)).pvalue > 1e-3


def test_without_a_start_the_busiest_time_is_drawn_and_rates_scale(folder: Path) -> None:
    busy = convert("servegen", folder)
    assert abs(len(busy) - 12_000) < 1100
    tenth = convert("servegen", folder, cut=Cut(scale=0.1))
    assert abs(len(tenth) - 1200) < 350
    assert convert("servegen", folder).requests.equals(busy.requests)
    assert not convert("servegen", folder, cut=Cut(seed=1)).requests.equals(busy.requests)


def test_the_command_cuts_scales_and_seeds(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "t"
    asked = ["trace", "convert", str(folder), "--from", "servegen", "--output", str(out)]
    assert vtwin.main([*asked, "--start", "10m", "--duration", "60", "--rate-scale", "2", "--seed", "7"]) == 0
    trace = read_trace(out)
    assert trace.header.seed == 7
    assert abs(len(trace) - 840) < 300
    assert vtwin.main([*asked, "--start", "30m"]) == 2
    assert "--start: got 1800 s, in which no client sends" in capsys.readouterr().err
    assert vtwin.main([*asked, "--rate-scale", "0"]) == 2
    assert "--rate-scale: got 0, expected a number > 0" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="cannot be combined with --from azure"):
        convert("azure", folder, cut=Cut())


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("chunk-3-trace.csv", "0,1\n", "chunk-3-trace.csv:1: got '0,1'"),
        ("chunk-3-trace.csv", "0,1,1,Cauchy,1,1\n", "'Cauchy' is no known family"),
        ("chunk-3-trace.csv", "0,1,1,Gamma,0,1\n", "a shape that is not above 0"),
        ("chunk-3-trace.csv", "", "got no rows"),
        ("chunk-3-dataset.json", "[]", "chunk-3-dataset.json: got AttributeError"),
        (
            "chunk-3-dataset.json",
            '{"0": {"input_tokens": "{1: x}", "output_tokens": "{1: 1}"}}',
            "a histogram",
        ),
        (
            "chunk-3-dataset.json",
            '{"0": {"input_tokens": "{1: 0}", "output_tokens": "{1: 1}"}}',
            "a weight above 0",
        ),
    ],
)
def test_what_is_none_of_its_files_is_refused_by_name(folder: Path, name: str, text: str, said: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(TraceError, match=said):
        convert("servegen", folder, cut=Cut(start_s=0, span_s=1800))


def test_a_folder_without_its_files_is_refused(folder: Path) -> None:
    (folder / "chunk-3-dataset.json").unlink()
    with pytest.raises(TraceError, match=r"chunk-3-dataset\.json: got no such file beside"):
        convert("servegen", folder)
    with pytest.raises(TraceError, match="got no folder"):
        convert("servegen", folder / "none")
    (folder / "empty").mkdir()
    with pytest.raises(TraceError, match="got none of its files"):
        convert("servegen", folder / "empty")


SPEC = "servegen_data: {path: data, span_start: 600, span_end: 1800, rate_scale: 0.5}\nseed: 3\n"


def test_a_specification_draws_what_the_conversion_draws(folder: Path) -> None:
    (folder.parent / "spec.yaml").write_text(SPEC)
    drawn = synth(load_spec(folder.parent / "spec.yaml"), seed=3)
    converted = convert("servegen", folder, cut=Cut(start_s=600, span_s=1200, scale=0.5, seed=3))
    assert drawn.requests.equals(converted.requests)
    assert drawn.column("reason_ratio").notna().any()


def test_an_aggregate_rate_takes_the_datas_rates_as_shares(folder: Path) -> None:
    (folder.parent / "spec.yaml").write_text(SPEC + "aggregate_rate: 10\nhorizon: 600000000\n")
    drawn = synth(load_spec(folder.parent / "spec.yaml"), seed=3)
    assert len(drawn) == pytest.approx(6000, rel=0.1)  # of 5 and 2 per second in the data's first 600 s
    shares = drawn.column("client_id").value_counts(normalize=True)
    assert shares["chunk-3"] == pytest.approx(5 / 7, abs=0.15)  # gaps of a cv of 10


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{path: none}", r"servegen_data: .*got no folder"),
        (
            "{path: data, span_start: 9000}",
            r"servegen_data\.span_start: got 9000 s, in which no client sends",
        ),
        (
            "{path: data, span_start: 9, span_end: 9}",
            r"servegen_data\.?.*span_end: got 9, expected seconds > span",
        ),
        ("{path: data, rate_scale: 0}", r"rate_scale: got 0, expected a number > 0"),
        (
            "{path: data}\nclients: [{id: a, input_distribution: {type: constant, params: {value: 1}}}]",
            "clients: cannot be combined with servegen_data",
        ),
    ],
)
def test_a_specification_that_cannot_be_drawn_from_the_data_is_refused(
    folder: Path, section: str, said: str
) -> None:
    (folder.parent / "spec.yaml").write_text(f"servegen_data: {section}\n")
    with pytest.raises(ConfigError, match=said):
        load_spec(folder.parent / "spec.yaml")


@pytest.mark.skipif("VTWIN_DATA" not in os.environ, reason="VTWIN_DATA names no folder of public data")
def test_the_published_data_is_drawn_at_its_own_rate() -> None:
    folder = Path(os.environ["VTWIN_DATA"]) / "servegen/data/reason/deepseek-r1"
    trace = convert("servegen", folder, cut=Cut(start_s=36_000))
    rates = 0.0
    for path in folder.glob("chunk-*-trace.csv*"):
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        rates += sum(float(line.split(",")[1]) for line in text.splitlines() if line.startswith("36000,"))
    assert len(trace) == pytest.approx(rates * 600, rel=0.1)
