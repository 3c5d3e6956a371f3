"""A measured server as a page: its latencies over the loads, and each run over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from observe.measured.first_sentence import GOOD, first_sentence
from observe.measured.repeats_section import repeats_section
from observe.measured.served_load import ServedLoad
from observe.repeats.repeated_load import RepeatedLoads
from traces import pages, tool_version
from traces.pages.request_figures import (
    METRICS,
    distribution_picture,
    dots_picture,
    limit_across,
    number_text,
    throughput_picture,
    throughput_told,
    time_text,
    unit_of,
)
from traces.pages.time_axis import time_axis

Floats = NDArray[np.float64]

MOST_DRAWN = 6
"""Runs whose course over time is drawn."""
QUANTILES = (0.5, 0.99)


def page_of(
    loads: Sequence[ServedLoad], repeats: RepeatedLoads, *, slo_us: Mapping[str, float], command: str
) -> str:
    """Return the page as one HTML document that needs no other file; the runs in ascending order of their loads.

    ``repeats``: the same grouped. Of runs that repeat each other the first is shown over time.
    """
    firsts = [each for each in loads if each.name in {next(iter(load.runs)) for load in repeats.loads}]
    title, lead = first_sentence(loads, repeats.loads), _lead(loads)
    page = pages.Page(
        name=f"vtwin report: {loads[0].name}" + (f" and {len(loads) - 1} more" if len(loads) > 1 else ""),
        eyebrow=f"vtwin report: what {_whose(loads)} did",
        title=title,
        lead=lead,
        warnings=[
            f"{line}."
            for line in (
                *repeats.warnings(),
                *(w for each in loads for w in (*each.notes(), *each.warnings())),
            )
        ],
        headlines=_headlines(loads[-1], slo_us) if len(loads) == 1 else [],
        sections=[
            *([repeats_section(repeats.loads)] if len(firsts) == 1 < len(loads) else []),
            *([_over_load(loads, slo_us)] if len(firsts) > 1 else []),
            *([repeats_section(repeats.loads)] if 1 < len(firsts) < len(loads) else []),
            *(
                section
                for each in firsts[:MOST_DRAWN]
                for section in _of_one(each, slo_us, alone=len(loads) == 1)
            ),
            _origin(loads, command),
        ],
        footer=f"vtwin {tool_version()} · vtwin trace info STEM --json prints the numbers of a run",
    )
    return pages.render(page)


def _whose(loads: Sequence[ServedLoad]) -> str:
    """Return whose runs they are: the server's, or a simulated one's."""
    is_simulated = all(each.trace.header.mode == "replayed" for each in loads)
    return "the simulated server" if is_simulated else "the server"


def _lead(loads: Sequence[ServedLoad]) -> str:
    server = loads[0].trace.header.server
    known = [
        ("model", server.model),
        ("version", server.version),
        ("GPU", server.gpu),
        ("server", server.url),
    ]
    told = pages.listed(pages.inline(f"{name} ", pages.bold(value)) for name, value in known if value)
    return told or "The server is not told."


def _headlines(load: ServedLoad, slo_us: Mapping[str, float]) -> list[pages.Headline]:
    generates, summary = load.summary.num_inputs is None, load.summary
    read = () if generates else (f"{number_text(summary.prompt_token_throughput)} prompt tokens/s",)
    found = [
        pages.Headline(
            label="Output tokens/s" if generates else "Inputs/s",
            value=number_text(summary.output_token_throughput if generates else summary.input_throughput),
            details=(
                *read,
                f"{number_text(summary.request_throughput)} requests/s",
                f"{number_text(load.in_flight)} in flight on average",
            ),
        )
    ]
    for name, (_, title) in METRICS.items():
        if not _has(load, name):
            continue
        limit = slo_us.get(name)
        told = () if limit is None else (f"limit {time_text(limit)}",)
        found.append(
            pages.Headline(
                label=f"{title.partition(',')[0]}, median",
                value=time_text(load.quantile(name, 0.5)),
                details=(f"p99 {time_text(load.quantile(name, 0.99))}", *told),
            )
        )
    good = load.goodput
    if good is not None and good["good_frac"] is not None:
        details = (f"goodput {number_text(good['good_per_s'])} requests/s",)
        found.append(
            pages.Headline(label="Within the SLO", value=f"{good['good_frac']:.1%}", details=details)
        )
    return found


# -- several loads --------------------------------------------------------------------------------------------


def _over_load(loads: Sequence[ServedLoad], slo_us: Mapping[str, float]) -> pages.PageSection:
    """Return latency and throughput over the load, and a row per load."""
    figures = [
        pages.Figure(svg=_latency(name, title, loads, slo_us.get(name)))
        for name, (_, title) in METRICS.items()
    ]
    figures.append(pages.Figure(svg=_throughput_over_load(loads)))
    limits = " Dashed: the limit." if slo_us else ""
    return pages.PageSection(
        title="Over the load",
        anchor="loads",
        lead=f"Dark: the median; orange: the 99th percentile; a dot is a run.{limits}",
        parts=[pages.Figures(figures=figures), _loads_table(loads)],
    )


def _axis(loads: Sequence[ServedLoad]) -> tuple[Floats, str]:
    label = "users" if loads[0].summary.concurrency else "requests/s"
    return np.array([each.place or 0.0 for each in loads]), label


def _latency(name: str, title: str, loads: Sequence[ServedLoad], limit_us: float | None) -> pages.Markup:
    places, label = _axis(loads)
    curves = [np.array([each.quantile(name, q) or np.nan for each in loads]) for q in QUANTILES]
    known = np.concatenate(curves)
    divisor, unit = unit_of(known[np.isfinite(known)])
    x = pages.linear(0.0, 1.03 * float(places.max()), label=label)
    y = pages.scale_of(known / divisor, label=unit, limit=None if limit_us is None else limit_us / divisor)
    marks: list[pages.Mark] = []
    for curve, mark, told in zip(curves, ("median", "simulated"), ("median", "p99"), strict=True):
        marks += [
            _line(places, curve / divisor, mark, told),
            pages.Dots(x=places, y=curve / divisor, name=f"run {mark}"),
        ]
    marks += limit_across(x, y, limit_us, divisor=divisor)
    return pages.chart(title=title, x=x, y=y, marks=marks)


def _line(places: Floats, values: Floats, mark: str, told: str = "") -> pages.Line:
    """Return a line over the loads, through the mean of each load's runs."""
    found, which = np.unique(places, return_inverse=True)
    return pages.Line(x=found, y=np.bincount(which, values) / np.bincount(which), name=mark, label=told)


