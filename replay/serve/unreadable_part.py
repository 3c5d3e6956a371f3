"""The error of a part of a request whose size nobody can read."""

from __future__ import annotations


class UnreadablePartError(ValueError):
    """A part that is no image, sound or video whose size can be read; the message says what it is."""
