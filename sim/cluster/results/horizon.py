"""Cutting a cluster's run at a horizon: results past it are taken back, and unfinished requests are counted."""

from __future__ import annotations

import numpy as np

from sim.cluster.exits import Exit
from sim.cluster.results.finished import Undone
from sim.cluster.run.changes.lost_requests import has_work
from sim.cluster.run.world import NEVER, World
from sim.engine import dtypes as dt
from sim.engine.state import State
from sim.jit.references import Table
from sim.records.run_results import cut_off
from sim.requests import Int64s, Outcomes, Status


def may_go_on(table: Table, world: World) -> bool:
    """Return whether anything is left to happen at or past the horizon.

    What is planned counts where it may bring an engine something: while a request has not come to one yet, or KV is on
    its way. News of a last token, for a gateway that has nothing left to hand out, comes only where engines keep step.
    """
    loop, journeys = world.loop[0], world.journeys
    if loop.next_arrival < len(world.arrivals) or has_work(table):
        return True
    has_plans = world.events.counts[0].num_planned + loop.has_hand > loop.num_idle_plans
    is_outside = (journeys["exit"] == Exit.UNDER_WAY) & (journeys["instance"] == NEVER)
    return bool(has_plans and (is_outside.any() or (journeys["prefill_instance"] != NEVER).any()))


def cut_off_cluster(world: World, states: list[State], outcomes: Outcomes, *, until_us: int) -> None:
    """Take back what lies past a horizon; as ``sim.records.run_results.cut_off``, of a cluster."""
    whole = states[0]._replace(requests=world.rows, deadline_us=world.deadline_us)
    cut_off(whole, outcomes, until_us=until_us)


def count_undone(
    world: World, states: list[State], outcomes: Outcomes, rows: Int64s, *, until_us: int
) -> Undone:
    """Return what the unfinished among ``rows``, each request's last attempt, are doing at a horizon."""
    journeys, at = world.journeys[rows], world.rows[rows]
    is_cut = (outcomes.status[rows] == Status.UNFINISHED) & (journeys["arrival_us"] != NEVER)
    is_at_gateway = is_cut & (journeys["instance"] == NEVER)
    is_running = (at["status"] == dt.RUNNING) | (
        (at["status"] == dt.FINISHED) & (outcomes.last_token_us[rows] > until_us)
    )
    is_prefilling = journeys["is_prefilling"] == 1
    if is_prefilling.any():
        there = next(
            state.requests for state in states if state.engine[0].settings.is_kv_producer
        )  # shared by all of them
        prefill = there[rows]["status"]
        is_running = np.where(is_prefilling, (prefill == dt.RUNNING) | (prefill == dt.FINISHED), is_running)
    num_running = int((is_cut & is_running & ~is_at_gateway).sum())
    num_in_gateway = int(is_at_gateway.sum())
    return Undone(
        num_running=num_running,
        num_waiting=int(is_cut.sum()) - num_running - num_in_gateway,
        num_in_gateway=num_in_gateway,
    )
