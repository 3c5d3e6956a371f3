"""``make live-router``: real routers in front of emulated servers, beside the simulated cluster on the same requests.

sglang-router and vllm-router are installed once into the user's cache. For each of their policies four servers are
started afresh (``vtwin serve --port-per-instance``), 300 requests go through the router, and the servers' own metrics
say who got how many and how many prompt tokens were cached. ``vtwin replay`` answers the same question.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np

from observe.server.prometheus_text import Sample, parse_metrics
from tests.studies.live.server import call, say
from traces import Trace, read_trace

OUTPUT = Path("vtwin-live") / "routers"
ROUTERS = {"sglang-router": "0.3.2", "vllm-router": "0.1.17"}
NUM_SERVERS = 4
TWIN = """\
engine: {max_num_seqs: 32, max_num_batched_tokens: 2048, num_gpu_blocks: 700, max_model_len: 4096}
latency:
  model: blackbox
  coefficients: {alpha0: 2000, alpha1: 0, alpha2: 0, beta0: 8000, beta1: 30, beta2: 40}
"""
WORKLOAD = """\
version: "2"
seed: 7
aggregate_rate: 25
num_requests: 300
cohorts:
  - id: app
    population: 20
    rate_fraction: 1
    prefix_group: app
    prefix_length: 600
    prefix_sharing: per_member
    arrival: {process: poisson}
    input_distribution: {type: constant, params: {value: 60}}
    output_distribution: {type: constant, params: {value: 32}}
"""
CACHE_AWARE = {"cache_threshold": 0.5, "balance_abs_threshold": 8, "balance_rel_threshold": 1.5}
READY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A real router's policy, and what TWIN.yaml calls it."""

    router: str
    policy: str
    routing: dict[str, object]


