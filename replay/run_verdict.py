"""The verdict on a simulated run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.verdict.again import Repeatable, serves_again
from replay.verdict.judge import judge_load
from replay.verdict.judged import Judged
from sim import Outcomes, Status
from traces import TraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from replay.trace.pacing import Pacing
    from replay.twin.twin_config import TwinConfig
    from sim.cluster import ClusterWork
    from traces import Trace


def judge_run(
    outcomes: Outcomes,
    twin: TwinConfig,
    pacing: Pacing,
    *,
    work: ClusterWork,
    refused: NDArray[np.bool_],
) -> Judged | None:
    """Return the verdict on a run whose requests arrive at their own times; None if there is none.

    ``refused``: which requests a front end refused for their lengths, which is not caused by the load.
    """
    if pacing.is_by_answers and pacing.users != 0:
        return None
    plan = work.clients
    run = Repeatable(
        requests=work.requests,
        session=None if plan is None else work.session,
        first=np.ones(len(work.requests), np.bool_) if plan is None else plan.arrives,
        serve=serves_again(work, twin.cluster),
    )
    unanswered = np.asarray((outcomes.status != Status.OK) & ~refused, np.bool_)
    return judge_load(run, outcomes, unanswered=unanswered)


def judge_trace(trace: Trace, twin: TwinConfig, pacing: Pacing, outcomes: Outcomes) -> Judged | None:
    """Return the verdict on one server's run of a trace; None where there is none, or a row lacks a time."""
    from replay.cluster.work import cluster_work

    if pacing.is_by_answers:
        return None
    try:
        work = cluster_work(trace, pacing, twin.cluster)
    except TraceError:
        return None
    return judge_run(outcomes, twin, pacing, work=work, refused=outcomes.status == Status.REJECTED)
