"""``make soak``: serve and observe for ten minutes; the memory of both, which must stay flat.

A process starts with caches to fill, so the first third counts for nothing. After it a line is fitted: what it grows
by in an hour must be below ``MOST_MIB_PER_HOUR``. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

MOST_MIB_PER_HOUR = 30.0
RATE = 4.0
"""Requests per second where no other is asked for."""
SETTLING_FRAC = 1 / 3
WRITING_S = 10.0
"""Before the client's end: it reads and writes its whole trace once more, and that memory is no growth."""
TWIN = """
engine: {max_num_seqs: 16, max_num_batched_tokens: 1024, num_gpu_blocks: 2000, max_model_len: 4096}
latency: {model: blackbox, coefficients: {alpha0: 2000, alpha1: 1, alpha2: 0, beta0: 8000, beta1: 40, beta2: 100}}
"""


def resident_mib(pid: int) -> float:
    """Return a process's resident memory. Raises OSError when it is gone."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def growth_per_hour(times_s: list[float], mib: list[float]) -> float:
    """Return the slope of a line through memory after the settling time, MiB per hour."""
    times, sizes = np.array(times_s), np.array(mib)
    counts = times >= times[0] + SETTLING_FRAC * (times[-1] - times[0])
    counts &= times <= times[-1] - WRITING_S
    return float(np.polyfit(times[counts], sizes[counts], 1)[0] * 3600)


def main() -> int:
    """Run both; return 1 where memory grows or requests fail."""
    asked = argparse.ArgumentParser(prog="python -m tests.studies.live.soak", description=__doc__)
    asked.add_argument("--seconds", type=float, default=600)
    asked.add_argument("--instances", type=int, default=1, help="more than one: a fleet behind a router")
    asked.add_argument("--rate", type=float, default=RATE, help="requests per second")
    options = asked.parse_args()
    seconds, instances, rate = options.seconds, options.instances, options.rate
    vtwin = str(Path(sys.executable).with_name("vtwin"))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "twin.yaml").write_text(TWIN)
        command = [vtwin, "serve", "--config", str(place / "twin.yaml"), "--port", "0"]
        if instances > 1:
            command += ["--instances", str(instances), "--routing", "cache-aware"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url = next(word for line in server.stdout for word in line.split() if word.startswith("http"))
            load = [vtwin, "observe", "--url", url, "--rate", str(rate), "--output", str(place / "run")]
            load += [
                "--num-requests",
                str(int(seconds * rate)),
                "--prompt-tokens",
                "200",
                "--output-tokens",
                "20",
            ]
            with (place / "observe.log").open("w") as log:
                client = subprocess.Popen(load, stdout=log, stderr=log)
                samples = sampled(server, client)
            log_text = (place / "observe.log").read_text()
        finally:
            server.terminate()
            server.wait()
    return verdict(samples, client.returncode, log_text)


def sampled(
    server: subprocess.Popen[str], client: subprocess.Popen[bytes]
) -> list[tuple[float, float, float]]:
    """Return (time in s, MiB of the server, MiB of the client) every second until the client has ended."""
    samples = []
    while client.poll() is None:
        try:
            samples.append((time.monotonic(), resident_mib(server.pid), resident_mib(client.pid)))
        except (OSError, IndexError):  # the client has just ended
            break
        time.sleep(1)
    client.wait()
    return [each for each in samples if each[2] > 0]


def verdict(samples: list[tuple[float, float, float]], client_code: int, log_text: str) -> int:
    """Print one line of JSON; return the exit code."""
    times = [each[0] for each in samples]
    answer = {"seconds": round(times[-1] - times[0]), "observe_exit_code": client_code}
    grows = False
    for name, place in (("serve", 1), ("observe", 2)):
        mib = [each[place] for each in samples]
        slope = growth_per_hour(times, mib)
        grows |= slope > MOST_MIB_PER_HOUR
        third = len(mib) // 3
        answer[name] = {
            "mib_after_a_third": round(mib[third], 1),
            "mib_before_the_end": round(float(np.interp(times[-1] - WRITING_S, times, mib)), 1),
            "mib_at_most": round(max(mib), 1),
            "mib_per_hour": round(slope, 1),
        }
    print(json.dumps(answer))
    if client_code:
        print(log_text[-2000:], file=sys.stderr)
    return 1 if grows or client_code else 0


if __name__ == "__main__":
    raise SystemExit(main())
