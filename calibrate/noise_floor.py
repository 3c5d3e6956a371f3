"""The noise floor: how much a server differs from itself when it serves the same requests twice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from calibrate.compare.pair import PairBy, Pairs, concat, pair
from traces import TraceError, same_requests

if TYPE_CHECKING:
    from calibrate.findings import NamedTrace

Couple = tuple["NamedTrace", "NamedTrace"]


def couples_of(sources: Sequence[NamedTrace], repeats: Sequence[NamedTrace]) -> list[Couple]:
    """Return which runs repeat which: each named repeat with its original, and any two that sent the same requests.

    Raises TraceError for a named repeat that repeats nothing.
    """
    found = [(one, other) for one, other in combinations(sources, 2) if _is_repeat(one, other)]
    for repeat in repeats:
        original = next((source for source in sources if _is_repeat(source, repeat)), None)
        if original is None:
            names = ", ".join(source.name for source in sources)
            raise TraceError(
                f"--repeat {repeat.name}: got requests that none of {names} has, expected the same load again, "
                "in a run of its own"
            )
        found.append((original, repeat))
    return found


def _is_repeat(one: NamedTrace, other: NamedTrace) -> bool:
    """Return whether the same requests were sent in another run: a copy of the file is no second run."""
    is_copy = one.digest is not None and one.digest == other.digest
    return not is_copy and same_requests(one.trace, other.trace)


def noise_pairs(couples: Sequence[Couple], *, by: PairBy) -> Pairs | None:
    """Return the pairs of all repeats, the later run in the simulation's place; None if nothing was repeated."""
    if not couples:
        return None
    return concat([pair(one.trace, other.trace, by=by) for one, other in couples])
