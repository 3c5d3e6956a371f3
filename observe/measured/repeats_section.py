"""Repeated runs on a page: each figure with its interval, and the runs in the order of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from observe.repeats.mean_of_runs import LEVEL, MeanOfRuns
from observe.repeats.repeated_load import RepeatedLoad
from observe.repeats.run_figures import FEW, GOOD_SHARE, LATENCIES, SHOWN, name_of
from traces import pages
from traces.pages.request_figures import METRICS, number_text, time_text, unit_of


def repeats_section(loads: Sequence[RepeatedLoad]) -> pages.PageSection:
    """Return the section of the loads that were run several times."""
    repeated = [each for each in loads if len(each.runs) > 1]
    alone = len(loads) == 1
    figures = [
        pages.Figure(svg=_over_runs(load, column, title if alone else f"{title}: {load.name}"))
        for load in repeated
        for column, title in (METRICS.values() if alone else [METRICS["ttft"]])
        if f"{column}.mean" in load.figures()
    ]
    return pages.PageSection(
        title="Over repeated runs",
        anchor="repeats",
        lead=f"The mean of the runs, its {LEVEL:.0%} interval, and one run: its standard deviation, the noise "
        "floor. A dot is a run's mean, in the order of time; the band is the interval.",
        parts=[pages.Figures(figures=figures), _table(repeated, alone=alone)],
    )


def _over_runs(load: RepeatedLoad, column: str, title: str) -> pages.Markup:
    """Return a latency's mean in each run."""
    values = np.array(load.series()[f"{column}.mean"])
    figure = load.figures()[f"{column}.mean"]
    low, high = figure.low or figure.mean, figure.high or figure.mean
    divisor, unit = unit_of(values)
    x = pages.linear(0.0, len(values) + 1.0, label="run")
    y = pages.scale_of(
        np.array([*values, low - (high - low) / 4, high + (high - low) / 4]) / divisor, label=f"mean, {unit}"
    )
    numbers = np.arange(1.0, len(values) + 1)
    ends = np.array([0.0, len(values) + 1.0])
    marks: list[pages.Mark] = [
        pages.Band(
            x=ends, low=np.full(2, max(low, 0.0) / divisor), high=np.full(2, high / divisor), name="noise"
        ),
        pages.Line(x=ends, y=np.full(2, figure.mean / divisor), name="median", label="mean"),
        pages.Dots(x=numbers, y=values / divisor, name="run simulated"),
    ]
    return pages.chart(title=title, x=x, y=y, marks=marks)


def _table(loads: Sequence[RepeatedLoad], *, alone: bool) -> pages.PageTable:
    head = [*([] if alone else ["load"]), "", "runs", "mean", f"{LEVEL:.0%} ±", "one run"]
    rows: list[list[str | pages.Cell]] = []
    groups = []
    for load in loads:
        groups.append(len(rows))
        figures = load.figures()
        for name in (each for each in (SHOWN if alone else FEW) if each in figures):
            begin = [] if alone else [load.name if len(rows) == groups[-1] else ""]
            rows.append([*begin, *_row(name, figures[name])])
    return pages.PageTable(
        head=head, rows=rows, align=("" if alone else "n") + "nrrrr", groups=[] if alone else groups[1:]
    )


def _row(name: str, figure: MeanOfRuns) -> list[str]:
    share = figure.spread_frac
    half = "-" if figure.half_width is None else _value(name, figure.half_width)
    return [
        name_of(name),
        f"{figure.num_runs}",
        _value(name, figure.mean),
        half,
        "-" if share is None else f"{share:.1%}",
    ]


def _value(name: str, value: float) -> str:
    if name == GOOD_SHARE:
        return f"{value:.1%}"
    return time_text(value) if name.partition(".")[0] in LATENCIES else number_text(value)
