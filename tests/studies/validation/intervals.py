"""Printed intervals against what an endless run has: how many hold it, of all and of those called long enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from replay.fleet.check.pool import Verification
from replay.fleet.check.steady import BatchedMean

HEAD = (
    "intervals | hold the long runs | called long enough | of these hold them | median half width | median error |",
    "---|---|---|---|---|---|",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A printed interval of a figure: whether it holds the long runs' value, and what the answer says of itself.

    ``half``: half its width; ``off``: the figure's error; both as shares.
    """

    name: str
    is_held: bool
    is_called_enough: bool
    half: float
    off: float


def seen_of(name: str, figure: BatchedMean, truth: float, *, is_called_enough: bool) -> Seen:
    """Return a figure's interval held against the truth, seconds."""
    return Seen(
        name=name,
        is_held=figure.low <= truth <= figure.high,
        is_called_enough=is_called_enough,
        half=figure.half / figure.value,
        off=figure.value / truth - 1,
    )


def seen_of_ttft(name: str, found: Verification, truth: float) -> Seen:
    """Return the interval of a simulation's TTFT p99 held against the truth, seconds."""
    return seen_of(name, found.ttft_p99, truth, is_called_enough=found.is_long_enough)


def table_of(what: str, of_case: Callable[[int], Sequence[Seen]], *, num_cases: int, workers: int) -> str:
    """Return the Markdown table of all cases' intervals, a row per name; ``what``: the first column's head."""
    with ProcessPoolExecutor(workers) as pool:
        seen = [each for found in pool.map(of_case, range(num_cases)) for each in found]
    lines = [f"| {what} | {HEAD[0]}", f"|---|{HEAD[1]}"]
    for name in dict.fromkeys(each.name for each in seen):
        mine = [each for each in seen if each.name == name]
        enough = [each for each in mine if each.is_called_enough]
        held = np.mean([each.is_held for each in mine])
        sure = f"{sum(each.is_held for each in enough)} of {len(enough)}"
        lines.append(
            f"| {name} | {len(mine)} | {held:.1%} | {len(enough) / len(mine):.0%} | {sure} | "
            f"{np.median([each.half for each in mine]):.1%} | {np.median([each.off for each in mine]):+.2%} |"
        )
    return "\n".join(lines)
