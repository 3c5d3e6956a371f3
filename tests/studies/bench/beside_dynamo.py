"""vtwin and Dynamo's offline replay on the same traces, in turn.

``python -m tests.studies.bench.beside_dynamo PYTHON``: the Python of an environment with ai-dynamo, without its
requirement aisimulate, which PyPI has as a placeholder: ``pip install --no-deps ai-dynamo==1.6.1
ai-dynamo-runtime==1.6.1``, then ``pip install aiohttp msgspec prometheus-client pyzmq zstandard tqdm numpy pyyaml
transformers uvloop 'pydantic<=2.13.5'``.

Both read the uncompressed trace and simulate one clock (tests/studies/validation/clusters.py). CPU seconds of the whole
process: start, imports, reading. Five runs of each in turn, after one that warms.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.studies.bench.commands import timed
from tests.studies.bench.engine import reference_loop_s
from tests.studies.bench.works import DATA
from tests.studies.validation.clusters import ROUTERS, TWIN, replay

REPEATS = 5
PATH_TO = {
    "Mooncake conversations": "conversation_trace.jsonl.gz",
    "Mooncake synthetic": "synthetic_trace.jsonl.gz",
}
ROWS = (
    ("Mooncake conversations", 1, "round-robin"),
    ("Mooncake conversations", 4, "round-robin"),
    ("Mooncake conversations", 4, "kv-cost"),
    ("Mooncake conversations", 16, "kv-cost"),
    ("Mooncake synthetic", 1, "round-robin"),
    ("Mooncake synthetic", 4, "round-robin"),
    ("Mooncake synthetic", 4, "kv-cost"),
)
THEIRS = {"round-robin": "round_robin", "kv-cost": "kv_router"}
REPLAY = """
import json, sys
from dynamo.replay import run_trace_replay

trace, workers, router, profile, answer = sys.argv[1:]
engine = {"backend": "vllm", "num_gpu_blocks": 16384, "block_size": 64, "max_num_seqs": 256,
          "max_num_batched_tokens": 8192, "emit_kv_events": router == "kv_router",
          "timing_model": {"type": "external", "provider": "dynamo_profile", "config": {"path": profile}}}
report = run_trace_replay([trace], extra_engine_args={"engine": engine}, num_workers=int(workers),
                          router_mode=router, trace_block_size=512)
with open(answer, "w") as written:
    json.dump(report.summary, written)
"""
"""What runs under Dynamo's Python."""


def write_profile(path: Path) -> None:
    """Write step times for Dynamo: 20 µs per uncached prompt token, and 10 ms for a step that decodes."""
    prompts = np.array([1.0, 8192.0])
    contexts = np.array([1.0, 200_000.0])
    kv_tokens = np.array([1.0, 2_000_000.0])
    np.savez(
        path,
        prefill_isl=prompts,
        prefill_ttft_ms=0.02 * prompts,
        decode_active_kv_tokens=kv_tokens,
        decode_context_length=contexts,
        decode_itl=np.full((2, 2), 10.0),
    )


def row(python: Path, folder: Path, case: tuple[str, int, str]) -> str:
    """Return a row: the range of both, the ratios of the least and of the medians, the mean TTFT of both."""
    name, instances, router = case
    trace = str(folder / f"{name}.jsonl")
    twin, theirs_written = TWIN % (instances, ROUTERS[router]), folder / "dynamo.json"
    (folder / "twin.yaml").write_text(twin.partition("cluster:")[0] if instances == 1 else twin)
    ours = ["replay", trace, "--config", "twin.yaml"]
    theirs = ["replay.py", trace, str(instances), THEIRS[router], "profile.npz", theirs_written.name]
    seconds: dict[str, list[float]] = {"vtwin": [], "dynamo": []}
    for _ in range(1 + REPEATS):
        seconds["vtwin"].append(timed(ours, folder).cpu_s)
        seconds["dynamo"].append(timed(theirs, folder, program=python).cpu_s)
    (_, *a), (_, *b) = seconds.values()
    answer = replay(Path(trace), folder, instances=instances, routing=ROUTERS[router])
    our_ms, their_ms = (
        answer["ttft_us"]["mean"] / 1000,
        json.loads(theirs_written.read_text())["mean_ttft_ms"],
    )
    least, median = min(b) / min(a), statistics.median(b) / statistics.median(a)
    return (
        f"| {name}, {instances} | {router} | {min(a):.2f} to {max(a):.2f} | {min(b):.2f} to {max(b):.2f} "
        f"| {least:.2f}, {median:.2f} | {our_ms:,.1f} / {their_ms:,.1f} |"
    )


def main() -> None:
    """Print the table."""
    asked = argparse.ArgumentParser(prog="python -m tests.studies.bench.beside_dynamo", description=__doc__)
    asked.add_argument("python", type=Path, help="the Python of an environment with ai-dynamo")
    asked.add_argument("--only", default="", metavar="TEXT", help="rows with this text")
    options = asked.parse_args()
    version = "from importlib.metadata import version; print(version('ai-dynamo'))"
    found = subprocess.run([options.python, "-c", version], check=True, capture_output=True, text=True)
    when = (
        f"{time.strftime('%Y-%m-%d')}, load average {os.getloadavg()[0]:.1f}, loop {reference_loop_s():.3f} s"
    )
    print(f"Dynamo {found.stdout.strip()}, {when}\n")
    print(
        "| trace, engines | router | vtwin, CPU s | Dynamo, CPU s | least, median | mean TTFT ms, vtwin / Dynamo |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_profile(folder / "profile.npz")
        (folder / "replay.py").write_text(REPLAY)
        for name, file in PATH_TO.items():
            (folder / f"{name}.jsonl").write_bytes(
                gzip.decompress((DATA / "mooncake_fast25" / file).read_bytes())
            )
        for case in ROWS:
            line = f"{case[0]}, {case[1]} | {case[2]}"
            if options.only in line:
                print(row(options.python, folder, case), flush=True)
    print(f"\nload average at the end {os.getloadavg()[0]:.1f}, loop {reference_loop_s():.3f} s")


if __name__ == "__main__":
    main()
