"""The parts of a workload that cannot be sent: a line for each, none is dropped silently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from observe.plan.request_body import BodyShape

if TYPE_CHECKING:
    from observe.media.sent_media import SentMedia
    from traces import Trace

_MODALITIES: Final = ("image", "audio", "video")


def unsent_notes(
    trace: Trace,
    *,
    due_us: Sequence[int | None],
    shape: BodyShape,
    guided_rows: frozenset[int],
    media: SentMedia | None,
) -> tuple[str, ...]:
    """Return a line for every column whose values are not sent as they stand, with the number of requests."""
    return (
        *_model_notes(trace, shape),
        *_modality_notes(trace, media),
        *_counted(
            int((trace.column("reason_ratio") > 0).fillna(False).sum()),
            "a reason_ratio: their output is sent as ordinary output",
        ),
        *_counted(
            _unguided(trace, guided_rows),
            "guided in the trace and sent without a schema (--guided SCHEMA.json)",
            verb="are",
        ),
        *_counted(
            sum(
                1
                for late, due in zip(trace.column("deadline_us").notna(), due_us, strict=True)
                if late and due is None
            ),
            "a deadline_us that does not apply, since an answer decides when they are sent",
        ),
        *_stream_notes(trace, shape),
        *_network_notes(trace),
    )


def _counted(number: int, what: str, *, verb: str = "have") -> tuple[str, ...]:
    return (f"{number} requests {verb} {what}",) if number else ()


def _model_notes(trace: Trace, shape: BodyShape) -> tuple[str, ...]:
    """Return which models and adapters the run's model stands in for."""
    said: list[str] = []
    adapters = trace.column("adapter")
    for column, noun in ((adapters, "LoRA adapter"), (trace.column("model").where(adapters.isna()), "model")):
        asked = column.dropna().value_counts()
        others = [str(name) for name in asked.index if name not in (*shape.row_models, shape.model, "")]
        number = sum(int(asked[name]) for name in others)
        if others:
            said.append(
                f"{number} requests ask for {noun} {', '.join(others)}: sent to {shape.model} instead"
            )
    return tuple(said)


def _modality_notes(trace: Trace, media: SentMedia | None) -> tuple[str, ...]:
    """Return how many requests have what is sent as text, and how many what is drawn."""
    as_text = np.zeros(len(trace), dtype=bool)
    for name in _MODALITIES:
        has_any = (trace.column(f"{name}_tokens") > 0).fillna(False).to_numpy(dtype=bool)
        has_any[[] if media is None else media.rows(name)] = False
        as_text |= has_any
    said = _counted(int(as_text.sum()), "image, audio or video tokens: sent as as many tokens of text")
    return (*said, *(() if media is None else media.notes))


def _unguided(trace: Trace, guided_rows: frozenset[int]) -> int:
    stated = trace.column("guided").fillna(False).to_numpy(dtype=bool).nonzero()[0]
    return sum(1 for row in stated.tolist() if row not in guided_rows)


def _stream_notes(trace: Trace, shape: BodyShape) -> tuple[str, ...]:
    other = int((trace.column("streaming") != shape.streaming).fillna(False).sum())
    how = ("in one piece", "streamed") if shape.streaming else ("streamed", "in one piece")
    return (f"{other} answers were {how[0]} in the trace and are requested {how[1]}",) if other else ()


def _network_notes(trace: Trace) -> tuple[str, ...]:
    """Return how many requests come over a network of the workload's own: a real one takes its own time."""
    columns = [trace.column(name) for name in ("network_rtt_us", "network_bandwidth_mbps")]
    number = int(np.logical_or.reduce([column.notna().to_numpy(dtype=bool) for column in columns]).sum())
    return _counted(number, "a network of their own: they are sent over this machine's")
