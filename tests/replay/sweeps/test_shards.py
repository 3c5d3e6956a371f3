"""``vtwin sweep --shard`` and ``--merge``: a grid in shares, and their tables as one."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import vtwin
from replay.sweeps.shards import in_shard, parse_shard, tables_of
from replay.sweeps.sweep_table import keep
from tests.twins import SIXTEEN_SEATS_SYNC
from traces import ConfigError

GRID = """\
config: twin.yaml
set: {engine.max_num_seqs: [2, 16]}
workloads: {short: {rate: [4, 8], prompt_tokens: 50, output_tokens: 10, num_requests: 20}}
seeds: 2
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "twin.yaml").write_text(SIXTEEN_SEATS_SYNC)
    (tmp_path / "grid.yaml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def swept(*words: str, code: int = 0) -> None:
    assert vtwin.main(["sweep", "grid.yaml", "--jobs", "1", *words]) == code


@pytest.mark.parametrize("of", [1, 2, 3, 8, 11])
def test_shares_have_every_run_once_and_differ_by_one_at_most(of: int) -> None:
    shares = [in_shard(range(8), (number, of)) for number in range(1, of + 1)]
    assert sorted(each for share in shares for each in share) == list(range(8))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_merged_shares_are_the_table_of_the_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swept("--output", "whole.parquet")
    for number in (1, 2, 3):
        swept("--shard", f"{number}/3")
    assert sorted(path.name for path in folder.glob("grid.*.parquet")) == [
        f"grid.shard-{number}-of-3.parquet" for number in (1, 2, 3)
    ]
    capsys.readouterr()
    swept("--merge", "grid.shard-*.parquet")
    shown = capsys.readouterr()
    assert "8 runs, 8 of them done before" in shown.err
    assert shown.out.startswith("Pareto front")
    whole, merged = pd.read_parquet("whole.parquet"), pd.read_parquet("grid.parquet")
    pd.testing.assert_frame_equal(merged, whole)


def test_a_share_that_is_missing_is_simulated_and_one_cut_short_counts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept("--shard", "1/2")
    table = folder / "grid.shard-1-of-2.parquet"
    swept("--output", "cut.parquet", "--shard", "2/2")
    rows = pd.read_parquet("cut.parquet")
    (folder / "cut.parquet").unlink()
    cells = {name: None if pd.isna(value) else value for name, value in rows.iloc[0].items()}
    plain = {str(name): getattr(value, "item", lambda v=value: v)() for name, value in cells.items()}
    plain.pop("row_digest")
    keep(folder / "cut.parquet", plain)  # as the job leaves it that was killed behind its first run
    assert tables_of(["grid.shard-*.parquet", "cut.parquet"]) == (Path(table.name), Path("cut.parquet"))
    capsys.readouterr()
    swept("--merge", "grid.shard-*.parquet", "--merge", "cut.parquet", "--dry-run")
    assert "8 runs, 5 of them done before" in capsys.readouterr().err
    swept("--merge", "grid.shard-*.parquet")
    assert len(pd.read_parquet("grid.parquet")) == 8


def test_a_share_without_runs_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swept("--shard", "9/11")
    assert "share 9 of 11 has no run: the grid has 8. Nothing is written" in capsys.readouterr().err
    assert not list(folder.glob("*.parquet*"))


def test_a_table_of_another_grid_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swept("--shard", "1/8")
    (folder / "grid.yaml").write_text(GRID.replace("output_tokens: 10", "output_tokens: 11"))
    capsys.readouterr()
    swept("--merge", "grid.shard-*.parquet", "--dry-run")
    assert "no run of it is one of this grid's" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("text", ["0/2", "3/2", "2", "1/0", "a/b", "1/2/3", "-1/2", "1/999999"])
def test_a_wrong_share_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--shard: got .*, expected I/N with I from 1 to N"):
        parse_shard(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--merge", "none-*.parquet"), "--merge: got none-*.parquet, which is no table"),
        (("--merge", "grid.yaml"), "--merge: got grid.yaml, expected the table of a sweep"),
        (("--shard", "1/2", "--report", "a.html"), "a share has no front"),
        (("--shard", "1/2", "--json"), "a share has no front"),
    ],
)
def test_what_cannot_be_put_together_is_one_line(
    words: tuple[str, ...], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept(*words, code=2)
    assert said in " ".join(capsys.readouterr().err.split())
    assert not list(folder.glob("*.parquet*"))
