"""The priority of each request: its own, else that of its service class."""

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
"""The priority of a user-defined class, and of a request without a class among others that have one."""


def request_priorities(trace: Trace) -> NDArray[np.int64]:
    """Return each request's priority, lower is more urgent: ``vllm_priority``, else its class's, else 0.

    A trace of a real server (mode ``real``) has the priorities that were sent: its classes give none.
    """
    return _with_classes(trace) if by_class(trace) else trace.cells("vllm_priority").values


def by_class(trace: Trace) -> bool:
    """Return whether any priority comes from a service class."""
    by_class_alone = trace.cells("slo_class").is_known & ~trace.cells("vllm_priority").is_known
    return trace.header.mode != "real" and bool(by_class_alone.any())


def _with_classes(trace: Trace) -> NDArray[np.int64]:
    codes, names = trace.cells("slo_class").codes()
    usual = PRIORITY_OF_CLASS[DEFAULT_CLASS]
    of_class = np.array([*(PRIORITY_OF_CLASS.get(name, usual) for name in names), usual], dtype=np.int64)
    own = trace.cells("vllm_priority")
    return np.where(own.is_known, own.values, of_class[codes])  # no class has the code -1: the last
