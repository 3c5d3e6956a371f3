"""A run as a page: what the server did in absolute numbers, over time, with the limits drawn in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from replay.cluster.waiting_causes import IN_WORDS
from replay.numbers.distribution import Distribution
from replay.simulation.pace_band import SHOWN, PaceBand, band_lead, band_rows
from replay.timeline.watch_engine import Usage
from replay.trace.kv_offload import hits_by_tier, offload_text
from replay.trace.simulation_summary import SimulationSummary
from replay.trace.summary_text import has_idle_end, waits_of
from replay.verdict.sentences import GOOD, bursts_told, is_whole, page_title, stretches_told
from traces import pages, prompt_tokens, request_latencies, shown_time, tool_version
from traces.pages.request_figures import (
    BINS,
    METRICS,
    Floats,
    distribution_picture,
    dots_picture,
    number_text,
    throughput_picture,
    throughput_told,
    time_text,
)
from traces.pages.time_axis import time_axis

if TYPE_CHECKING:
    from sim import Histogram
    from traces import Trace


FEW = 0.05
"""The share of the running requests that may wait at a time before a page shows how many do."""
ROWS = {"TTFT": "ttft_us", "TPOT": "tpot_us", "ITL": "itl_us", "E2E": "e2e_us", "queue": "queue_us"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """The contents of a run's page: its trace, its summary, what was in use, and how it was made.

    ``slo_us``: limits of a request by metric. ``twin``: TWIN.yaml as it was read; ``command``: the call.
    ``band``: what the run comes to at the paces that a fit leaves open, None where the twin does not say.
    ``of_fleet``: what a cluster's page has besides; ``headlines``: its further numbers that matter.
    ``of_sessions``: what the page of a trace of sessions has besides.
    """

    trace: Trace
    summary: SimulationSummary
    usage: Usage
    batch_sizes: Histogram
    slo_us: Mapping[str, float]
    warnings: Sequence[str]
    command: str
    twin: str
    of_fleet: Sequence[pages.PageSection] = ()
    band: PaceBand | None = None
    headlines: Sequence[pages.Headline] = ()
    of_sessions: Sequence[pages.PageSection] = ()


def page_of_run(run: RunPage) -> pages.Page:
    """Return the page."""
    summary, latencies = run.summary, request_latencies(run.trace)
    return pages.Page(
        name="vtwin run",
        eyebrow="vtwin: a simulated run",
        title=run_title(summary, "fleet" if run.of_fleet else "server"),
        lead=_lead(run),
        more=_more(run.summary),
        headlines=[*_headlines(run), *run.headlines],
        sections=[
            *([_warnings(run.warnings)] if run.warnings else []),
            _latencies(run, latencies),
            _over_time(run, latencies),
            _in_use(run),
            *run.of_sessions,
            *run.of_fleet,
            _numbers(summary),
            *([_band(run.band)] if run.band else []),
            _origin(run),
        ],
        footer=f"vtwin {tool_version()} · --json prints every number on this page",
    )


def run_title(summary: SimulationSummary, subject: str) -> str:
    """Return the sentence that a run's page begins with; ``subject``: server or fleet."""
    offered = summary["offered_rate_per_s"]
    if not summary["num_by_status"].get("ok"):
        return f"No request to the {subject} finished"
    if summary["verdict"] is None or offered is None:
        served = f"{number_text(summary['request_throughput'])} requests per second"
        return served if summary["verdict"] is None else f"{summary['verdict'].capitalize()} at {served}"
    good = None if summary["goodput"] is None else summary["goodput"]["good_frac"]
    said = page_title(
        summary["verdict"],
        summary["verdict_stretches"] or (),
        subject=subject,
        is_slo_missed=good is not None and good < GOOD,
        waits=waits_of(summary),
        sending_us=summary["sending_us"],
    )
    load, answers = summary["load"], ""
    if load is not None and load["served_per_s"] is not None and said.endswith("overloaded at"):
        answers = f": it answers {load['served_per_s']:.3g}" if load["counts"] == "requests" else ""
    return f"{said} {number_text(offered)} requests per second{answers}"


def _lead(run: RunPage) -> str:
    counts = ", ".join(f"{count:,} {name}" for name, count in run.summary["num_by_status"].items())
    seconds = shown_time(float(run.summary["duration_us"]))
    return f"{counts} in {seconds} of simulated time."


def _more(summary: SimulationSummary) -> list[str]:
    """Return what to know of the run besides: a time without requests at its end, when it was overloaded."""
    sent_until, stretches = summary["sending_us"], summary["verdict_stretches"] or ()
    more = []
    if sent_until is not None and has_idle_end(summary):
        more.append(
            f"In the last {shown_time(float(summary['duration_us'] - sent_until))} no request was sent."
        )
    if stretches and summary["verdict"] != "overloaded":
        told = bursts_told(stretches)
        more.append(f"{told[0].upper()}{told[1:]}.")
    elif stretches and not is_whole(stretches, sent_until):
        more.append(f"Overloaded{stretches_told(stretches)}.")
    return more


