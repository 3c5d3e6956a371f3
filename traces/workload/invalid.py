"""The error of an invalid workload. It names the field; a reader adds the file."""

from __future__ import annotations


class InvalidWorkload(ValueError):  # noqa: N818 - the readers translate it; the name says what it is
    """A value that no workload can have; the message is ``field: got X, expected Y``."""

    def within(self, key: str) -> InvalidWorkload:
        """Return the error as seen one level further out: its field is in ``key``, or is ``key``."""
        text = str(self)
        joint = ": " if text.startswith("got ") else "" if text.startswith("[") else "."
        return InvalidWorkload(f"{key}{joint}{text}")


def require(condition: bool, message: str) -> None:
    """Raise InvalidWorkload with ``message`` unless ``condition`` holds."""
    if not condition:
        raise InvalidWorkload(message)
