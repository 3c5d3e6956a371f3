"""What a sweep shows: the Pareto front in the terminal, and a page with the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from replay.sweeps.front import (
    BESIDE,
    GOOD,
    GOOD_FRAC,
    PRICE,
    THROUGHPUT,
    Front,
    grid_ends,
    is_more_better,
)
from traces import pages, shown_time, tool_version, write_text
from traces.facts import AnswerPart, SideBySide

SCHEMA_VERSION = 1
MOST_SHOWN = 12
NO_SLO = f"no setting meets the SLO in {GOOD:.0%} of its requests"


def front_parts(front: Front) -> list[AnswerPart]:
    """Return the front of each load, best ``x`` first, as columns side by side."""
    best = _best(front)
    columns = [
        {words(name): cell(name, row[name]) for name in (*front.loads, *front.choices, *figures_of(front))}
        for row in best.head(MOST_SHOWN).to_dict("records")
    ]
    if not columns:
        none = NO_SLO if front.keeps_slo is False else "no run has both figures, and an answer"
        return [none, *told_beside(front)]
    which = f"{len(best)} of {len(front.points)} settings{told_of(front)}"
    head = f"Pareto front, {words(front.x)} against {words(front.y)}: {which}"
    more = [f"… and {len(best) - MOST_SHOWN} more (--report shows all)"] if len(best) > MOST_SHOWN else []
    return [head, SideBySide(columns), *more, *told_beside(front)]


def front_document(front: Front) -> dict[str, object]:
    """Return the JSON document: the settings on the front with their figures, in the units of the table."""
    names = [*front.loads, *front.choices, *figures_of(front)]
    rows = _best(front)[names].to_dict("records")
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": tool_version(),
        "x": front.x,
        "y": front.y,
        "num_settings": len(front.points),
        "keeps_slo": front.keeps_slo,
        "num_overloaded": front.num_overloaded,
        "unanswered": list(front.unanswered),
        "at_border": [asdict(each) for each in grid_ends(front)],
        "front": [
            {name: value.item() if isinstance(value, np.generic) else value for name, value in row.items()}
            for row in rows
        ],
    }


def told_beside(front: Front) -> list[str]:
    """Return what limits the front: the grid's ends, overloaded runs, settings that twins have no answer to."""
    told = []
    if ends := grid_ends(front):
        named = ", ".join(f"{each.key} {each.value:g} ({each.end})" for each in ends)
        told.append(f"the front has values at the ends of the grid, beyond which may be better ones: {named}")
    if front.num_overloaded:
        told.append(
            f"{front.num_overloaded} of {front.num_runs} runs are overloaded, so that their latencies grow with their "
            "length (the table's column verdict says which)"
        )
    if not front.unanswered:
        return told
    number = int((front.points["has_answer"] < 1).sum())
    return [
        *told,
        f"* no answer here to {', '.join(front.unanswered)}: {number} of {len(front.points)} settings are left out of "
        "the front (the table's column unanswered says which)",
    ]


def figures_of(front: Front) -> tuple[str, ...]:
    """Return the figures that are shown: the front's two, what stands beside them, and the share within the SLO."""
    beside = [name for name in BESIDE if name in front.points.columns and name not in (front.x, front.y)]
    judged = [] if front.keeps_slo is None else [GOOD_FRAC]
    return (front.x, front.y, *beside, *judged)


def told_of(front: Front) -> str:
    """Return what the front is of, besides its two figures."""
    same = " that no other beats at the same load" if front.loads else ""
    return same + ("" if front.keeps_slo is None else f", within the SLO in {GOOD:.0%} of the requests")


def _front_of(front: Front) -> str:
    """Return which settings the front has; empty where there is neither a load nor an SLO."""
    return f"the front has settings{told}" if (told := told_of(front)) else ""


def _best(front: Front) -> pd.DataFrame:
    best = front.points[front.points["is_best"]]
    return best.sort_values(
        [*front.loads, front.x], ascending=[True] * len(front.loads) + [not is_more_better(front.x)]
    )


