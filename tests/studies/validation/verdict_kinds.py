"""Verdicts on random loads of other kinds than Poisson arrivals at one server of seats: each with its known truth.

Bound by decoding, clients that give up, bursts, and an autoscaler. The capacity is known by hand: a server that decodes
without a limit of seats, or sixteen to two hundred seats that all decode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import replay
from replay import TwinConfig
from sim import Blackbox, EngineConfig
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.infrastructure.infrastructure_config import Autoscaler
from sim.cluster.routing.routing_policies import LeastLoaded
from traces import Header, Trace, make_trace

WITHIN, BEYOND = (0.3, 0.5, 0.7, 0.8), (1.3, 1.6, 2.5)
NUM_SERVERS = 24
"""Of each kind; every one gets all seven shares of its capacity."""
NUM_REQUESTS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A server, a load, and whether more is sent than it answers, for longer than a burst."""

    twin: TwinConfig
    trace: Trace
    is_over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A server whose requests all have equally long answers: it takes ``token_us`` a token, and ``base_us`` a step."""

    seats: int | None
    base_us: int
    token_us: int
    output: int

    @property
    def per_s(self) -> float:
        """Requests that it answers per second, at most."""
        seats = np.inf if self.seats is None else self.seats
        return 1e6 / (self.output * (self.base_us / seats + self.token_us))

    @property
    def served_s(self) -> float:
        """How long it serves one at half its capacity, or with all seats taken."""
        num = self.seats or self.base_us / self.token_us
        return self.output * (self.base_us + num * self.token_us) / 1e6

    def pool(self, instances: int = 1) -> Pool:
        """Return so many of them."""
        seats = self.seats or 20_000
        engine = EngineConfig(
            async_scheduling=False,
            max_num_seqs=seats,
            max_num_batched_tokens=max(20 * seats, 2048),
            num_gpu_blocks=40 * seats + 1000,
        )
        latency = Blackbox(beta0=self.base_us, beta1=0, beta2=self.token_us)
        return Pool(engine=engine, latency=latency, instances=instances)

    @property
    def twin(self) -> TwinConfig:
        """Return one of them."""
        pool = self.pool()
        return TwinConfig(engine=pool.engine, latency=pool.latency)


def decoder(rng: np.random.Generator, *, has_seats: bool) -> Decoder:
    """Return a drawn one."""
    return Decoder(
        seats=int(2 ** rng.uniform(3, 7.6)) if has_seats else None,
        base_us=int(10 ** rng.uniform(3.5, 4.5)),
        token_us=int(10 ** rng.uniform(2, 3.2)),
        output=int(10 ** rng.uniform(1, 2.2)),
    )


def poisson(rng: np.random.Generator, rate: float, num: int) -> NDArray[np.float64]:
    """Return arrivals in seconds."""
    return np.cumsum(rng.exponential(1 / rate, num))


def trace_of(came_s: NDArray[np.float64], output: int, **more: NDArray[np.int64]) -> Trace:
    """Return requests of ten tokens that come then."""
    num = len(came_s)
    return make_trace(
        Header(tool="vtwin", mode="generated"),
        {
            "request_id": [str(i) for i in range(num)],
            "arrival_time_us": (np.sort(came_s) * 1e6).astype(np.int64),
            "input_tokens": np.full(num, 10),
            "output_tokens": np.full(num, output),
            **more,
        },
    )


def long_enough(server: Decoder, rate: float) -> int:
    """Return how many requests last for fifty times as long as one is served."""
    return int(np.clip(50 * server.served_s * rate, NUM_REQUESTS, 40_000))


def bound_by_decoding(rng: np.random.Generator, share: float) -> Load:
    """No limit of seats: an overload has no queue, its steps grow."""
    server = decoder(rng, has_seats=False)
    rate = share * server.per_s
    came = poisson(rng, rate, long_enough(server, rate))
    return Load(twin=server.twin, trace=trace_of(came, server.output), is_over=share > 1)


def giving_up(rng: np.random.Generator, share: float) -> Load:
    """Clients wait for three to twenty times as long as one is served with all seats taken."""
    server = decoder(rng, has_seats=True)
    rate = share * server.per_s
    came = poisson(rng, rate, long_enough(server, rate))
    patience_us = int(1e6 * server.served_s * rng.uniform(3, 20))
    deadline = (came * 1e6).astype(np.int64) + patience_us
    trace = trace_of(came, server.output, deadline_us=deadline)
    return Load(twin=server.twin, trace=trace, is_over=share > 1)


def with_bursts(rng: np.random.Generator, share: float) -> Load:
    """A third of the capacity throughout; within: 1 % more at once; beyond: a tenth of the time at ``share``."""
    server = decoder(rng, has_seats=True)
    num = 2 * long_enough(server, server.per_s / 3)
    came = poisson(rng, server.per_s / 3, num)
    if share < 1:
        at_once = int(0.01 * num)
        return Load(
            twin=server.twin,
            trace=trace_of(np.concatenate([came, np.full(at_once, came[-1] / 2)]), server.output),
            is_over=False,
        )
    more = came[-1] * 0.4 + poisson(rng, share * server.per_s, int(0.1 * came[-1] * share * server.per_s))
    return Load(twin=server.twin, trace=trace_of(np.concatenate([came, more]), server.output), is_over=True)


def scaled(rng: np.random.Generator, share: float) -> Load:
    """Two to six servers: within, two are enough; beyond, six are too few."""
    server = decoder(rng, has_seats=True)
    pool = server.pool(2)
    scaler = Autoscaler(
        policy="target", target=0.7 * float(server.seats or 1), min_instances=2, max_instances=6
    )
    config = ClusterConfig(
        pools=(Pool(engine=pool.engine, latency=pool.latency, instances=2, autoscaler=scaler),),
        routing=LeastLoaded(),
    )
    rate = share * server.per_s * (2 if share < 1 else 6)
    came = poisson(rng, rate, long_enough(server, rate))
    twin = TwinConfig(engine=pool.engine, latency=pool.latency, asked_cluster=config)
    return Load(twin=twin, trace=trace_of(came, server.output), is_over=share > 1)


KINDS: dict[str, Callable[[np.random.Generator, float], Load]] = {
    "bound by decoding": bound_by_decoding,
    "clients give up": giving_up,
    "bursts": with_bursts,
    "an autoscaler": scaled,
}


def verdicts(kind: str, num_servers: int = NUM_SERVERS) -> Iterator[tuple[int, float, bool, str]]:
    """Yield each load's number and share, whether it is too much, and the verdict."""
    for number in range(num_servers):
        for share in (*WITHIN, *BEYOND):
            load = KINDS[kind](np.random.default_rng([number, *kind.encode()]), share)
            said = replay.run(load.trace, load.twin).summary["verdict"]
            yield number, share, load.is_over, str(said)


def is_wrong(said: str, *, is_over: bool) -> bool:
    """Return whether a verdict is false; one that cannot tell is not."""
    return said in (("stable", "near saturation", "metastable") if is_over else ("overloaded", "metastable"))


def table() -> list[str]:
    """Return the verdicts by kind and truth, the false ones counted and named."""
    words = ("stable", "near saturation", "overloaded", "metastable", "too short to tell")
    lines = ["| kind | truth | " + " | ".join(words) + " | wrong |", "|---" * (len(words) + 3) + "|"]
    false: list[str] = []
    for kind in KINDS:
        counted: Counter[tuple[bool, str]] = Counter()
        for number, share, is_over, said in verdicts(kind):
            counted[is_over, said] += 1
            if is_wrong(said, is_over=is_over):
                false.append(f"{kind}, server {number} at {share:g}: {said}")
        for is_over, truth in ((False, "within"), (True, "beyond")):
            wrong = sum(
                n for (over, said), n in counted.items() if over is is_over and is_wrong(said, is_over=over)
            )
            cells = [str(counted[is_over, word]) for word in words]
            lines.append(f"| {kind} | {truth} | {' | '.join(cells)} | {wrong} |")
    return [*lines, "", *false]
