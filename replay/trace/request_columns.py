"""Where a trace becomes the simulator's columns: when requests arrive, how long they are, what prefixes they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from replay.numbers.argument_ranges import LOOKAHEAD, TOKENS
from replay.sessions.prefix_hashes import prefix_hashes
from sim import UNKNOWN_LIMIT, Images, Requests
from traces import (
    TraceError,
    has_failed,
    image_lists,
    prompt_tokens,
    request_priorities,
    send_or_arrival_us,
    served_output,
)
from traces.strict.arguments import TRACE, takes
from traces.strict.limits import MOST_TOKENS, MOST_US

if TYPE_CHECKING:
    from traces import Trace

At = Literal["auto", "send", "arrival"]
Int64s = NDArray[np.int64]

MODALITIES = ("image", "audio", "video")


@takes(trace=TRACE, block_size=TOKENS, hash_lookahead=LOOKAHEAD)
def requests_from_trace(
    trace: Trace, *, block_size: int, hash_lookahead: int = 0, at: At = "auto", closed_loop: bool = False
) -> Requests:
    """Return a trace's requests as the engine's columns, in the trace's order.

    ``hash_lookahead``: how many tokens behind a block belong to its content (``prefix_hashes``). ``at``: they reach the
    server when they were sent (``auto``: where that is recorded) or when they were due. A failed request counts with
    its ``max_tokens``, since the outputs it got do not show how long its answer would have been. Times that a closed
    loop decides are 0. Raises TraceError where a time or an output length is missing.
    """
    output = output_tokens(trace)
    shared = prefix_hashes(trace, output_tokens=output, block_size=block_size, lookahead=hash_lookahead)
    lineage = _lineage(trace)
    arrival_us = _arrival_us(trace, at, closed_loop=closed_loop)
    return Requests(
        arrival_us=arrival_us,
        prompt_tokens=prompt_tokens(trace).astype(np.int64),
        output_tokens=output,
        priority=request_priorities(trace),
        hash_offsets=shared.starts,
        hash_ids=shared.ids,
        hash_counts=shared.counts,
        deadline_us=_deadline_us(trace, arrival_us),
        max_tokens=_max_tokens(trace, output),
        is_guided=_is_guided(trace),
        encoder_tokens=_encoder_tokens(trace),
        images=_images(trace),
        adapter=_adapter(trace),
        kv_number=lineage[0] if lineage else None,
        goes_on_from=lineage[1] if lineage else None,
    )


def _lineage(trace: Trace) -> tuple[Int64s, Int64s] | None:
    """Return (a number of each request that others follow, that of the one it follows), -1 none; None: none follows."""
    before = trace.lineage.parent
    if (before < 0).all():
        return None
    parents = np.unique(before[before >= 0])
    number = np.full(len(trace), -1, np.int64)
    number[parents] = np.arange(len(parents))
    return number, np.where(before >= 0, number[before], -1).astype(np.int64)


def ends_by_itself(trace: Trace) -> NDArray[np.bool_]:
    """Return which answers end at an EOS token or a stop word, before ``max_tokens``.

    Those with a ``finish_reason`` other than "length", unless they had all of ``max_tokens``; without a reason, those
    shorter than ``max_tokens``. Of a failed request, which counts with all of them, nothing is known.
    """
    output, most, reason = whole_output(trace), trace.cells("max_tokens"), trace.cells("finish_reason")
    is_shorter = most.is_known & (output < most.values)
    stopped = reason.is_known & (reason.values != "length") & ~(most.is_known & ~is_shorter)
    ends: NDArray[np.bool_] = np.where(reason.is_known, stopped, is_shorter) & ~has_failed(trace)
    return ends


def _max_tokens(trace: Trace, output: Int64s) -> Int64s | None:
    """Return how many tokens each request might have generated, None where each generates as many.

    A server learns of a cut as it does of an EOS token: a step too late.
    """
    ends, cut = ends_by_itself(trace), is_cut_by_tokens(trace)
    most = np.where(cut, whole_output(trace), trace.cells("max_tokens").filled(UNKNOWN_LIMIT))
    return np.where(ends | cut, most, output).astype(np.int64) if (ends | cut).any() else None


def _is_guided(trace: Trace) -> NDArray[np.bool_] | None:
    """Return which answers are held to a grammar, None where none is."""
    guided = trace.cells("guided").values
    return guided if guided.any() else None


def _encoder_tokens(trace: Trace) -> Int64s | None:
    """Return how many tokens of each prompt are an image's, a sound's or a film's; None where none is."""
    tokens = {name: trace.cells(f"{name}_tokens").values for name in MODALITIES}
    images = _images(trace)
    if images is not None:
        placed = np.zeros(len(trace), np.int64)
        np.add.at(placed, np.repeat(np.arange(len(trace)), images.counts), images.num_tokens)
        tokens["image"] = np.maximum(tokens["image"], placed)
    total: Int64s = np.sum(list(tokens.values()), axis=0)
    return total if total.any() else None


