"""The engine's speed: ``python -m tests.studies.bench.engine [--only TEXT]``.

Each work runs in a process of its own, converted anew each time: five times, and on until a CPU second has passed
(a run of 15 ms is at its own speed in few of them). The best CPU time counts. Beside it stands a fixed reference
loop timed in the same minute, since shared machines are noisy: compare the ratios.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.studies.bench.works import Work, works

REPEATS = 5
LEAST_CPU_S = 1.0


def reference_loop_s() -> float:
    """Return the CPU seconds that a fixed piece of interpreted work takes on this machine now."""
    started = time.thread_time()
    total = 0
    for i in range(2_000_000):
        total += i ^ (i >> 3)
    return time.thread_time() - started


def measure(work: Work) -> dict[str, Any]:
    """Return one row: the best of its runs, what it did, and how much memory the process took."""
    from sim import simulate

    simulate(work.requests(), work.config, work.latency)  # compiled code is loaded, pages are touched
    seconds, conversion, references = [], [], []
    while len(seconds) < REPEATS or sum(seconds) < LEAST_CPU_S:
        references.append(reference_loop_s())
        started = time.thread_time()
        requests = work.requests()
        conversion.append(time.thread_time() - started)
        simulation = simulate(requests, work.config, work.latency)
        seconds.append(time.thread_time() - started)
    best = min(seconds)
    hits = simulation.outcomes.num_cached_tokens.clip(0).sum() / max(1, requests.prompt_tokens.sum())
    return {
        "work": work.name,
        "num_requests": len(requests),
        "cpu_s": best,
        "conversion_cpu_s": min(conversion),
        "reference_loop_s": min(references),
        "requests_per_cpu_s": len(requests) / best,
        "steps_per_cpu_s": simulation.num_steps / best,
        "num_steps": simulation.num_steps,
        "num_jumps": simulation.num_jumps,
        "num_preemptions": simulation.num_preemptions,
        "prefix_hit_frac": float(hits),
        "num_finished": int((simulation.outcomes.status == 1).sum()),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "bar_requests_per_cpu_s": work.bar,
    }


def machine() -> dict[str, str]:
    """Return what the figures were measured on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [
            line.split(":", 1)[1].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        cpu = f"{len(names)} x {names[0]}" if names else cpu
    return {"cpu": cpu, "python": platform.python_version(), "date": datetime.now(UTC).date().isoformat()}


def as_table(rows: list[dict[str, Any]]) -> str:
    """Return rows as a Markdown table."""
    lines = [
        "| work | requests/CPU s | bar | CPU s | steps/CPU s | jumps/steps | preemptions | hits | peak MiB | loop s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        bar = f"{row['bar_requests_per_cpu_s']:,}" if row["bar_requests_per_cpu_s"] else "-"
        lines.append(
            f"| {row['work']} | {row['requests_per_cpu_s']:,.0f} | {bar} | {row['cpu_s']:.3f} "
            f"| {row['steps_per_cpu_s']:,.0f} | {row['num_jumps'] / row['num_steps']:.3f} "
            f"| {row['num_preemptions']:,} | {row['prefix_hit_frac']:.3f} | {row['peak_memory_mib']:,.0f} "
            f"| {row['reference_loop_s']:.3f} |"
        )
    return "\n".join(lines)


def measure_all(only: str = "") -> list[dict[str, Any]]:
    """Return the rows of every work whose name contains ``only``, each measured in a process of its own."""
    rows = []
    for number, work in enumerate(works()):
        if only in work.name:
            print(f"{work.name} …", file=sys.stderr)
            command = [sys.executable, "-m", "tests.studies.bench.engine", "--row", str(number)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rows.append(json.loads(done.stdout))
    return rows


def main() -> None:
    """Measure the works asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only works whose name contains this")
    parser.add_argument("--row", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        print(json.dumps(measure(list(works())[options.row])))
    else:
        print(as_table(measure_all(options.only)))


if __name__ == "__main__":
    main()
