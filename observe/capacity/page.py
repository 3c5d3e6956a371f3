"""The highest rate within an SLO on a live server, as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from traces import pages, shown_time, tool_version
from traces.pages.request_figures import limit_across, number_text, time_text, unit_of

if TYPE_CHECKING:
    from observe.capacity.live_capacity import LiveCapacity
    from observe.capacity.live_steps import LiveStep

METRICS = {
    "ttft": "TTFT, time to first token",
    "tpot": "TPOT, time per output token",
    "e2e": "E2E, whole answer",
}


def page_of(found: LiveCapacity) -> str:
    """Return the page as one HTML document that needs no other file."""
    steps = sorted(found.steps, key=lambda each: each.seen.rate_per_s)
    page = pages.Page(
        name="vtwin observe --find-capacity",
        eyebrow="vtwin observe --find-capacity: a live server",
        title=found.sentence,
        lead=" ".join(
            (f"The highest rate that keeps {found.question['slo']}.", *(f"{fact}." for fact in found.facts()))
        ),
        warnings=[f"{note}." for note in found.warnings()],
        headlines=_headlines(found) if steps else [],
        sections=[*([_over_rate(found, steps), _steps(found)] if steps else []), _how(found)],
        footer=f"vtwin {tool_version()} · capacity.json beside this page has every number on it",
    )
    return pages.render(page)


def _headlines(found: LiveCapacity) -> list[pages.Headline]:
    cost, rate = found.cost, found.found.rate_per_s
    inside = [each for each in found.steps if each.seen.is_met]
    return [
        pages.Headline(
            label="Within the SLO, requests/s",
            value="-" if rate is None else f"{rate:.3g}",
            details=(
                ""
                if found.found.high is None or rate is None
                else f"{found.found.low:.3g} to {found.found.high:.3g}",
            ),
        ),
        pages.Headline(
            label="Steps",
            value=f"{len(found.steps)}",
            details=(f"{len(inside)} within the SLO", f"{cost['num_requests']:,} requests"),
        ),
        pages.Headline(label="Time spent", value=time_text(cost["duration_s"] * 1e6), details=()),
        pages.Headline(
            label="Tokens spent",
            value=f"{cost['input_tokens'] + cost['output_tokens']:,}",
            details=(f"{cost['output_tokens']:,} of them answers",),
        ),
    ]


def _over_rate(found: LiveCapacity, steps: list[LiveStep]) -> pages.PageSection:
    figures = [pages.Figure(svg=_latency(found, steps, name)) for name in METRICS]
    return pages.PageSection(
        title="Latency over rate",
        anchor="rates",
        lead="Dark: the median; orange: the 99th percentile; a dot is a step. Dashed across: the limit.",
        parts=[pages.Figures(figures=figures)],
    )


def _latency(found: LiveCapacity, steps: list[LiveStep], name: str) -> pages.Markup:
    rates = np.array([each.seen.rate_per_s for each in steps])
    curves = [
        np.array([each.latencies_us[name][q] or np.nan for each in steps], dtype=np.float64)
        for q in ("p50", "p99")
    ]
    known = np.concatenate(curves)
    known = known[np.isfinite(known)]
    divisor, unit = unit_of(known)
    limits = [each.limits_us[name] for each in found.criteria if name in each.limits_us]
    limit = min(limits, default=None)
    x = pages.linear(0.0, 1.03 * float(rates.max()), label="requests/s")
    y = pages.scale_of(known / divisor, label=unit, limit=None if limit is None else limit / divisor)
    marks: list[pages.Mark] = []
    for curve, mark, told in zip(curves, ("median", "simulated"), ("median", "p99"), strict=True):
        marks += [
            pages.Line(x=rates, y=curve / divisor, name=mark, label=told),
            pages.Dots(x=rates, y=curve / divisor, name=f"run {mark}"),
        ]
    if found.found.rate_per_s is not None:
        rate = found.found.rate_per_s
        marks.append(pages.Rule(start=(rate, y.low), end=(rate, y.high), name="capacity"))
    marks += limit_across(x, y, limit, divisor=divisor)
    return pages.chart(title=METRICS[name], x=x, y=y, marks=marks)


def _steps(found: LiveCapacity) -> pages.PageSection:
    names = [each.name for each in found.criteria]
    head = [
        "step",
        "rate",
        "within",
        "sure",
        *(f"beyond {name}" for name in names),
        "judged",
        "time",
        "tokens",
        "why",
    ]
    rows = [_row(each, found) for each in found.steps]
    table = pages.PageTable(head=head, rows=rows, align="lrll" + "r" * (len(names) + 3) + "l")
    allowed = ", ".join(f"{each.name} {each.beyond_frac:.3g}" for each in found.criteria)
    return pages.PageSection(
        title="Steps",
        anchor="steps",
        lead=f"In the order in which they were taken. Share of requests that may be beyond: {allowed}.",
        parts=[table],
    )


def _row(step: LiveStep, found: LiveCapacity) -> list[str | pages.Cell]:
    seen, verdict = step.seen, step.seen.verdict
    return [
        step.name,
        number_text(seen.rate_per_s),
        pages.Cell(
            text="yes" if seen.is_met else verdict.broken(found.criteria),
            verdict="pass" if seen.is_met else "fail",
        ),
        "yes" if verdict.is_met is not None else "no",
        *(f"{verdict.shares[each.name].beyond_frac:.2%}" for each in found.criteria),
        f"{verdict.num_judged:,} of {step.num_sent:,}",
        time_text(step.duration_s * 1e6),
        f"{step.input_tokens + step.output_tokens:,}",
        step.purpose,
    ]


def _how(found: LiveCapacity) -> pages.PageSection:
    begin = "a probe" if found.probe_per_s is not None else "a rate that was given"
    terms = [
        ("SLO", str(found.question["slo"])),
        ("began with", begin),
        ("state", found.state),
        ("workload", ", ".join(f"{name} {value}" for name, value in found.question["workload"].items())),
    ]
    slow = [each for each in found.steps if each.seen.verdict.slow_start_us is not None]
    terms += [
        (f"slow start of {each.name}", shown_time(each.seen.verdict.slow_start_us or 0.0)) for each in slow
    ]
    return pages.PageSection(title="How it was found", anchor="how", parts=[pages.Terms(terms=terms)])
