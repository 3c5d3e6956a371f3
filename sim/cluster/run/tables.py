"""How a cluster's loop reaches its own state, the ``World``, and any number of engines: by rows of tables."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from sim.cluster.run.world import World
from sim.engine.run import run
from sim.engine.run_variants import run_of
from sim.engine.state import State
from sim.jit.lazily import Intrinsic
from sim.jit.numba_settings import IS_PLAIN_PYTHON
from sim.jit.references import Table, reader_of

world_at = reader_of(World, gives_columns=False)
"""(table, 0) to a reference to the ``World``."""


def address_of_run(state: State) -> int:
    """Return the address of the machine code of ``run`` that an engine needs, 0 where nothing is compiled.

    Compiled code calls it there: the engine is compiled once, for runs of one engine and of many. At
    least one table of engines must have been made. Were ``run`` linked in, numba would optimise it all again.
    """
    return 0 if IS_PLAIN_PYTHON else _address_of(run_of(state))


@cache
def _address_of(entry: Any) -> int:
    address: int = entry.address_for(np.zeros((1, 1), np.int64), 0, 0, True, returned="int64")
    return address


def _calling_run() -> Any:
    """Return numba's intrinsic that calls ``run``."""
    from numba import types
    from numba.extending import intrinsic

    from sim.jit.linking import call_at

    taken = (types.Array(types.int64, 2, "C"), types.int64, types.int64, types.boolean)

    @intrinsic  # type: ignore[untyped-decorator] # numba is untyped
    def call_run(
        typing_context: Any, address: Any, table: Any, engine: Any, until_us: Any, coalesce: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return call_at(arguments[0], types.int64, taken, arguments[1:], context=context, builder=builder)

        return types.int64(types.int64, *taken), generate

    return call_run


def _called(address: int, table: Table, engine: int, until_us: int, coalesce: int) -> int:
    """Call ``run`` for an engine."""
    return int(run(table, engine, until_us, coalesce != 0))


run_engine: Any = _called if IS_PLAIN_PYTHON else Intrinsic(_calling_run)
"""(address, table, engine, until_us, coalesce): call ``run`` for an engine, at its address."""
