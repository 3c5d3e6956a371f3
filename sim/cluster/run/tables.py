"""How a cluster's loop reaches its own state, the ``World``: by a row of a table."""

from __future__ import annotations

from sim.cluster.run.world import World
from sim.jit.references import reader_of

world_at = reader_of(World, gives_columns=False)
"""(table, 0) to a reference to the ``World``."""
