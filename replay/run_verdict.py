"""A simulated run, of one server or of a cluster, as the verdict takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.trace.pacing import paced_requests
from replay.verdict.again import Repeatable, serves_again
from replay.verdict.judge import judge_load
from replay.verdict.judged import Judged
from sim import Outcomes, Requests, Status, simulate
from traces import TraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from replay.cluster.simulate import FleetRun
    from replay.trace.pacing import Pacing
    from replay.twin.config import TwinConfig
    from traces import Trace


def judge_run(
    outcomes: Outcomes,
    twin: TwinConfig,
    pacing: Pacing,
    *,
    requests: Requests | None,
    fleet: FleetRun | None,
) -> Judged | None:
    """Return the verdict on a run whose requests come at their own times; None where there is none.

    ``requests``: of one server, as paced; ``fleet``: of a cluster.
    """
    if pacing.is_by_answers and pacing.users != 0:
        return None
    if fleet is None:
        if requests is None:
            return None
        run = Repeatable(
            requests=requests,
            session=None,
            first=np.ones(len(requests), np.bool_),
            serve=lambda sent, _rows, _num: simulate(sent, twin.engine, twin.latency).outcomes,
        )
        refused = outcomes.status == Status.REJECTED
        return judge_load(run, outcomes, unanswered=_unanswered(outcomes, refused))
    from sim.cluster import Exit

    assert twin.cluster is not None  # noqa: S101 - it was simulated
    work = fleet.work
    plan = work.clients
    run = Repeatable(
        requests=work.requests,
        session=None if plan is None else work.session,
        first=np.ones(len(work.requests), np.bool_) if plan is None else plan.arrives,
        serve=serves_again(work, twin.cluster),
    )
    return judge_load(run, outcomes, unanswered=_unanswered(outcomes, fleet.result.exit == Exit.REFUSED))


def judge_trace(trace: Trace, twin: TwinConfig, pacing: Pacing, outcomes: Outcomes) -> Judged | None:
    """Return the verdict on one server's run of a trace; None where there is none, or a row lacks a time."""
    if pacing.is_by_answers:
        return None
    try:
        requests = paced_requests(trace, pacing, block_size=twin.engine.block_size)
    except TraceError:
        return None
    return judge_run(outcomes, twin, pacing, requests=requests, fleet=None)


def _unanswered(outcomes: Outcomes, refused: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which requests the load kept from an answer: not those that the front end refuses for their length."""
    return np.asarray((outcomes.status != Status.OK) & ~refused, np.bool_)
