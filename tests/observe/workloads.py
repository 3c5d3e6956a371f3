"""Small workloads for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from observe.plan.prompts import TokenPrompts
from observe.plan.request_body import BodyShape
from observe.plan.send_plan import SendPlan, make_plan
from traces import ClosedLoop, Header, Trace, make_trace


def workload(
    arrivals_us: list[int | None],
    *,
    input_tokens: int = 8,
    output_tokens: int = 5,
    header: dict[str, Any] | None = None,
    **more: Sequence[object],
) -> Trace:
    """One request per arrival; ``more`` are columns, ``header`` keys of the header."""
    keys: dict[str, Any] = {"mode": "generated", "tool": "vtwin", "seed": 7, **(header or {})}
    number = len(arrivals_us)
    columns: dict[str, Any] = {
        "request_id": [str(row) for row in range(number)],
        "arrival_time_us": arrivals_us,
        "input_tokens": [input_tokens] * number,
        "output_tokens": [output_tokens] * number,
    }
    return make_trace(Header(**keys), {**columns, **more})


def every(gap_us: int, number: int) -> list[int | None]:
    """Arrivals one gap apart, from 0."""
    return [gap_us * row for row in range(number)]


def statuses(trace: Trace) -> list[str]:
    return [str(status) for status in trace.column("status")]


def only_error(trace: Trace) -> str:
    messages = set(trace.column("error_message").dropna())
    assert len(messages) == 1
    return str(messages.pop())


def plan_of(arrivals_us: list[int | None], *, loop: ClosedLoop | None = None) -> SendPlan:
    trace = workload(arrivals_us, header={"closed_loop": loop} if loop else None)
    return make_plan(trace, prompts=TokenPrompts(1), shape=BodyShape(api="completions", model="m"))


def machine_lag_us(trace: Trace) -> float:
    """Return how late this machine let the client's loop wake up, at worst: what a bound on times is widened by."""
    assert trace.header.client is not None
    return 2 * float(trace.header.client.loop_lag_us.get("max", 0.0))
