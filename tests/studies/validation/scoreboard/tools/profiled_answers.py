"""vtwin's profiled: tables of measured kernels, where the public operator tables have all that a server needs.

``python -m tests.studies.validation.scoreboard.tools.profiled_answers`` trains the tables, some minutes, and keeps
the answers: with the way in that ships, and with those that were learned without a point's family or GPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from replay.twin.profiled_table import model_of
from tests.studies.validation.learn_by_class import HELD_OUT
from tests.studies.validation.scoreboard.points import default_data, read_scored
from tests.studies.validation.scoreboard.tools.recorded import Answers, ask_the_rest, recorded
from tests.studies.validation.scoreboard.tools.vtwin_answers import without_family, without_gpu
from tests.studies.validation.silicon import Point, Prepared
from tests.studies.validation.silicon_profiled import Tables, simulated

UNSEEN: Mapping[str, Callable[[Point], str]] = {
    "profiled_family_unseen": without_family,
    "profiled_gpu_unseen": without_gpu,
}


def answers(points: Sequence[Prepared]) -> Answers:
    """Return the recorded answers."""
    return recorded("profiled", points)


def family_unseen(points: Sequence[Prepared]) -> Answers:
    """Return the answers where the model's family was left out of the learning."""
    return recorded("profiled_family_unseen", points)


def gpu_unseen(points: Sequence[Prepared]) -> Answers:
    """Return the answers where the GPU, with others of its generation of Blackwell, was left out."""
    return recorded("profiled_gpu_unseen", points)


def ask(ready: Prepared, tables: Tables, alphas: Mapping[str, float]) -> tuple[float, float]:
    """Return TTFT and TPOT of one point, ms. Raises RuntimeError where its server cannot be assembled."""
    file = tables.of(ready.point)
    if file is None:
        raise RuntimeError(tables.reasons[-1])
    return simulated(ready, model_of(file, **alphas))


def main() -> None:
    """Ask about the points without an answer."""
    tables, sets, scored = (
        Tables(default_data()),
        json.loads(HELD_OUT.read_text()),
        read_scored(default_data()),
    )
    ask_the_rest("profiled", scored, lambda ready: ask(ready, tables, {}))
    for tool, name_of in UNSEEN.items():
        ask_the_rest(
            tool,
            scored,
            lambda ready, name_of=name_of: ask(ready, tables, sets[f"profiled, {name_of(ready.point)}"]),  # type: ignore[misc]
        )


if __name__ == "__main__":
    main()
