"""What a cluster's page has besides a server's: every instance over time, the gateway's decisions, transfers, pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from replay.cluster.over_time import num_at_gateway, num_transfers
from replay.timeline.fleet_size import size_section
from traces import pages, shown_time
from traces.pages.time_axis import TimeAxis, time_axis

if TYPE_CHECKING:
    from replay.cluster.over_time import Stretches
    from replay.cluster.simulate import FleetRun
    from replay.cluster.summary import ClusterSummary
    from sim.cluster import ClusterConfig

Floats = NDArray[np.float64]

MOST_IN_TABLE = 64
"""Instances that the page's table has."""
MOST_POOLS = 5
"""Pools that have a colour of their own."""
MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPageParts:
    """What the sections are made from."""

    run: FleetRun
    cluster: ClusterConfig
    found: Stretches
    summary: ClusterSummary

    @property
    def time(self) -> TimeAxis:
        """The axis of the run's time."""
        return time_axis(float(self.found.time_us[-1]))

    @property
    def ends(self) -> Floats:
        """The ends of the stretches, on that axis."""
        return self.time.of(self.found.time_us)

    @property
    def pools(self) -> list[tuple[str, NDArray[np.bool_]]]:
        """Each pool's name and instances; a single pool is the fleet."""
        if len(self.cluster.pools) == 1:
            return [("fleet", np.ones(len(self.found.pool_of), bool))]
        return [
            (pool.name or str(number), self.found.pool_of == number)
            for number, pool in enumerate(self.cluster.pools[:MOST_POOLS])
        ]


def fleet_sections(view: FleetPageParts) -> list[pages.PageSection]:
    """Return the sections."""
    names = [pool.name or str(number) for number, pool in enumerate(view.cluster.pools)]
    size = size_section(view.run, view.summary, view.time, names)
    return [size, _instances(view), _fleet(view), _decisions(view), _what_each_did(view)]


# -- instances ------------------------------------------------------------------------------------------------


def _instances(view: FleetPageParts) -> pages.PageSection:
    found = view.found
    pictures: list[tuple[str, Floats, float, Callable[[float], str], str]] = []
    if not np.isnan(found.used_blocks).all():
        share = found.used_blocks / found.num_blocks
        pictures.append(("KV cache in use", share, 1.0, _percent, "full colour: all of it"))
    busy = np.clip(found.busy_us / found.lengths_us[:, None], 0.0, 1.0)
    pictures.append(("Busy share", busy, 1.0, _percent, "full colour: all the time"))
    for title, values in (("Requests running", found.running), ("Requests waiting", found.waiting)):
        most = float(values.max(initial=0.0))
        pictures.append((title, values, max(most, 1.0), _count, f"full colour: {_count(max(most, 1.0))}"))
    figures = [
        pages.Figure(svg=_heat(view, title, values, most=most, text=text, label=label))
        for title, values, most, text, label in pictures
    ]
    return pages.PageSection(
        title="Instances over time",
        anchor="instances",
        lead=f"A row is {_row(len(found.pool_of))}, a cell a stretch of the run. Rest on a cell to read its value.",
        parts=[pages.Figures(figures=figures)],
    )


def _row(num_instances: int) -> str:
    return "an instance" if num_instances <= pages.MOST_ROWS else "the mean of some neighbouring instances"


def _heat(
    view: FleetPageParts, title: str, values: Floats, *, most: float, text: Callable[[float], str], label: str
) -> pages.Markup:
    return pages.heat_map(
        pages.HeatMap(
            title=title,
            names=view.cluster.instance_names,
            values=np.asarray(values.T),
            ends=view.ends,
            x=view.time.scale,
            most=most,
            text=text,
            label=label,
        )
    )


# -- the fleet and its pools ----------------------------------------------------------------------------------


