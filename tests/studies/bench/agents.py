"""What agents' sessions cost: the project's eight, again under other names, read, converted and replayed."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.studies.bench.engine import reference_loop_s

SAMPLES = Path(__file__).parents[3] / "traces" / "samples" / "agents"
TIMES = (7, 29, 178)
"""How often each session stands in a folder: 2,338, 9,686 and 59,452 requests."""
TWIN = """\
engine: {max_num_seqs: 256, max_num_batched_tokens: 8192, num_gpu_blocks: 4000000, max_model_len: 200000}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 20, beta2: 1}}
"""
MEASURED = """\
import resource, sys, vtwin
code = vtwin.main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(code, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, file=sys.stderr)
"""


def measure_agents() -> list[dict[str, Any]]:
    """Return a row per number of requests: CPU seconds and memory of converting and of replaying them."""
    rows = []
    for times in TIMES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "twin.yaml").write_text(TWIN)
            write_sessions(folder / "sessions", times)
            convert_s, convert_mib, told = measured(
                ["trace", "convert", "sessions", "--from", "weka", "--output", "agents"], folder
            )
            replay_s, replay_mib, _ = measured(
                ["replay", "agents", "--config", "twin.yaml", "--output", "out", "--sessions", "200"], folder
            )
            rows.append(
                {
                    "requests": int(re.sub(r"\D", "", told.split(" request")[0].split("\n")[-1])),
                    "convert_cpu_s": convert_s,
                    "convert_mib": convert_mib,
                    "replay_cpu_s": replay_s,
                    "replay_mib": replay_mib,
                    "loop_s": reference_loop_s(),
                }
            )
    return rows


def write_sessions(folder: Path, times: int) -> None:
    """Write the project's sessions ``times`` over, each under a name of its own."""
    folder.mkdir()
    for file in sorted(SAMPLES.glob("*.json.gz")):
        text = gzip.decompress(file.read_bytes()).decode()
        for number in range(times):
            copy = re.sub(r'"id": ?"', f'"id": "{number}-', text, count=1)
            (folder / f"{number}-{file.name.removesuffix('.gz')}").write_text(copy)


def measured(arguments: list[str], folder: Path) -> tuple[float, float, str]:
    """Return (CPU seconds, peak MiB, what it told) of one vtwin command."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    *told, last = done.stderr.strip().split("\n")
    code, cpu_s, mib = last.split()
    if code != "0":
        raise SystemExit(f"vtwin {' '.join(arguments)}: exit code {code}, {done.stderr}")
    return float(cpu_s), float(mib), "\n".join(told)


def agents_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| agents' requests | convert, CPU s | MiB | replay, 200 sessions at once, CPU s | MiB | loop s |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['requests']:,} | {row['convert_cpu_s']:.1f} | {row['convert_mib']:,.0f} | {row['replay_cpu_s']:.1f} | "
        f"{row['replay_mib']:,.0f} | {row['loop_s']:.3f} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(agents_table(measure_agents()))
