"""The senders of requests, named by headers, and their numbers in the served cluster."""

from __future__ import annotations

from lazy_dataclasses import dataclass

from replay.cluster.memory import check_memory
from sim.cluster import (
    NOWHERE,
    SLO_PRIORITIES,
    ClusterConfig,
    LiveCluster,
    RequestOrigin,
    TenantBudget,
    slo_priority,
)

NUM_TENANTS = 1024
"""Tenants that take turns in a gateway's queue; later ones share the turn of requests without a tenant."""

NUM_SESSIONS = 1 << 16
"""The most sessions that are distinguished; a new one beyond replaces the one not seen for longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSender:
    """The sender in a request's headers; empty where a header is missing."""

    session: str = ""
    slo_class: str = ""
    tenant: str = ""


NOBODY = RequestSender()


def open_cluster(cluster: ClusterConfig, *, num_keys: int) -> LiveCluster:
    """Return a new cluster without requests, with room for all senders.

    ``num_keys``: hash ids are below it. Raises InvalidConfig as ``LiveCluster``, ConfigError where there is too little
    memory.
    """
    check_memory(cluster, num_requests=0)
    return LiveCluster(
        cluster,
        num_keys=num_keys,
        num_sessions=NUM_SESSIONS,
        tenants=_tenants(cluster),
        priorities=list({**SLO_PRIORITIES, **cluster.slo_priorities}.values()),
    )


def _tenants(cluster: ClusterConfig) -> list[str]:
    """Return the tenants that have numbers, in their order; empty names for numbers that are not used yet."""
    flow = cluster.flow_control
    takes_turns = flow is not None and flow.fairness == "round-robin"
    return [*_budgeted(cluster), *([""] * NUM_TENANTS if takes_turns else [])]


def _budgeted(cluster: ClusterConfig) -> list[str]:
    """Return the tenants whose tokens are counted at admission."""
    return list(cluster.admission.budgets) if isinstance(cluster.admission, TenantBudget) else []


class Senders:
    """The numbers of the senders to a cluster that ``open_cluster`` has opened."""

    def __init__(self, cluster: ClusterConfig, live: LiveCluster) -> None:
        self._cluster, self._live = cluster, live
        self._tenants = {name: number for number, name in enumerate(_budgeted(cluster))}
        self._num_tenants = len(_tenants(cluster))
        self._targets_us = {} if cluster.flow_control is None else cluster.flow_control.slo_targets_us
        self._sessions: dict[str, int] = {}

    def origin_of(self, sender: RequestSender) -> RequestOrigin:
        """Return a sender in numbers; a name that is new gets one."""
        if sender.tenant and len(self._tenants) < self._num_tenants:
            self._tenants.setdefault(sender.tenant, len(self._tenants))
        return RequestOrigin(
            session=self._session(sender.session) if sender.session else NOWHERE,
            tenant=self._tenants.get(sender.tenant, NOWHERE),
            slo_priority=slo_priority(sender.slo_class or None, self._cluster.slo_priorities),
            slo_target_us=self._targets_us.get(sender.slo_class, NOWHERE),
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
