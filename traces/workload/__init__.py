"""Workloads: the requests to send, drawn from options or a specification into a trace without outcomes.

>>> from traces.workload import preset, synth
>>> trace = synth(preset("chatbot", 2.0, num_requests=10), seed=42)

``WorkloadOptions`` is the table of options that commands share; ``trace_from_options`` turns it into a trace. Names are
imported when first used: a command's help needs the options alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traces.workload.basics import DEFAULT_SEED, ArrivalProcess
    from traces.workload.contradictions import can_scale, check_options, check_output
    from traces.workload.draw import unit_gaps
    from traces.workload.lengths import Recorded
    from traces.workload.model import (
        Arrival,
        Client,
        OpenLoop,
        Workload,
    )
    from traces.workload.options import (
        LENGTH_NAMES,
        WorkloadOptions,
        flag,
    )
    from traces.workload.recorded.drawn_trace import DrawnTrace, drawn_trace, some_rows
    from traces.workload.recorded.from_trace import answer_decides, recorded_load, workload_of
    from traces.workload.recorded.resampling import requests_to_draw
    from traces.workload.recorded.run_before import behind
    from traces.workload.recorded.served_lengths import as_sent, served_note
    from traces.workload.recorded.session_options import SessionOptions
    from traces.workload.recorded.session_starts import SessionStarts, is_first, started
    from traces.workload.recorded.total_limit import limit_note, with_total_limit
    from traces.workload.recorded.warm_start import WarmStart
    from traces.workload.resolve import PRESETS, clipping_notes, preset, seed_of, workload_from_options
    from traces.workload.spec.spec_read import load_spec
    from traces.workload.sweep import sweep_options
    from traces.workload.synthesis import synth, trace_from_options

__all__ = [
    "DEFAULT_SEED",
    "LENGTH_NAMES",
    "PRESETS",
    "Arrival",
    "ArrivalProcess",
    "Client",
    "DrawnTrace",
    "OpenLoop",
    "Recorded",
    "SessionOptions",
    "SessionStarts",
    "WarmStart",
    "Workload",
    "WorkloadOptions",
    "answer_decides",
    "as_sent",
    "behind",
    "can_scale",
    "check_options",
    "check_output",
    "clipping_notes",
    "drawn_trace",
    "flag",
    "is_first",
    "limit_note",
    "load_spec",
    "preset",
    "recorded_load",
    "requests_to_draw",
    "seed_of",
    "served_note",
    "some_rows",
    "started",
    "sweep_options",
    "synth",
    "trace_from_options",
    "unit_gaps",
    "with_total_limit",
    "workload_from_options",
    "workload_of",
]

_HOMES = {
    "Arrival": "traces.workload.model",
    "ArrivalProcess": "traces.workload.basics",
    "Client": "traces.workload.model",
    "OpenLoop": "traces.workload.model",
    "DEFAULT_SEED": "traces.workload.basics",
    "DrawnTrace": "traces.workload.recorded.drawn_trace",
    "LENGTH_NAMES": "traces.workload.options",
    "PRESETS": "traces.workload.resolve",
    "Recorded": "traces.workload.lengths",
    "SessionOptions": "traces.workload.recorded.session_options",
    "SessionStarts": "traces.workload.recorded.session_starts",
    "WarmStart": "traces.workload.recorded.warm_start",
    "Workload": "traces.workload.model",
    "WorkloadOptions": "traces.workload.options",
    "answer_decides": "traces.workload.recorded.from_trace",
    "as_sent": "traces.workload.recorded.served_lengths",
    "behind": "traces.workload.recorded.run_before",
    "can_scale": "traces.workload.contradictions",
    "check_options": "traces.workload.contradictions",
    "check_output": "traces.workload.contradictions",
    "clipping_notes": "traces.workload.resolve",
    "drawn_trace": "traces.workload.recorded.drawn_trace",
    "flag": "traces.workload.options",
    "is_first": "traces.workload.recorded.session_starts",
    "limit_note": "traces.workload.recorded.total_limit",
    "load_spec": "traces.workload.spec.spec_read",
    "preset": "traces.workload.resolve",
    "recorded_load": "traces.workload.recorded.from_trace",
    "requests_to_draw": "traces.workload.recorded.resampling",
    "seed_of": "traces.workload.resolve",
    "served_note": "traces.workload.recorded.served_lengths",
    "some_rows": "traces.workload.recorded.drawn_trace",
    "started": "traces.workload.recorded.session_starts",
    "sweep_options": "traces.workload.sweep",
    "synth": "traces.workload.synthesis",
    "trace_from_options": "traces.workload.synthesis",
    "unit_gaps": "traces.workload.draw",
    "with_total_limit": "traces.workload.recorded.total_limit",
    "workload_from_options": "traces.workload.resolve",
    "workload_of": "traces.workload.recorded.from_trace",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'traces.workload' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
