"""Sweep: each row is what a single run says; interrupted, extended and spread over processes it is the same table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import replay.plan.sweep.backends
import vtwin
from replay.plan.sweep.front import front_of, is_on_front
from replay.plan.sweep.grid import read_grid
from replay.plan.sweep.one_run import Row, row_of
from replay.plan.sweep.show import cell, lines
from traces import ConfigError

TWIN = """\
engine:
  {max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 400, max_model_len: 2048, async_scheduling: false}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 10, beta2: 20}
"""
GRID = """\
config: twin.yaml
set: {engine.max_num_seqs: [4, 16]}
workloads:
  short: {rate: [4, 8], prompt_tokens: 50, output_tokens: 10, num_requests: 40}
  long: {rate: 2, prompt_tokens: 400, output_tokens: 80, num_requests: 40}
seeds: 2
slo: ttft=500ms
"""


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    (tmp_path / "twin.yaml").write_text(TWIN)
    (tmp_path / "grid.yaml").write_text(GRID)
    return tmp_path / "grid.yaml"


def swept(grid: Path, *options: str, code: int = 0) -> pd.DataFrame:
    table = grid.with_name("table.parquet")
    assert vtwin.main(["sweep", str(grid), "--output", str(table), *options]) == code
    return pd.read_parquet(table).drop(columns="engine_cpu_s")


def test_a_row_is_what_a_single_run_says(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = swept(grid, "--jobs", "1")
    assert len(table) == 2 * 3 * 2
    assert table["error"].isna().all()
    chosen = table[(table["engine.max_num_seqs"] == 4) & (table["load.rate"] == 8) & (table["seed"] == 2)]
    capsys.readouterr()
    arguments = [
        "run",
        "--config",
        str(grid.with_name("twin.yaml")),
        "--set",
        "engine.max_num_seqs=4",
        "--json",
    ]
    load = [
        "--rate",
        "8",
        "--prompt-tokens",
        "50",
        "--output-tokens",
        "10",
        "--num-requests",
        "40",
        "--seed",
        "2",
    ]
    assert vtwin.main([*arguments, *load, "--slo", "ttft=500ms"]) == 0
    alone = json.loads(capsys.readouterr().out)
    row = chosen.iloc[0]
    assert len(chosen) == 1
    assert row["ttft_us.p99"] == alone["ttft_us"]["p99"]
    assert row["num_steps"] == alone["num_steps"]
    assert row["goodput.good_frac"] == alone["goodput"]["good_frac"]


def test_the_front_is_shown_with_tpot_and_goodput(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid.write_text(GRID.replace("seeds: 2", "seeds: 1").replace("[4, 8]", "8"))
    table = swept(grid, "--jobs", "1", "--report", str(grid.with_name("page.html")))
    shown = [re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines()]
    cells = {name: values for name, *values in shown}
    page = grid.with_name("page.html").read_text()
    for name in ("ttft_us.p99", "tpot_us.p99", "goodput.good_per_s"):
        known = {cell(name, float(value)) for value in table[name]}
        assert cells[name]
        assert set(cells[name]) <= known
        assert f">{name}</th>" in page


def test_an_interrupted_sweep_goes_on_where_it_was(grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = swept(grid, "--jobs", "1")
    grid.with_name("table.parquet").unlink()
    done: list[str] = []

    def until_the_fifth(runs: list[object]) -> Iterator[Row]:
        for run in runs:
            if len(done) == 5:
                raise KeyboardInterrupt
            done.append(run.digest)  # type: ignore[attr-defined]
            yield row_of(run)  # type: ignore[arg-type]

    monkeypatch.setattr(replay.plan.sweep.backends, "_here", until_the_fifth)
    table = grid.with_name("table.parquet")
    assert vtwin.main(["sweep", str(grid), "--output", str(table), "--jobs", "1"]) == 130
    assert not table.exists()
    monkeypatch.undo()
    monkeypatch.setattr(
        replay.plan.sweep.backends, "row_of", lambda run: done.append(run.digest) or row_of(run)
    )
    pd.testing.assert_frame_equal(swept(grid, "--jobs", "1"), whole)
    assert len(done) == len(set(done)) == 12
    assert not grid.with_name("table.parquet.parts").exists()


def test_a_grid_that_grew_simulates_what_is_new_and_a_file_that_changed_all_of_it(
    grid: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept(grid, "--jobs", "1")
    grid.write_text(GRID.replace("seeds: 2", "seeds: 3"))
    swept(grid, "--dry-run")
    assert "18 runs, 12 of them done before" in capsys.readouterr().err
    read_grid.__globals__["content_digest"].cache_clear()  # a command of its own would not remember the file
    grid.with_name("twin.yaml").write_text(TWIN.replace("6000", "7000"))
    swept(grid, "--dry-run")
    assert "18 runs, 0 of them done before" in capsys.readouterr().err


def test_dask_with_two_workers_gives_the_same_table(grid: Path) -> None:
    grid.write_text(GRID.replace("seeds: 2", "seeds: 1"))
    alone = swept(grid, "--jobs", "1")
    grid.with_name("table.parquet").unlink()
    pd.testing.assert_frame_equal(swept(grid, "--backend", "dask", "--jobs", "2"), alone)


def test_a_run_without_a_result_is_a_row_that_says_why(grid: Path) -> None:
    grid.write_text(GRID.replace("[4, 16]", "[4, 0]"))
    table = swept(grid, "--jobs", "1", code=1)
    failed = table[table["error"].notna()]
    assert set(failed["engine.max_num_seqs"]) == {0}
    assert failed["error"].str.contains("max_num_seqs").all()
    assert len(table) == 12


def test_a_point_is_on_the_front_when_no_other_is_as_good_in_both_and_better_in_one() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 12, 60).astype(float), rng.integers(0, 12, 60).astype(float)
    beaten = [bool(((x <= a) & (y <= b) & ((x < a) | (y < b))).any()) for a, b in zip(x, y, strict=True)]
    assert list(is_on_front(x, y)) == [not each for each in beaten]


def test_throughput_counts_as_better_when_larger_and_seeds_are_averaged() -> None:
    table = pd.DataFrame(
        {
            "seats": [1, 1, 2, 2, 3, 3],
            "output_token_throughput": [10.0, 12.0, 20.0, 22.0, 9.0, 9.0],
            "e2e_us.p99": [5.0, 5.0, 9.0, 9.0, 6.0, 6.0],
            "error": [None] * 6,
        }
    )
    front = front_of(table, ("seats",), x=None, y=None)
    assert list(front.points["output_token_throughput"]) == [11.0, 21.0, 9.0]
    assert list(front.points["is_best"]) == [True, True, False]
    with pytest.raises(ConfigError, match="--y: got 'speed', expected a figure of the table"):
        front_of(table, ("seats",), x=None, y="speed")


def swept_table(**more: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "seats": [1, 2, 1, 2],
            "load.rate": [5, 5, 9, 9],
            "output_token_throughput": [50.0, 50.0, 80.0, 90.0],
            "e2e_us.p99": [4.0, 3.0, 9.0, 8.0],
            "error": [None] * 4,
            **more,
        }
    )


def test_a_setting_is_compared_with_others_at_the_same_load() -> None:
    front = front_of(swept_table(), ("seats", "load.rate"), x=None, y=None)
    assert (front.loads, front.choices) == (("load.rate",), ("seats",))
    best = front.points[front.points["is_best"]]
    assert list(zip(best["load.rate"], best["seats"], strict=True)) == [(5, 2), (9, 2)]


def test_only_settings_within_the_slo_are_on_the_front() -> None:
    good = {"goodput.good_frac": [1.0, 0.9, 0.995, 0.5]}
    front = front_of(swept_table(**good), ("seats", "load.rate"), x=None, y=None)
    assert list(front.points["is_best"]) == [True, False, True, False]
    assert "within the SLO in 99%" in lines(front, width=None)[0]
    none = front_of(swept_table(**{"goodput.good_frac": [0.5] * 4}), ("seats", "load.rate"), x=None, y=None)
    assert lines(none, width=None) == ["no setting keeps the SLO in 99% of its requests"]


def test_prices_put_the_cost_into_the_table(grid: Path) -> None:
    model = "meta-llama/Llama-3.1-8B-Instruct"
    grid.with_name("twin.yaml").write_text(
        f"latency: {{model: roofline, model_config: {model}}}\nhardware: {{gpu: H100, tp: 2}}\n"
        "cluster: {instances: 3}\n"
    )
    grid.write_text("config: twin.yaml\nworkloads: {a: {rate: 5, num_requests: 30}}\nprices: {H100: 2.5}\n")
    table = swept(grid, "--jobs", "1", "--report", str(grid.with_name("page.html")))
    assert table["price_per_hour"].tolist() == [15.0]
    expected = 15 / 3600 / table["output_token_throughput"] * 1e6
    assert table["price_per_million_tokens"].tolist() == pytest.approx(expected.tolist())
    assert "Pareto front" in grid.with_name("page.html").read_text()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("workloads: {a: {rate: 1}}", "config: got neither, expected one of them"),
        ("config: twin.yaml", "workloads: got nothing"),
        (
            "config: twin.yaml\nworkloads: {a: {rte: 1}}",
            "workloads.a.rte: unknown key, did you mean workloads.a.rate?",
        ),
        ("config: twin.yaml\nworkloads: {a: {rate: 1}}\nseeds: 0", "seeds: got"),
        ("config: twin.yaml\nworkloads: {a: {rate: []}}", "workloads.a.rate: got nothing"),
        ("config: twin.yaml\nworkloads: {a: {rate: 1}}\nprices: {Z: 1}", "Z"),
        ("config: twin.yaml\nsetting: {}\nworkloads: {a: {rate: 1}}", "setting: unknown key, did you mean"),
    ],
)
def test_a_mistake_in_the_grid_is_one_line(grid: Path, text: str, complaint: str) -> None:
    grid.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_grid(grid)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_file_is_not_taken_for_a_table(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = grid.with_name("other.parquet")
    pd.DataFrame({"a": [1]}).to_parquet(other)
    assert vtwin.main(["sweep", str(grid), "--output", str(other)]) == 2
    assert "without the column run" in capsys.readouterr().err
    assert vtwin.main(["sweep", str(grid), "--output", "table.csv"]) == 2
    assert pd.read_parquet(other)["a"].tolist() == [1]


def test_without_output_the_table_has_the_grid_s_name(
    grid: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(grid.parent)
    (grid.parent / "small.yaml").write_text(
        "config: twin.yaml\nworkloads: {a: {rate: 2, prompt_tokens: 20, output_tokens: 2, num_requests: 5}}\n"
    )
    assert vtwin.main(["sweep", "small.yaml", "--jobs", "1"]) == 0
    assert "wrote small.parquet" in capsys.readouterr().err
    assert len(pd.read_parquet("small.parquet")) == 1
