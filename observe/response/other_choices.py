"""The choices of an answer beyond the first (``n`` > 1): their tokens count, their events time no gap."""

from __future__ import annotations

from lazy_dataclasses import dataclass, field
from typing import Any

from observe.response.delta import has_reasoning, has_text


@dataclass(slots=True)
class OtherChoices:
    """What came of them so far. ``stamps``: of their first and last text; empty before."""

    stamps: list[int] = field(default_factory=list)
    _counted: dict[int, int] = field(default_factory=dict)

    def is_first(self, choice: dict[str, Any], stamp: int) -> bool:
        """Return whether it is an event of the first choice; keep the time of another's text."""
        if _index(choice) == 0:
            return True
        if has_text(choice) or has_reasoning(choice):
            self.stamps = [self.stamps[0] if self.stamps else stamp, stamp]
        return False

    def before(self, event: dict[str, Any], total: int) -> int:
        """Return the tokens that were counted before this event, and keep its count.

        vLLM counts each choice apart in the events, and all together in the last usage, which has no choice.
        """
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return sum(self._counted.values())
        index = _index(choices[0])
        before = self._counted.get(index, 0)
        self._counted[index] = total
        return before


def _index(choice: dict[str, Any]) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) else 0
