"""How a cluster's loop reaches its own state, the ``World``, and any number of engines: by rows of tables."""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
from numba import types
from numba.extending import intrinsic

from sim.cluster.run.world import World
from sim.engine.run import run
from sim.engine.run_variants import run_of
from sim.engine.state import State
from sim.jit.linking import address_of, call_at
from sim.jit.references import Table, reader_of

world_at = reader_of(World, gives_columns=False)
"""(table, 0) to a reference to the ``World``."""

_TABLE = types.Array(types.int64, 2, "C")
_ARGUMENTS_OF_RUN = (_TABLE, types.int64, types.int64, types.boolean)
"""numba's types of what ``run`` takes."""


def address_of_run(state: State) -> int:
    """Return the address of the machine code of ``run`` that an engine needs, 0 where nothing is compiled.

    Compiled code calls it there: the engine is compiled once, for runs of one engine and of many. At
    least one table of engines must have been made. Were ``run`` linked in, numba would optimise it all again.
    """
    return 0 if numba.config.DISABLE_JIT else _address_of(run_of(state))


@cache
def _address_of(entry: Any) -> int:
    return address_of(entry, _ARGUMENTS_OF_RUN, types.int64)


if numba.config.DISABLE_JIT:

    def run_engine(address: int, table: Table, engine: int, until_us: int, coalesce: int) -> int:
        """Call ``run`` for an engine."""
        return int(run(table, engine, until_us, coalesce != 0))

else:

    @intrinsic  # type: ignore[untyped-decorator] # numba is untyped
    def run_engine(
        typing_context: Any, address: Any, table: Any, engine: Any, until_us: Any, coalesce: Any
    ) -> Any:
        """Call ``run`` for an engine, at its address."""
        given = (types.int64, _TABLE, types.int64, types.int64, types.boolean)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return call_at(
                arguments[0], types.int64, _ARGUMENTS_OF_RUN, arguments[1:], context=context, builder=builder
            )

        return types.int64(*given), generate
