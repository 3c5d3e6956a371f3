"""Many engines behind a gateway: admission, the gateway's queue, routing, and the order of events at one time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.cluster.arrays import NOWHERE
    from sim.cluster.client_plans import ClientPlan, capped, closed_loop, sessions, trees, waves
    from sim.cluster.config import ClusterConfig, PipelineLatency, Pool, Role, SnapshotIntervals
    from sim.cluster.exits import EXIT_MEANINGS, Exit
    from sim.cluster.gateway.admission import (
        ADMISSION_POLICIES,
        AdmissionPolicy,
        AlwaysAdmit,
        TenantBudget,
        admission_policy,
    )
    from sim.cluster.gateway.flow_config import FlowControl
    from sim.cluster.infrastructure.config import (
        HOUR_US,
        Autoscaler,
        Failure,
        Failures,
        NodePool,
        Retries,
        Size,
        Startup,
    )
    from sim.cluster.infrastructure.lives import Life
    from sim.cluster.live.cluster import LiveCluster
    from sim.cluster.live.states import INSTANCE_STATES
    from sim.cluster.live.writing import RequestOrigin
    from sim.cluster.ready import compile_cluster
    from sim.cluster.results.finished import ClusterSimulation, Instance, Split
    from sim.cluster.routing.own import FleetView, RequestView
    from sim.cluster.routing.policies import (
        ROUTING_POLICIES,
        AlwaysBusiest,
        CacheAware,
        KvCost,
        LeastLoaded,
        OwnPolicy,
        RoundRobin,
        RoutingPolicy,
        Session,
        VllmDp,
        Weighted,
        routing_policy,
    )
    from sim.cluster.run.world import DecisionLog
    from sim.cluster.simulation import simulate_cluster
    from sim.cluster.slo import SLO_PRIORITIES, slo_priority
    from sim.cluster.transfer.config import Disaggregation
    from sim.cluster.transfer.links import BYTES_PER_US_OF_ONE_GBPS
    from sim.cluster.work import ClusterWork

__all__ = [
    "ADMISSION_POLICIES",
    "BYTES_PER_US_OF_ONE_GBPS",
    "EXIT_MEANINGS",
    "HOUR_US",
    "INSTANCE_STATES",
    "NOWHERE",
    "ROUTING_POLICIES",
    "SLO_PRIORITIES",
    "AdmissionPolicy",
    "AlwaysAdmit",
    "AlwaysBusiest",
    "Autoscaler",
    "CacheAware",
    "ClientPlan",
    "ClusterConfig",
    "ClusterSimulation",
    "ClusterWork",
    "DecisionLog",
    "Disaggregation",
    "Exit",
    "Failure",
    "Failures",
    "FleetView",
    "FlowControl",
    "Instance",
    "KvCost",
    "LeastLoaded",
    "Life",
    "LiveCluster",
    "NodePool",
    "OwnPolicy",
    "PipelineLatency",
    "Pool",
    "RequestOrigin",
    "RequestView",
    "Retries",
    "Role",
    "RoundRobin",
    "RoutingPolicy",
    "Session",
    "Size",
    "SnapshotIntervals",
    "Split",
    "Startup",
    "TenantBudget",
    "VllmDp",
    "Weighted",
    "admission_policy",
    "capped",
    "closed_loop",
    "compile_cluster",
    "routing_policy",
    "sessions",
    "simulate_cluster",
    "slo_priority",
    "trees",
    "waves",
]

_HOMES = {
    "ADMISSION_POLICIES": "sim.cluster.gateway.admission",
    "AdmissionPolicy": "sim.cluster.gateway.admission",
    "AlwaysAdmit": "sim.cluster.gateway.admission",
    "AlwaysBusiest": "sim.cluster.routing.policies",
    "Autoscaler": "sim.cluster.infrastructure.config",
    "BYTES_PER_US_OF_ONE_GBPS": "sim.cluster.transfer.links",
    "CacheAware": "sim.cluster.routing.policies",
    "ClientPlan": "sim.cluster.client_plans",
    "ClusterConfig": "sim.cluster.config",
    "ClusterSimulation": "sim.cluster.results.finished",
    "ClusterWork": "sim.cluster.work",
    "DecisionLog": "sim.cluster.run.world",
    "Disaggregation": "sim.cluster.transfer.config",
    "EXIT_MEANINGS": "sim.cluster.exits",
    "Exit": "sim.cluster.exits",
    "Failure": "sim.cluster.infrastructure.config",
    "Failures": "sim.cluster.infrastructure.config",
    "FleetView": "sim.cluster.routing.own",
    "FlowControl": "sim.cluster.gateway.flow_config",
    "HOUR_US": "sim.cluster.infrastructure.config",
    "INSTANCE_STATES": "sim.cluster.live.states",
    "Instance": "sim.cluster.results.finished",
    "KvCost": "sim.cluster.routing.policies",
    "LeastLoaded": "sim.cluster.routing.policies",
    "Life": "sim.cluster.infrastructure.lives",
    "LiveCluster": "sim.cluster.live.cluster",
    "NOWHERE": "sim.cluster.arrays",
    "NodePool": "sim.cluster.infrastructure.config",
    "OwnPolicy": "sim.cluster.routing.policies",
    "PipelineLatency": "sim.cluster.config",
    "Pool": "sim.cluster.config",
    "ROUTING_POLICIES": "sim.cluster.routing.policies",
    "RequestView": "sim.cluster.routing.own",
    "Retries": "sim.cluster.infrastructure.config",
    "Role": "sim.cluster.config",
    "RoundRobin": "sim.cluster.routing.policies",
    "RoutingPolicy": "sim.cluster.routing.policies",
    "SLO_PRIORITIES": "sim.cluster.slo",
    "RequestOrigin": "sim.cluster.live.writing",
    "Session": "sim.cluster.routing.policies",
    "Size": "sim.cluster.infrastructure.config",
    "SnapshotIntervals": "sim.cluster.config",
    "Split": "sim.cluster.results.finished",
    "Startup": "sim.cluster.infrastructure.config",
    "TenantBudget": "sim.cluster.gateway.admission",
    "VllmDp": "sim.cluster.routing.policies",
    "Weighted": "sim.cluster.routing.policies",
    "admission_policy": "sim.cluster.gateway.admission",
    "capped": "sim.cluster.client_plans",
    "closed_loop": "sim.cluster.client_plans",
    "compile_cluster": "sim.cluster.ready",
    "routing_policy": "sim.cluster.routing.policies",
    "sessions": "sim.cluster.client_plans",
    "trees": "sim.cluster.client_plans",
    "simulate_cluster": "sim.cluster.simulation",
    "slo_priority": "sim.cluster.slo",
    "waves": "sim.cluster.client_plans",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'sim.cluster' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
