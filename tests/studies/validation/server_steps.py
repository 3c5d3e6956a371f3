"""Twins fitted to a minute of a server's own steps, judged at its next loads, beside ordinary fits to the same runs."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from replay import TwinConfig, load_config, simulate_trace
from tests.studies.validation import cpu, h100
from traces import read_trace

FITTED = (("r30",), ("r55",), ("idle", "r55"))
"""Runs on the H100, of 40 to 55 s each, whose steps and requests are fitted."""
JUDGED = {("r30",): ("r55", "r80", "ramp", "long"), ("r55",): ("r80", "ramp", "long", "r105")}
ON_CPU = ("A", "B", "D")
WAYS = {"steps": ["--steps", "auto"], "requests": ["--fit"]}


def fitted(work: Path, runs: Sequence[str], way: str, *, unseen: str) -> tuple[TwinConfig, float]:
    """Return the twin that ``calibrate`` makes of some runs, and the seconds that it took, started to ended."""
    target = work / f"{way}-{'-'.join(runs)}.yaml"
    told = ["--config", str(work / "twin.yaml"), *WAYS[way], "--holdout", str(work / unseen)]
    told += ["--report", str(target.with_suffix("")), "--write-config", str(target)]
    begun = time.monotonic()
    traces = [str(work / run) for run in runs]
    subprocess.run([h100.VTWIN, "calibrate", *traces, *told], check=True, capture_output=True)
    return load_config(target), time.monotonic() - begun


def rows(work: Path, runs: Sequence[str], judged: Sequence[str], *, unseen: str) -> Iterator[str]:
    """Yield a row for each way of fitting and each run that it is judged by."""
    for way in WAYS:
        twin, seconds = fitted(work, runs, way, unseen=unseen)
        for run in judged:
            trace = read_trace(work / run)
            cells = " | ".join(str(each) for each in h100.errors(trace, simulate_trace(trace, twin)[0]))
            yield f"| {', '.join(runs)} | {way}, {seconds:.0f} s | {run} | {cells} |"


def table(data: Path, work: Path) -> str:
    """Return the Markdown tables of the H100 and of the CPU."""
    head = ["| fitted to | way | judged | TTFT | TPOT | E2E |", "|---|---|---|---|---|---|"]
    on_h100, on_cpu = work / "h100", work / "cpu"
    for folder in (on_h100, on_cpu):
        folder.mkdir()
    h100.unpack(on_h100)
    lines = list(head)
    for runs in FITTED:
        lines += rows(on_h100, runs, JUDGED[runs[-1:]], unseen="r82")
    cpu.write_sets(data, on_cpu)
    flags = ", ".join(f"{key}: {json.dumps(value)}" for key, value in cpu.FLAGS.items() if key != "version")
    twin = f"engine: {{{flags}}}\nlatency: {{model: blackbox, coefficients: {cpu.START}}}\n"
    (on_cpu / "twin.yaml").write_text(twin)
    lines += ["", *head, *rows(on_cpu, ("D",), ON_CPU, unseen="A")]
    return "\n".join(lines)
