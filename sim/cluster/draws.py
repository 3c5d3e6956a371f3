"""Random numbers of a cluster: each a function of (seed, stream, index), so that none shifts another.

A stream has a name, here. The index is that of a request, or of an instance. A stream's draw for an index is
independent of all others: of a request's outputs (``speculative.verify_drafts``), its decisions here, a step's scatter.
"""

from __future__ import annotations

from sim.engine.step_time.step_duration import LONGEST_OUTPUT, uniform
from sim.jit.compile import engine_entry, part

CLUSTER_DRAWS = LONGEST_OUTPUT // 2
"""Where the cluster's draws for an index begin. Speculative decoding has the ones before, by output token."""

NOISE_DRAWS = 1 << 62
"""Where the scatter of steps begins, behind the draws of a billion requests: an instance has LONGEST_OUTPUT of them.

Instance 0 has those of a server alone, from 0 on."""

ROUTE, ROUTE_SECOND, RETRY_PAUSE, PREFILL_ROUTE, PREFILL_ROUTE_SECOND = range(5)
"""Streams by request: which instance gets it, the second one that power-of-two looks at, the pause before it is sent
again; and both choices again among the instances that compute prompts."""

UPTIME, REPAIR = 1 << 20, (1 << 20) + 1
"""Streams by instance, with a number for each of its failures: they have every second place from there on."""

STREAMS = {
    "route": ROUTE,
    "route, second": ROUTE_SECOND,
    "retry pause": RETRY_PAUSE,
    "prefill route": PREFILL_ROUTE,
    "prefill route, second": PREFILL_ROUTE_SECOND,
    "uptime": UPTIME,
    "repair": REPAIR,
}
"""Every stream by its name."""


@part
def draw(seed: int, stream: int, index: int) -> float:
    """Return a number in (0, 1) that is a function of (seed, stream, index) alone."""
    return uniform(seed, (index + 1) * LONGEST_OUTPUT + CLUSTER_DRAWS + stream)


@part
def pick(seed: int, stream: int, index: int, num_choices: int) -> int:
    """Return one of 0 to ``num_choices`` - 1, each equally likely."""
    return min(int(draw(seed, stream, index) * num_choices), num_choices - 1)


@engine_entry
def number_drawn(seed: int, stream: int, index: int) -> float:
    """Return what ``draw`` does, to Python."""
    return draw(seed, stream, index)


def first_noise_draw(instance: int) -> int:
    """Return where the scatter of an instance's steps begins."""
    return 0 if instance == 0 else NOISE_DRAWS + instance * LONGEST_OUTPUT
