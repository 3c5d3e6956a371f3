"""What a latency model of a user's own must keep, checked once when it is loaded: what the engine reads, a few steps.

A table with a negative entry would make steps that take no time, and a TPOT of 0 that nobody sees the reason of.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sim.config import InvalidConfig
from sim.latency.batch import STEP_SUMS, StepBatch
from sim.latency.latency_model import BLACKBOX, EXTENDED, PROFILED, TABULATED, LatencyModel
from sim.latency.tabulated import COLUMNS, LENGTH, PLACES, TABLE

KINDS: Final = (BLACKBOX, EXTENDED, TABULATED, PROFILED)
COLUMN_NAMES: Final = ("compute", "reading", "rest")
STEPS: Final = (
    *(
        (f"a decode step of {n} with {context} tokens each", n, n * context)
        for n, context in ((1, 1), (1, 4096))
    ),
    *(
        (f"a decode step of {n} with {context} tokens each", n, n * context)
        for n, context in ((16, 512), (256, 512))
    ),
)
"""Steps of decodes: what they are called, requests, KV entries that they read."""
PROMPTS: Final = (1, 16, 512, 2048)
"""Steps of one prompt: its tokens."""


def check_own_model(model: LatencyModel) -> None:
    """Raise InvalidConfig, with the field and what it got, where a model cannot be an engine's.

    The user's own exceptions pass. A model without ``durations_us`` is checked by its terms alone.
    """
    kind = model.engine_kind
    if kind not in KINDS:
        raise InvalidConfig(f"engine_kind: got {kind!r}, expected one of {', '.join(map(str, KINDS))}")
    if kind != BLACKBOX:
        _check_terms(np.asarray(_numbers(model.engine_terms(), "engine_terms()")), is_table=kind == TABULATED)
    try:
        _check_durations(model)
    except NotImplementedError:
        return


def _numbers(value: Any, name: str) -> Any:  # noqa: ANN401 - whatever a user returns
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "fiu":
        raise InvalidConfig(f"{name}: got {type(value).__name__}, expected a numpy array of numbers, one row")
    return value


def _check_terms(terms: Any, *, is_table: bool) -> None:  # noqa: ANN401 - an array of any numbers
    """Raise InvalidConfig on a term that is not finite, or is negative in a table."""
    wrong = np.flatnonzero(~np.isfinite(terms) | ((terms < 0) & is_table))
    if len(wrong):
        place = int(wrong[0])
        name = _term_name(place, int(terms[LENGTH])) if is_table else f"engine_terms()[{place}]"
        raise InvalidConfig(f"{name}: got {terms[place]:g}, expected a number of µs >= 0")


def _term_name(place: int, length: int) -> str:
    """Return what a number of ``State.terms`` is called in ``StepTable``."""
    if place < TABLE:
        return PLACES.get(place, f"engine_terms()[{place}]")
    tokens, column = divmod(place - TABLE, COLUMNS)
    if tokens >= length:
        return f"shared[{place - TABLE - COLUMNS * length}]"
    return f"{COLUMN_NAMES[column]}[{tokens}]"


def _check_durations(model: LatencyModel) -> None:
    """Raise InvalidConfig where a step takes no time or less, or the durations are no column of µs."""
    decodes = [(0, n, entries, 0, 0, 0) for _, n, entries in STEPS]
    prompts = [(n, 0, 0, n * (n + 1) // 2, 1, n) for n in PROMPTS]
    columns = np.array([*decodes, *prompts], np.int64).T
    found = _numbers(
        model.durations_us(StepBatch(**dict(zip(STEP_SUMS, columns, strict=True)))), "durations_us()"
    )
    names = [name for name, *_ in STEPS] + [f"a prompt of {n} tokens" for n in PROMPTS]
    if found.dtype.kind not in "iu" or len(found) != len(names):
        raise InvalidConfig(
            f"durations_us(): got {len(found)} values of {found.dtype} for {len(names)} steps, expected int64 µs, one "
            "for each"
        )
    for name, duration in zip(names, found, strict=True):
        if duration <= 0:
            raise InvalidConfig(f"durations_us(): got {duration} µs for {name}, expected more than 0")
