"""``run`` and ``run_counted`` called by compiled code: at their address, as they are compiled already.

Were they linked in, numba would optimise them once more for each caller.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from sim.engine.counting.counted_run import run_counted
from sim.engine.run import run
from sim.engine.run_variants import run_of, run_plain_counted
from sim.engine.state import State
from sim.jit.lazily import Intrinsic
from sim.jit.numba_settings import IS_PLAIN_PYTHON
from sim.jit.references import Table

COUNTED = 1
"""Stands for the address of ``run_counted`` in plain Python, where there is none."""


def address_of_run(state: State) -> int:
    """Return the address of the machine code of ``run`` that an engine needs, 0 where nothing is compiled.

    Compiled code calls it there: the engine is compiled once, for runs of one engine and of many. At
    least one table of engines must have been made. Were ``run`` linked in, numba would optimise it all again.
    """
    return 0 if IS_PLAIN_PYTHON else _address_of(run_of(state))


def address_of_counted_run() -> int:
    """Return the address of the machine code of ``run_counted``; where nothing is compiled, what stands for it."""
    return COUNTED if IS_PLAIN_PYTHON else _address_of(run_plain_counted)


@cache
def _address_of(entry: Any) -> int:
    address: int = entry.address_for(np.zeros((1, 1), np.int64), 0, 0, True, returned="int64")
    return address


def _calling_run() -> Any:
    """Return numba's intrinsic that calls ``run``, or what takes the same."""
    from numba import types
    from numba.extending import intrinsic

    from sim.jit.linking import call_at

    taken = (types.Array(types.int64, 2, "C"), types.int64, types.int64, types.boolean)

    @intrinsic  # type: ignore[untyped-decorator] # numba is untyped
    def call_run(typing_context: Any, address: Any, table: Any, engine: Any, until_us: Any, flag: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return call_at(arguments[0], types.int64, taken, arguments[1:], context=context, builder=builder)

        return types.int64(types.int64, *taken), generate

    return call_run


def _called(address: int, table: Table, engine: int, until_us: int, flag: int) -> int:
    """Call ``run`` for an engine, or ``run_counted``."""
    called = run_counted if address == COUNTED else run
    return int(called(table, engine, until_us, flag != 0))


run_engine: Any = _called if IS_PLAIN_PYTHON else Intrinsic(_calling_run)
"""(address, table, engine, until_us, flag): call ``run`` or ``run_counted`` for an engine, at its address."""