CASES = tuple(
    Case(router=router, policy=policy, routing=routing)
    for router, owner in (("sglang-router", "creator"), ("vllm-router", "least-loaded"))
    for policy, routing in (
        ("round_robin", {"policy": "round-robin"}),
        ("cache_aware", {"policy": "cache-aware", "owner": owner, **CACHE_AWARE}),
        ("power_of_two", {"policy": "power-of-two"}),
        ("random", {"policy": "random"}),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Requests per server (sorted), the share of prompt tokens found in caches, mean TTFT-less time of an answer."""

    shares: list[int]
    hit_frac: float
    e2e_ms: float

    def text(self) -> str:
        """Return cells of a table."""
        return f"{' '.join(map(str, self.shares))} | {self.hit_frac:.3f} | {self.e2e_ms:.0f}"


def main() -> None:
    """Print the table of docs/validation.md."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "twin.yaml").write_text(TWIN)
    (OUTPUT / "workload.yaml").write_text(WORKLOAD)
    vtwin("trace", "synth", "--workload", str(OUTPUT / "workload.yaml"), "--output", str(OUTPUT / "work"))
    trace = read_trace(OUTPUT / "work")
    place = installed()
    print("| router | policy | real: requests | hits | E2E, ms | simulated: requests | hits | E2E, ms |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for case in CASES:
        real, twin = measured(case, trace, place), simulated(case)
        version = f"{case.router} {ROUTERS[case.router]}"
        print(f"| {version} | {case.policy} | {real.text()} | {twin.text()} |", flush=True)


def installed() -> Path:
    """Return the environment with the routers, made where it is missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vtwin"
    place = cache / "routers"
    if not (place / "bin" / "vllm-router").exists():
        say(f"installing {', '.join(ROUTERS)} into {place}: once")
        call(sys.executable, "-m", "venv", str(place))
        wanted = [f"{name}=={version}" for name, version in ROUTERS.items()]
        call(str(place / "bin" / "python"), "-m", "pip", "--quiet", "install", *wanted)
    return place


def vtwin(*arguments: str) -> str:
    """Return what a vtwin command prints."""
    command = [sys.executable, "-P", "-m", "vtwin", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


# -- the real router ------------------------------------------------------------------------------------------


def measured(case: Case, trace: Trace, place: Path) -> Result:
    """Return what the servers say after the requests went through the router."""
    with servers() as urls, router(case, urls, place) as url:
        return asyncio.run(through(url, urls, prompts_of(trace), trace))


@contextmanager
def servers() -> Iterator[list[str]]:
    """Start the emulated servers; yield their addresses."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "vtwin",
        "serve",
        "--config",
        str(OUTPUT / "twin.yaml"),
        "--port",
        "0",
    ]
    more = ["--instances", str(NUM_SERVERS), "--port-per-instance"]
    with subprocess.Popen([*command, *more], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield [process.stdout.readline().split(" on ")[1].split()[0] for _ in range(NUM_SERVERS)]
        finally:
            process.terminate()


@contextmanager
def router(case: Case, urls: list[str], place: Path) -> Iterator[str]:
    """Start a router in front of them; yield its address once it answers."""
    port, other_port = free_port(), free_port()
    start = {
        "sglang-router": [
            str(place / "bin" / "python"),
            "-m",
            "sglang_router.launch_router",
            "--prometheus-port",
            str(other_port),
        ],
        "vllm-router": [str(place / "bin" / "vllm-router")],
    }[case.router]
    thresholds = [f"--{name.replace('_', '-')}={value}" for name, value in CACHE_AWARE.items()]
    command = [*start, "--host", "127.0.0.1", "--port", str(port), "--policy", case.policy, *thresholds]
    log = OUTPUT / f"{case.router}-{case.policy}.log"
    with (
        log.open("w") as file,
        subprocess.Popen([*command, "--worker-urls", *urls], stdout=file, stderr=file) as process,
    ):
        try:
            wait_for(port, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_for(port: int, log: Path) -> None:
    """Wait until the router knows of its servers. Raises SystemExit."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            answer = asyncio.run(_status(f"http://127.0.0.1:{port}/v1/models"))
        except (OSError, aiohttp.ClientError):
            answer = 0
        if answer == 200:
            time.sleep(
                3
            )  # the routers register their servers one after another, and do not say when they have all
            return
        time.sleep(0.5)
    raise SystemExit(f"the router did not start; see {log}")


async def _status(url: str) -> int:
    async with aiohttp.ClientSession() as client, client.get(url) as response:
        return response.status


def prompts_of(trace: Trace) -> list[str]:
    """Return a text per request: words of one token each, equal beginnings where the trace says so."""
    names, groups = np.unique(trace.column("prefix_group").to_numpy(object).astype(str), return_inverse=True)
    assert len(names) <= 26, "a letter names a group"
    prefix = trace.column("prefix_length").to_numpy(np.int64)
    own = trace.column("input_tokens").to_numpy(np.int64)
    return [
        " ".join(
            [
                *(f"{chr(97 + group)}{i:03x}" for i in range(length)),
                *(f"{row:03x}{i:02x}" for i in range(num)),
            ]
        )
        for row, (group, length, num) in enumerate(zip(groups, prefix, own, strict=True))
    ]


async def through(url: str, urls: list[str], prompts: list[str], trace: Trace) -> Result:
    """Send every request when it is due, and read the servers' counters."""
    due = trace.column("arrival_time_us").to_numpy(np.int64) / 1e6
    outputs = trace.column("output_tokens").to_numpy(np.int64)
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def one(row: int) -> float:
            await asyncio.sleep(max(0.0, started + due[row] - loop.time()))
            sent = loop.time()
            body = {
                "model": "vtwin",
                "prompt": prompts[row],
                "max_tokens": int(outputs[row]),
                "ignore_eos": True,
            }
            async with client.post(f"{url}/v1/completions", json=body) as response:
                await response.read()
                assert response.status == 200, await response.text()
            return loop.time() - sent

        seconds = await asyncio.gather(*(one(row) for row in range(len(prompts))))
        pages = [parse_metrics(await (await client.get(f"{each}/metrics")).text()) for each in urls]
    finished = [total(page, "vllm:request_success_total") for page in pages]
    hits = sum(total(page, "vllm:prefix_cache_hits_total") for page in pages)
    queries = sum(total(page, "vllm:prefix_cache_queries_total") for page in pages)
    return Result(
        shares=sorted(int(each) for each in finished),
        hit_frac=hits / queries,
        e2e_ms=float(np.mean(seconds)) * 1e3,
    )


def total(page: list[Sample], name: str) -> float:
    """Return the sum of a counter's series."""
    return float(sum(sample.value for sample in page if sample.name == name))


# -- the twin -------------------------------------------------------------------------------------------------


def simulated(case: Case) -> Result:
    """Return what the simulated cluster makes of the same requests."""
    twin = OUTPUT / "cluster.yaml"
    twin.write_text(f"{TWIN}cluster: {json.dumps({'instances': NUM_SERVERS, 'routing': case.routing})}\n")
    out = vtwin(
        "replay", str(OUTPUT / "work"), "--config", str(twin), "--output", str(OUTPUT / "sim"), "--json"
    )
    found = json.loads(out)
    return Result(
        shares=sorted(each["num_requests"] for each in found["instances"]),
        hit_frac=found["prefix_hit_frac"],
        e2e_ms=found["e2e_us"]["mean"] / 1e3,
    )


if __name__ == "__main__":
    main()