def _fleet(view: FleetPageParts) -> pages.PageSection:
    found = view.found
    kv = [(name, found.kv_frac(own)) for name, own in view.pools]
    busy = [(name, found.busy_frac(own)) for name, own in view.pools]
    mfu = [(name, found.mfu_frac(own)) for name, own in view.pools]
    per_s = found.lengths_us / MICROSECONDS
    rate = [(name, found.completed[:, own].sum(axis=1) / per_s) for name, own in view.pools]
    running = [(name, found.running[:, own].sum(axis=1)) for name, own in view.pools]
    waiting = [(name, found.waiting[:, own].sum(axis=1)) for name, own in view.pools]
    figures = [
        _lines(view, "Requests running", running, unit="requests", text=_count),
        _lines(view, "Requests waiting at instances", waiting, unit="requests", text=_count),
        # of a single pool it is drawn with the requests in flight
        _lines(view, "KV cache in use", kv, unit="", text=_percent, most=1.0) if len(kv) > 1 else None,
        _lines(view, "Busy share", busy, unit="", text=_percent, most=1.0),
        _lines(view, "Model FLOPs utilisation", mfu, unit="", text=_percent),
        _lines(view, "Completions", rate, unit="per second", text=_rate),
    ]
    if (queued := num_at_gateway(found, view.run, view.cluster)) is not None:
        values = [("gateway", np.array(queued, np.float64))]
        figures.append(_lines(view, "Waiting in the gateway's queue", values, unit="requests", text=_count))
    if (moving := num_transfers(found, view.run)) is not None:
        values = [("transfers", np.array(moving, np.float64))]
        figures.append(_lines(view, "KV transfers under way", values, unit="transfers", text=_count))
    caption = ""
    if len(view.pools) > 1:
        caption = pages.legend([(f"pool-{number}", name) for number, (name, _) in enumerate(view.pools)])
    pools: list[pages.Part] = [
        pages.Figures(figures=[each for each in figures if each is not None], caption=caption)
    ]
    if np.isnan(found.peak_us).all():
        pools.append(
            pages.Prose(
                markup="Model FLOPs utilisation is not shown: TWIN.yaml does not say which model runs on which GPU."
            )
        )
    return pages.PageSection(
        title="Pools over time" if len(view.pools) > 1 else "The fleet over time",
        anchor="fleet",
        lead=_transfers_told(view),
        parts=pools,
    )


def _transfers_told(view: FleetPageParts) -> str:
    """Return a sentence on what was transferred, if anything was."""
    split = view.run.result.split
    if split is None or split.num_ended == 0:
        return ""
    ended = (split.transfer_start_us >= 0) & (split.transfer_end_us >= 0)
    took_us = float((split.transfer_end_us - split.transfer_start_us)[ended].mean())
    return f"{split.num_ended:,} KV transfers, {shown_time(took_us)} each on average."


def _lines(
    view: FleetPageParts,
    title: str,
    values: Sequence[tuple[str, Floats]],
    *,
    unit: str,
    text: Callable[[float], str],
    most: float | None = None,
) -> pages.Figure | None:
    """Return a picture with a line per name; None where nothing is known."""
    known = [(number, name, each) for number, (name, each) in enumerate(values) if not np.isnan(each).any()]
    if not known:
        return None
    high = max(float(each.max(initial=0.0)) for _, _, each in known)
    time, ends = view.time, view.ends
    y = pages.linear(
        0.0,
        most or (1.1 * high if high > 0 else 1.0),
        label=unit,
        most=4,
        text=text if text is _percent else None,
    )
    starts = np.append(0.0, ends[:-1])
    marks = [
        # each value holds for the stretch that ends with it
        pages.Line(x=np.append(0.0, ends), y=np.append(each, each[-1]), name=f"pool-{number}", steps=True)
        for number, _, each in known
    ]
    hints = [
        pages.Hint(
            start=float(starts[place]),
            end=float(ends[place]),
            text=f"{starts[place]:,.4g} to {ends[place]:,.4g} {time.unit}: "
            + ", ".join(
                f"{name} {text(float(each[place]))}" if len(values) > 1 else text(float(each[place]))
                for _, name, each in known
            ),
        )
        for place in range(len(ends))
    ]
    return pages.Figure(svg=pages.chart(title=title, x=time.scale, y=y, marks=marks, hints=hints, height=220))


# -- decisions ------------------------------------------------------------------------------------------------


