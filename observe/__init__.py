"""A load plan in, a measured trace out: the load generator.

    import asyncio
    from observe import Limits, observe_trace
    from traces.workload import preset, synth

    workload = synth(preset("chatbot", 4.0), seed=1)          # or any trace, read
    trace = asyncio.run(observe_trace(workload, url="http://127.0.0.1:8000", output="a"))

``observe_with`` takes all that can be set (``Settings``) and returns what the command shows.
Names are imported when first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from observe.observation import Observation, observe_trace, observe_with
    from observe.plan.send_plan import SendPlan, make_plan
    from observe.response.reading import Reading
    from observe.response.sse import SseParser
    from observe.response.stream_reader import StreamReader
    from observe.senders.endpoint import Endpoint, parse_endpoint
    from observe.senders.exchange import Exchange, Sender
    from observe.settings import Limits, Settings

_HOME = {
    "Endpoint": "senders.endpoint",
    "Exchange": "senders.exchange",
    "Limits": "settings",
    "Observation": "observation",
    "Reading": "response.reading",
    "SendPlan": "plan.send_plan",
    "Sender": "senders.exchange",
    "Settings": "settings",
    "SseParser": "response.sse",
    "StreamReader": "response.stream_reader",
    "make_plan": "plan.send_plan",
    "observe_trace": "observation",
    "observe_with": "observation",
    "parse_endpoint": "senders.endpoint",
}

__all__ = [
    "Endpoint",
    "Exchange",
    "Limits",
    "Observation",
    "Reading",
    "SendPlan",
    "Sender",
    "Settings",
    "SseParser",
    "StreamReader",
    "make_plan",
    "observe_trace",
    "observe_with",
    "parse_endpoint",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'observe' has no attribute {name!r}")
    value: object = getattr(import_module(f"observe.{_HOME[name]}"), name)
    globals()[name] = value
    return value
