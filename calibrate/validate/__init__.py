"""``vtwin validate`` and ``vtwin demo``: their commands are data (``plan``, ``demo``), the runner is an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traces.strict.lazy_door import homes_of, opened

if TYPE_CHECKING:
    from calibrate.validate.plan import ValidationPlan as ValidationPlan
    from calibrate.validate.plan import busy_rate as busy_rate
    from calibrate.validate.plan import capacity_note as capacity_note
    from calibrate.validate.plan import capacity_observation as capacity_observation

_HOMES = homes_of(
    {
        "calibrate.validate.plan": "busy_rate capacity_note capacity_observation ValidationPlan",
    }
)
"""Where each name of the door is at home."""
__all__ = list(_HOMES)
__getattr__, __dir__ = opened(__name__, _HOMES)
