"""What a feature may add to the engine's records, and how arrays are made: in records, with a row per request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from lazy_dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sim.config import EngineConfig
from sim.paged_memory import CACHE_LINE

Records = Any  # numpy.recarray; its fields are typed by its dtype, which mypy cannot follow

NEVER = -1
"""A time or a step that has not happened."""

SharedBy = Literal["fleet", "side", "pool", "engine"]


def records(length: int, dtype: np.dtype[Any]) -> Records:
    """Return ``length`` zeroed records whose fields are attributes, in compiled code and in plain Python.

    The first stands at the start of a cache line. All that are empty are one array: an engine has dozens.
    """
    if length == 0:
        return _no_records(dtype)
    memory = np.zeros(length * dtype.itemsize + CACHE_LINE, np.uint8)
    return np.recarray(length, dtype, buf=memory.data, offset=-memory.ctypes.data % CACHE_LINE)


@cache
def _no_records(dtype: np.dtype[Any]) -> Records:
    return np.recarray(0, dtype)


def columns(array: Records) -> NDArray[Any]:
    """Return records as a plain array: a field by its name takes a tenth of the time of an attribute."""
    return array.view(np.ndarray)


def never(_: EngineConfig) -> bool:
    """Return False: no engine has it from the start."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class PerRequest:
    """An array of ``State`` with a row per request: what a row is before its request is written, and whose it is.

    ``fill``: a number, or of records the fields that are not 0. ``exists``: from the start, of an engine that is so
    configured; an array that does not exist has no rows. ``is_asked_for``: it comes into being once a request asks.
    ``shared_by``: in a cluster, the engines that have it together: all; all that compute prompts for others, and all
    that do not; those of a pool; or each has its own.
    """

    fill: int | Mapping[str, int] = 0
    exists: Callable[[EngineConfig], bool] = lambda _: True
    is_asked_for: bool = False
    shared_by: SharedBy = "side"

    def rows(self, array: Records, num: int) -> Records:
        """Return ``num`` rows of the kind of ``array`` that no request has had."""
        if isinstance(array, np.recarray):
            made = records(num, array.dtype)
            for name, value in self.fills.items():
                columns(made)[name] = value
            return made
        return np.full(num, self.fill, array.dtype)

    @property
    def fills(self) -> Mapping[str, int]:
        """The fields of records that are not 0."""
        return {} if isinstance(self.fill, int) else self.fill


Rows = Sequence[tuple[str, Any]]
"""Fields of records: names and numpy's types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRecords:
    """What a feature adds to the engine's records.

    ``settings`` to ``batch``: fields of the records of these names (``sim/engine/dtypes.py``); settings that are taken
    from the configuration or the version's rules as they are stand there alone. ``traits``: fields of TRAIT, and in
    ``trait_fill`` those that are not 0 where a request has no such trait. ``engine``: records of its own scalars.
    ``absent``: the settings of an engine without the feature, by which smaller engines are compiled.
    ``begins_empty``: arrays that have no rows before a request asks for them, each with its type; a feature's other
    first arrays are made in ``sim/engine/beginning``. ``per_request``: arrays with a row per request. ``per_content``:
    arrays with a row per row of ``State.hashes``, and how many rows more. ``emptied``: arrays that a process loses when
    it ends.
    """

    settings: Rows = ()
    clock: Rows = ()
    queues: Rows = ()
    current_step: Rows = ()
    totals: Rows = ()
    batch: Rows = ()
    traits: Rows = ()
    trait_fill: Mapping[str, int] = field(default_factory=dict)
    engine: Rows = ()
    absent: Mapping[str, int] = field(default_factory=dict)
    begins_empty: Mapping[str, Any] = field(default_factory=dict)
    per_request: Mapping[str, PerRequest] = field(default_factory=dict)
    per_content: Mapping[str, int] = field(default_factory=dict)
    emptied: tuple[str, ...] = ()
