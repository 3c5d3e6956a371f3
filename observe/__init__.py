"""A load plan in, a measured trace out: the load generator.

    import asyncio
    from observe import Limits, observe_trace
    from traces.workload import preset, synth

    workload = synth(preset("chatbot", 4.0), seed=1)          # or any trace, read
    trace = asyncio.run(observe_trace(workload, url="http://127.0.0.1:8000", output="a"))

``observe_with`` takes all that can be set (``Settings``) and returns what the command shows; ``observe_repeats`` sends
loads several times. ``report_runs``, ``check_client`` and ``receive_spans`` are ``vtwin report``, ``selfcheck`` and
``receive``.
Names are imported when first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from traces.strict.lazy_door import homes_of, opened

if TYPE_CHECKING:
    from observe.capacity.live_capacity import LiveCapacity as LiveCapacity
    from observe.capacity.question import Begin as Begin
    from observe.capacity.question import FindSettings as FindSettings
    from observe.capacity.question import find_capacity as find_capacity
    from observe.measured.question import MeasuredRuns as MeasuredRuns
    from observe.measured.question import report_runs as report_runs
    from observe.observation import Observation as Observation
    from observe.observation import observe_trace as observe_trace
    from observe.observation import observe_with as observe_with
    from observe.plan.send_plan import SendPlan as SendPlan
    from observe.plan.send_plan import make_plan as make_plan
    from observe.receive.question import receive_spans as receive_spans
    from observe.repeats.question import observe_repeats as observe_repeats
    from observe.repeats.repeated_load import RepeatedLoads as RepeatedLoads
    from observe.response.reading import Reading as Reading
    from observe.response.sse import SseParser as SseParser
    from observe.response.stream_reader import StreamReader as StreamReader
    from observe.result.json_document import summarize_observed as summarize_observed
    from observe.selfcheck.question import check_client as check_client
    from observe.senders.endpoint import Endpoint as Endpoint
    from observe.senders.endpoint import parse_endpoint as parse_endpoint
    from observe.senders.exchange import Exchange as Exchange
    from observe.senders.exchange import Sender as Sender
    from observe.senders.process_list import hide_arguments as hide_arguments
    from observe.settings import Limits as Limits
    from observe.settings import Settings as Settings

_HOMES = homes_of(
    {
        "observe.capacity.live_capacity": "LiveCapacity",
        "observe.capacity.question": "Begin FindSettings find_capacity",
        "observe.measured.question": "MeasuredRuns report_runs",
        "observe.observation": "Observation observe_trace observe_with",
        "observe.plan.send_plan": "make_plan SendPlan",
        "observe.receive.question": "receive_spans",
        "observe.repeats.question": "observe_repeats",
        "observe.repeats.repeated_load": "RepeatedLoads",
        "observe.response.reading": "Reading",
        "observe.response.sse": "SseParser",
        "observe.response.stream_reader": "StreamReader",
        "observe.result.json_document": "summarize_observed",
        "observe.selfcheck.question": "check_client",
        "observe.senders.endpoint": "Endpoint parse_endpoint",
        "observe.senders.exchange": "Exchange Sender",
        "observe.senders.process_list": "hide_arguments",
        "observe.settings": "Limits Settings",
    }
)
"""Where each name of the door is at home."""
__all__ = list(_HOMES)
__getattr__, __dir__ = opened(__name__, _HOMES)
