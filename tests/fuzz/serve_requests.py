"""``python -m tests.fuzz.serve_requests``: 12,000 hostile requests to one server, eight at a time.

Exit code 1 where one is a fault of the server or takes too long, or where the server does not answer in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter

import aiohttp

from sim import Blackbox
from tests.fuzz.__main__ import RESULTS
from tests.fuzz.run import MOST_S
from tests.replay.hostile_bodies import hostile
from tests.replay.serve.test_serve import served

QUICK = Blackbox(alpha0=0, alpha1=0, alpha2=0, beta0=1, beta1=0, beta2=0)
FIRST_SEED = 1_000_000
"""Beyond those that the suite sends."""

AT_ONCE = 8


async def send_all(number: int) -> tuple[Counter[str], float]:
    """Return how many got which answer, and the longest wait in seconds."""
    counts: Counter[str] = Counter()
    slowest = 0.0
    seeds = iter(range(FIRST_SEED, FIRST_SEED + number))

    async def send_next() -> None:
        nonlocal slowest
        for seed in seeds:
            each = hostile(seed)
            began = time.perf_counter()
            try:
                request = client.request(each.method, each.path, data=each.body, headers=each.headers)
                async with request as response:
                    await asyncio.wait_for(response.read(), MOST_S)
                    counts[f"{response.status // 100}xx"] += 1
            except TimeoutError:
                counts["hang"] += 1
            except ValueError:
                counts["not sent by the client"] += 1
            except aiohttp.ClientError:
                counts["connection ended"] += 1
            slowest = max(slowest, time.perf_counter() - began)

    async with served(latency=QUICK, engine={"max_model_len": 256}) as (_, client):
        await asyncio.gather(*(send_next() for _ in range(AT_ONCE)))
        async with client.get("/health") as response:
            counts["alive in the end"] += response.status == 200
    return counts, slowest


def main() -> int:
    """Send them; return the exit code."""
    asked = argparse.ArgumentParser(prog="python -m tests.fuzz.serve_requests", description=__doc__)
    asked.add_argument("--number", type=int, default=12_000)
    asked.add_argument("--record", action="store_true", help="add the count to tests/fuzz/results.json")
    options = asked.parse_args()
    counts, slowest = asyncio.run(send_all(options.number))
    print(dict(counts), f"slowest {slowest:.2f} s")
    if counts["5xx"] or counts["hang"] or not counts["alive in the end"]:
        return 1
    if options.record:
        results = json.loads(RESULTS.read_text())
        results["serve-request"] = results.get("serve-request", 0) + options.number
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
