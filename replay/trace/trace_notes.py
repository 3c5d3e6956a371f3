"""What a trace says that the simulation does not act on, or acts on in a way that the reader should know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from traces.priorities import PRIORITY_OF_CLASS, by_class, priorities

if TYPE_CHECKING:
    from replay.twin.config import TwinConfig
    from traces import Trace

PRIORITY_POLICIES = ("priority", "reverse-priority")


def trace_notes(trace: Trace, config: TwinConfig) -> tuple[str, ...]:
    """Return a line for everything that a trace gives and its simulation does not follow to the letter."""
    return (
        *_priority_notes(trace, config),
        *_one_server_notes(trace),
        *_multimodal_notes(trace),
        *_adapter_notes(trace),
        *_unstreamed_notes(trace),
    )


def _priority_notes(trace: Trace, config: TwinConfig) -> tuple[str, ...]:
    policy = config.engine.scheduling_policy
    own = trace.column("vllm_priority").dropna()
    if policy not in PRIORITY_POLICIES:
        if policy == "fcfs" and own.nunique() > 1:
            return (f"vllm_priority: {len(own):,} requests have one; scheduling_policy fcfs ignores it",)
        return ()
    values = priorities(trace)
    if len(np.unique(values)) < 2:
        hint = " (a measured trace: its service classes sent none)" if trace.header.mode == "real" else ""
        return (
            f"engine.scheduling_policy {policy}: all requests have the same priority, so that their arrival "
            f"decides{hint}",
        )
    if by_class(trace):
        table = ", ".join(f"{name} {value}" for name, value in PRIORITY_OF_CLASS.items())
        return (f"priorities are those of the service classes: {table}; others count as standard",)
    return ()


def _one_server_notes(trace: Trace) -> tuple[str, ...]:
    notes = []
    for column, what in (("model", "models"), ("instance", "instances")):
        number = trace.column(column).nunique()
        if number > 1:
            notes.append(
                f"{column}: the trace names {number} {what}; one server is simulated for all of them"
            )
    return tuple(notes)


def _multimodal_notes(trace: Trace) -> tuple[str, ...]:
    kinds = [
        name
        for name in ("image", "audio", "video")
        if (trace.column(f"{name}_tokens").fillna(0) > 0).to_numpy(dtype=bool).any()
    ]
    if not kinds:
        return ()
    return (f"{', '.join(kinds)} tokens count as prompt tokens (input_tokens); no encoder's time is added",)


def _adapter_notes(trace: Trace) -> tuple[str, ...]:
    number = trace.column("adapter").nunique()
    if number == 0:
        return ()
    return (
        f"adapter: {number} LoRA adapter{'s' if number > 1 else ''}; prefixes are shared within one only, and no "
        "time is added for loading or computing them",
    )


def _unstreamed_notes(trace: Trace) -> tuple[str, ...]:
    number = int((~trace.column("streaming").fillna(True)).sum())
    if number == 0:
        return ()
    return (
        f"streaming: {number:,} requests are not streamed; their simulated TTFT is the engine's first token",
    )
