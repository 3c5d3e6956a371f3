"""How a command ends when it is told to, and where its output leads nowhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import vtwin
from traces import ExitCode, atomic
from traces.atomic import write_text
from traces.console import command_line, early_end

VTWIN = [sys.executable, "-P", "-m", "vtwin"]


def test_the_code_of_an_early_end_is_the_table_s() -> None:
    assert early_end.INTERRUPTED == ExitCode.INTERRUPTED == 128 + signal.SIGINT


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
def test_a_command_that_is_told_to_end_says_so_in_a_line_and_exits_130(
    number: signal.Signals, tmp_path: Path
) -> None:
    ended = told_to_end(number, tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted; no result is written\n")
    assert [path.name for path in tmp_path.iterdir()] == ["twin.yaml"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["typing", "typer", "ctypes"])
def test_a_signal_while_vtwin_is_imported_is_a_line_and_130(module: str, number: signal.Signals) -> None:
    """``typing`` is the first that is imported, ``ctypes`` is where a line may hold a secret."""
    code = """
import os, runpy, signal, sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Interrupts())
number, module = int(sys.argv[1]), sys.argv[2]
sys.argv = ["vtwin", "observe", "--header", "a: b"]
runpy.run_module("vtwin", run_name="__main__", alter_sys=True)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, str(int(number)), module],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted; no result is written\n")


def test_a_worker_s_process_says_nothing_when_it_is_ended() -> None:
    """It has its parent's command line, and imports vtwin's modules, too."""
    program = """
import multiprocessing, os, signal, sys
sys.argv = ["vtwin"]
import traces.console.early_end
os.kill(os.getpid(), signal.SIGTERM)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (-signal.SIGTERM, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("when", "code"), [("gc.freeze = end", 130), ("atexit.register(end)", 0)])
def test_a_signal_after_a_command_ended_is_no_traceback(when: str, code: int, number: signal.Signals) -> None:
    """While Python cleans up it is heeded (``gc.freeze`` is called then) up to the last thing, then no more."""
    program = f"""
import atexit, gc, os, runpy, signal, sys
def end():
    os.kill(os.getpid(), {int(number)})
{when}
sys.argv = ["vtwin", "--version"]
runpy.run_module("vtwin", run_name="__main__", alter_sys=True)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (code, "")


def test_after_ctrl_c_the_files_are_named_that_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        write_text(tmp_path / "a.txt", "x")
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "_command", interrupted)
    monkeypatch.setattr(atomic, "files_written", written := [])
    monkeypatch.setattr(command_line, "files_written", written)
    assert vtwin.main(["--version"]) == 130
    assert capsys.readouterr().err == f"interrupted; written before: {tmp_path / 'a.txt'}\n"


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
