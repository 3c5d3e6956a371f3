"""Whether a run continues: whether its requests have work left, the same whether engines keep step or run ahead."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sim.cluster.events import EventRank
from sim.cluster.exits import Exit
from sim.cluster.run.request_path import NUM_KINDS
from sim.cluster.run.world import World
from sim.engine.state import State, columns

ABOUT_A_REQUEST = (
    EventRank.ARRIVAL,
    EventRank.ADMISSION,
    EventRank.ROUTING,
    EventRank.EXPIRY,
    EventRank.CLIENT_GAVE_UP,
)
"""Events whose subject is a request."""

OF_MANY = (int(EventRank.TRANSFER_ENDED), int(EventRank.DISPATCH))
"""Events that advance requests and belong to no single one of them."""


def rows_of_events(world: World) -> NDArray[np.int64]:
    """Return the rows of the requests of planned events, one per event, in no order."""
    events = columns(world.events.heap)[: int(world.events.counts[0].num_planned)]
    is_about = np.isin(events["rank"], [int(rank) for rank in ABOUT_A_REQUEST])
    answers = events["subject"][events["rank"] == int(EventRank.STEP_ENDED)] // NUM_KINDS
    return np.concatenate([events["subject"][is_about], answers])


def has_events(world: World) -> bool:
    """Return whether a planned event advances any request.

    An event of a request that has left does not: its token was on the way when its instance failed. Nor does the start
    of a step by itself: its requests may have left, and ``has_work`` says whether an engine has work.
    """
    events = columns(world.events.heap)[: int(world.events.counts[0].num_planned)]
    return bool(np.isin(events["rank"], OF_MANY).any()) or _any_under_way(world, rows_of_events(world))


def has_unheard(world: World, states: Iterable[State], time_us: int) -> bool:
    """Return whether a step or an answer to a client is in progress at ``time_us`` for which no event is planned.

    Engines that run ahead log their answers, and their refusals have a time before it has come.
    """
    for state in states:
        engine = state.engine[0]
        logged = columns(state.completions)["request"][: int(engine.log_fill.num_completions)]
        if engine.clock.now_us > time_us or _any_under_way(world, logged):
            return True
    return bool(columns(world.journeys)["left_us"].max(initial=time_us) > time_us)


def _any_under_way(world: World, rows: NDArray[np.int64]) -> bool:
    return bool((columns(world.journeys)["exit"][rows] == Exit.UNDER_WAY).any())
