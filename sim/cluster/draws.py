"""Random numbers of a cluster's decisions: functions of (seed, request, number), so that none shifts another."""

from __future__ import annotations

from sim.compile import engine_entry, part
from sim.engine.optional.speculative import LONGEST_OUTPUT
from sim.engine.step_duration import uniform

CLUSTER_DRAWS = LONGEST_OUTPUT // 2
"""Where a request's draws for the cluster begin. Speculative decoding has the ones before, by output token."""


@part
def draw(seed: int, request: int, number: int) -> float:
    """Return a number in (0, 1] that is a function of (seed, request, number) alone."""
    return uniform(seed, (request + 1) * LONGEST_OUTPUT + CLUSTER_DRAWS + number)


@part
def pick(seed: int, request: int, number: int, num_choices: int) -> int:
    """Return one of 0 to ``num_choices`` - 1, each equally likely."""
    return min(int(draw(seed, request, number) * num_choices), num_choices - 1)


@engine_entry
def number_drawn(seed: int, request: int, number: int) -> float:
    """Return what ``draw`` does, to Python."""
    return draw(seed, request, number)
