"""Many engines behind a gateway: admission, the gateway's queue, routing, and the order of events at one time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.cluster.arrays import NOWHERE
    from sim.cluster.client_plans import ClientPlan, capped, closed_loop, sessions, trees, waves
    from sim.cluster.cluster_config import ClusterConfig, PipelineLatency, Pool, Role, SnapshotIntervals
    from sim.cluster.cluster_ready import compile_cluster
    from sim.cluster.cluster_simulation import simulate_cluster
    from sim.cluster.cluster_work import ClusterWork
    from sim.cluster.exits import EXIT_MEANINGS, Exit
    from sim.cluster.gateway.admission import (
        ADMISSION_POLICIES,
        AdmissionPolicy,
        AlwaysAdmit,
        TenantBudget,
        admission_policy,
    )
    from sim.cluster.gateway.flow_config import FlowControl
    from sim.cluster.infrastructure.infrastructure_config import (
        HOUR_US,
        Autoscaler,
        Failure,
        Failures,
        NodePool,
        Retries,
        Size,
        Startup,
    )
    from sim.cluster.infrastructure.instance_lives import Life
    from sim.cluster.live.cluster import LiveCluster
    from sim.cluster.live.instance_states import INSTANCE_STATES
    from sim.cluster.live.writing import RequestOrigin
    from sim.cluster.results.finished import ClusterSimulation, Instance, Split
    from sim.cluster.routing.own import FleetView, RequestView
    from sim.cluster.routing.routing_policies import (
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
    from sim.cluster.slo_classes import SLO_PRIORITIES, slo_priority
    from sim.cluster.transfer.disaggregation_config import Disaggregation
    from sim.cluster.transfer.kv_links import BYTES_PER_US_OF_ONE_GBPS

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
    "AlwaysBusiest": "sim.cluster.routing.routing_policies",
    "Autoscaler": "sim.cluster.infrastructure.infrastructure_config",
    "BYTES_PER_US_OF_ONE_GBPS": "sim.cluster.transfer.kv_links",
    "CacheAware": "sim.cluster.routing.routing_policies",
    "ClientPlan": "sim.cluster.client_plans",
    "ClusterConfig": "sim.cluster.cluster_config",
    "ClusterSimulation": "sim.cluster.results.finished",
    "ClusterWork": "sim.cluster.cluster_work",
    "DecisionLog": "sim.cluster.run.world",
    "Disaggregation": "sim.cluster.transfer.disaggregation_config",
    "EXIT_MEANINGS": "sim.cluster.exits",
    "Exit": "sim.cluster.exits",
    "Failure": "sim.cluster.infrastructure.infrastructure_config",
    "Failures": "sim.cluster.infrastructure.infrastructure_config",
    "FleetView": "sim.cluster.routing.own",
    "FlowControl": "sim.cluster.gateway.flow_config",
    "HOUR_US": "sim.cluster.infrastructure.infrastructure_config",
    "INSTANCE_STATES": "sim.cluster.live.instance_states",
    "Instance": "sim.cluster.results.finished",
    "KvCost": "sim.cluster.routing.routing_policies",
    "LeastLoaded": "sim.cluster.routing.routing_policies",
    "Life": "sim.cluster.infrastructure.instance_lives",
    "LiveCluster": "sim.cluster.live.cluster",
    "NOWHERE": "sim.cluster.arrays",
    "NodePool": "sim.cluster.infrastructure.infrastructure_config",
    "OwnPolicy": "sim.cluster.routing.routing_policies",
    "PipelineLatency": "sim.cluster.cluster_config",
    "Pool": "sim.cluster.cluster_config",
    "ROUTING_POLICIES": "sim.cluster.routing.routing_policies",
    "RequestView": "sim.cluster.routing.own",
    "Retries": "sim.cluster.infrastructure.infrastructure_config",
    "Role": "sim.cluster.cluster_config",
    "RoundRobin": "sim.cluster.routing.routing_policies",
    "RoutingPolicy": "sim.cluster.routing.routing_policies",
    "SLO_PRIORITIES": "sim.cluster.slo_classes",
    "RequestOrigin": "sim.cluster.live.writing",
    "Session": "sim.cluster.routing.routing_policies",
    "Size": "sim.cluster.infrastructure.infrastructure_config",
    "SnapshotIntervals": "sim.cluster.cluster_config",
    "Split": "sim.cluster.results.finished",
    "Startup": "sim.cluster.infrastructure.infrastructure_config",
    "TenantBudget": "sim.cluster.gateway.admission",
    "VllmDp": "sim.cluster.routing.routing_policies",
    "Weighted": "sim.cluster.routing.routing_policies",
    "admission_policy": "sim.cluster.gateway.admission",
    "capped": "sim.cluster.client_plans",
    "closed_loop": "sim.cluster.client_plans",
    "compile_cluster": "sim.cluster.cluster_ready",
    "routing_policy": "sim.cluster.routing.routing_policies",
    "sessions": "sim.cluster.client_plans",
    "trees": "sim.cluster.client_plans",
    "simulate_cluster": "sim.cluster.cluster_simulation",
    "slo_priority": "sim.cluster.slo_classes",
    "waves": "sim.cluster.client_plans",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'sim.cluster' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
