"""``vtwin validate`` and ``vtwin demo``: their commands are data (``plan``, ``demo``), the runner is an argument."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibrate.validate.plan import ValidationPlan, busy_rate, capacity_note, capacity_observation

__all__ = [
    "ValidationPlan",
    "busy_rate",
    "capacity_note",
    "capacity_observation",
]

_HOMES = {
    "ValidationPlan": "calibrate.validate.plan",
    "busy_rate": "calibrate.validate.plan",
    "capacity_note": "calibrate.validate.plan",
    "capacity_observation": "calibrate.validate.plan",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'calibrate.validate' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
