"""Sweep: each row is what a single run says; interrupted, extended and spread over processes it is the same table."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import replay.sweeps.backends
import vtwin
from replay.sweeps.front import GridEnd, front_of, grid_ends, is_on_front
from replay.sweeps.grid import SweepRun, read_grid
from replay.sweeps.one_run import Row, row_of
from replay.sweeps.show import cell, front_document, front_parts
from replay.sweeps.sweep_table import (
    DIGEST,
    OF_A_TABLE,
    digest_of,
    keep,
    known_rows,
    parts_folder,
    write_table,
)
from tests.twins import SIXTEEN_SEATS_SYNC
from traces import ConfigError

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
    (tmp_path / "twin.yaml").write_text(SIXTEEN_SEATS_SYNC)
    (tmp_path / "grid.yaml").write_text(GRID)
    return tmp_path / "grid.yaml"


def swept(grid: Path, *options: str, code: int = 0) -> pd.DataFrame:
    table = grid.with_name("table.parquet")
    assert vtwin.main(["sweep", str(grid), "--output", str(table), *options]) == code
    return pd.read_parquet(table)


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
    for name, word in (
        ("ttft_us.p99", "TTFT p99"),
        ("tpot_us.p99", "TPOT p99"),
        ("goodput.good_per_s", "requests/s within the SLO"),
    ):
        known = {cell(name, float(value)) for value in table[name]}
        assert cells[word]
        assert set(cells[word]) <= known
        assert f">{word}</th>" in page


def test_the_front_is_printed_as_json_and_written_as_markdown(
    grid: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, answer = grid.parent / "front.parquet", grid.parent / "front.md"
    asked = ["sweep", str(grid), "--output", str(table), "--jobs", "1"]
    assert vtwin.main([*asked, "--json", "--markdown", str(answer)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["x"], told["y"]) == ("output_token_throughput", "e2e_us.p99")
    settings = [name for name in told["front"][0] if name.startswith(("engine.", "load."))]
    means = pd.read_parquet(table).groupby(settings)["e2e_us.p99"].mean()
    assert 0 < len(told["front"]) <= told["num_settings"] == len(means)
    for each in told["front"]:
        place = tuple(each[name] for name in settings)
        assert each["e2e_us.p99"] == pytest.approx(means[place[0] if len(place) == 1 else place])
    assert vtwin.main(asked) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] in answer.read_text()
    cells = [word for word in shown[-1].split("  ") if word]
    assert all(cell.strip() in answer.read_text() for cell in cells)


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

    monkeypatch.setattr(replay.sweeps.backends, "_here", until_the_fifth)
    table = grid.with_name("table.parquet")
    assert vtwin.main(["sweep", str(grid), "--output", str(table), "--jobs", "1"]) == 130
    assert not table.exists()
    monkeypatch.undo()
    monkeypatch.setattr(replay.sweeps.backends, "row_of", lambda run: done.append(run.digest) or row_of(run))
    pd.testing.assert_frame_equal(swept(grid, "--jobs", "1"), whole)
    assert len(done) == len(set(done)) == 12
    assert not grid.with_name("table.parquet.parts").exists()


SMALL = """\
config: twin.yaml
workloads: {a: {rate: [2, 4], prompt_tokens: 20, output_tokens: 2, num_requests: 5}}
"""


@pytest.fixture
def kept(grid: Path) -> Path:
    """Two runs of a sweep that was cut short before its table: the folder in which their rows wait."""
    grid.write_text(SMALL)
    for run in read_grid(grid).runs:
        keep(grid.with_name("table.parquet"), row_of(run))
    return parts_folder(grid.with_name("table.parquet"))


def altered(part: bytes) -> bytes:
    return part.replace(b'"num_requests": 5', b'"num_requests": 6')


DAMAGES = {
    "empty": lambda _: b"",
    "cut": lambda part: part[: len(part) // 2],
    "a list": lambda part: b"[" + part + b"]",
    "no run": lambda part: part.replace(b'"run"', b'"ran"'),
    "a number": lambda _: b"7",
    "no text": lambda part: b"\xff\xfe" + part,
    "nested": lambda _: b'{"a":' * 3000 + b"1" + b"}" * 3000,
    "a list of figures": lambda part: part.replace(b'"num_requests": 5', b'"num_requests": [5]'),
    "without its digest": lambda part: part.replace(DIGEST.encode(), b"other"),
    "altered": altered,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_row_is_simulated_again_and_a_line_says_which(
    grid: Path, kept: Path, damage: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    part, whole = sorted(kept.iterdir())
    assert altered(part.read_bytes()) != part.read_bytes()
    part.write_bytes(damage(part.read_bytes()))
    known = known_rows(grid.with_name("table.parquet"), read_grid(grid).runs)
    assert set(known.rows) == {whole.stem}
    assert (
        vtwin.main(["sweep", str(grid), "--output", str(grid.with_name("table.parquet")), "--jobs", "1"]) == 0
    )
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if part.name in line] == [said[0]]
    assert said[0].startswith("note: 1 row kept before, damaged or altered, simulated again: ")
    assert pd.read_parquet(grid.with_name("table.parquet"))["num_requests"].tolist() == [5, 5]


def test_the_row_of_another_run_is_not_taken_for_its_own(grid: Path, kept: Path) -> None:
    first, second = sorted(kept.iterdir())
    first.write_bytes(second.read_bytes())
    known = known_rows(grid.with_name("table.parquet"), read_grid(grid).runs)
    assert set(known.rows) == {second.stem}
    assert first.name in str(known.note())


def test_a_row_altered_in_the_table_is_simulated_again(
    grid: Path, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = grid.with_name("table.parquet")
    whole = swept(grid, "--jobs", "1")
    frame = pd.read_parquet(table)
    frame.loc[1, "ttft_us.p99"] = 1.0
    frame.to_parquet(table, index=False)
    capsys.readouterr()
    pd.testing.assert_frame_equal(swept(grid, "--jobs", "1"), whole)
    assert "row 2 of table.parquet (its figures are not those of its row_digest)" in capsys.readouterr().err
    swept(grid, "--dry-run")
    assert "2 runs, 2 of them done before" in capsys.readouterr().err
    assert not kept.exists()


def test_a_digest_is_the_same_before_and_after_a_table(grid: Path) -> None:
    grid.write_text(GRID.replace("[4, 16]", "[4, 0]").replace("seeds: 2", "seeds: 1"))
    runs = read_grid(grid).runs
    rows = {run.digest: row_of(run) for run in runs}  # rows without a result leave columns that have holes
    written = write_table(grid.with_name("table.parquet"), runs, rows)
    assert written[DIGEST].tolist() == [digest_of(rows[run.digest]) for run in runs]
    assert known_rows(grid.with_name("table.parquet"), runs).damaged == []


@pytest.mark.usefixtures("kept")
def test_a_copied_folder_is_recognised(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swept(grid, "--jobs", "1")
    copy = grid.parent / "a copy" / "deep"
    shutil.copytree(grid.parent, copy, ignore=shutil.ignore_patterns("a copy"))
    swept(copy / "grid.yaml", "--dry-run")
    assert "2 runs, 2 of them done before" in capsys.readouterr().err


def test_a_file_that_the_configuration_names_is_part_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(SMALL)
    (tmp_path / "twin.yaml").write_text("latency: {model: roofline, model_config: config.json}\n")
    (tmp_path / "config.json").write_text("{}")
    before = [run.digest for run in read_grid(tmp_path / "grid.yaml").runs]
    (tmp_path / "config.json").write_text('{"a": 1}')
    after = [run.digest for run in read_grid(tmp_path / "grid.yaml").runs]
    assert not set(before) & set(after)


def test_a_kill_ends_a_sweep_as_ctrl_c_does(grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid.write_text(SMALL)
    before = signal.getsignal(signal.SIGTERM)

    def killed_after_the_first(runs: list[SweepRun]) -> Iterator[Row]:
        yield row_of(runs[0])
        os.kill(os.getpid(), signal.SIGTERM)
        yield row_of(runs[1])

    monkeypatch.setattr(replay.sweeps.backends, "_here", killed_after_the_first)
    table = grid.with_name("table.parquet")
    assert vtwin.main(["sweep", str(grid), "--output", str(table), "--jobs", "1"]) == 130
    known = known_rows(table, read_grid(grid).runs)
    assert len(known.rows) == 1
    assert not known.damaged
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_grid_that_grew_simulates_what_is_new_and_a_file_that_changed_all_of_it(
    grid: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept(grid, "--jobs", "1")
    grid.write_text(GRID.replace("seeds: 2", "seeds: 3"))
    swept(grid, "--dry-run")
    assert "18 runs, 12 of them done before" in capsys.readouterr().err
    grid.with_name("twin.yaml").write_text(SIXTEEN_SEATS_SYNC.replace("6000", "7000"))
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
    assert "within the SLO in 99%" in str(front_parts(front)[0])
    none = front_of(swept_table(**{"goodput.good_frac": [0.5] * 4}), ("seats", "load.rate"), x=None, y=None)
    assert front_parts(none) == ["no setting meets the SLO in 99% of its requests"]


def test_a_front_at_the_ends_of_the_grid_is_said_and_one_within_it_is_not() -> None:
    front = front_of(swept_table(), ("seats", "load.rate"), x=None, y=None)
    assert grid_ends(front) == [GridEnd(key="seats", value=2, end="largest")]
    said = "the front has values at the ends of the grid, beyond which may be better ones: seats 2 (largest)"
    assert said in front_parts(front)
    assert front_document(front)["at_border"] == [{"key": "seats", "value": 2.0, "end": "largest"}]
    within = pd.DataFrame(
        {
            "seats": [1, 2, 3],
            "chunked": [True, False, True],
            "output_token_throughput": [50.0, 90.0, 60.0],
            "e2e_us.p99": [4.0, 3.0, 9.0],
            "error": [None] * 3,
        }
    )
    inner = front_of(within, ("seats", "chunked"), x=None, y=None)
    assert grid_ends(inner) == []
    assert len(front_parts(inner)) == 2


def test_the_gaps_between_tokens_stand_beside_the_front_and_are_those_of_a_run(
    grid: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(grid.parent)
    table = swept(grid)
    capsys.readouterr()
    load = "--rate 4 --prompt-tokens 50 --output-tokens 10 --num-requests 40 --seed 1 --slo ttft=500ms"
    call = f"run --config twin.yaml --set engine.max_num_seqs=4 --json {load}"
    assert vtwin.main(call.split()) == 0
    alone = json.loads(capsys.readouterr().out)
    is_it = (table["engine.max_num_seqs"] == 4) & (table["load.rate"] == 4) & (table["seed"] == 1)
    row = table[is_it & (table["workload"] == "short")].iloc[0]
    assert row["itl_us.p99"] == alone["itl_us"]["p99"]
    assert row["tpot_us.p99"] == alone["tpot_us"]["p99"]
    assert vtwin.main(["sweep", str(grid), "--output", "again.parquet"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("ITL p99", "TPOT p99", "requests/s within the SLO"))


def test_overloaded_runs_are_counted_beside_the_front() -> None:
    verdicts = ["stable", "overloaded", "overloaded", "near saturation"]
    front = front_of(swept_table(verdict=verdicts), ("seats", "load.rate"), x=None, y=None)
    told = [part for part in front_parts(front) if isinstance(part, str)]
    assert [line.startswith("2 of 4 runs are overloaded, so that") for line in told[-2:]] == [False, True]
    assert front_document(front)["num_overloaded"] == 2
    stable = front_of(swept_table(verdict=["stable"] * 4), ("seats", "load.rate"), x=None, y=None)
    assert len(front_parts(stable)) == 3  # head, columns, and the ends of the grid


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
        ("workloads: {a: {rate: 1}}", "config: got neither this nor configs, expected one of them"),
        ("config: twin.yaml", "workloads: got nothing"),
        ('vllm_version: "0.32.0"\nengine: {}', "file: got a TWIN.yaml, expected a GRID.yaml"),
        (
            "config: twin.yaml\nworkloads: {a: {rte: 1}}",
            "workloads.a.rte: unknown key, did you mean workloads.a.rate?",
        ),
        ("config: twin.yaml\nworkloads: {a: {rate: 1}}\nseeds: 0", "seeds: got"),
        ("config: twin.yaml\nworkloads: {a: {rate: []}}", "workloads.a.rate: got nothing"),
        ("config: twin.yaml\nworkloads: {a: {rate: .nan}}", "workloads.a.rate: got nan"),
        ("config: twin.yaml\nworkloads: {a: {rate: [1, .inf]}}", "workloads.a.rate: got inf"),
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


def test_a_setting_that_is_no_number_is_a_row_that_says_so(grid: Path) -> None:
    grid.write_text(
        "config: twin.yaml\nset: {seed: [.nan, .inf, 3]}\nworkloads: {a: {rate: 4, num_requests: 5}}\n"
    )
    table = swept(grid, "--jobs", "1", code=1)
    assert table["seed"].notna().all()
    assert [text.partition(": ")[0] for text in table["error"].fillna("")] == ["seed", "seed", ""]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("max_num_seqs: [4, 16]", "max_num_seq: [4, 16]", "engine.max_num_seq: unknown key"),
        ("rate: [4, 8]", "rate: [-4, 0]", None),
        ("config: twin.yaml", "config: nothing.yaml", "nothing.yaml"),
    ],
)
def test_a_grid_of_which_no_run_can_be_read_is_refused_before_them(
    grid: Path, capsys: pytest.CaptureFixture[str], *, before: str, after: str, says: str | None
) -> None:
    grid.write_text(GRID.replace(before, after))
    table = grid.with_name("table.parquet")
    code = vtwin.main(["sweep", str(grid), "--output", str(table), "--jobs", "1"])
    assert (code, table.exists()) == ((1, True) if says is None else (2, False))
    assert says is None or says in capsys.readouterr().err


def test_a_figure_that_no_run_has_is_refused_when_the_first_is_done(
    grid: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = grid.with_name("table.parquet")
    assert vtwin.main(["sweep", str(grid), "--output", str(table), "--jobs", "1", "--x", "nope"]) == 2
    assert "--x: got 'nope', expected a figure of the table, as " in capsys.readouterr().err
    rows = known_rows(table, read_grid(grid).runs, option="--output").rows
    assert len(rows) == 1  # it is kept for the next try
    assert len(swept(grid, "--jobs", "1", "--x", "e2e_us.p90")) == 12


def test_a_grid_of_many_runs_is_read_at_once(grid: Path) -> None:
    """The tool's version was parsed anew for each run: 64 CPU seconds for the largest grid that is taken."""
    grid.write_text("config: twin.yaml\nseeds: 5000\nworkloads: {a: {rate: 4, num_requests: 5}}\n")
    begun = time.process_time()
    assert len(read_grid(grid).runs) == 5000
    assert time.process_time() - begun < 2


def test_another_file_is_not_taken_for_a_table(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = grid.with_name("other.parquet")
    for columns in ({"run": ["x"]}, {"run": ["x"], "error": [None]}, {"a": [1]}):
        pd.DataFrame(columns).to_parquet(other)
        assert vtwin.main(["sweep", str(grid), "--output", str(other)]) == 2
        missing = next(name for name in OF_A_TABLE if name not in columns)
        (said,) = capsys.readouterr().err.splitlines()
        assert f"a table without the column {missing}, expected a new file or the table of a sweep" in said
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
