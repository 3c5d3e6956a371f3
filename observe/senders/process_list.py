"""A command line as other users of the machine see it: its secrets are overwritten in the memory that ps reads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

from traces.strict.secrets import command_secrets

_ARG_START, _ARG_END = (
    48 - 3,
    49 - 3,
)  # proc(5), /proc/PID/stat: counted from the third field, behind the name


def hide_arguments(arguments: Sequence[str]) -> bool:
    """Put stars over the secrets in this process's own command line; return whether there were any to hide.

    Linux only; elsewhere, and if the memory is not as expected, nothing is done.
    """
    secrets = command_secrets(arguments, {}).values
    try:
        numbers = Path("/proc/self/stat").read_text(encoding="latin-1").rpartition(")")[2].split()
        start, end = int(numbers[_ARG_START]), int(numbers[_ARG_END])
        shown = Path("/proc/self/cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        return False
    if not start or end - start != len(shown) or ctypes.string_at(start, end - start) != shown:
        return False
    hidden = shown
    for secret in secrets:
        hidden = hidden.replace(secret.encode(), b"*" * len(secret.encode()))
    if hidden != shown:
        ctypes.memmove(start, hidden, len(hidden))
    return hidden != shown
