"""What a cluster's page says of its size: instances over time with what changed them, what they cost, retries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from replay.cluster.infrastructure import failures_term, retries_term
from replay.cluster.lives import num_at, spans_up, spans_with_gpus
from traces import pages, shown_time

if TYPE_CHECKING:
    from replay.cluster.infrastructure import InfrastructureSummary
    from replay.cluster.simulate import FleetRun
    from replay.cluster.summary import ClusterSummary
    from sim.cluster import Life
    from traces.pages.time_axis import TimeAxis

Floats = NDArray[np.float64]

MOST_MOMENTS = 400
"""Times at which instances are counted for the picture; fewer changes than that are all drawn where they are."""


def size_headlines(summary: ClusterSummary) -> list[pages.Headline]:
    """Return what the instances cost, as the numbers that matter."""
    parts = summary["infrastructure"]
    mean = sum(each["instances_mean"] or 0.0 for each in parts["pools"])
    told = (f"{mean:.3g} instances on average", *_cost(parts))
    return [pages.Headline(label="GPU-hours", value=f"{parts['gpu_hours']:.4g}", details=told)]


def _cost(parts: InfrastructureSummary) -> tuple[str, ...]:
    return () if parts["cost"] is None else (f"cost {parts['cost']:,.2f}",)


def size_section(
    run: FleetRun, summary: ClusterSummary, time: TimeAxis, pools: Sequence[str]
) -> pages.PageSection:
    """Return the number of instances over time, what changed it, and the result; ``pools``: their names."""
    infrastructure = run.result.infrastructure
    changes = bool(infrastructure.changes) or any(life.downs for life in infrastructure.lives)
    parts: list[pages.Part] = [_figures(run, time, pools)] if changes else []
    return pages.PageSection(
        title="Size and cost",
        anchor="size",
        lead="" if changes else "The number of instances does not change.",
        parts=[*parts, pages.Terms(terms=_facts(run, summary))],
    )


def _figures(run: FleetRun, time: TimeAxis, pools: Sequence[str]) -> pages.Figures:
    """Return a picture per pool."""
    found = []
    for number, name in enumerate(pools):
        title = "Instances up" if len(pools) == 1 else f"Instances up, {name}"
        width = 640 if len(pools) == 1 else 520
        found.append(pages.Figure(svg=_picture(run, time, number, title=title, width=width)))
    told = pages.legend(
        [
            ("size-up", "up: serving requests"),
            ("size-paid", "holding their GPUs, starting and down included"),
            ("size-scaled", "scaling decision, at the size it asked for"),
            ("size-failed", "failure"),
        ]
    )
    return pages.Figures(figures=found, columns=min(len(found), 2), caption=told)


def _picture(run: FleetRun, time: TimeAxis, pool: int, *, title: str, width: int) -> pages.Markup:
    result = run.result
    end_us, infrastructure = result.duration_us, result.infrastructure
    lives = [life for life in infrastructure.lives if life.pool == pool]
    up = [span for life in lives for span in spans_up(life, end_us)]
    paid = [span for life in lives for span in spans_with_gpus(life, end_us)]
    moments = _moments([*up, *paid], end_us)
    lines = [(name, num_at(spans, moments)) for name, spans in (("paid", paid), ("up", up))]
    changes = [each for each in infrastructure.changes if each.pool == pool]
    asked = np.array([each.after for each in changes], np.float64)
    failed_us = np.array(sorted(_failures(lives, end_us)), np.float64)
    most = max([1.0, *(float(values.max(initial=0.0)) for _, values in lines), *asked.tolist()])
    marks: list[pages.Mark] = [
        # the run's last moment belongs to the stretch before it
        pages.Line(
            x=time.of(moments),
            y=np.append(values[:-1], values[-2:-1]),
            name=f"size-{name}",
            steps=True,
            label=name,
        )
        for name, values in lines
    ]
    scaled_us = np.array([each.time_us for each in changes], np.float64)
    marks.append(pages.Dots(x=time.of(scaled_us), y=asked, name="size-scaled"))
    marks.append(pages.Dots(x=time.of(failed_us), y=num_at(up, failed_us), name="size-failed"))
    y = pages.linear(0.0, 1.1 * most, label="instances", most=4)
    return pages.chart(title=title, x=time.scale, y=y, marks=marks, width=width, height=240)


def _moments(spans: Sequence[tuple[int, int]], end_us: int) -> Floats:
    """Return when to count: at every change, or evenly where those are too many; 0 and the end among them."""
    changes = np.unique(np.array([0, end_us, *(at for span in spans for at in span)], np.float64))
    return changes if len(changes) <= MOST_MOMENTS else np.linspace(0.0, float(end_us), MOST_MOMENTS)


def _failures(lives: Sequence[Life], end_us: int) -> list[int]:
    return [failed_us for life in lives for failed_us, _ in life.downs if failed_us <= end_us]


# -- facts ----------------------------------------------------------------------------------------------------


def _facts(run: FleetRun, summary: ClusterSummary) -> list[tuple[str, str]]:
    """Return figures of the fleet's size, a term each."""
    parts, retries = summary["infrastructure"], summary["retries"]
    found = [("GPU-hours", ", ".join([f"{parts['gpu_hours']:,.4g}", *_cost(parts)]))]
    for each in parts["pools"]:
        name = "instances" if len(parts["pools"]) == 1 else f"instances of {each['name']}"
        mean = "-" if each["instances_mean"] is None else f"{each['instances_mean']:.3g}"
        found.append((name, f"{mean} on average, {each['instances_most']:,} at most"))
    found += [
        (f"nodes of {each['name']}", f"{each['num_nodes']:,}, {each['node_hours']:,.4g} hours")
        for each in parts["node_pools"]
    ]
    if parts["scaling"]:
        found.append(("scaling decisions", f"{len(parts['scaling']):,}"))
    if parts["num_failures"]:
        found.append(failures_term(parts))
    if retries is not None:
        found.append(retries_term(retries))
    return [*found, *_gateway_facts(run)]


def _gateway_facts(run: FleetRun) -> list[tuple[str, str]]:
    """Return how long requests were in the gateway's queue, nothing where it has none."""
    if "gateway_queue_us" not in run.trace.table:
        return []
    waited = run.trace.cells("gateway_queue_us").known().astype(np.float64)
    if len(waited) == 0:
        return [("gateway's queue", "no request left it for an instance")]
    mean, p99, most = float(waited.mean()), float(np.percentile(waited, 99)), float(waited.max())
    return [
        (
            "gateway's queue",
            f"{shown_time(mean)} on average, p99 {shown_time(p99)}, {shown_time(most)} at most",
        )
    ]
