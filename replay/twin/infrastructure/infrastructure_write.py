"""Scaling, nodes, start-up, failures and retries of ``cluster``, as lines of TWIN.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replay.twin.keys.cluster_settings import flow_text, settings_of

if TYPE_CHECKING:
    from sim.cluster import ClusterConfig, Pool


def pool_lines_of(pool: Pool) -> list[str]:
    """Return what a pool says of its instances' number, start and cost, one key a line."""
    from sim.cluster import Startup

    lines = []
    if pool.gpus_per_instance != 1:
        lines.append(f"gpus_per_instance: {pool.gpus_per_instance}")
    if pool.cost_per_gpu_hour:
        lines.append(f"cost_per_gpu_hour: {pool.cost_per_gpu_hour}")
    if pool.startup != Startup():
        lines.append(f"startup: {flow_text(settings_of(pool.startup))}")
    if pool.autoscaler is not None:
        lines.append(f"autoscaler: {flow_text(_given(pool.autoscaler))}")
    if pool.node_pool is not None:
        lines.append(f"node_pool: {flow_text(pool.node_pool)}")
    return lines


def infrastructure_lines(cluster: ClusterConfig) -> list[str]:
    """Return what a cluster says of nodes, failures and retries."""
    lines = []
    if cluster.node_pools:
        lines.append("  node_pools:")
        lines += [f"    - {flow_text(settings_of(pool))}" for pool in cluster.node_pools]
    if cluster.failures is not None:
        lines.append(f"  failures: {flow_text(_given(cluster.failures))}")
    if cluster.retries is not None:
        lines.append(f"  retries: {flow_text(_given(cluster.retries))}")
    return lines


def _given(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass of settings
    """Return settings as the file has them: what is None is left out, a schedule is a list of mappings."""
    settings = {name: given for name, given in settings_of(value).items() if given is not None}
    for name in ("schedule", "on"):
        if name in settings:
            settings[name] = [each if isinstance(each, str) else settings_of(each) for each in settings[name]]
    return settings
