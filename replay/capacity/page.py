"""A capacity as a page: latency and throughput over rate, with the limits and the capacity drawn in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from replay.capacity.capacity import Capacity
from replay.capacity.text import facts_of, rate_facts, survives_fact
from replay.search.evaluation import CURVE, Evaluation
from traces import RunLimit, pages, shown_time, tool_version, write_text
from traces.facts import head_of, row_of

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig

NAMES = {
    "ttft": "TTFT, time to first token",
    "tpot": "TPOT, time per output token",
    "e2e": "E2E, whole answer",
}
EDGE = 1.15
"""Room above the highest value and the limit."""

MOST_NAMED = 3
"""The first sentence names no more limits; each has a figure of its own."""


def write_page(
    path: Path,
    found: Capacity,
    limits: Sequence[RunLimit],
    *,
    twin: TwinConfig,
    lengths: str,
    notes: Sequence[str] = (),
) -> None:
    """Write the page. Raises ConfigError where the file cannot be written."""
    page = page_of(found, limits, twin=twin, lengths=lengths, notes=notes)
    write_text(path, pages.render(page), option="--report")


def page_of(
    found: Capacity,
    limits: Sequence[RunLimit],
    *,
    twin: TwinConfig,
    lengths: str,
    notes: Sequence[str] = (),
) -> pages.Page:
    """Return the page."""
    facts = facts_of(found, limits, twin=twin, lengths=lengths)
    sections = [_warnings(notes)] if notes else []
    if found.curve:
        sections += [_curves(found, limits), _table(found, limits)]
    sections.append(
        pages.PageSection(title="How it was found", anchor="how", parts=[pages.Terms(terms=facts)])
    )
    few = ", ".join(f"{each.name} within {shown_time(each.limit_us)}" for each in limits)
    within = f"with {few}" if len(limits) <= MOST_NAMED else f"within all {len(limits)} limits"
    return pages.Page(
        name="vtwin capacity",
        eyebrow="vtwin capacity",
        title=_title(found),
        lead=f"The highest request rate {within}.",
        headlines=_headlines(found, limits),
        sections=sections,
        footer=f"vtwin {tool_version()} · vtwin capacity --json prints every number on this page",
    )


def _title(found: Capacity) -> str:
    if found.rate_per_s is None:
        return "No rate meets the limits"
    return f"{found.rate_per_s:.4g} requests per second"


def _headlines(found: Capacity, limits: Sequence[RunLimit]) -> list[pages.Headline]:
    """Return the capacity and each limit's value at it, with how much of the allowed that is."""
    at = found.at_capacity
    shown = [] if found.rate_per_s is None else [_capacity_headline(found)]
    for each in limits:
        value = at.values_us[each.name]
        kept = "✓ within" if value <= each.limit_us else "✗ above"
        shown.append(
            pages.Headline(
                label=f"{each.name} {'at an idle server' if found.rate_per_s is None else 'at capacity'}",
                value=shown_time(value),
                details=(f"{kept} {shown_time(each.limit_us)}",),
            )
        )
    return shown


def _capacity_headline(found: Capacity) -> pages.Headline:
    sure = () if found.low is None else (f"90 % interval {found.low:.3g} to {found.high:.3g}",)
    burst = () if found.after_burst is None else (f"{survives_fact(found).text} after a burst",)
    return pages.Headline(
        label="Capacity, requests/s", value=f"{found.rate_per_s:.4g}", details=(*sure, *burst)
    )


def _warnings(notes: Sequence[str]) -> pages.PageSection:
    parts = [pages.Prose(markup=f"{note}.") for note in notes]
    return pages.PageSection(title="Warnings", anchor="warnings", parts=parts)


def _curves(found: Capacity, limits: Sequence[RunLimit]) -> pages.PageSection:
    shown = curve_pictures(found.curve, limits, capacity=found.rate_per_s or 0.0)
    figures = [pages.Figure(svg=each.svg()) for each in shown.values()]
    return pages.PageSection(
        title="Latency over rate",
        anchor="curves",
        lead="Dark: the median; orange: the 99th percentile. Dashed across: the limit. Dashed upwards: the capacity.",
        parts=[pages.Figures(figures=figures)],
    )


