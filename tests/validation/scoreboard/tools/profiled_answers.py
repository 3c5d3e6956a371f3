"""vtwin's profiled: tables of measured kernels, where the public operator tables have all that a server needs.

``python -m tests.validation.scoreboard.tools.profiled_answers`` trains the tables, some minutes, and keeps the answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from replay.twin.profiled_table import model_of
from tests.validation.scoreboard.points import default_data, read_scored
from tests.validation.scoreboard.tools.recorded import Answers, ask_the_rest, recorded
from tests.validation.silicon import Prepared
from tests.validation.silicon_profiled import Tables, simulated


def answers(points: Sequence[Prepared]) -> Answers:
    """Return the recorded answers."""
    return recorded("profiled", points)


def ask(ready: Prepared, tables: Tables) -> tuple[float, float]:
    """Return TTFT and TPOT of one point, ms. Raises RuntimeError where its server cannot be assembled."""
    file = None if ready.point.fp4 else tables.of(ready.point)
    if file is None:
        raise RuntimeError("4 bits" if ready.point.fp4 else tables.reasons[-1])
    return simulated(ready, model_of(file))


if __name__ == "__main__":
    trained = Tables(default_data())
    ask_the_rest("profiled", read_scored(default_data()), lambda ready: ask(ready, trained))
