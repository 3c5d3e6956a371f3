"""InferenceX's loops asked of vtwin, AISimulate and aiconfigurator; the medians are kept.

``python -m tests.studies.validation.scoreboard.tools.inferencex_answers AISIMULATE_VENV AICONFIGURATOR_VENV`` asks
the other tools, a quarter of an hour, about one engine, not about eight ranks. ``make scoreboard`` asks vtwin.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from replay.twin.profiled_table import model_of
from sim import LatencyModel, Roofline
from tests.studies.validation.scoreboard.inferencex import BEFORE, KEPT, OLDER, loops, prepared
from tests.studies.validation.scoreboard.tools import aiconfigurator_answers, aisimulate_answers
from tests.studies.validation.silicon import Prepared, physics, times_ms
from tests.studies.validation.silicon_profiled import Tables

Ask = Callable[[Prepared], tuple[float, ...] | None]
VERSIONS = {OLDER: {"version": BEFORE}}
"""What a column is told beside the point."""


def medians(ready: Prepared, model: LatencyModel) -> tuple[float, float, float]:
    """Return vtwin's median E2E, TTFT and TPOT, ms."""
    ttft, tpot, e2e = np.median(times_ms(ready, model), axis=1).tolist()
    return e2e, ttft, tpot


def ours(data: Path) -> dict[str, Ask]:
    """Return how vtwin's models are asked; tables of kernels are of one engine alone."""
    tables = Tables(data)

    def profiled(ready: Prepared) -> tuple[float, ...] | None:
        file = tables.of(ready.point) if ready.point.dp == 1 else None
        return medians(ready, model_of(file)) if file else None

    def by_physics(ready: Prepared) -> tuple[float, ...]:
        return medians(ready, physics()(ready.peak))

    return {
        "roofline": lambda ready: medians(ready, Roofline(peak=ready.peak)),
        "physics": by_physics,
        "profiled": profiled,
        OLDER: by_physics,
    }


def others(aisimulate: Path, aiconfigurator: Path) -> dict[str, Ask]:
    """Return how the other tools are asked."""

    def ask_aisimulate(ready: Prepared) -> tuple[float, ...] | None:
        if ready.point.dp > 1:
            return None
        found = aisimulate_answers.predicted(ready, aisimulate / "bin" / "aisimulate")
        return tuple(found[f"median_{name}_ms"] for name in ("e2e_latency", "ttft", "tpot"))

    def ask_aiconfigurator(ready: Prepared) -> tuple[float, ...] | None:
        if ready.point.dp > 1:
            return None
        ttft, tpot = aiconfigurator_answers.ask(ready, aiconfigurator / "bin" / "aiconfigurator")
        return ttft + (ready.point.osl - 1) * tpot, ttft, tpot

    return {"AISimulate": ask_aisimulate, "aiconfigurator": ask_aiconfigurator}


def keep(kept: dict[str, dict[str, list[float]]], name: str, ask: Ask) -> None:
    """Ask a tool about the loops without an answer, and keep each answer at once; an error (RuntimeError) is a line."""
    said = kept.setdefault(name, {})
    for loop in sorted(loops(), key=lambda each: each.users * each.prompt):
        if loop.name in said:
            continue
        try:
            values = ask(prepared(loop, **VERSIONS.get(name, {})))
        except RuntimeError as error:
            print(f"{name}: {loop.name}: {error}", flush=True)
            continue
        if values is not None:
            said[loop.name] = [round(value, 2) for value in values]
            KEPT.write_text(json.dumps(kept, indent=0) + "\n")


def ask_ours(data: Path) -> None:
    """Ask vtwin anew about all; what the other tools said stays."""
    anew = ours(data)
    kept = {name: said for name, said in _kept().items() if name not in anew}
    for name, ask in anew.items():
        keep(kept, name, ask)


def _kept() -> dict[str, dict[str, list[float]]]:
    return dict(json.loads(KEPT.read_text())) if KEPT.exists() else {}


def main(venvs: Sequence[Path]) -> None:
    """Ask the other tools about the loops without an answer."""
    kept = _kept()
    for name, ask in others(*venvs).items():
        keep(kept, name, ask)


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
