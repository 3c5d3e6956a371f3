"""Verdicts on random servers against brute force: what each answers of a queue that never ends is its capacity."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replay import TwinConfig, pacing_of, simulate_trace
from replay.run_verdict import judge_trace
from sim import Blackbox, EngineConfig, Status
from traces import Header, Trace, make_trace

SHARES = (0.5, 0.75, 1.4, 2.5, 6.0)
NUMBERS = (100, 300, 2000, 8000)
FLOOD = 6000
"""Requests of the queue that never ends; its middle, from half to seven tenths of the answers, is the capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A server and the lengths of its requests: median prompt and output, their spread, the most a prompt may be."""

    twin: TwinConfig
    prompt: int
    output: int
    sigma: float
    most: int

    def load(self, num: int, rate: float, *, seed: int) -> Trace:
        """Return Poisson arrivals of lognormal lengths."""
        generator = np.random.default_rng([seed, num])
        gaps = generator.exponential(1e6 / rate, size=num)
        return make_trace(
            Header(tool="vtwin", mode="generated"),
            {
                "request_id": [str(i) for i in range(num)],
                "arrival_time_us": np.cumsum(gaps).astype(np.int64),
                "input_tokens": self._lengths(self.prompt, num, generator),
                "output_tokens": self._lengths(self.output, num, generator),
            },
        )

    def _lengths(self, mean: int, num: int, generator: np.random.Generator) -> NDArray[np.int64]:
        drawn = mean * np.exp(self.sigma * generator.normal(size=num) - self.sigma**2 / 2)
        return np.clip(drawn.astype(np.int64), 1, self.most)


def draw(number: int) -> Drawn:
    """Return a server of 1 to 1,000 seats, with many KV blocks or few, of fast steps or slow."""
    generator = np.random.default_rng(number)
    seats = int(2 ** generator.uniform(0, 10))
    betas = (
        10 ** generator.uniform(3.5, 4.7),
        10 ** generator.uniform(0.5, 2),
        10 ** generator.uniform(0.5, 3.2),
    )
    prompt, output = int(10 ** generator.uniform(1, 3.5)), int(10 ** generator.uniform(0, 2.7))
    blocks = max(int((prompt + output) / 16 * generator.uniform(1.5, 40)), 20)
    engine = EngineConfig(
        async_scheduling=False,
        max_num_seqs=seats,
        max_num_batched_tokens=max(2048, seats),
        num_gpu_blocks=blocks if generator.random() < 0.6 else 100_000,
    )
    names = dict(zip(("beta0", "beta1", "beta2"), (round(each) for each in betas), strict=True))
    twin = TwinConfig(engine=engine, latency=Blackbox(**names))
    return Drawn(
        twin=twin, prompt=prompt, output=output, sigma=generator.uniform(0, 1), most=(blocks - 2) * 8
    )


def capacity(server: Drawn) -> float | None:
    """Return what a server answers per second of a queue that never ends; None where it cannot answer all."""
    outcomes = simulate_trace(server.load(FLOOD, 1e6, seed=0), server.twin)[1].outcomes
    if (outcomes.status != Status.OK).any():
        return None
    done = np.sort(outcomes.last_token_us)
    first, last = int(0.5 * FLOOD), int(0.7 * FLOOD)
    return float((last - first) / max(done[last] - done[first], 1) * 1e6)


def verdict(server: Drawn, trace: Trace) -> str:
    """Return the verdict on a run."""
    outcomes = simulate_trace(trace, server.twin)[1].outcomes
    judged = judge_trace(trace, server.twin, pacing_of(trace), outcomes)
    return "none" if judged is None else judged.verdict


def is_wrong(said: str, share: float) -> bool:
    """Return whether a verdict is false; one that cannot tell is not."""
    return said in (
        ("overloaded", "metastable") if share < 1 else ("stable", "near saturation", "metastable")
    )


def table(num_servers: int = 60) -> str:
    """Return the verdicts by share of the capacity and number of requests, the false ones counted."""
    counted: Counter[tuple[float, int, str]] = Counter()
    wrong = num = 0
    for number in range(num_servers):
        server = draw(number)
        most = capacity(server)
        if most is None:
            continue
        for share in SHARES:
            for requests in NUMBERS:
                said = verdict(server, server.load(requests, share * most, seed=requests))
                counted[share, requests, said] += 1
                wrong, num = wrong + is_wrong(said, share), num + 1
    words = ("stable", "near saturation", "overloaded", "too short to tell")
    lines = [
        f"{wrong} of {num:,} verdicts wrong.",
        "",
        f"| share of the capacity | requests | {' | '.join(words)} |",
        "|---|---|" + "---|" * len(words),
    ]
    for share in SHARES:
        for requests in NUMBERS:
            cells = [str(counted[share, requests, word]) for word in words]
            lines.append(f"| {share:g} | {requests:,} | {' | '.join(cells)} |")
    return "\n".join(lines)
