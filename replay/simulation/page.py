"""The page of a run, of one server or a cluster, from what the run has worked out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from replay.cluster.over_time import stretches
from replay.simulation.one_server_page import RunPage, page_of_run
from replay.timeline.fleet_page import FleetPageParts, fleet_sections
from replay.timeline.fleet_size import size_headlines
from replay.timeline.session_sections import session_sections
from replay.twin.config_write import dump_config

if TYPE_CHECKING:
    from replay.simulation.simulated_run import Run
    from traces.pages import Page


def run_page(run: Run, *, command: str) -> Page:
    """Return the page; ``command``: the call that simulated the run."""
    page = RunPage(
        trace=run.trace,
        summary=run.summary,
        usage=run.usage,
        batch_sizes=run.simulation.batch_sizes(),
        slo_us=run.plan.settings.slo_us,
        warnings=run.warnings,
        command=command,
        twin=dump_config(run.twin),
        band=run.band,
        of_sessions=session_sections(run.summary, run.kv_reuse, run.simulation.outcomes.scheduled_us),
    )
    return page_of_run(_with_fleet(page, run))


def _with_fleet(page: RunPage, run: Run) -> RunPage:
    """Return the page with what a cluster's has besides a server's."""
    if run.of_cluster is None:
        return page
    found = stretches(run.fleet, run.twin.peaks)
    assert found is not None  # noqa: S101 - it was looked at
    view = FleetPageParts(run=run.fleet, cluster=run.cluster, found=found, summary=run.of_cluster)
    return replace(page, of_fleet=fleet_sections(view), headlines=size_headlines(run.of_cluster))
