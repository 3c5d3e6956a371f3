"""The smallest number that is enough: in growing strides to one that is, then halving what lies between.

Exponential search (Bentley and Yao 1976): about 2·log2(d) trials, where d is how far off the first guess is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from sim.config import InvalidConfig

DOUBLE = 1.0
"""Strides grow until a number is doubled, or halved; where a trial costs nothing they begin there."""
EXACT = 1 << 62
"""With a search this fine the number found is the smallest."""


class NoneIsEnough(InvalidConfig):
    """Not even the largest number that may be tried is enough."""


def fewest(
    is_enough: Callable[[int], bool],
    *,
    near: Sequence[int] = (1,),
    least: int = 1,
    most: int,
    stride: float = DOUBLE,
    fine: int = EXACT,
) -> int:
    """Return the smallest number from ``least`` on that is enough; every larger number must be enough, too.

    ``near``: where to begin, ascending, none below ``least``: the first of these that is enough ends the growing.
    ``most``: the largest number that is tried beyond those. ``stride``: the first stride, a share of the number.
    ``fine``: the number found may exceed the smallest by one part in ``fine``. Raises NoneIsEnough.
    """
    low, high = enough(is_enough, near=near, most=most, stride=stride)
    if low is None:
        low, high = _shrunk(is_enough, high, least=least, stride=stride)
    while high - low > max(1, high // fine):
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def enough(
    is_enough: Callable[[int], bool], *, near: Sequence[int], most: int, stride: float = DOUBLE
) -> tuple[int | None, int]:
    """Return the last number tried that is not enough, None where the first is, and the next, which is.

    Upwards through ``near``, then in growing strides. Arguments and errors as of ``fewest``.
    """
    last = None
    for number in _upwards(near, most=most, stride=stride):
        if is_enough(number):
            return last, number
        last = number
    raise NoneIsEnough(f"got {last:,}, which is not enough, expected no more than {most:,}")


def _upwards(near: Sequence[int], *, most: int, stride: float) -> Iterator[int]:
    yield from near
    number = near[-1]
    while number < most:
        number = min(max(number + 1, math.ceil(number * (1 + stride))), most)
        stride = min(2 * stride, DOUBLE)
        yield number


def _shrunk(is_enough: Callable[[int], bool], high: int, *, least: int, stride: float) -> tuple[int, int]:
    """Return a number that is not enough, or the one below ``least``, and a larger one that is; ``high`` is enough."""
    while high > least:
        number = max(least, min(high - 1, math.floor(high * (1 - min(stride, DOUBLE / 2)))))
        if not is_enough(number):
            return number, high
        high, stride = number, 2 * stride
    return least - 1, high