def _throughput_over_load(loads: Sequence[ServedLoad]) -> pages.Markup:
    places, label = _axis(loads)
    tokens = np.array([_tokens_per_s(each) or np.nan for each in loads])
    top = float(np.nanmax(tokens)) if np.isfinite(tokens).any() else 1.0
    x, y = (
        pages.linear(0.0, 1.03 * float(places.max()), label=label),
        pages.linear(0.0, 1.1 * top, label="tokens/s"),
    )
    marks: list[pages.Mark] = [
        _line(places, tokens, "simulated"),
        pages.Dots(x=places, y=tokens, name="run simulated"),
    ]
    return pages.chart(title=f"{_tokens_told(loads)} per second", x=x, y=y, marks=marks)


def _tokens_per_s(load: ServedLoad) -> float | None:
    """Return the output tokens per second, or the prompt tokens where nothing is generated."""
    summary = load.summary
    return summary.output_token_throughput if summary.num_inputs is None else summary.prompt_token_throughput


def _tokens_told(loads: Sequence[ServedLoad]) -> str:
    """Return whose tokens these are, on an axis for all loads."""
    kinds = {each.summary.num_inputs is None for each in loads}
    return "Tokens" if len(kinds) > 1 else "Output tokens" if kinds == {True} else "Prompt tokens"


def _loads_table(loads: Sequence[ServedLoad]) -> pages.PageTable:
    by = "users" if loads[0].summary.concurrency else "requests/s"
    times = [f"{name.upper()} {q}" for name in METRICS for q in ("p50", "p99")]
    judged = any(each.goodput is not None for each in loads)
    head = ["run", by, "served/s", "tokens/s", "in flight", *times, *(["within SLO"] if judged else [])]
    rows: list[list[str | pages.Cell]] = [
        [
            each.name,
            number_text(each.place),
            number_text(each.summary.request_throughput),
            number_text(_tokens_per_s(each)),
            number_text(each.in_flight),
            *(time_text(each.quantile(name, q)) for name in METRICS for q in QUANTILES),
            *([_within(each)] if judged else []),
        ]
        for each in loads
    ]
    return pages.PageTable(head=head, rows=rows, align="n" + "r" * (len(head) - 1))


def _within(load: ServedLoad) -> pages.Cell:
    """Return the share of good requests, green where nearly all are, red where not."""
    good = None if load.goodput is None else load.goodput["good_frac"]
    if good is None:
        return pages.Cell(text="-")
    return pages.Cell(text=f"{good:.1%}", verdict="pass" if good >= GOOD else "fail")


