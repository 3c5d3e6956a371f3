"""What the commands cost, start of the interpreter, reading and writing included.

``python -m tests.studies.bench.commands``.

Beside each row stands the reference loop of the engine's bench, timed in the same seconds: the figures of two machines,
or of two hours of a shared one, compare by their ratio to it.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.studies.bench.engine import reference_loop_s
from tests.studies.bench.works import DATA

VTWIN = Path(sys.executable).parent / "vtwin"

MOONCAKE = DATA / "mooncake_fast25/conversation_trace.jsonl.gz"

TWIN = """\
engine: {max_num_seqs: 256, max_num_batched_tokens: 8192, num_gpu_blocks: 60000, async_scheduling: false}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 20, beta2: 30}}
"""

GRID = """\
config: twin.yaml
set: {engine.max_num_seqs: [64, 96, 128, 192, 256], engine.max_num_batched_tokens: [1024, 2048, 4096, 8192]}
workloads: {chat: {rate: 14, num_requests: 1000, prompt_tokens: 300, output_tokens: 120}}
seeds: 5
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The least of several runs of a command: wall and CPU seconds, and the reference loop's least in between."""

    wall_s: float
    cpu_s: float
    loop_s: float


def timed(
    arguments: list[str], folder: Path, *, program: Path = VTWIN, expected: int = 0, **environment: str
) -> Cost:
    """Return the cost of one command, vtwin's unless said, that ends with the ``expected`` exit code."""
    loop_s = reference_loop_s()
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        [program, *arguments], cwd=folder, check=False, capture_output=True, env=inherited | environment
    )
    wall_s = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != expected:
        raise SystemExit(
            f"{program.name} {' '.join(arguments)}: exit code {done.returncode}, {done.stderr.decode()}"
        )
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall_s=wall_s, cpu_s=cpu_s, loop_s=loop_s)


def best(arguments: list[str], folder: Path, *, repeats: int = 5, expected: int = 0) -> Cost:
    """Return the least wall time, CPU time and reference loop of several runs."""
    runs = [timed(arguments, folder, expected=expected) for _ in range(repeats)]
    return Cost(
        wall_s=min(run.wall_s for run in runs),
        cpu_s=min(run.cpu_s for run in runs),
        loop_s=min(run.loop_s for run in runs),
    )


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
        rows += startup_rows(folder)
        rows += comparison_rows(folder)
    return rows


def comparison_rows(folder: Path) -> list[dict[str, Any]]:
    """Return what it costs to compare runs, whose resamples grow with their requests."""
    for stem, num, seed in (("a", 100_000, 1), ("b", 100_000, 2), ("observed", 10_000, 3)):
        run = ["run", "--config", "twin.yaml", "--rate", "14", "--num-requests", str(num)]
        timed([*run, "--seed", str(seed), "--output", stem], folder)
    (folder / "slower.yaml").write_text(TWIN.replace("beta0: 6000", "beta0: 6100"))
    timed(["replay", "observed", "--config", "slower.yaml", "--output", "simulated"], folder)
    calibrate = ["calibrate", "observed", "--simulated", "simulated", "--report", "report"]
    timed(calibrate, folder)  # compiles the bytecode of what no row before has imported
    shutil.rmtree(folder / "report")
    return [
        row(
            "compare of two runs of 100,000 requests",
            best(["compare", "a", "b"], folder, repeats=2),
            "cpu",
            10,
        ),
        row("calibrate --simulated of 10,000 requests", timed(calibrate, folder), "cpu", 3),
    ]


def swept(folder: Path) -> list[str]:
    """Return a sweep of 20 servers and five seeds; a second one would find its runs done."""
    (folder / "grid.yaml").write_text(GRID)
    (folder / "one.yaml").write_text(GRID.replace("seeds: 5", "seeds: 1"))
    timed(["sweep", "one.yaml", "--jobs", "1", "--output", "one.parquet"], folder)  # compiles bytecode
    return ["sweep", "grid.yaml", "--jobs", "1", "--output", "swept.parquet"]


def startup_rows(folder: Path) -> list[dict[str, Any]]:
    """Return what commands cost that do little: their start. Nothing is written."""
    run = ["run", "--config", "twin.yaml", "--rate", "14", "--num-requests"]
    mooncake = ["replay", str(MOONCAKE), "--config", "twin.yaml"]
    refused, page = [*run, "10", "--concurrency", "4"], ["--report", "run.html", "--overwrite"]
    return [
        row("run of 10 requests", best([*run, "10"], folder), "cpu", 1.0),
        row("replay of Mooncake's 12,031 conversations", best(mooncake, folder), "cpu", 1.6),
        row("run of 100,000 requests", best([*run, "100000"], folder), "cpu", 2.5),
        row("the same with --json", best([*run, "100000", "--json"], folder), "cpu", 2.5),
        row("the same with --report", best([*run, "100000", *page], folder), "cpu", 2.5),
        row("sweep of 100 runs of 1,000 requests, one process", timed(swept(folder), folder), "cpu", 2.0),
        row("a refused option", best(refused, folder, expected=2), "cpu", 0.3),
        row("--help", best(["--help"], folder), "wall", 0.3),
    ]


def row(what: str, cost: Cost, clock: str, bar_s: float) -> dict[str, Any]:
    """Return a row of the table; ``clock`` says which of the two the bar is for."""
    return {"command": what, **asdict(cost), "bar_s": bar_s, "bar_clock": clock}


def commands_table(rows: list[dict[str, Any]]) -> str:
    """Return rows as a Markdown table."""
    lines = ["| command | wall s | CPU s | bar | loop s |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['command']} | {row['wall_s']:.2f} | {row['cpu_s']:.2f} | {row['bar_s']:g} s {row['bar_clock']} "
        f"| {row['loop_s']:.3f} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(commands_table(measure_commands()))
