"""Posts that the receiver could not take, in a handful of lines however many there are."""

from __future__ import annotations

from collections import Counter
from lazy_dataclasses import dataclass, field

from traces.strict.tell import tell


@dataclass(slots=True)
class LostPosts:
    """How often each thing has gone wrong. Told are the first time, the tenth, the hundredth …, and all at the end."""

    times: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, fault: str) -> None:
        """Count one post; ``what`` became of it, and the fault that was the reason."""
        self.times[what] += 1
        number = self.times[what]
        if _is_told(number):
            tell(f"receive: {what}: {fault}" + (f" ({number:,} times so far)" if number > 1 else ""))

    def tell_all(self) -> None:
        """Tell the numbers that nobody has heard yet."""
        for what, number in sorted(self.times.items()):
            if not _is_told(number):
                tell(f"receive: {what}: {number:,} times in all")


def _is_told(number: int) -> bool:
    """Return whether a number is 1, 10, 100 and so on."""
    return f"{number}".rstrip("0") == "1"
