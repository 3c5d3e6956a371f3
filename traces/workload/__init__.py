"""Workloads: the requests to send, drawn from options or a specification into a trace without outcomes.

>>> from traces.workload import preset, synth
>>> trace = synth(preset("chatbot", 2.0, num_requests=10), seed=42)

``WorkloadOptions`` is the table of options that commands share; ``trace_from_options`` turns it into a trace. Names are
imported when first used: a command's help needs the options alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from traces.strict.lazy_door import homes_of, opened

if TYPE_CHECKING:
    from traces.workload.basics import DEFAULT_SEED as DEFAULT_SEED
    from traces.workload.basics import Api as Api
    from traces.workload.basics import ArrivalProcess as ArrivalProcess
    from traces.workload.cancellation import Cancellation as Cancellation
    from traces.workload.cancellation import CancelOptions as CancelOptions
    from traces.workload.cancellation import with_cancellations as with_cancellations
    from traces.workload.contradictions import can_scale as can_scale
    from traces.workload.contradictions import check_options as check_options
    from traces.workload.contradictions import check_output as check_output
    from traces.workload.draw import unit_gaps as unit_gaps
    from traces.workload.lengths import Gaussian as Gaussian
    from traces.workload.lengths import Recorded as Recorded
    from traces.workload.model import Arrival as Arrival
    from traces.workload.model import Client as Client
    from traces.workload.model import OpenLoop as OpenLoop
    from traces.workload.model import Workload as Workload
    from traces.workload.options import LENGTH_NAMES as LENGTH_NAMES
    from traces.workload.options import WorkloadOptions as WorkloadOptions
    from traces.workload.options import flag as flag
    from traces.workload.recorded.drawn_trace import DrawnTrace as DrawnTrace
    from traces.workload.recorded.drawn_trace import drawn_trace as drawn_trace
    from traces.workload.recorded.drawn_trace import some_rows as some_rows
    from traces.workload.recorded.from_trace import answer_decides as answer_decides
    from traces.workload.recorded.from_trace import recorded_load as recorded_load
    from traces.workload.recorded.from_trace import workload_of as workload_of
    from traces.workload.recorded.resampling import requests_to_draw as requests_to_draw
    from traces.workload.recorded.run_before import behind as behind
    from traces.workload.recorded.served_lengths import as_sent as as_sent
    from traces.workload.recorded.served_lengths import served_note as served_note
    from traces.workload.recorded.session_options import SessionOptions as SessionOptions
    from traces.workload.recorded.session_starts import SessionStarts as SessionStarts
    from traces.workload.recorded.session_starts import is_first as is_first
    from traces.workload.recorded.session_starts import started as started
    from traces.workload.recorded.total_limit import limit_note as limit_note
    from traces.workload.recorded.total_limit import with_total_limit as with_total_limit
    from traces.workload.recorded.warm_start import WarmStart as WarmStart
    from traces.workload.resolve import PRESETS as PRESETS
    from traces.workload.resolve import clipping_notes as clipping_notes
    from traces.workload.resolve import drawn_lengths as drawn_lengths
    from traces.workload.resolve import preset as preset
    from traces.workload.resolve import seed_of as seed_of
    from traces.workload.resolve import workload_from_options as workload_from_options
    from traces.workload.spec.class_shares import parse_shares as parse_shares
    from traces.workload.spec.class_shares import share_groups as share_groups
    from traces.workload.spec.spec_read import load_spec as load_spec
    from traces.workload.sweep import sweep_options as sweep_options
    from traces.workload.synthesis import synth as synth
    from traces.workload.synthesis import trace_from_options as trace_from_options

_HOMES = homes_of(
    {
        "traces.workload.basics": "Api ArrivalProcess DEFAULT_SEED",
        "traces.workload.cancellation": "Cancellation CancelOptions with_cancellations",
        "traces.workload.contradictions": "can_scale check_options check_output",
        "traces.workload.draw": "unit_gaps",
        "traces.workload.lengths": "Gaussian Recorded",
        "traces.workload.model": "Arrival Client OpenLoop Workload",
        "traces.workload.options": "flag LENGTH_NAMES WorkloadOptions",
        "traces.workload.recorded.drawn_trace": "drawn_trace DrawnTrace some_rows",
        "traces.workload.recorded.from_trace": "answer_decides recorded_load workload_of",
        "traces.workload.recorded.resampling": "requests_to_draw",
        "traces.workload.recorded.run_before": "behind",
        "traces.workload.recorded.served_lengths": "as_sent served_note",
        "traces.workload.recorded.session_options": "SessionOptions",
        "traces.workload.recorded.session_starts": "is_first SessionStarts started",
        "traces.workload.recorded.total_limit": "limit_note with_total_limit",
        "traces.workload.recorded.warm_start": "WarmStart",
        "traces.workload.resolve": "clipping_notes drawn_lengths preset PRESETS seed_of workload_from_options",
        "traces.workload.spec.class_shares": "parse_shares share_groups",
        "traces.workload.spec.spec_read": "load_spec",
        "traces.workload.sweep": "sweep_options",
        "traces.workload.synthesis": "synth trace_from_options",
    }
)
"""Where each name of the door is at home."""
__all__ = list(_HOMES)
__getattr__, __dir__ = opened(__name__, _HOMES)
