"""When the client gives up on a request: the time limits and the deadlines of the workload."""

from __future__ import annotations

from observe.run.sent_request import SentRequest
from observe.settings import Limits


def overdue_reason(
    request: SentRequest, now_ns: int, *, limits: Limits, deadline_ns: int | None
) -> str | None:
    """Return why the client gives up on ``request`` at ``now_ns``, or None.

    A request that waits to be retried is not given up. ``deadline_ns``: of the workload, by the run's clock.
    """
    if request.is_waiting_to_retry:
        return None
    exchange = request.exchange
    waited_s = (now_ns - (exchange.dispatched_ns or exchange.ready_ns)) / 1e9
    if limits.timeout_s is not None and waited_s > limits.timeout_s:
        return f"no complete answer within {limits.timeout_s:g} s (--timeout)"
    silent_s = (now_ns - exchange.last_activity_ns()) / 1e9
    if limits.stall_timeout_s is not None and silent_s > limits.stall_timeout_s:
        return f"no byte for {limits.stall_timeout_s:g} s (--stall-timeout)"
    if deadline_ns is not None and now_ns > deadline_ns:
        return "no complete answer by the deadline of the workload (deadline_us)"
    return None
