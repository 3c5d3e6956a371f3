"""How a command ends when it is told to, and where its output leads nowhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

VTWIN = [sys.executable, "-P", "-m", "vtwin"]


def told_to_end(
    number: signal.Signals, folder: Path, *, before: str = ""
) -> subprocess.CompletedProcess[str]:
    """Start a command that waits for its input, a pipe that nobody fills, send it the signal, and wait."""
    pipe = folder / "twin.yaml"
    os.mkfifo(pipe)
    words = ["/bin/sh", "-c", f'{before} exec "$@"', "sh", *VTWIN, "config", "show", str(pipe)]
    hang_up = signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # under nohup it is ignored, which a command inherits
    try:
        started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGHUP, hang_up)
    with started as process:
        with pipe.open("w"):  # returns once the command reads
            process.send_signal(number)
            out, err = "", ""
            if before:
                return subprocess.CompletedProcess(words, poll(process), out, err)
            out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, out, err)


def poll(process: subprocess.Popen[str]) -> int:
    """Return the exit code that a process has a quarter of a second later; -1000: it goes on. Then it is ended."""
    try:
        return process.wait(0.25)
    except subprocess.TimeoutExpired:
        process.kill()
        return -1000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_exits_130_without_a_word(
    number: signal.Signals, tmp_path: Path
) -> None:
    ended = told_to_end(number, tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["twin.yaml"]


def test_a_hang_up_that_is_ignored_ends_nothing(tmp_path: Path) -> None:
    assert told_to_end(signal.SIGHUP, tmp_path, before="trap '' HUP;").returncode == -1000


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_stream_that_the_caller_has_closed_is_no_fault(closed: str, tmp_path: Path) -> None:
    """The next file opened would get the stream's number, and what is printed would stand in it."""
    made = tmp_path / "drawn"
    load = ["--rate", "5", "--num-requests", "3", "--prompt-tokens", "4", "--output-tokens", "2"]
    words = [*VTWIN, "trace", "synth", *load, "--output", str(made)]
    ended = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *words], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr
    lines = made.with_suffix(".csv").read_text().splitlines()
    assert len(lines) == 4
    assert all(line.count(",") == lines[0].count(",") for line in lines)
