"""Memory is asked for before it is taken, and what is refused is one line with exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.traces.made import small_trace
from traces import write_trace
from traces.console.faults import line_and_code
from traces.strict import free_memory
from vtwin import main

FREE = "traces.strict.free_memory.free_memory"
TWIN = """\
engine: {max_model_len: 2048, max_num_seqs: 64, BLOCKS}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 20, beta2: 30}}
"""
BLOCKS = {
    "of the GPU": "num_gpu_blocks: 100000000",
    "of the CPU": "num_gpu_blocks: 1000, num_cpu_blocks: 100000000, kv_offloading: native",
    "of a store": "num_gpu_blocks: 1000, num_cpu_blocks: 100000000, kv_offloading: shared",
}
LOAD = ["--prompt-tokens", "20", "--output-tokens", "2", "--num-requests", "20"]
COMMANDS = {
    "run": ["run", "--rate", "5", *LOAD],
    "replay": ["replay", "t"],
    "capacity": ["capacity", "--slo", "ttft_p99=1s", *LOAD],
    "tune": ["tune", "--slo", "ttft_p99=1s", *LOAD],
    "serve": ["serve", "--port", "0"],
    "calibrate": ["calibrate", "t", "--report", "r"],
}
SHOWN = """
import resource, sys
from traces.strict.free_memory import free_memory
kind = getattr(resource, sys.argv[1])
resource.setrlimit(kind, (1 << 30, 1 << 30))
print(free_memory())
"""


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_asks_for_the_memory_of_one_server(
    command: str,
    blocks: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(FREE, lambda: 2 << 30)
    write_trace(small_trace(), tmp_path / "t")
    Path("twin.yaml").write_text(TWIN.replace("BLOCKS", BLOCKS[blocks]))
    assert main([*COMMANDS[command], "--config", "twin.yaml"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "GiB of memory, expected at most the 2.0 GiB that are free" in said


@pytest.mark.parametrize("load", [["--rate", "5"], ["--concurrency", "5"]], ids=["open", "closed"])
def test_a_load_is_not_drawn_without_the_memory_for_it(
    load: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(FREE, lambda: 2 << 30)
    lengths = ["--prompt-tokens", "20", "--output-tokens", "2", "--num-requests", "9000000"]
    assert main(["trace", "synth", *load, *lengths, "--output", str(tmp_path / "t")]) == 2
    assert "workload: got about 9,0" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/meminfo").is_file(), reason="Linux alone says what is free")
@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_what_is_mapped_already_is_not_free(limit: str) -> None:
    done = subprocess.run([sys.executable, "-c", SHOWN, limit], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < (1 << 30) - (1 << 20)


@pytest.mark.skipif(not Path("/proc/meminfo").is_file(), reason="Linux alone says what is free")
def test_a_container_s_limit_is_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("1048576\n")
    (tmp_path / "other").write_text("max\n")
    monkeypatch.setattr("traces.strict.free_memory.LIMITS", (tmp_path / "other", tmp_path / "memory.max"))
    assert free_memory.free_memory() == 1 << 20


def test_memory_that_is_refused_is_one_line_and_exit_code_2() -> None:
    with pytest.raises(MemoryError) as caught:
        np.zeros(1 << 62, np.int8)
    line, code = line_and_code(caught.value, [], own_way=lambda *_: None)
    assert code == 2
    assert line.startswith("MemoryError: got too little memory: Unable to allocate")
    assert "\n" not in line
