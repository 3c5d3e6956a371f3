"""Which requests an instance has, and which end with it: needed when it drains or fails."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.cluster.exits import Exit
from sim.cluster.infrastructure.autoscaling import PoolLoad
from sim.cluster.run.prefill_to_decode import PREFILL
from sim.cluster.run.world import NEVER, World
from sim.engine import dtypes as dt
from sim.engine.state import State
from sim.requests import Int64s


def requests_on(world: World, slot: int) -> Int64s:
    """Return the requests that are on an instance, by number."""
    journeys = world.journeys
    is_there = (journeys["exit"] == Exit.UNDER_WAY) & (journeys["routed_us"] != NEVER)
    is_there &= world.rows["status"] != dt.REJECTED  # its front end's answer is on its way
    if world.roles[slot] == PREFILL:
        return np.flatnonzero(
            is_there & (journeys["prefill_instance"] == slot) & (journeys["is_prefilling"] == 1)
        )
    return np.flatnonzero(is_there & (journeys["instance"] == slot))


def requests_lost_with(world: World, slot: int) -> Int64s:
    """Return the requests that an instance's failure ends, by number.

    For a prefill instance also those whose KV has not left it, wherever they wait for it.
    """
    if world.roles[slot] != PREFILL:
        return requests_on(world, slot)
    journeys = world.journeys
    is_there = (journeys["exit"] == Exit.UNDER_WAY) & (journeys["prefill_instance"] == slot)
    is_taken = (journeys["is_prefilling"] == 1) | (journeys["prefilled_us"] != NEVER)
    return np.flatnonzero(is_there & is_taken & (world.links.flows["ended_us"] == NEVER))


def holders_on(world: World, state: State, slot: int) -> list[int]:
    """Return the requests for which an idle instance still holds blocks, for KV to be received or sent."""
    name = "prefill_instance" if world.roles[slot] == PREFILL else "instance"
    is_here = world.journeys[name] == slot
    return np.flatnonzero(is_here & (state.requests["slot"] != NEVER)).tolist()


def turn_back(world: World, rows: Int64s, time_us: int) -> None:
    """Take back from requests the tokens that the step in progress would have given them at its end."""
    table = world.rows
    is_ahead = table["last_token_us"][rows] > time_us
    none = rows[is_ahead & (table["first_token_us"][rows] > time_us)]
    some = rows[is_ahead & (table["first_token_us"][rows] <= time_us)]
    table["num_tokens"][none] = table["num_prompt_tokens"][none]
    table["first_token_us"][none] = table["last_token_us"][none] = NEVER
    table["num_tokens"][some] -= 1
    table["last_token_us"][some] = np.maximum(table["first_token_us"][some], time_us)


def gone_us(world: World, slot: int, left_us: Int64s) -> int:
    """Return when an instance's last request left, or its last block was read; NEVER: it had none."""
    journeys = world.journeys
    if world.roles[slot] == PREFILL:
        ends = world.links.flows["ended_us"][journeys["prefill_instance"] == slot]
        ends = np.maximum(ends, journeys["prefilled_us"][journeys["prefill_instance"] == slot])
    else:
        ends = left_us[journeys["instance"] == slot]
    return int(ends.max(initial=NEVER))


def load_of_pool(world: World, ready: Sequence[int], *, num_coming: int) -> PoolLoad:
    """Return a pool's load; ``ready``: its instances that are ready."""
    loads, in_flight = world.loads, world.fleet.instances["num_in_flight"]
    return PoolLoad(
        waiting=tuple(int(loads["num_waiting"][slot]) for slot in ready),
        running=tuple(int(loads["num_running"][slot]) for slot in ready),
        in_flight=tuple(int(in_flight[slot]) for slot in ready),
        kv=tuple(float(loads["kv_usage"][slot]) for slot in ready),
        num_coming=num_coming,
        num_queued=int(world.queue.counts[0].num_queued) + int(world.loop[0].num_in_transit),
    )
