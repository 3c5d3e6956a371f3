"""MiniMax-M2.5 on eight H200 (InferenceX): medians of 72 closed loops, and what every tool answered.

Nothing was fitted to them. The answers are kept in ``answers/inferencex.json``: ``tools/inferencex_answers.py``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tests.studies.validation.scoreboard.board import cells, clearly_behind
from tests.studies.validation.scoreboard.tools.recorded import ANSWERS
from tests.studies.validation.silicon import Point, Prepared, prepare

MEASURED = Path(__file__).with_name("inferencex.csv")
KEPT = ANSWERS / "inferencex.json"
METRICS = ("E2E", "TTFT", "TPOT")
Medians = Mapping[str, Sequence[float]]
"""Median E2E, TTFT and TPOT, ms, by a point's name."""
RANKS = 8
FIXED_MS = 1000 / 3
"""What every TTFT has beside the kernels' time: four users with 1,024 tokens wait so much longer than physics says."""
SHORT = 4096
TP8, DP8 = "tp 8", "8 ranks"
VERSION, BEFORE = "0.16", "0.15"
"""vLLM's: nightly builds of those days called themselves 0.16.0rc2; kernels of experts are told apart from 0.16 on."""
OLDER = f"physics, as vLLM {BEFORE}"
"""Shown beside, never first: which kernels a nightly build had nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One measured closed loop; ``medians``: E2E, TTFT, TPOT, ms."""

    name: str
    is_ranks: bool
    prompt: int
    output: int
    users: int
    medians: tuple[float, ...]


def loops() -> list[Loop]:
    """Return the measured points."""
    with MEASURED.open() as file:
        return [_loop(row) for row in csv.DictReader(file)]


def _loop(row: dict[str, str]) -> Loop:
    *_, layout, prompt, output, _ = row["file"].split("_")
    return Loop(
        name=row["file"],
        is_ranks=layout == "dep8",
        prompt=int(prompt.removeprefix("isl")),
        output=int(output.removeprefix("osl")),
        users=int(row["max_concurrency"]),
        medians=tuple(1e3 * float(row[f"median_{name}"]) for name in ("e2el", "ttft", "tpot")),
    )


def prepared(loop: Loop, version: str = VERSION) -> Prepared:
    """Return a loop made ready: whole experts, lengths as they stand; of eight ranks one, with its share of users."""
    ranks = RANKS if loop.is_ranks else 1
    users = max(loop.users // ranks, 1)
    point = Point(
        model="MiniMaxAI/MiniMax-M2.5",
        gpu="H200",
        fp8=True,
        tp=RANKS // ranks,
        dp=ranks,
        isl=loop.prompt,
        osl=loop.output,
        concurrency=users,
        ttft_ms=loop.medians[1],
        tpot_ms=loop.medians[2],
        has_whole_experts=True,
        version=version,
        id=loop.name,
    )
    (ready,) = prepare([point])
    num_requests = len(ready.requests.arrival_us)
    requests = replace(
        ready.requests,
        prompt_tokens=np.full(num_requests, loop.prompt),
        output_tokens=np.full(num_requests, loop.output),
    )
    return replace(ready, requests=requests)


def answers() -> dict[str, Medians]:
    """Return the recorded answers by tool."""
    kept: dict[str, Medians] = json.loads(KEPT.read_text())
    return kept


def rows_of(points: Sequence[Loop]) -> dict[str, list[Loop]]:
    """Return the points by row: all, by layout, and those of one engine by users and by length."""
    single = [loop for loop in points if not loop.is_ranks]
    rows = {"all": list(points), TP8: single}
    for loop in single:
        users = f"{loop.users} users" if loop.users < 48 else "48 and 64 users"
        length = f"prompts {f'to {SHORT:,}' if loop.prompt <= SHORT else f'over {SHORT:,}'}"
        for name in (users, length):
            rows.setdefault(f"{TP8}, {name}", []).append(loop)
    ordered = sorted(rows, key=lambda name: (name != "all", name != TP8, "users" not in name, name.zfill(30)))
    return {name: rows[name] for name in ordered} | {DP8: [loop for loop in points if loop.is_ranks]}


def errors(said: Medians, points: Sequence[Loop], *, added_ms: float = 0.0) -> tuple[float, ...]:
    """Return the median absolute errors of E2E, TTFT and TPOT, %; nothing if the tool left one point out.

    ``added_ms``: what each answer's E2E and TTFT gets on top.
    """
    if not all(loop.name in said for loop in points):
        return ()
    found = np.array([said[loop.name] for loop in points]) + np.array([added_ms, added_ms, 0.0])
    off = np.abs(found / [loop.medians for loop in points] - 1)
    return tuple(np.median(100 * off, axis=0).tolist())


def markdown() -> str:
    """Return the table, as the tools answered and with the fixed part of TTFT, and where each is clearly behind."""
    said, rows = answers(), rows_of(loops())
    tools = [tool for tool in said if tool != OLDER]
    plain = {name: {tool: errors(said[tool], points) for tool in tools} for name, points in rows.items()}
    lines = [f"| points | n | {' | '.join((*tools, OLDER))} |", "|---|---|" + "---|" * (len(tools) + 1)]
    for name, points in rows.items():
        lines.append(_row(name, points, plain[name], errors(said[OLDER], points)))
    for name in ("all", TP8, DP8):
        added = {tool: errors(said[tool], rows[name], added_ms=FIXED_MS) for tool in said}
        older = added.pop(OLDER)
        lines.append(_row(f"{name}, {FIXED_MS / 1e3:.2f} s added", rows[name], added, older))
    return "\n".join([*lines, "", clearly_behind(plain, tools, METRICS)])


def _row(
    name: str, points: Sequence[Loop], found: Mapping[str, Sequence[float]], older: Sequence[float]
) -> str:
    beside = " / ".join(f"{value:.1f}" for value in older)
    return f"| {name} | {len(points)} | {' | '.join(cells(found, list(found)))} | {beside} |"
