"""What ``--session-priority`` may be; ``SessionStarts`` says what each is. Nothing is imported: a help needs it."""

from __future__ import annotations

from typing import Literal

SessionPriority = Literal["first-started", "running"]
