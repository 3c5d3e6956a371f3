"""What options and models of workloads share, and nothing heavy: families of arrivals, defaults, and the error."""

from __future__ import annotations

from typing import Final, Literal

ArrivalProcess = Literal["poisson", "constant", "gamma", "weibull"]
Api = Literal[
    "completions",
    "chat",
    "responses",
    "messages",
    "transcriptions",
    "embeddings",
    "pooling",
    "classify",
    "rerank",
    "score",
]  # observe.senders.request_kinds has an entry for each

DEFAULT_SEED: Final = 42
DEFAULT_NUM_REQUESTS: Final = 100
"""The number of requests if neither options nor a specification bound the number or the time."""

DEFAULT_NUM_WAVES: Final = 10
"""The default number of waves of a batch."""


class InvalidWorkload(ValueError):  # noqa: N818 - the readers translate it; the name says what it is
    """A value that no workload can have; the message is ``field: got X, expected Y``, and a reader adds the file."""

    def within(self, key: str) -> InvalidWorkload:
        """Return the error as seen one level further out: its field is in ``key``, or is ``key``."""
        text = str(self)
        joint = ": " if text.startswith("got ") else "" if text.startswith("[") else "."
        return InvalidWorkload(f"{key}{joint}{text}")


def require(condition: bool, message: str) -> None:
    """Raise InvalidWorkload with ``message`` unless ``condition`` holds."""
    if not condition:
        raise InvalidWorkload(message)