def _of_loads(front: Front, best: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the front of each load by itself, in the order of ``x``."""
    if not front.loads:
        return [best]
    return [each for _, each in best.groupby(list(front.loads), dropna=False)]


def is_time(name: str) -> bool:
    """Say whether a figure is a time in µs, by its name."""
    return name.partition(".")[0].endswith("_us")


WORDS = {
    THROUGHPUT: "output tokens/s",
    PRICE: "price of 1M output tokens",
    GOOD_FRAC: "share within the SLO",
    "goodput.good_per_s": "requests/s within the SLO",
}
"""Figures whose names say less than the field's words."""


def words(name: str) -> str:
    """Return a figure in the field's words: ``TTFT p99`` for ``ttft_us.p99``. Settings keep their names."""
    figure, _, statistic = name.partition(".")
    if not is_time(name):
        return WORDS.get(name, name)
    short = figure.removesuffix("_us")
    return f"{short.upper() if short in SHORT else short.replace('_', ' ')} {statistic}".strip()


SHORT = ("ttft", "itl", "tpot", "e2e")


def cell(name: str, value: object) -> str:
    """Return a figure in units that people read."""
    if isinstance(value, float | np.floating):
        number = float(value)
        if is_time(name):
            return shown_time(number)
        return f"{number:,.4g}" if abs(number) < 10_000 else f"{number:,.0f}"
    return str(value)


def write_page(path: Path, front: Front, *, num_runs: int, num_failed: int, command: str) -> None:
    """Write the page with the picture and the table. Raises ConfigError where the file cannot be written."""
    best = _best(front)
    names = (*front.loads, *front.choices, *figures_of(front))
    page = pages.Page(
        name="vtwin sweep",
        eyebrow="vtwin sweep",
        title=NO_SLO.capitalize()
        if front.keeps_slo is False
        else f"{len(best)} of {len(front.points)} settings are on the Pareto front",
        lead=f"{words(front.x)} against {words(front.y)}, {num_runs:,} runs"
        + (f", {num_failed:,} of them without a result." if num_failed else "."),
        more=[f"{line[:1].upper()}{line[1:]}." for line in (_front_of(front), *told_beside(front)) if line],
        headlines=[],
        sections=[
            pages.PageSection(
                title="Pareto front",
                anchor="front",
                parts=[pages.Figures(figures=[pages.Figure(svg=_picture(front, best))], columns=1)],
            ),
            pages.PageSection(
                title="All settings",
                anchor="settings",
                parts=[
                    pages.PageTable(
                        head=[*map(words, names), "front"],
                        rows=_rows(front, names),
                        align="l" * len(front.settings) + "r" * len(figures_of(front)) + "c",
                    )
                ],
            ),
        ],
        footer=f"vtwin {tool_version()} · {command}",
    )
    write_text(path, pages.render(page), option="--report")


def _picture(front: Front, best: pd.DataFrame) -> pages.Markup:
    """Return the chart of all settings, with a line through those that no other beats."""
    figures = (front.x, front.y)
    scale = {name: 1e3 if is_time(name) else 1.0 for name in figures}
    units = {name: f"{words(name)}, ms" if is_time(name) else words(name) for name in figures}
    values = {name: front.points[name].to_numpy(dtype=np.float64) / scale[name] for name in figures}
    edges = [
        {name: each[name].to_numpy(dtype=np.float64) / scale[name] for name in figures}
        for each in _of_loads(front, best)
    ]
    return pages.chart(
        title="Each dot is a setting, its seeds averaged; a line joins those that no other beats"
        + (" at one load" if front.loads else ""),
        x=pages.scale_of(values[front.x], label=units[front.x]),
        y=pages.scale_of(values[front.y], label=units[front.y]),
        marks=[
            pages.Dots(x=values[front.x], y=values[front.y], name="run"),
            *(pages.Line(x=edge[front.x], y=edge[front.y], name="simulated") for edge in edges),
            *(pages.Dots(x=edge[front.x], y=edge[front.y], name="run simulated") for edge in edges),
        ],
        width=860,
        height=420,
    )


def _rows(front: Front, names: Sequence[str]) -> list[list[str | pages.Cell]]:
    """Return a row per setting, the best of the first figure first."""
    ordered = front.points.sort_values(
        [front.x, front.y], ascending=[not is_more_better(front.x), not is_more_better(front.y)]
    )
    return [
        [
            *(pages.Cell(text=cell(name, row[name]), tint=0.12 if row["is_best"] else 0.0) for name in names),
            "✓" if row["is_best"] else "" if row["has_answer"] == 1 else "* no answer",
        ]
        for row in ordered.to_dict("records")
    ]
