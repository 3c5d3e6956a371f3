"""Workloads: what to send, drawn from options or a specification into a trace without outcomes.

>>> from traces.workload import preset, synth
>>> trace = synth(preset("chatbot", 2.0, num_requests=10), seed=42)

``WorkloadOptions`` and ``with_workload_options`` give a command the shared options; ``trace_from_options``
turns them into a trace. Names are imported when first used: a command's help needs the options alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traces.workload.model import Workload
    from traces.workload.options import WorkloadOptions, check_options, with_workload_options
    from traces.workload.recorded.from_trace import workload_of
    from traces.workload.resolve import PRESETS, clipping_notes, preset, workload_from_options
    from traces.workload.spec.read import load_spec
    from traces.workload.synthesis import synth, trace_from_options

__all__ = [
    "PRESETS",
    "Workload",
    "WorkloadOptions",
    "check_options",
    "clipping_notes",
    "load_spec",
    "preset",
    "synth",
    "trace_from_options",
    "with_workload_options",
    "workload_from_options",
    "workload_of",
]

_HOMES = {
    "Workload": "model",
    "WorkloadOptions": "options",
    "check_options": "options",
    "with_workload_options": "options",
    "PRESETS": "resolve",
    "clipping_notes": "resolve",
    "preset": "resolve",
    "workload_from_options": "resolve",
    "load_spec": "spec.read",
    "synth": "synthesis",
    "trace_from_options": "synthesis",
    "workload_of": "recorded.from_trace",
}


def __getattr__(name: str) -> object:
    """Return a public name, importing its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
