"""The order of waiting requests, and which is preempted first: one number per request, lower goes first.

vLLM has fcfs and priority; the others are the twin's own. Every order here is fixed when a request arrives: an age that
adds the same per second to all waiting requests changes no request's place, so ``priority - weight * age`` orders as
``priority + weight * arrival`` does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.config import EngineConfig
from sim.requests import Int64s

MICROSECONDS_PER_SECOND = 1e6


def age_weight_per_us(config: EngineConfig) -> float:
    """Return what a µs of later arrival adds to a request's urgency value."""
    weight = config.priority_age_weight / MICROSECONDS_PER_SECOND
    return {"constant": 0.0, "slo-based": weight, "inverted-slo": -weight}[config.priority_scoring]


def urgency(config: EngineConfig, *, priority: Int64s, prompt_tokens: Int64s) -> NDArray[np.float64]:
    """Return what requests are ordered by, lower first, before their age is counted; unused by fcfs."""
    if config.scheduling_policy == "sjf":
        return prompt_tokens.astype(np.float64)
    if config.scheduling_policy == "reverse-priority":
        return -priority.astype(np.float64)
    return priority.astype(np.float64)