# -- one run --------------------------------------------------------------------------------------------------


def _of_one(load: ServedLoad, slo_us: Mapping[str, float], *, alone: bool) -> list[pages.PageSection]:
    """Return a run's distributions and course; of a run among others only its course."""
    figures = [
        pages.Figure(svg=distribution_picture(_known(load.latencies_us[name]), title, slo_us.get(name)).svg())
        for name, (_, title) in METRICS.items()
        if _has(load, name)
    ]
    shown = pages.PageSection(
        title="Latencies",
        anchor="latencies",
        lead="The share of requests up to each time" + (", the limit dashed." if slo_us else "."),
        parts=[pages.Figures(figures=figures)],
    )
    name = "" if alone else f" of {load.name}"
    anchor = "" if alone else f"-{load.name}"
    parts: list[pages.Part] = [pages.Figures(figures=_course(load, slo_us))]
    course = pages.PageSection(
        title=f"Over time{name}",
        anchor=f"time{anchor}",
        lead="A dot is a request, by when it was sent."
        + ("" if load.summary.num_inputs is not None else f" {throughput_told(load.trace)}"),
        parts=parts,
    )
    return [shown, course, _numbers(load)] if alone else [course]


def _has(load: ServedLoad, metric: str) -> bool:
    """Return whether a run that generates nothing has this latency; any other run shows all, also what is missing."""
    return load.summary.num_inputs is None or metric == "e2e"


def _known(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _course(load: ServedLoad, slo_us: Mapping[str, float]) -> list[pages.Figure]:
    span_us = float(max(load.summary.duration_us or 1, 1))
    figures = [
        pages.Figure(
            svg=dots_picture(load.sent_us, load.latencies_us[name], title, span_us, slo_us.get(name)).svg()
        )
        for name, (_, title) in METRICS.items()
        if name != "tpot" and _has(load, name)
    ]
    generates = load.summary.num_inputs is None
    return [
        *figures,
        *([pages.Figure(svg=throughput_picture(load.trace, span_us).svg())] if generates else []),
        pages.Figure(svg=_in_flight(load, span_us)),
        *(pages.Figure(svg=svg) for svg in load.beside.pictures(span_us)),
    ]


def _in_flight(load: ServedLoad, span_us: float) -> pages.Markup:
    """Return how many requests were in flight over time, as the client saw it."""
    ends = load.sent_us + load.latencies_us["e2e"]
    known = np.isfinite(ends)
    times = np.concatenate([load.sent_us[known], ends[known]])
    change = np.repeat([1.0, -1.0], int(known.sum()))
    order = np.argsort(times, kind="stable")
    counts = np.cumsum(change[order])
    time = time_axis(span_us)
    line = pages.Line(x=time.of(times[order]), y=counts, name="simulated", steps=True)
    y = pages.linear(0.0, 1.1 * float(counts.max(initial=1.0)), label="requests")
    return pages.chart(title="Requests in flight", x=time.scale, y=y, marks=[line])


def _numbers(load: ServedLoad) -> pages.PageSection:
    summary = load.summary
    rows: list[list[str | pages.Cell]] = []
    for name, found in (
        ("TTFT", summary.ttft_us),
        ("TPOT", summary.tpot_us),
        ("ITL" if summary.num_events else "mean ITL of a request", summary.itl_us),
        ("E2E", summary.e2e_us),
        ("queue", summary.queue_us),
        *summary.slow_phases(),
    ):
        if found is not None:
            values = (found.mean, found.p50, found.p90, found.p95, found.p99)
            rows.append([name, *(time_text(value) for value in values)])
    facts = [
        (name, f"{found.mean:,.0f} on average, p99 {found.p99:,.0f}")
        for name, found in (
            ("prompt tokens", summary.prompt_tokens),
            ("output tokens", summary.output_tokens),
        )
        if found is not None
    ]
    lag = summary.dispatch_lag_us
    if lag is not None:
        facts.append(
            ("sent after it was due", f"{time_text(lag.p50)} in the median, p99 {time_text(lag.p99)}")
        )
    table = pages.PageTable(head=["", "mean", "p50", "p90", "p95", "p99"], rows=rows, align="lrrrrr")
    return pages.PageSection(title="Numbers", anchor="numbers", parts=[table, pages.Terms(terms=facts)])


def _origin(loads: Sequence[ServedLoad], command: str) -> pages.PageSection:
    terms = [("made by", command)]
    terms += [(each.name, each.trace.header.command or "its header names no command") for each in loads]
    return pages.PageSection(title="How it came about", anchor="origin", parts=[pages.Terms(terms=terms)])
