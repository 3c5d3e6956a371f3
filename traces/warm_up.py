"""Which requests of a trace are warm-up, and the trace without them, as for every latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from traces.trace import select_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces.trace import Trace


def is_warmup(trace: Trace) -> NDArray[np.bool_]:
    """Return which rows are warm-up: those with that ``phase``, and the header's first ``warm_up_requests``.

    vtwin marks the rows, BLIS counts them in the header; if a trace does both, the union counts.
    """
    marked = trace.cells("phase").values == "warmup"
    return np.asarray(marked | (np.arange(len(trace)) < (trace.header.warm_up_requests or 0)))


def without_warmup(trace: Trace) -> Trace:
    """Return the trace without its warm-up rows and without the header's count of them; itself where it has none."""
    warmup = is_warmup(trace)
    return select_rows(trace, ~warmup).with_header(warm_up_requests=None) if warmup.any() else trace
