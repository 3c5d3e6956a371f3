"""The verdict on a simulated run."""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from replay.trace.with_outcomes import cancelled_at
from replay.verdict.again import Repeatable, serves_again
from replay.verdict.judge import judge_load, step_time_us
from replay.verdict.judged import Judged
from replay.verdict.queued import queued_of
from replay.verdict.stretches import Down, OverloadedStretch, overloaded_stretches
from sim import Outcomes, Status
from traces import TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from replay.trace.pacing import Pacing
    from replay.twin.twin_config import TwinConfig
    from sim.cluster import ClusterWork
    from traces import Cells, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRequests:
    """When each request left a cluster, for any reason, and when its prompt's KV was handed over; µs int64 [n].

    -1: never. ``handed_us`` None: no prompt is computed elsewhere. ``downs``: when instances did not serve.
    """

    left_us: NDArray[np.int64]
    handed_us: NDArray[np.int64] | None = None
    downs: Sequence[Down] = ()


def judge_run(
    outcomes: Outcomes,
    twin: TwinConfig,
    pacing: Pacing,
    *,
    work: ClusterWork,
    refused: NDArray[np.bool_],
    lost: LostRequests | None = None,
    limit_us: float | None = None,
    cancelled: Cells | None = None,
) -> Judged | None:
    """Return the verdict on a run whose requests arrive at their own times; None if there is none.

    ``refused``: which requests a front end refused for their lengths, which is not caused by the load. ``lost``: when
    requests left a cluster. ``limit_us``: the SLO's TTFT. ``cancelled``: when clients cut requests, which is not caused
    by the load either.
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
    compiled_us = _compile_times(work, twin)
    outcomes = replace(
        outcomes,
        queued_us=np.where(
            outcomes.scheduled_us >= 0,
            np.minimum(outcomes.queued_us + compiled_us, outcomes.scheduled_us),
            outcomes.queued_us,
        ),
    )
    unanswered = (outcomes.status != Status.OK) & ~refused
    if cancelled is not None:
        unanswered &= ~cancelled.is_known
        outcomes = _with_cut_answers(outcomes, cancelled)
    stretches = _stretches(
        outcomes, work, refused=refused, lost=lost, limit_us=limit_us, compiled_us=compiled_us
    )
    return judge_load(run, outcomes, unanswered=unanswered, stretches=stretches)


def _with_cut_answers(outcomes: Outcomes, cancelled: Cells) -> Outcomes:
    """Return the outcomes with answers that a client cut as whole ones: the server served them as far as it was let."""
    cut = cancelled.is_known & (outcomes.first_token_us >= 0)
    return replace(
        outcomes,
        status=np.where(cut, Status.OK, outcomes.status),
        last_token_us=np.where(cut, cancelled.values, outcomes.last_token_us),
    )


def _compile_times(work: ClusterWork, twin: TwinConfig) -> NDArray[np.int64]:
    """Return how long each request's grammar compiles, which is no wait for others, µs; 0 without one; int64 [n]."""
    guided = work.requests.is_guided
    if guided is None:
        return np.zeros(len(work.requests), np.int64)
    return guided * min(pool.engine.guided_compile_us for pool in twin.cluster.pools)


def _stretches(
    outcomes: Outcomes,
    work: ClusterWork,
    *,
    refused: NDArray[np.bool_],
    lost: LostRequests | None,
    limit_us: float | None,
    compiled_us: NDArray[np.int64],
) -> list[OverloadedStretch]:
    """Return the stretches of a run in which more was sent than answered."""
    ok = outcomes.status == Status.OK
    if not ok.any():
        return []
    gone, deadline = None if lost is None else lost.left_us, work.requests.deadline_us
    if gone is None and deadline is not None:
        gone = np.where(outcomes.last_token_us >= 0, outcomes.last_token_us, deadline)
    served = (outcomes.last_token_us - outcomes.scheduled_us)[ok]
    return overloaded_stretches(
        queued_of(
            outcomes,
            refused=refused,
            gone_us=gone,
            handed_us=None if lost is None else lost.handed_us,
            compiled_us=compiled_us,
        ),
        step_us=step_time_us(outcomes),
        served_us=float(served.mean()),
        limit_us=limit_us,
        downs=() if lost is None else lost.downs,
    )


def judge_trace(trace: Trace, twin: TwinConfig, pacing: Pacing, outcomes: Outcomes) -> Judged | None:
    """Return the verdict on one server's run of a trace; None where there is none, or a row lacks a time."""
    from replay.cluster.work import cluster_work

    if pacing.is_by_answers:
        return None
    try:
        work = cluster_work(trace, pacing, twin.cluster)
    except TraceError:
        return None
    return judge_run(
        outcomes,
        twin,
        pacing,
        work=work,
        refused=outcomes.status == Status.REJECTED,
        cancelled=cancelled_at(trace, outcomes),
    )
