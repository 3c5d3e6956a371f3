"""The clients' plan as compiled code reads it: caps, sessions and waves."""

from __future__ import annotations

import numpy as np

from sim.cluster.arrays import records
from sim.cluster.client_plans import ClientPlan
from sim.cluster.run.world import (
    CLIENTS,
    Clients,
)
from sim.requests import Int64s


def clients_of(plan: ClientPlan | None) -> Clients:
    """Return a plan as compiled code reads it."""
    counts, none = records(1, CLIENTS), np.zeros(0, np.int64)
    if plan is None:
        return Clients(counts, *([none] * (len(Clients._fields) - 1)))
    wave = none if plan.wave is None else plan.wave
    sizes = np.bincount(wave, minlength=1) if len(wave) else none
    counts["has_waves"] = plan.wave is not None
    counts["has_loop"] = plan.wave is None and len(plan.held) > 0
    counts["has_sessions"] = plan.session is not None
    counts["wave_pause_us"] = plan.wave_pause_us
    return Clients(
        counts=counts,
        held=plan.held.astype(np.int64),
        due_us=plan.due_us.astype(np.int64),
        **_waiting_of(plan),
        think_us=plan.think_us.astype(np.int64),
        wave=wave,
        wave_start=np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]).astype(np.int64),
        wave_open=sizes.astype(np.int64),
    )


def _waiting_of(plan: ClientPlan) -> dict[str, Int64s]:
    """Return, as compiled code reads it, under each request those that wait for its answer."""
    none = np.zeros(0, np.int64)
    names = ("child_start", "children", "num_awaited", "session", "session_open")
    if plan.session is None or plan.waiting is None or plan.awaited is None:
        return dict.fromkeys(names, none)
    n = len(plan.session)
    counts = np.bincount(plan.awaited, minlength=n)
    order = np.argsort(plan.awaited, kind="stable")
    columns = (
        np.concatenate([[0], np.cumsum(counts)]),
        plan.waiting[order],
        np.bincount(plan.waiting, minlength=n),
        plan.session,
        np.bincount(plan.session[plan.session >= 0], minlength=1),
    )
    return {name: column.astype(np.int64) for name, column in zip(names, columns, strict=True)}
