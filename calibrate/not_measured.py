"""Whether a trace's numbers are the server's, as far as a comparison and a fit need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from calibrate.findings import NamedTrace
    from traces import ClientInfo

MOST_UNMEASURED = 0.5
"""With a larger share of answers whose first token was not seen, a fit has too little of the prefill to go by."""


def refuse_unmeasured(sources: Sequence[NamedTrace]) -> None:
    """Raise TraceError for a trace most of whose first tokens were not seen: held back, or behind hidden reasoning."""
    from traces import TraceError, finished_ok, stream_shape

    for source in sources:
        shape, ok = stream_shape(source.trace), finished_ok(source.trace)
        unseen = ok & (~shape.has_ttft | (shape.hidden_tokens > 0))
        if int(unseen.sum()) > MOST_UNMEASURED * max(int(np.count_nonzero(ok)), 1):
            why, remedy = _why_unseen(source.trace.header.client)
            raise TraceError(
                f"{source.name}: got {int(unseen.sum()):,} of {int(ok.sum()):,} answers without the time of their "
                f"first token ({why}), expected a stream: a fit needs TTFT. {remedy}; without --fit the E2E is compared"
            )


def _why_unseen(client: ClientInfo | None) -> tuple[str, str]:
    """Return what may have kept the first tokens from being seen, and what to do."""
    if client is not None and (client.late or client.limited):
        return (
            "the client was late and read whole answers at once",
            "Observe from a machine with CPU to spare",
        )
    why = "held back on the way, or hidden reasoning before the first text"
    return why, "Observe the server itself, without a proxy that buffers"


def cautions(sources: Sequence[NamedTrace]) -> list[str]:
    """Return a line per finding on the observed traces (``traces.findings.run_findings``)."""
    from traces import finding_lines

    return [f"{source.name}: {line}" for source in sources for line in finding_lines(source.trace)]
