"""Answers of other tools: a tool is run in an environment of its own, and what it says is kept beside the code."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.studies.validation.silicon import Prepared

ANSWERS = Path(__file__).parents[1] / "answers"
Answers = dict[str, tuple[float, float]]
"""Mean TTFT and TPOT, ms, by a point's id."""


def recorded(tool: str, points: Sequence[Prepared]) -> Answers:
    """Return what a tool said of the points, as far as it was asked and could answer."""
    kept = json.loads((ANSWERS / f"{tool}.json").read_text())
    ids = {ready.point.id for ready in points}
    return {name: (row["ttft_ms"], row["tpot_ms"]) for name, row in kept.items() if name in ids}


def ask_the_rest(
    tool: str, points: Sequence[Prepared], ask: Callable[[Prepared], tuple[float, float]]
) -> None:
    """Ask a tool about the points that it has not answered, and keep each answer at once.

    A point of which it says an error (RuntimeError) is left out, with a line.
    """
    path = ANSWERS / f"{tool}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    for ready in sorted(points, key=lambda each: each.requests.output_tokens.sum()):
        name = ready.point.id
        if name in kept:
            continue
        try:
            ttft, tpot = ask(ready)
        except RuntimeError as error:
            print(f"{tool}: {name}: {error}", flush=True)
            continue
        kept[name] = {"ttft_ms": round(ttft, 2), "tpot_ms": round(tpot, 3)}
        path.write_text(json.dumps(kept, indent=0) + "\n")
