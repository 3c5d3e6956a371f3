"""What a run's page shows of sessions: which took longest, and the KV cache that their prompts need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from traces import pages
from traces.pages.request_figures import number_text, time_text
from traces.pages.scale import logarithmic
from traces.pages.time_axis import time_axis

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from replay.sessions.reuse import KVReuse
    from replay.sessions.session_summary import CacheNeeds, SessionsSummary
    from replay.trace.simulation_summary import SimulationSummary


def session_sections(
    summary: SimulationSummary, reuse: KVReuse | None, scheduled_us: NDArray[np.int64]
) -> list[pages.PageSection]:
    """Return the sections; ``scheduled_us``: when each request was first scheduled, -1 never. [] without sessions."""
    sessions, needs = summary["groups"]["sessions"], summary["kv_needed"]
    found = [] if sessions is None or not sessions["slowest"] else [_sessions(sessions)]
    if reuse is not None and needs is not None:
        found.append(_cache(needs, reuse, scheduled_us, span_us=float(max(summary["duration_us"], 1))))
    return found


def _sessions(sessions: SessionsSummary) -> pages.PageSection:
    """Return the sessions that took longest, and what all of them waited for."""
    rows = [
        [
            each["session_id"],
            f"{each['num_requests']:,}",
            time_text(each["duration_us"]),
            time_text(each["model_us"]),
            time_text(each["tool_us"]),
            "-" if each["cached_frac"] is None else f"{each['cached_frac']:.1%}",
            f"{each['recomputed_tokens']:,}",
        ]
        for each in sessions["slowest"]
    ]
    head = ["slowest sessions", "requests", "took", "model", "tools, people", "cached", "computed again"]
    lead = (
        f"{sessions['num_complete']:,} of {sessions['num_sessions']:,} sessions are complete: "
        f"{time_text(sessions['duration_us']['mean'])} on average from the first request to the last answer, "
        f"{time_text(sessions['model_us']['mean'])} of it with a request under way."
    )
    return pages.PageSection(
        title="Sessions",
        anchor="sessions",
        lead=lead,
        parts=[pages.PageTable(head=head, rows=rows, align="lrrrrrr")],
    )


def _cache(
    needs: CacheNeeds, reuse: KVReuse, scheduled_us: NDArray[np.int64], *, span_us: float
) -> pages.PageSection:
    """Return the hits of caches of every size, and how much is asked for again over time."""
    tokens = np.array([blocks for blocks, _ in needs["curve"]], np.float64) * needs["block_size"]
    shares = np.array([share for _, share in needs["curve"]])
    marks = [pages.Line(x=tokens, y=shares, name="simulated")]
    x = logarithmic(
        float(tokens.min()), float(max(tokens.max(), 2 * tokens.min())), label="tokens of KV cache"
    )
    own = float(needs["num_kept_blocks"] * needs["block_size"])
    rules = [pages.Rule(start=(own, 0.0), end=(own, 1.0), name="limit")] if x.holds(own) else []
    y = pages.linear(0.0, 1.0, most=4, text=lambda value: f"{100 * value:.0f} %")
    figures = [
        pages.Figure(
            svg=pages.chart(title="Prompt tokens found, by size of cache", x=x, y=y, marks=[*marks, *rules]),
            caption="One cache for all, requests one after another, the least recent evicted."
            + (" Dashed: one server here." if rules else ""),
        )
    ]
    when = np.sort(scheduled_us[scheduled_us >= 0])
    live = np.asarray(reuse.live * reuse.block_size, np.float64)
    axis = time_axis(span_us)
    figures.append(
        pages.Figure(
            svg=pages.chart(
                title="KV that is asked for again later",
                x=axis.scale,
                y=pages.linear(0.0, float(max(live.max(initial=0.0), 1.0)), label="tokens"),
                marks=[pages.Line(x=axis.of(when.astype(np.float64)), y=live, name="simulated", steps=True)],
            ),
            caption=f"The least that an ideal cache holds; at most {number_text(float(live.max(initial=0.0)))} tokens.",
        )
    )
    lead = (
        f"An unlimited cache would find {needs['ideal_hit_frac']:.1%} of prompt tokens; 95% of these hits need "
        f"{number_text(float(needs['blocks_for']['0.95'] * needs['block_size']))} tokens of KV."
    )
    return pages.PageSection(
        title="KV cache that the prompts need",
        anchor="kv-needed",
        lead=lead,
        parts=[pages.Figures(figures=figures)],
    )
