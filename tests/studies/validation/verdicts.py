"""Verdicts on random servers against brute force: what each answers of a queue that never ends is its capacity."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replay import TwinConfig, pacing_of, simulate_trace
from replay.simulation.run_verdict import judge_trace
from sim import Blackbox, EngineConfig, Status
from tests.studies.validation import verdict_kinds
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
    return "\n".join([*lines, "", *by_decoding(), "", *verdict_kinds.table()])


def unseated() -> TwinConfig:
    """Return a server without a limit of seats that answers 20 requests of fifty tokens per second at most."""
    engine = EngineConfig(
        async_scheduling=False, max_num_seqs=20_000, max_num_batched_tokens=400_000, num_gpu_blocks=400_000
    )
    return TwinConfig(engine=engine, latency=Blackbox(beta0=10_000, beta1=0, beta2=1000))


def by_decoding(num_seeds: int = 8) -> list[str]:
    """Return how often a run that decoding bounds has a stretch of overload, by load; half of them in one stage."""
    twin = unseated()
    lines = [
        "| bound by decoding: share of the capacity | " + " | ".join(_KINDS) + " |",
        "|---" * (len(_KINDS) + 1) + "|",
    ]
    for share in (0.6, 0.8, 0.9, 0.95, 1.1, 1.2, 1.4, 2.0):
        cells = []
        for stages, cv, sigma in _KINDS.values():
            found = 0
            for seed in range(num_seeds):
                parts = [(seconds, 20 * (load or share)) for seconds, load in stages]
                trace = _of_stages(parts, seed=seed, cv=cv, sigma=sigma)
                outcomes = simulate_trace(trace, twin)[1].outcomes
                judged = judge_trace(trace, twin, pacing_of(trace), outcomes)
                found += judged is not None and bool(judged.stretches)
            cells.append(f"{found} of {num_seeds}")
        lines.append(f"| {share:g} | {' | '.join(cells)} |")
    return lines


_ONE = [(900.0, 0.0)]
_STAGE = [(300.0, 0.3), (180.0, 0.0), (400.0, 0.3)]
_KINDS: dict[str, tuple[list[tuple[float, float]], float, float]] = {
    "throughout": (_ONE, 1.0, 0.0),
    "a stage": (_STAGE, 1.0, 0.0),
    "throughout, gaps three times as uneven": (_ONE, 3.0, 0.0),
    "a stage, uneven": (_STAGE, 3.0, 0.0),
    "throughout, unlike lengths": (_ONE, 1.0, 0.6),
    "a stage, unlike lengths": (_STAGE, 1.0, 0.6),
}
"""The seconds and loads in turn (0: the share asked for), the gaps' coefficient of variation, the lengths' spread."""


def _of_stages(parts: list[tuple[float, float]], *, seed: int, cv: float, sigma: float) -> Trace:
    """Return requests of (seconds, rate) in turn."""
    rng, start, found = np.random.default_rng(seed), 0.0, list[float]()
    for seconds, rate in parts:
        at = start
        while (at := at + rng.gamma(1 / cv**2, cv**2 / rate)) < start + seconds:
            found.append(at)
        start += seconds
    n = len(found)
    lengths = 50 * np.exp(sigma * rng.normal(size=n) - sigma**2 / 2)
    return make_trace(
        Header(tool="vtwin", mode="generated"),
        {
            "request_id": [str(i) for i in range(n)],
            "arrival_time_us": (np.array(found) * 1e6).astype(np.int64),
            "input_tokens": np.full(n, 200),
            "output_tokens": np.clip(lengths.astype(np.int64), 1, 400),
        },
    )
