"""Repeated loads as tables, and as rows of CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from observe.repeats.mean_of_runs import LEVEL, MeanOfRuns
from observe.repeats.repeated_load import RepeatedLoad, RepeatedLoads
from observe.repeats.run_figures import FEW, GOOD_SHARE, LATENCIES, SHOWN, name_of
from traces import four_digits
from traces.facts import AlignedRows, AnswerPart


def parts(found: RepeatedLoads) -> list[AnswerPart]:
    """Return one load's figures a row each, or of several loads a row per load."""
    if len(found.loads) == 1:
        return [
            _of_one(found.loads[0]),
            f"±: {LEVEL:.0%} interval of the mean. One run: its standard deviation.",
        ]
    return [_of_several(found.loads), f"±: {LEVEL:.0%} interval of the mean over a load's runs"]


def _of_one(load: RepeatedLoad) -> AlignedRows:
    figures = load.figures()
    number = len(load.runs)
    head = [f"{number} run{'s' if number != 1 else ''}", "mean", "±", "±, %", "one run, %"]
    rows = [_row(name, figures[name]) for name in SHOWN if name in figures]
    return AlignedRows([head, *rows], [-16, 10, 10, 8, 12])


def _row(name: str, figure: MeanOfRuns) -> list[str]:
    half, share = figure.half_width, figure.spread_frac
    return [
        _with_unit(name),
        _number(name, figure.mean),
        _number(name, half),
        "-" if half is None or figure.mean <= 0 else f"{half / figure.mean:.1%}",
        "-" if share is None else f"{share:.2%}",
    ]


def _of_several(loads: Sequence[RepeatedLoad]) -> AlignedRows:
    figures = {load.name: load.figures() for load in loads}
    shown = [name for name in FEW if any(name in each for each in figures.values())]
    head = ["load", "runs", *(_with_unit(name) for name in shown)]
    rows = [
        [load.name, f"{len(load.runs)}", *(_interval(name, figures[load.name].get(name)) for name in shown)]
        for load in loads
    ]
    return AlignedRows([head, *rows], [-16, 6, *[18] * len(shown)])


def _interval(name: str, figure: MeanOfRuns | None) -> str:
    if figure is None:
        return "-"
    half = figure.half_width
    return _number(name, figure.mean) + ("" if half is None else f" ± {_number(name, half)}")


def _with_unit(name: str) -> str:
    unit = ", ms" if name.partition(".")[0] in LATENCIES else ""
    return f"{name_of(name)}{unit}"


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name == GOOD_SHARE:
        return f"{value:.1%}"
    return four_digits(value / 1e3 if name.partition(".")[0] in LATENCIES else value)


def rows(found: RepeatedLoads) -> list[dict[str, object]]:
    """Return a row per load and figure, as the JSON document has it."""
    return [
        {"load": load.name, "figure": name, **asdict(figure)}
        for load in found.loads
        for name, figure in load.figures().items()
    ]
