"""Writing a request into the tables of a running cluster, as ``new_world`` writes those that are known in advance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cluster.arrays import NOWHERE
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.gateway.queue import FAR_FUTURE
from sim.cluster.run.beginning.shared_engines import asked_of
from sim.cluster.run.driving import Driver
from sim.cluster.run.world import NEVER
from sim.cluster.slo_classes import STANDARD
from sim.engine import dtypes as dt
from sim.engine.beginning.first_traits import trait_records
from sim.engine.initial_state import request_records
from sim.engine.state import columns
from sim.requests import Requests


class RequestOrigin(NamedTuple):
    """The sender of a request, as numbers; NOWHERE where a field is absent.

    ``slo_priority``: higher matters more, below 0 it may be shed. ``slo_target_us``: of the first token.
    """

    session: int = NOWHERE
    tenant: int = NOWHERE
    slo_priority: int = STANDARD
    slo_target_us: int = NOWHERE


ANYBODY = RequestOrigin()


class Writer:
    """Writes rows. Pools with the same engine, model and part of an answer share the computation."""

    def __init__(self, driver: Driver, config: ClusterConfig) -> None:
        self._driver = driver
        self._pools = config.pools
        kinds = [(pool.engine, pool.latency, pool.role == "prefill") for pool in config.pools]
        self._first_like = [kinds.index(kind) for kind in kinds]
        firsts = np.cumsum([0, *(pool.num_slots for pool in config.pools)]).tolist()
        self._tables: list[tuple[int, int]] = []  # (pool, an instance of it): whose records the tables have
        for wants_prefill in (False, True):
            pools = [
                number
                for number, pool in enumerate(config.pools)
                if (pool.role == "prefill") == wants_prefill
            ]
            self._tables += [(number, firsts[number]) for number in pools[:1]]
        self._with_traits = next(
            (number for number, state in enumerate(driver.states) if len(state.traits)), None
        )
        self._shares_outputs = False

    def write(self, row: int, request: Requests, sender: RequestOrigin) -> None:
        """Write a request, one row, whose ids stand already where its offsets say."""
        world, states = self._driver.world, self._driver.states
        made: dict[int, NDArray[np.void]] = {}
        for number, like in enumerate(self._first_like):
            if like not in made:
                made[like] = _record_of(self._pools[like], request)
            record = made[like]
            world.delays_us[number, row] = record["queued_us"][0] - record["arrival_us"][0]
            is_refused = record["status"][0] == dt.REJECTED
            world.entries[number, row] = NEVER if is_refused else record["max_total_tokens"][0]
        for pool, instance in self._tables:
            columns(states[instance].requests)[row] = made[self._first_like[pool]][0]
        if self._with_traits is not None:
            columns(states[self._with_traits].traits)[row] = columns(trait_records(request))[0]
        self._note_shared_outputs(request)
        self._write_sender(row, int(request.prompt_tokens[0]), sender)

    def _write_sender(self, row: int, prompt_tokens: int, sender: RequestOrigin) -> None:
        """Write the columns that decisions read."""
        world = self._driver.world
        table, queue = world.requests, world.queue
        table.prompt_tokens[row] = prompt_tokens
        table.session[row], table.tenant[row] = sender.session, sender.tenant
        table.slo_priority[row], table.slo_target_us[row] = sender.slo_priority, sender.slo_target_us
        if len(queue.entries):
            queue.band_of[row] = np.searchsorted(-columns(queue.bands)["priority"], -sender.slo_priority)
            queue.target_us[row] = FAR_FUTURE if sender.slo_target_us < 0 else sender.slo_target_us

    def _note_shared_outputs(self, request: Requests) -> None:
        """Tell engines, once, that the contents of answers have ids."""
        engine = self._pools[0].engine
        end = int(request.num_hashes[0]) * engine.hash_block_size + engine.num_hash_lookahead_tokens
        if self._shares_outputs or end <= request.prompt_tokens[0]:
            return
        self._shares_outputs = True
        for state in self._driver.states:
            state.engine.settings["outputs_are_shared"] = 1


def _record_of(pool: Pool, request: Requests) -> NDArray[np.void]:
    """Return a pool's own data of a request."""
    return columns(request_records(asked_of(pool, request), pool.engine, pool.latency))
