"""Questions that take several simulations: the highest rate within an SLO, variants side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traces.strict.lazy_door import homes_of, opened

if TYPE_CHECKING:
    from replay.search.beyond_fit import lasting_rates as lasting_rates
    from replay.search.ceiling import ceiling_of as ceiling_of
    from replay.search.evaluation import Evaluator as Evaluator
    from replay.search.load import load_of as load_of

_HOMES = homes_of(
    {
        "replay.search.beyond_fit": "lasting_rates",
        "replay.search.ceiling": "ceiling_of",
        "replay.search.evaluation": "Evaluator",
        "replay.search.load": "load_of",
    }
)
"""Where each name of the door is at home."""
__all__ = list(_HOMES)
__getattr__, __dir__ = opened(__name__, _HOMES)
