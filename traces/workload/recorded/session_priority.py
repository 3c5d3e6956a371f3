"""The values of ``--session-priority``, explained in ``SessionStarts``. Nothing is imported: a help needs it."""

from __future__ import annotations

from typing import Literal

SessionPriority = Literal["first-started", "running"]