def _headlines(run: RunPage) -> list[pages.Headline]:
    summary = run.summary
    found = [
        pages.Headline(
            label="Output tokens/s",
            value=number_text(summary["output_token_throughput"]),
            details=(f"{number_text(summary['request_throughput'])} requests/s",),
        )
    ]
    for name, (key, title) in METRICS.items():
        values: Distribution = summary[key]  # type: ignore[literal-required]
        limit = run.slo_us.get(name)
        told = () if limit is None else (f"limit {shown_time(limit)}",)
        found.append(
            pages.Headline(
                label=f"{title.partition(',')[0]}, median",
                value=time_text(values["p50"]),
                details=(f"p99 {time_text(values['p99'])}", *told),
            )
        )
    if (good := summary["goodput"]) is not None and good["good_frac"] is not None:
        found.append(
            pages.Headline(
                label="Within the SLO",
                value=f"{good['good_frac']:.1%}",
                details=(f"goodput {number_text(good['good_per_s'])} requests/s",),
            )
        )
    return found


def _warnings(lines: Sequence[str]) -> pages.PageSection:
    return pages.PageSection(
        title="Warnings", anchor="warnings", parts=[pages.Prose(markup=f"{line}.") for line in lines]
    )


# -- pictures -------------------------------------------------------------------------------------------------


def latency_pictures(
    latencies: Mapping[str, Floats], batch_sizes: Histogram, slo_us: Mapping[str, float]
) -> dict[str, pages.Picture]:
    """Return the distributions of a run's latencies and batches, by name: the share of requests up to each time."""
    found = {}
    for name, (key, title) in METRICS.items():
        values = latencies[key]
        found[name] = distribution_picture(values[np.isfinite(values)], title, slo_us.get(name))
    return found | {"batches": _batches(batch_sizes)}


def _latencies(run: RunPage, latencies: Mapping[str, Floats]) -> pages.PageSection:
    found = latency_pictures(latencies, run.batch_sizes, run.slo_us)
    return pages.PageSection(
        title="Latencies and batches",
        anchor="latencies",
        lead="The share of requests up to each time" + (", the limit dashed." if run.slo_us else "."),
        parts=[pages.Figures(figures=[pages.Figure(svg=each.svg()) for each in found.values()])],
    )


def _batches(sizes: Histogram) -> pages.Picture:
    """Return the share of steps with at most this many requests."""
    total = float(sizes.counts.sum())
    shares = np.cumsum(sizes.counts) / total if total else np.zeros(0)
    x = pages.linear(0.0, float(sizes.values.max(initial=1.0)), label="requests in a step")
    y = pages.linear(0.0, 1.0, most=4, text=lambda value: f"{100 * value:.0f} %")
    line = pages.Line(x=sizes.values, y=np.asarray(shares, np.float64), name="simulated", steps=True)
    return pages.Picture(title="Batch sizes, share of steps", x=x, y=y, marks=[line])


def _over_time(run: RunPage, latencies: Mapping[str, Floats]) -> pages.PageSection:
    sent = run.trace.cells("send_time_us").floats()
    span_us = float(max(run.summary["duration_us"], 1))
    found = [
        dots_picture(sent, latencies[key], title, span_us, run.slo_us.get(name))
        for name, (key, title) in METRICS.items()
    ]
    found.append(throughput_picture(run.trace, span_us))
    return pages.PageSection(
        title="Over time",
        anchor="time",
        lead=f"A dot is a request, by when it was sent. {throughput_told(run.trace)}",
        parts=[pages.Figures(figures=[pages.Figure(svg=each.svg()) for each in found])],
    )


def use_pictures(usage: Usage, span_us: float) -> dict[str, pages.Picture]:
    """Return what was in use over a run of this length, by name: requests in flight, and KV cache if it is known."""
    time = time_axis(span_us)
    at = time.of(usage.time_us)
    most = max(float(usage.running.max(initial=1.0)), float(usage.waiting.max(initial=1.0)))
    flight: list[pages.Mark] = [
        pages.Line(x=at, y=usage.running, name="simulated", steps=True, label="running"),
        pages.Line(x=at, y=usage.waiting, name="arrived", steps=True, label="waiting"),
    ]
    requests = pages.linear(0.0, 1.1 * most, label="requests")
    found = {"flight": pages.Picture(title="Requests in flight", x=time.scale, y=requests, marks=flight)}
    if usage.kv_frac is not None:
        share = pages.linear(0.0, 1.0, most=4, text=lambda value: f"{100 * value:.0f} %")
        line = pages.Line(x=at, y=usage.kv_frac, name="simulated", steps=True, label="in use")
        found["kv"] = pages.Picture(title="KV cache in use", x=time.scale, y=share, marks=[line])
    return found


