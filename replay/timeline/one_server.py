"""One server's run over time, in the shape that a cluster's has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from replay.cluster.over_time import (
    POINTS,
    ServingInstances,
    Stretches,
    counted_in,
    over_time_of,
    peak_us_of,
)
from replay.timeline.watch_engine import look_at
from sim import Status

if TYPE_CHECKING:
    from replay.cluster.over_time import OverTime
    from replay.trace.pacing import Pacing
    from replay.twin.twin_config import TwinConfig
    from sim import Requests, Simulation

Floats = NDArray[np.float64]

NAME = "0"
"""The name of the instance and of its pool, as in a cluster of one."""


def server_over_time(
    requests: Requests,
    twin: TwinConfig,
    pacing: Pacing,
    simulation: Simulation,
    *,
    ends_us: Floats | None = None,
) -> OverTime | None:
    """Return the JSON's series of one server, which is simulated once more for it; None of a run that took no time.

    ``requests``: as they reached the server. ``ends_us``: of the stretches, ascending, the run's end the last; None: as
    many equal ones as a short cluster's run has.
    """
    if simulation.duration_us == 0:
        return None
    if ends_us is None:
        ends_us = np.unique(np.ceil(np.arange(1, POINTS + 1) * (simulation.duration_us / POINTS)))
    seen, outcomes = look_at(requests, twin, pacing, ends_us), simulation.outcomes
    here = np.zeros(len(requests), np.int32)
    pool_of = np.zeros(1, np.int64)
    num_blocks = float(twin.engine.num_gpu_blocks - 1) if twin.engine.num_gpu_blocks else np.nan
    done_us = np.where(outcomes.status == Status.OK, outcomes.last_token_us, -1)
    served = ServingInstances(outcomes=outcomes, instance=here, prompt_tokens=requests.prompt_tokens)
    found = Stretches(
        time_us=ends_us,
        waiting=seen.waiting[:, None],
        running=seen.running[:, None],
        used_blocks=np.round(seen.kv_frac * num_blocks)[:, None],
        busy_us=np.maximum(np.diff(seen.busy_us, prepend=0.0), 0.0)[:, None],
        routed=counted_in(ends_us, outcomes.arrival_us, here, 1),
        completed=counted_in(ends_us, done_us, here, 1),
        peak_us=peak_us_of(served, ends_us, pool_of=pool_of, peaks=twin.peaks),
        num_blocks=np.array([num_blocks]),
        pool_of=pool_of,
    )
    return over_time_of(found, outcomes.arrival_us, names=[NAME], pools=[NAME])
