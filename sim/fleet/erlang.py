"""How long requests wait for one of many servers: Erlang's formulas, and those for services and gaps of any spread."""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass

import numpy as np

from sim.config import InvalidConfig

NEGLIGIBLE = 700.0
"""A share below exp(-700) counts as 0: float64 ends near there."""
LEAST_SPREAD = 1e-6
"""Variance of arrivals and services together; without any no arrival waits, and the decay is infinite."""


def erlang_b(servers: int, offered_load: float) -> float:
    """Return the share of arrivals that find all servers taken where none may wait (Erlang 1917, loss formula).

    1/B = Σ_k c·(c-1)···(c-k+1) / a^k, summed in logarithms, so that it holds for a million servers. ``offered_load``:
    arrivals per service time. Without a server all are lost. Raises InvalidConfig on fewer, or on a negative load.
    """
    if servers < 0 or not 0 <= offered_load < math.inf:
        raise InvalidConfig(
            f"erlang: got {servers} servers and a load of {offered_load}, expected >= 0 and >= 0"
        )
    if servers == 0:
        return 1.0
    if offered_load == 0 or _exponent(servers, offered_load) > NEGLIGIBLE:
        return 0.0
    steps = np.cumsum(np.log(np.arange(servers, 0, -1, dtype=np.float64) / offered_load))
    most = max(0.0, float(steps.max()))
    inverse = most + math.log(math.exp(-most) + float(np.exp(steps - most).sum()))
    return math.exp(-inverse)


def _exponent(servers: int, offered_load: float) -> float:
    """Return x so that B is at most exp(-x): Chernoff's bound of a Poisson tail; 0 where servers are fewer."""
    if offered_load >= servers:
        return 0.0
    return servers * math.log(servers / offered_load) - servers + offered_load


def erlang_c(servers: int, offered_load: float) -> float:
    """Return the share of arrivals that have to wait in M/M/c; 1 where the load is more than the servers can do.

    C = B / (1 - rho·(1 - B)) with rho = a/c. Without a server every arrival waits. Raises InvalidConfig as
    ``erlang_b``.
    """
    blocked = erlang_b(servers, offered_load)
    if offered_load >= servers:
        return 1.0
    return blocked / (1 - offered_load / servers * (1 - blocked))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How long arrivals wait: longer than t seconds with probability ``probability·exp(-decay_per_s·t)``."""

    probability: float
    decay_per_s: float

    @classmethod
    def of(
        cls,
        servers: int,
        arrival_rate: float,
        service_rate: float,
        cv2: float,
        *,
        arrival_cv2: float = 1.0,
    ) -> Wait:
        """Return the wait in G/G/c: Erlang's C, and the decay 2·(c·mu - lambda) / (arrival cv² + service cv²).

        ``service_rate``: of one server, per second; ``cv2``: variance of the service time over its mean squared;
        ``arrival_cv2``: of the gaps between arrivals, 1 for Poisson's. Where the servers cannot keep up every arrival
        waits without end. Exact for M/M/c; for other services Kimura (1986) scales its mean by (1 + cv²) / 2, for other
        gaps Allen and Cunneen (Allen 1978, Probability, Statistics and Queueing Theory) by (arrival cv² + cv²) / 2, as
        Kingman (1962) has it for one server in heavy traffic. Raises InvalidConfig on a rate or spread that is not
        valid.
        """
        if not (arrival_rate >= 0 and service_rate > 0 and cv2 >= 0 and arrival_cv2 >= 0):
            raise InvalidConfig(
                f"wait: got rates of {arrival_rate} and {service_rate} and cv2 {cv2} and {arrival_cv2}, expected >= 0, "
                "> 0 and >= 0"
            )
        spare = servers * service_rate - arrival_rate
        if spare <= 0:
            return cls(probability=1.0, decay_per_s=0.0)
        return cls(
            probability=erlang_c(servers, arrival_rate / service_rate),
            decay_per_s=2 * spare / max(arrival_cv2 + cv2, LEAST_SPREAD),
        )

    def longer_than(
        self, seconds: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Return the probability to wait longer than each time; 1 for times below 0."""
        tail = self.probability * np.exp(-self.decay_per_s * np.maximum(seconds, 0.0))
        return np.where(seconds < 0, 1.0, tail)

    def percentile_s(self, share: float) -> float:
        """Return the wait that ``share`` (0.99) of the arrivals do not exceed, seconds; infinite without an end."""
        if self.probability <= 1 - share:
            return 0.0
        if self.decay_per_s == 0:
            return math.inf
        return math.log(self.probability / (1 - share)) / self.decay_per_s

    @property
    def mean_s(self) -> float:
        """The mean wait, seconds."""
        return math.inf if self.decay_per_s == 0 else self.probability / self.decay_per_s


def p99_wait_s(servers: int, arrival_rate: float, service_rate: float, cv2: float) -> float:
    """Return the 99th percentile of the wait in M/G/c, seconds: ln(C / 0.01) / decay, 0 where C is at most 0.01."""
    return Wait.of(servers, arrival_rate, service_rate, cv2).percentile_s(0.99)
