"""What the commands cost, start of the interpreter, reading and writing included."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VTWIN = Path(sys.executable).parent / "vtwin"

TWIN = """\
engine: {max_num_seqs: 256, max_num_batched_tokens: 8192, num_gpu_blocks: 60000, async_scheduling: false}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 20, beta2: 30}}
"""


def timed(arguments: list[str], folder: Path, **environment: str) -> tuple[float, float]:
    """Return (wall seconds, CPU seconds) of one vtwin command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(
        [VTWIN, *arguments], cwd=folder, check=True, capture_output=True, env={**os.environ, **environment}
    )
    wall_s = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def best(arguments: list[str], folder: Path, *, repeats: int = 3) -> tuple[float, float]:
    """Return the least wall and the least CPU seconds of several runs."""
    runs = [timed(arguments, folder) for _ in range(repeats)]
    return min(wall for wall, _ in runs), min(cpu for _, cpu in runs)


def measure_commands() -> list[dict[str, Any]]:
    """Return one row per command: its wall and CPU seconds beside the bar, which is for one of them."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "twin.yaml").write_text(TWIN)
        for num_requests in (1_000, 100_000):
            synth = ["trace", "synth", "--rate", "14", "--num-requests", str(num_requests)]
            timed([*synth, "--output", f"w{num_requests}"], folder)
        small = ["replay", "w1000", "--config", "twin.yaml", "--output", "out"]
        cold = timed(small, folder, VTWIN_CACHE_DIR=str(folder / "cache"))
        rows.append(row("replay of 1,000 requests, first time: the engine is compiled", cold, "wall", 60))
        rows.append(row("replay of 1,000 requests", best(small, folder), "wall", 1.5))
        large = ["replay", "w100000", "--config", "twin.yaml", "--output", "out"]
        rows.append(row("replay of 100,000 requests", best(large, folder), "cpu", 6))
        rows.append(row("--help", best(["--help"], folder), "wall", 0.3))
    return rows


def row(what: str, measured: tuple[float, float], clock: str, bar_s: float) -> dict[str, Any]:
    """Return a row of the table; ``clock`` says which of the two the bar is for."""
    return {"command": what, "wall_s": measured[0], "cpu_s": measured[1], "bar_s": bar_s, "bar_clock": clock}


def commands_table(rows: list[dict[str, Any]]) -> str:
    """Return rows as a Markdown table."""
    lines = ["| command | wall s | CPU s | bar |", "|---|---|---|---|"]
    lines += [
        f"| {row['command']} | {row['wall_s']:.2f} | {row['cpu_s']:.2f} | {row['bar_s']:g} s {row['bar_clock']} |"
        for row in rows
    ]
    return "\n".join(lines)
