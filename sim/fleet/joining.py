"""How long a request that finds a seat waits all the same: a batch takes newcomers between two steps."""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass
from typing import Self

import numpy as np

from sim.fleet.erlang import Wait
from sim.fleet.profile import Busy, GpuProfile
from sim.fleet.workload import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """A newcomer finds an engine at work with probability ``busy_frac``, at any point of a step of ``step_s`` seconds.

    It waits for the rest of that step and for ``steps_ahead`` more that are scheduled already, as vLLM does with
    asynchronous scheduling.
    """

    busy_frac: float = 0.0
    step_s: float = 0.0
    steps_ahead: int = 0

    @classmethod
    def of(cls, profile: GpuProfile, busy: Busy, active: float) -> Self:
        """Return how requests join an engine that has so many on average.

        How many there are is Poisson's where none waits for a seat (M/G/infinity), so an engine idles exp(-active) of
        the time. Profiles that reserve the context are the fleet simulator's, which knows no steps: none waits there.
        """
        if profile.reserves_context:
            return cls()
        return cls(
            busy_frac=-math.expm1(-active),
            step_s=busy.iteration_s(active),
            steps_ahead=profile.max_concurrent_batches - 1,
        )

    @property
    def most_s(self) -> float:
        """The longest that a newcomer waits for steps, seconds."""
        return self.step_s * (1 + self.steps_ahead)

    def longer_than(self, wait: Wait, seconds: Floats) -> Floats:
        """Return the probability that the wait for a seat and for steps together is longer than each time."""
        if self.busy_frac == 0 or self.step_s == 0:
            return wait.longer_than(seconds)
        late = self._within_a_step(wait, seconds - self.steps_ahead * self.step_s)
        return np.asarray(self.busy_frac * late + (1 - self.busy_frac) * wait.longer_than(seconds))

    def _within_a_step(self, wait: Wait, seconds: Floats) -> Floats:
        """Return the mean of P(wait > t - u) over u from 0 to a step: 1 where u is beyond t, else the wait's tail."""
        step, decay = self.step_s, wait.decay_per_s
        passed = np.clip(seconds, 0.0, step)
        tail = (
            np.exp(-decay * (np.maximum(seconds, 0.0) - passed)) * -np.expm1(-decay * passed) / (decay * step)
        )
        return np.asarray((step - passed) / step + wait.probability * tail)