def _decisions(view: FleetPageParts) -> pages.PageSection:
    """Return the share of the requests that each instance got, over time, and every way out."""
    routed, summary = view.found.routed, view.summary
    share = np.zeros_like(routed)
    for _, own in view.pools:
        share[:, own] = routed[:, own] / np.maximum(routed[:, own].sum(axis=1, keepdims=True), 1.0)
    even = f"An even share is {1 / routed.shape[1]:.1%}."
    if len(view.pools) > 1:
        even = "Shares are within each pool."
    most, high = float(share.max(initial=0.0)) or 1.0, max(float(routed.max(initial=0.0)), 1.0)
    figures = [
        pages.Figure(
            svg=_heat(
                view,
                "Share of the requests sent to each instance",
                share,
                most=most,
                text=_percent,
                label=f"full colour: {_percent(most)}",
            ),
            caption=even,
        ),
        pages.Figure(
            svg=_heat(
                view,
                "Requests sent",
                routed,
                most=high,
                text=_count,
                label=f"full colour: {_count(high)}",
            )
        ),
    ]
    ways = [[name.replace("_", " "), f"{count:,}"] for name, count in summary["num_by_exit"].items()]
    fairness = summary["jain_fairness"]
    fair = "" if fairness is None else f" Jain's fairness of requests over instances is {fairness:.3f}."
    return pages.PageSection(
        title="Decisions over time",
        anchor="decisions",
        lead=pages.inline("The router's policy is ", pages.code(summary["routing_policy"]), f".{fair}"),
        parts=[
            pages.Figures(figures=figures),
            pages.PageTable(head=["way out", "requests"], rows=ways, align="lr", wide=False),
        ],
    )


def _what_each_did(view: FleetPageParts) -> pages.PageSection:
    """Return the instances' table, and what was wrong with the run."""
    instances = view.summary["instances"]
    rows = [
        [
            each["name"],
            f"{each['num_requests']:,}",
            f"{each['output_tokens']:,}",
            _percent(each["prefix_hit_frac"]),
            f"{each['num_preemptions']:,}",
            _percent(each["busy_frac"]),
            _percent(each["kv_usage_frac"]),
            _time(each["ttft_mean_us"]),
            _time(each["e2e_mean_us"]),
        ]
        for each in instances[:MOST_IN_TABLE]
    ]
    head = [
        "instance",
        "requests",
        "output tokens",
        "prefix hits",
        "preemptions",
        "busy",
        "KV used",
        "TTFT",
        "E2E",
    ]
    caption = "KV used, TTFT and E2E are means."
    if len(instances) > MOST_IN_TABLE:
        caption += f" {len(instances) - MOST_IN_TABLE:,} instances more are in the JSON (--json)."
    said: list[pages.Part] = [
        pages.Prose(markup=pages.inline(pages.bold(each["name"]), f": {each['text']}."))
        for each in view.summary["pathologies"]
    ]
    return pages.PageSection(
        title="What each instance did",
        anchor="each",
        parts=[
            *said,
            pages.PageTable(head=head, rows=rows, align="lrrrrrrrr", caption=caption),
            *_host_memory(view),
        ],
    )


def _host_memory(view: FleetPageParts) -> list[pages.Part]:
    """Return the table of each instance's second KV tier, nothing where there is none."""
    tiers = {each["name"]: each["kv_offload"] for each in view.summary["instances"][:MOST_IN_TABLE]}
    rows = [
        [
            name,
            _percent(tier["gpu_hit_frac"]),
            _percent(tier["hit_frac"]),
            f"{tier['num_offloaded_blocks']:,}",
            f"{tier['num_reloaded_blocks']:,}",
            _time(tier["load_us"]["mean"]),
            _time(tier["load_us"]["p99"]),
        ]
        for name, tier in tiers.items()
        if tier is not None
    ]
    if not rows:
        return []
    head = ["instance", "hits, GPU", "hits, CPU", "blocks stored", "blocks loaded", "load, mean", "load, p99"]
    return [pages.PageTable(head=head, rows=rows, align="lrrrrrr", caption="Hits by tier, of prompt tokens.")]


# -- texts ----------------------------------------------------------------------------------------------------


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3g} %"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def _rate(value: float) -> str:
    return f"{value:,.3g} per second"


def _time(value: float | None) -> str:
    return "-" if value is None else shown_time(value)
