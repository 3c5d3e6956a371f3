"""A load plan in, a measured trace out: the load generator.

    import asyncio
    from observe import Limits, observe_trace
    from traces.workload import preset, synth

    workload = synth(preset("chatbot", 4.0), seed=1)          # or any trace, read
    trace = asyncio.run(observe_trace(workload, url="http://127.0.0.1:8000", output="a"))

``observe_with`` takes all that can be set (``Settings``) and returns what the command shows. ``find_capacity`` is
``vtwin observe --find-capacity``. ``report_runs``,
``check_client`` and ``receive_spans`` are ``vtwin report``, ``selfcheck`` and ``receive``.
Names are imported when first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from observe.capacity.live_capacity import LiveCapacity
    from observe.capacity.question import Begin, FindSettings, find_capacity
    from observe.measured.question import MeasuredRuns, report_runs
    from observe.observation import Observation, observe_trace, observe_with
    from observe.plan.send_plan import SendPlan, make_plan
    from observe.receive.question import receive_spans
    from observe.response.reading import Reading
    from observe.response.sse import SseParser
    from observe.response.stream_reader import StreamReader
    from observe.result.json_document import summarize_observed
    from observe.selfcheck.question import check_client
    from observe.senders.endpoint import Endpoint, parse_endpoint
    from observe.senders.exchange import Exchange, Sender
    from observe.senders.process_list import hide_arguments
    from observe.settings import Limits, Settings

__all__ = [
    "Begin",
    "Endpoint",
    "Exchange",
    "FindSettings",
    "Limits",
    "LiveCapacity",
    "MeasuredRuns",
    "Observation",
    "Reading",
    "SendPlan",
    "Sender",
    "Settings",
    "SseParser",
    "StreamReader",
    "check_client",
    "find_capacity",
    "hide_arguments",
    "make_plan",
    "observe_trace",
    "observe_with",
    "parse_endpoint",
    "receive_spans",
    "report_runs",
    "summarize_observed",
]

_HOMES = {
    "Begin": "observe.capacity.question",
    "FindSettings": "observe.capacity.question",
    "LiveCapacity": "observe.capacity.live_capacity",
    "find_capacity": "observe.capacity.question",
    "check_client": "observe.selfcheck.question",
    "receive_spans": "observe.receive.question",
    "report_runs": "observe.measured.question",
    "MeasuredRuns": "observe.measured.question",
    "Endpoint": "observe.senders.endpoint",
    "Exchange": "observe.senders.exchange",
    "Limits": "observe.settings",
    "Observation": "observe.observation",
    "Reading": "observe.response.reading",
    "SendPlan": "observe.plan.send_plan",
    "Sender": "observe.senders.exchange",
    "Settings": "observe.settings",
    "SseParser": "observe.response.sse",
    "StreamReader": "observe.response.stream_reader",
    "hide_arguments": "observe.senders.process_list",
    "make_plan": "observe.plan.send_plan",
    "observe_trace": "observe.observation",
    "observe_with": "observe.observation",
    "parse_endpoint": "observe.senders.endpoint",
    "summarize_observed": "observe.result.json_document",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'observe' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
