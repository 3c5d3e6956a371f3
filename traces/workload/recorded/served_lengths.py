"""The lengths of a recorded workload: as the server counted them, and as they were requested."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.metrics import own_prompt_tokens, prompt_tokens
from traces.trace import Trace


def as_sent(trace: Trace) -> Trace:
    """Return a workload with the lengths that it is sent with: ``max_tokens``, and prompts as the client counts them.

    The server counts its own again, chat template included. Rows with a status are unchanged: they are not a workload.
    """
    planned = ~trace.cells("status").is_known
    columns: dict[str, object] = {}
    if "max_tokens" in trace.table:
        budget = trace.cells("max_tokens").where(planned)
        columns["output_tokens"] = budget.or_else(trace.cells("output_tokens"))
    if "server_input_tokens" in trace.table:
        columns["server_input_tokens"] = trace.cells("server_input_tokens").where(~planned)
    return trace.with_columns(**columns) if columns else trace


def served_note(trace: Trace) -> str | None:
    """Return the note that a workload's lengths, as a server had them, differ on average from the requested ones.

    None if they are equal, to the token.
    """
    difference = lengths_differ(trace)
    return None if difference is None else f"lengths are as the server had them, {difference}"


def lengths_differ(trace: Trace) -> str | None:
    """Return a workload's mean lengths as a server had them, with the requested ones; None if they agree."""
    answers, asked = (each.cells("output_tokens").values for each in (trace, as_sent(trace)))
    sides = (
        _differ("prompts of {:,} tokens ({:,} were sent)", prompt_tokens(trace), own_prompt_tokens(trace)),
        _differ("answers of {:,} tokens (max_tokens allowed {:,})", answers, asked),
    )
    said = ", ".join(text for text in sides if text)
    return f"on average {said}" if said else None


def _differ(text: str, *lengths: NDArray[np.int64]) -> str:
    """Return ``text`` with the mean of each of the lengths, empty if they are equal."""
    means = [round(float(each.mean())) for each in lengths]
    return text.format(*means) if means[0] != means[1] else ""