def _images(trace: Trace) -> Images | None:
    """Return the images whose places in the prompts are known, None where none are."""
    lists = image_lists(trace.cells("images"))
    if lists is None:
        return None
    return Images(
        starts=np.cumsum(lists.counts) - lists.counts,
        counts=lists.counts,
        position=lists.position,
        num_tokens=lists.num_tokens,
        content=lists.content,
    )


def _adapter(trace: Trace) -> Int64s | None:
    """Return each request's LoRA adapter as a dense integer, -1 for none; None where none has one."""
    codes, names = trace.cells("adapter").codes()
    return codes if names else None


def _deadline_us(trace: Trace, arrival_us: Int64s) -> Int64s | None:
    """Return when each request's client gives up or cuts it, -1 where it does not; None where none does."""
    deadline, cut = trace.cells("deadline_us"), trace.cells("cancel_after_us")
    if not cut.is_known.any():
        return deadline.filled(-1) if deadline.is_known.any() else None
    cut_us = np.where(cut.is_known, arrival_us + cut.values, MOST_US)
    first_us = np.minimum(cut_us, deadline.filled(MOST_US))
    return np.where(cut.is_known | deadline.is_known, first_us, -1).astype(np.int64)


def _arrival_us(trace: Trace, at: At, *, closed_loop: bool) -> Int64s:
    """Return when each request reaches the server."""
    if closed_loop:
        return trace.cells("arrival_time_us").values
    if at == "arrival":
        due = trace.cells("arrival_time_us")
        if not due.is_known.all():
            row = int(np.argmin(due.is_known))
            raise TraceError(
                f"row {row + 1}, arrival_time_us: got nothing, expected when the request was due"
            )
        return due.values
    return send_or_arrival_us(trace)


def output_tokens(trace: Trace) -> Int64s:
    """Return how many tokens each request generates until it ends, or its client cuts it."""
    most = trace.cells("cancel_after_tokens")
    whole = whole_output(trace)
    return np.minimum(whole, most.filled(MOST_TOKENS)) if most.is_known.any() else whole


def is_cut_by_tokens(trace: Trace) -> NDArray[np.bool_]:
    """Return which requests their client cuts before the last token, by the number of tokens."""
    return np.asarray(trace.cells("cancel_after_tokens").filled(MOST_TOKENS) < whole_output(trace), np.bool_)


def whole_output(trace: Trace) -> Int64s:
    """Return how many tokens each answer has: those it got, or its ``max_tokens`` if it failed or was cut."""
    wanted = served_output(trace)
    if not wanted.is_known.all():
        row = int(np.argmin(wanted.is_known))
        raise TraceError(
            f"row {row + 1}, output_tokens: got nothing, expected the number of tokens to generate"
        )
    return wanted.values
