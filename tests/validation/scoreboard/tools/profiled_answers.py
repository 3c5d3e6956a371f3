"""vtwin's profiled: tables of measured kernels, where the public operator tables have all that a server needs."""

from __future__ import annotations

from collections.abc import Sequence

from replay.twin.profiled_table import model_of
from tests.validation.scoreboard.points import default_data
from tests.validation.scoreboard.tools.recorded import Answers
from tests.validation.silicon import Prepared
from tests.validation.silicon_profiled import Tables, simulated


def answers(points: Sequence[Prepared]) -> Answers:
    """Return the answers for the points whose server can be assembled; models in 4 bits cannot."""
    tables, found = Tables(default_data()), {}
    for ready in points:
        file = None if ready.point.fp4 else tables.of(ready.point)
        if file is not None:
            found[ready.point.id] = simulated(ready, model_of(file))
    return found
