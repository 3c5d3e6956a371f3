"""Errors that are the user's to mend: one line that says what, where, and what was expected."""

from __future__ import annotations

from typing import ClassVar


class VtwinError(Exception):
    """A fault of the input, shown as one line without a stack; ``exit_code`` is the process's."""

    exit_code: ClassVar[int] = 1


class ConfigError(VtwinError):
    """A bad option, TWIN.yaml or workload specification (exit code 2)."""

    exit_code = 2


class TraceError(VtwinError):
    """A trace that is missing, malformed, or has nothing in common with its partner (exit code 3)."""

    exit_code = 3


class ServerError(VtwinError):
    """A server that refuses, cannot be resolved, or answers 401, 403 or 5xx before the run (exit code 4)."""

    exit_code = 4