def hits_picture(trace: Trace, span_us: float) -> pages.Picture | None:
    """Return the share of prompt tokens found in the prefix cache, by when requests were sent; None without hits."""
    sent = trace.cells("send_time_us").floats()
    cached = trace.cells("num_cached_tokens").floats()
    known = np.isfinite(sent) & np.isfinite(cached)
    if not cached[known].sum():
        return None
    edges = np.linspace(0.0, span_us, BINS + 1)
    found = np.histogram(sent[known], edges, weights=cached[known])[0]
    asked = np.histogram(sent[known], edges, weights=prompt_tokens(trace)[known].astype(np.float64))[0]
    shares = np.divide(found, asked, out=np.full(BINS, np.nan), where=asked > 0)
    last = int(np.flatnonzero(asked)[-1]) + 1
    time = time_axis(span_us)
    share = pages.linear(0.0, 1.0, most=4, text=lambda value: f"{100 * value:.0f} %")
    line = pages.Line(x=time.of(edges[:last]), y=shares[:last], name="simulated", label="found")
    return pages.Picture(title="Prompt tokens found in the prefix cache", x=time.scale, y=share, marks=[line])


def _in_use(run: RunPage) -> pages.PageSection:
    """Return the requests running and waiting, and the KV cache, over time."""
    captions = {
        "flight": f"Orange: running, of {run.usage.num_seats:,} seats. Dashed: waiting.",
        "kv": f"{run.summary['num_preemptions']:,} preemptions.",
    }
    span_us = float(max(run.summary["duration_us"], 1))
    found = use_pictures(run.usage, span_us)
    if (hits := hits_picture(run.trace, span_us)) is not None:
        found["hits"] = hits
    figures = [pages.Figure(svg=each.svg(), caption=captions.get(name, "")) for name, each in found.items()]
    return pages.PageSection(
        title="In use", anchor="use", lead=waits_told(run.usage), parts=[pages.Figures(figures=figures)]
    )


def waits_told(usage: Usage) -> str:
    """Return the sentence on what requests wait for."""
    if usage.waits_for is None:
        return "What requests wait for is not known."
    if usage.waits_for == "gateway":
        return "Most of the waiting is in the gateway's queue."
    if usage.waits_for != "none":
        return f"Requests that wait do so for {IN_WORDS.get(usage.waits_for, usage.waits_for)}."
    most = float(usage.waiting.max(initial=0.0))
    if most <= FEW * max(1.0, float(usage.running.max(initial=0.0))):
        return "Hardly any request waits for longer than for the step in progress."
    share = float((usage.waiting > 0).mean())
    return (
        f"Requests wait in {share:.1%} of the run, up to {most:,.0f} at a time: all together little beside the time "
        "for which they run."
    )


# -- numbers --------------------------------------------------------------------------------------------------


def _numbers(summary: SimulationSummary) -> pages.PageSection:
    rows = []
    for name, key in ROWS.items():
        values: Distribution = summary[key]  # type: ignore[literal-required]
        rows.append([name, *(time_text(values[stat]) for stat in ("mean", "p50", "p90", "p95", "p99"))])
    facts = [
        ("prompt tokens", _tokens(summary["prompt_tokens"])),
        ("output tokens", _tokens(summary["output_tokens"])),
        ("prefix hits", "-" if summary["prefix_hit_frac"] is None else f"{summary['prefix_hit_frac']:.1%}"),
        ("steps", f"{summary['num_steps']:,}"),
    ]
    if (tier := summary["kv_offload"]) is not None:
        facts += [("hits by tier", hits_by_tier(tier)), ("KV offload", offload_text(tier))]
    table = pages.PageTable(head=["", "mean", "p50", "p90", "p95", "p99"], rows=rows, align="lrrrrr")
    return pages.PageSection(title="Numbers", anchor="numbers", parts=[table, pages.Terms(terms=facts)])


def _band(band: PaceBand) -> pages.PageSection:
    return pages.PageSection(
        title="Pace band",
        anchor="pace-band",
        lead=band_lead(band),
        parts=[pages.PageTable(head=["", *SHOWN], rows=band_rows(band), align="lrrr")],
    )


def _tokens(values: Distribution) -> str:
    mean, high = values["mean"], values["p99"]
    return "-" if mean is None or high is None else f"{mean:,.0f} on average, p99 {high:,.0f}"


def _origin(run: RunPage) -> pages.PageSection:
    return pages.PageSection(
        title="How it came about",
        anchor="origin",
        parts=[
            pages.Terms(terms=[("command", run.command)]),
            pages.FoldedText(title="TWIN.yaml, as read", text=run.twin),
        ],
    )
