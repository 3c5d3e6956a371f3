"""What others ask of a latency model are members of it: nobody else tells the models apart by their types."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sim
from sim.latency import LATENCY_CLASSES, Fitting

ROOT = Path(sim.__file__).parent.parent
ROOMS = ("calibrate", "observe", "replay", "sim", "traces")
CLASSES = {cls.__name__ for cls in LATENCY_CLASSES.values()} | {"Analytic"}
EXCEPTIONS = {
    "calibrate/fit/objective/known_server.py": "physics itself is asked for: it is a candidate of every fit",
    "replay/fleet/inputs/computed.py": "for the type checker: the twin was made with roofline two lines above",
    "replay/twin/latency.py": "the reader",
    "replay/twin/placeholder.py": "the placeholders are blackbox's, and no other model's that derives from it",
}


def told_apart(source: str) -> bool:
    """Return whether a module tells latency models apart by their types."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            asked = node.args[1:]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
            asked = node.comparators
        else:
            continue
        names = {each.id for part in asked for each in ast.walk(part) if isinstance(each, ast.Name)}
        if names & CLASSES:
            return True
    return False


def test_nobody_else_tells_the_models_apart() -> None:
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    found = {path.relative_to(ROOT).as_posix() for path in paths if told_apart(path.read_text())}
    assert {name for name in found if not name.startswith("sim/latency/")} == set(EXCEPTIONS)


@pytest.mark.parametrize("name", LATENCY_CLASSES)
def test_a_model_that_is_fitted_says_what_a_fit_needs(name: str) -> None:
    model = LATENCY_CLASSES[name]
    said = model.coefficients()
    assert set(said) <= set(model.coefficient_names())
    assert all(each.unit for each in said.values())
    assert bool(model.in_words) == (model.fitting is not Fitting.NOT)
    assert set(model.fit_terms) <= set(said)
    assert {name for name in model.first_guesses if said[name].prior is None} == set()
