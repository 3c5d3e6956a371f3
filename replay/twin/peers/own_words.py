"""Values of other tools in TWIN.yaml: the message on one names vtwin's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

VALUES: Final[Mapping[str, tuple[str, str]]] = {
    "always-admit": ("always", "BLIS's"),
    "priority-fcfs": ("priority", "BLIS's"),
    "faster_transformer": ("static", "Vidur's"),
    "lor": ("least-loaded", "Vidur's"),
    "round_robin": ("round-robin", "Vidur's"),
    "random_forrest": ("profiled", "Vidur's"),
    "linear_regression": ("profiled", "Vidur's"),
}
"""vtwin's word for another tool's value, and whose that is."""


def in_own_words(message: str) -> str:
    """Return a message on a value that is not one of those expected, with vtwin's name where it is another tool's."""
    found = re.search(r"got ['\"]?([\w-]+)['\"]?, expected one of ([^()]*)", message)
    if found is None or found[1] not in VALUES:
        return message
    own, whose = VALUES[found[1]]
    if not re.search(rf"(^|[ ,]){re.escape(own)}($|[ ,])", found[2]):
        return message
    at = found.end(2) - len(found[2]) + len(found[2].rstrip())
    return f"{message[:at]}: {found[1]} is {whose} name for {own}{message[at:]}"
