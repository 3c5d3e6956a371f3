"""An output has one owner at a time; its lock goes with it, and a lock that was left behind locks nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import vtwin
from traces import ConfigError
from traces.files.output_lock import sole_owner


def test_a_second_owner_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    place = tmp_path / "t"
    with sole_owner(place):
        with (
            pytest.raises(ConfigError, match=r"another run writes to .*t \(process \d+\)"),
            sole_owner(place),
        ):
            pass
        with sole_owner(tmp_path / "other"):
            pass
    with sole_owner(place):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_was_left_behind_locks_nothing(tmp_path: Path) -> None:
    (tmp_path / ".t.lock").write_text("12")
    with sole_owner(tmp_path / "t"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_file_is_told_by_who_writes(tmp_path: Path) -> None:
    with sole_owner(tmp_path / "none" / "t"), sole_owner(Path("/dev/null")):
        pass


@pytest.mark.parametrize(
    "command",
    [
        "observe --url http://127.0.0.1:9 --rate 1 --num-requests 1 --prompt-tokens 1 --output-tokens 1 --output",
        "receive --port 0 --output",
        "sweep grid.yaml --output",
    ],
)
def test_commands_that_write_for_long_respect_an_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin.yaml").write_text(
        "engine: {max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 400, max_model_len: 2048}\n"
        "latency: {model: blackbox, coefficients: {beta0: 6000}}\n"
    )
    (tmp_path / "grid.yaml").write_text(
        "config: twin.yaml\n"
        "workloads: {one: {rate: 4, prompt_tokens: 5, output_tokens: 2, num_requests: 5}}\n"
    )
    with sole_owner(tmp_path / "owned.parquet"), sole_owner(tmp_path / "owned"):
        assert vtwin.main([*command.split(), str(tmp_path / "owned.parquet")]) == 2
    assert "another run writes to" in " ".join(capsys.readouterr().err.split())


def test_the_lock_is_a_file_that_anyone_may_open_and_names_its_owner(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        with sole_owner(tmp_path / "t"):
            lock = tmp_path / ".t.lock"
            assert lock.stat().st_mode & 0o777 == 0o666
            assert lock.read_text() == str(os.getpid())
    finally:
        os.umask(mask)
