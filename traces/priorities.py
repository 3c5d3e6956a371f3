"""Which priority each request has with the server: its own, else that of its service class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces.trace import Trace

PRIORITY_OF_CLASS: Final[Mapping[str, int]] = {
    "critical": 0,
    "standard": 1,
    "batch": 5,
    "sheddable": 6,
    "background": 7,
}
"""vLLM's ``priority`` (lower is more urgent) of a service class, as BLIS sends it."""

DEFAULT_CLASS: Final = "standard"
"""What a class of one's own counts as, and a request without one among others that have one."""


def priorities(trace: Trace) -> NDArray[np.int64]:
    """Return each request's priority, lower is more urgent: ``vllm_priority``, else its class's, else 0.

    A trace of a real server (mode ``real``) says what was sent: its classes give no priority.
    """
    own = trace.column("vllm_priority")
    return own.fillna(0).to_numpy(np.int64) if not by_class(trace) else _with_classes(trace)


def by_class(trace: Trace) -> bool:
    """Say whether any priority comes from a service class."""
    silent = trace.column("vllm_priority").isna()
    return trace.header.mode != "real" and bool((silent & trace.column("slo_class").notna()).any())


def _with_classes(trace: Trace) -> NDArray[np.int64]:
    of_class = trace.column("slo_class").map(PRIORITY_OF_CLASS).astype("Int64")
    of_class = of_class.fillna(PRIORITY_OF_CLASS[DEFAULT_CLASS])
    return trace.column("vllm_priority").fillna(of_class).to_numpy(np.int64)
