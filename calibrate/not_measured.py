"""Whether a trace's numbers are the server's, as far as a comparison and a fit need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from calibrate.findings import NamedTrace

MOST_UNMEASURED = 0.5
"""With a larger share of answers whose first token was not seen, a fit has too little of the prefill to go by."""


def refuse_unmeasured(sources: Sequence[NamedTrace]) -> None:
    """Raise TraceError for a trace most of whose first tokens were not seen: held back, or behind hidden reasoning."""
    from traces import TraceError, finished_ok, stream_shape

    for source in sources:
        shape, ok = stream_shape(source.trace), finished_ok(source.trace)
        unseen = ok & (~shape.has_ttft | (shape.hidden_tokens > 0))
        if int(unseen.sum()) > MOST_UNMEASURED * max(int(np.count_nonzero(ok)), 1):
            raise TraceError(
                f"{source.name}: got {int(unseen.sum()):,} of {int(ok.sum()):,} answers without the time of their "
                "first token (held back on the way, or hidden reasoning before the first text), expected a stream: a "
                "fit needs TTFT. Observe the server itself, without a proxy that buffers; without --fit "
                "the E2E is compared"
            )


def cautions(sources: Sequence[NamedTrace]) -> list[str]:
    """Return a line per finding on the observed traces (``traces.findings.run_findings``)."""
    from traces import finding_lines

    return [f"{source.name}: {line}" for source in sources for line in finding_lines(source.trace)]