def curve_pictures(
    curve: Sequence[Evaluation],
    limits: Sequence[RunLimit],
    *,
    capacity: float | None,
    fitted: tuple[float, float] | None = None,
) -> dict[str, pages.Picture]:
    """Return latencies and throughput over rate, by name; ``curve``: rates ascending, ``capacity``: drawn in if known.

    ``fitted``: the rates per server that the twin was fitted on, shaded; ``limits``: drawn across.
    """
    rates = np.array([each.rate_per_s for each in curve])
    x = pages.linear(0.0, float(rates[-1]) * 1.03, label="requests/s")
    found = {name: _latency(name, curve, limits, x=x) for name in CURVE}
    found["throughput"] = _throughput(curve, x=x)
    return {name: _with_rates(each, capacity, fitted) for name, each in found.items()}


def _latency(
    name: str, curve: Sequence[Evaluation], limits: Sequence[RunLimit], *, x: pages.Scale
) -> pages.Picture:
    rates = np.array([each.rate_per_s for each in curve])
    median, p99 = (np.array([each.curve_us[name][i] for each in curve]) / 1e3 for i in (0, 1))
    allowed = [each.limit_us / 1e3 for each in limits if each.metric == name]
    top = EDGE * max(float(np.nanmax(p99)), *allowed, 1e-3) if allowed else EDGE * float(np.nanmax(p99))
    bottom = min(float(np.nanmin(median)), *allowed, np.inf)
    y = (
        pages.logarithmic(bottom / EDGE, top, label="ms")
        if top > 20 * bottom > 0
        else pages.linear(0.0, top, label="ms")
    )
    marks: list[pages.Mark] = [
        pages.Line(x=rates, y=median, name="median", label="median"),
        pages.Line(x=rates, y=p99, name="simulated", label="p99"),
        *(
            limit_rule(each, x) for each in limits if each.metric == name
        ),  # last: their labels stand before the lines
    ]
    return pages.Picture(title=NAMES[name], x=x, y=y, marks=marks)


def limit_rule(limit: RunLimit, x: pages.Scale) -> pages.Rule:
    """Return the limit as a line from left to right, on an axis of ms."""
    at = limit.limit_us / 1e3
    label = f"{limit.name} {shown_time(limit.limit_us)}"
    return pages.Rule(start=(x.low, at), end=(x.high, at), name="limit", label=label)


def _throughput(curve: Sequence[Evaluation], *, x: pages.Scale) -> pages.Picture:
    rates = np.array([each.rate_per_s for each in curve])
    tokens = np.array([each.output_tokens_per_s for each in curve])
    y = pages.linear(0.0, float(tokens.max()) * EDGE, label="tokens/s")
    line = pages.Line(x=rates, y=tokens, name="simulated", label="tokens/s")
    return pages.Picture(title="Output tokens per second", x=x, y=y, marks=[line])


def _with_rates(
    picture: pages.Picture, capacity: float | None, fitted: tuple[float, float] | None
) -> pages.Picture:
    """Return a picture over rate with the fitted rates shaded behind its marks, and the capacity in front of lines."""
    low, high = picture.y.low, picture.y.high
    lines = [mark for mark in picture.marks if isinstance(mark, pages.Line)]
    others = [mark for mark in picture.marks if not isinstance(mark, pages.Line)]
    behind: list[pages.Mark] = []
    if fitted is not None and fitted[0] < picture.x.high:
        at, ends = np.array([fitted[0], min(fitted[1], picture.x.high)]), np.ones(2)
        behind.append(pages.Band(x=at, low=low * ends, high=high * ends, name="fitted"))
    front = (
        [] if capacity is None else [pages.Rule(start=(capacity, low), end=(capacity, high), name="capacity")]
    )
    return replace(picture, marks=[*behind, *lines, *front, *others])


def _table(found: Capacity, limits: Sequence[RunLimit]) -> pages.PageSection:
    keys = ("rate", "values_us", *(f"{name}_us.p50" for name in CURVE), "output_token_throughput", "met")
    rows: list[list[str | pages.Cell]] = []
    for each in found.curve:
        tint = 0.12 if each.rate_per_s == found.rate_per_s else 0.0
        *cells, is_met = row_of(rate_facts(each, found, limits), keys)
        rows.append([*(pages.Cell(text=text, tint=tint) for text in cells), is_met])
    head = head_of(rate_facts(found.curve[0], found, limits), keys)
    parts: list[pages.Part] = [pages.PageTable(head=head, rows=rows, align="r" * (len(head) - 1) + "c")]
    return pages.PageSection(title="Rates", anchor="rates", parts=parts)
