"""A simulated cluster as the served twin feeds it: clients by their names, answers as their time comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from replay.serve.realtime import NOBODY, RequestSender
from sim import Outcomes, View
from sim.cluster import (
    NOWHERE,
    SLO_PRIORITIES,
    ClusterConfig,
    LiveCluster,
    RequestOrigin,
    TenantBudget,
    slo_priority,
)

if TYPE_CHECKING:
    from sim.cluster import Exit

NUM_TENANTS = 1024
"""Tenants that take turns in a gateway's queue; those that come later take theirs with the requests of no tenant."""

NUM_SESSIONS = 1 << 16
"""The most sessions that are distinguished; a new one beyond replaces the one not seen for longest."""


class RealtimeFleet:
    """A ``LiveCluster`` behind the door that ``RealtimeEngine`` has. Raises InvalidConfig as that does.

    ``num_keys``: hash ids are below it. All times are µs of the caller's clock, which must not go back.
    """

    def __init__(self, cluster: ClusterConfig, *, num_keys: int) -> None:
        self._cluster = cluster
        budgets = cluster.admission.budgets if isinstance(cluster.admission, TenantBudget) else {}
        self._tenants = {name: number for number, name in enumerate(budgets)}
        flow = cluster.flow_control
        takes_turns = flow is not None and flow.fairness == "round-robin"
        self._num_tenants = len(budgets) + (NUM_TENANTS if takes_turns else 0)
        self._targets_us = {} if flow is None else flow.slo_targets_us
        self._sessions: dict[str, int] = {}
        self._live = LiveCluster(
            cluster,
            num_keys=num_keys,
            num_sessions=NUM_SESSIONS,
            tenants=[*budgets, *([""] * (self._num_tenants - len(budgets)))],
            priorities=list({**SLO_PRIORITIES, **cluster.slo_priorities}.values()),
        )

    def submit(
        self,
        now_us: int,
        *,
        prompt_tokens: int,
        output_tokens: int,
        priority: int = 0,
        hash_ids: Sequence[int] = (),
        is_guided: bool = False,
        client: RequestSender = NOBODY,
    ) -> tuple[int, int]:
        """Take a request that arrives now; return its number and the arrival it was given."""
        return self._live.submit(
            now_us,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            priority=priority,
            hash_ids=hash_ids,
            is_guided=is_guided,
            sender=self._sender(client),
        )

    def abort(self, now_us: int, request: int) -> None:
        """Drop a request, wherever it is."""
        self._live.abort(now_us, request)

    def tokens(self, now_us: int) -> list[tuple[int, int]]:
        """Return (request, time_us) of the tokens whose time has come, in order of time."""
        return self._live.tokens(now_us)

    def exits(self) -> list[tuple[int, Exit]]:
        """Return the requests that have left by another way than with all their tokens, each once."""
        return self._live.exits()

    def computed_prompts(self, now_us: int) -> list[tuple[int, int]]:
        """Return (request, instance) of the prompts that prefill instances have computed by now, each once."""
        return self._live.computed_prompts(now_us)

    def views(self, now_us: int) -> list[View | None]:
        """Return each instance's engine now, None of one that is not there."""
        views = self._live.views(now_us)
        return [
            view if state in ("ready", "draining") else None
            for view, state in zip(views, self._live.states, strict=True)
        ]

    def states(self) -> list[str]:
        """Return what each instance is, one of ``INSTANCE_STATES``."""
        return self._live.states

    def next_time_us(self) -> int | None:
        """Return when ``tokens`` should be called next, None when nothing happens before another request."""
        return self._live.next_time_us()

    def outcome(self, request: int) -> Outcomes:
        """Return what became of a request so far, one row."""
        return self._live.outcome(request)

    def instance_of(self, request: int) -> int | None:
        """Return the number of the engine that answers a request; None while it has none."""
        return self._live.instance_of(request)

    def is_cached(self, hash_id: int) -> bool:
        """Return whether an engine's prefix cache has this content."""
        return self._live.is_cached(hash_id)

    def load_removals(self) -> None:
        """Have the code loaded that takes requests out before their end; this fleet is worth nothing afterwards."""
        self._live.load_removals()

    def forget(self, request: int) -> None:
        """Free a request's row: nothing asks about it any more."""
        self._live.forget(request)

    def _sender(self, client: RequestSender) -> RequestOrigin:
        """Return a client in numbers."""
        if client.tenant and len(self._tenants) < self._num_tenants:
            self._tenants.setdefault(client.tenant, len(self._tenants))
        return RequestOrigin(
            session=self._session(client.session) if client.session else NOWHERE,
            tenant=self._tenants.get(client.tenant, NOWHERE),
            slo_priority=slo_priority(client.slo_class or None, self._cluster.slo_priorities),
            slo_target_us=self._targets_us.get(client.slo_class, NOWHERE),
        )

    def _session(self, name: str) -> int:
        """Return a session's number; where all are taken, that of the session not seen for longest."""
        number = self._sessions.pop(name, None)
        if number is None and len(self._sessions) < NUM_SESSIONS:
            number = len(self._sessions)
        elif number is None:
            number = self._sessions.pop(next(iter(self._sessions)))
            self._live.forget_session(number)
        self._sessions[name] = number
        return number
