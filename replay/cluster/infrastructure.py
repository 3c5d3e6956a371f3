"""What a run's instances cost: GPU-hours and money, by instance, pool and node pool; and how their number changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from replay.cluster.lives import down_us, most_at_once
from sim.cluster import HOUR_US, Exit
from traces.facts import AnswerPart, TermRows

if TYPE_CHECKING:
    from replay.cluster.simulate import FleetRun
    from sim.cluster import ClusterConfig, Pool


class PoolCost(TypedDict):
    """A pool's instances over the run. ``instances_mean``: those that had their GPUs, over time.

    ``cost`` None: the price of a GPU is not known.
    """

    name: str
    instances_mean: float | None
    instances_most: int
    gpu_hours: float
    cost: float | None


class NodePoolCost(TypedDict):
    """A node pool's nodes over the run, from their orders until they were gone."""

    name: str
    num_nodes: int
    node_hours: float
    cost: float | None


class ScalingStep(TypedDict):
    """An autoscaler's decision: when, and from how many instances to how many."""

    time_us: int
    pool: str
    instances_before: int
    instances: int


class InfrastructureSummary(TypedDict):
    """The nodes and GPUs that instances used, and what they cost.

    ``cost``: of the nodes for pools on nodes with a price, of GPU-hours for others; None if any part has no price:
    ``unpriced`` names those if others have one. ``num_failures``: of instances. ``down_frac``: share of the instances'
    time in which they were down. ``scaling``: every change of size.
    """

    gpu_hours: float
    cost: float | None
    unpriced: list[str]
    num_failures: int
    down_frac: float
    pools: list[PoolCost]
    node_pools: list[NodePoolCost]
    scaling: list[ScalingStep]


class RetrySummary(TypedDict):
    """Requests that were sent again. ``num_attempts``: of all requests; the counts of their exits add up to it.

    ``num_requests_retried``: sent more than once; ``num_recovered``: of those, how many completed.
    """

    num_attempts: int
    num_requests_retried: int
    num_recovered: int
    num_attempts_by_exit: dict[str, int]


def summarize_infrastructure(run: FleetRun, cluster: ClusterConfig) -> InfrastructureSummary:
    """Return what a run cost, and how the number of its instances changed."""
    of_run = run.result.infrastructure
    names = [pool.name or str(number) for number, pool in enumerate(cluster.pools)]
    priced = {pool.name for pool in cluster.node_pools if pool.cost_per_hour}
    pools = [_pool_cost(run, number, pool, names[number]) for number, pool in enumerate(cluster.pools)]
    nodes = [
        NodePoolCost(
            name=pool.name,
            num_nodes=sum(node.pool == pool.name for node in of_run.nodes),
            node_hours=of_run.node_hours(pool.name),
            cost=of_run.node_hours(pool.name) * pool.cost_per_hour if pool.cost_per_hour else None,
        )
        for pool in cluster.node_pools
    ]
    costs = {f"nodes {each['name']}": each["cost"] for each in nodes if each["name"] in priced} | {
        f"pool {cost['name']}": cost["cost"]
        for cost, pool in zip(pools, cluster.pools, strict=True)
        if pool.node_pool not in priced
    }
    known = [cost for cost in costs.values() if cost is not None]
    end_us = run.result.duration_us
    lasted_us = sum(life.gpu_us(end_us) / life.num_gpus for life in of_run.lives)
    return InfrastructureSummary(
        gpu_hours=of_run.gpu_hours(),
        cost=sum(known) if known and len(known) == len(costs) else None,
        unpriced=[name for name, cost in costs.items() if cost is None] if known else [],
        num_failures=sum(len(life.downs) for life in of_run.lives),
        down_frac=sum(down_us(life, end_us) for life in of_run.lives) / lasted_us if lasted_us else 0.0,
        pools=pools,
        node_pools=nodes,
        scaling=[
            ScalingStep(
                time_us=change.time_us,
                pool=names[change.pool],
                instances_before=change.before,
                instances=change.after,
            )
            for change in of_run.changes
        ],
    )


def _pool_cost(run: FleetRun, number: int, pool: Pool, name: str) -> PoolCost:
    """Return what a pool's instances cost: by its nodes' price where they have one."""
    of_run, end_us = run.result.infrastructure, run.result.duration_us
    lives = [life for life in of_run.lives if life.pool == number and life.placed_us is not None]
    gpu_hours = of_run.gpu_hours(pool=number)
    hours = end_us / HOUR_US * pool.gpus_per_instance
    return PoolCost(
        name=name,
        instances_mean=gpu_hours / hours if hours else None,
        instances_most=most_at_once(lives),
        gpu_hours=gpu_hours,
        cost=gpu_hours * pool.cost_per_gpu_hour if pool.cost_per_gpu_hour else None,
    )


def summarize_retries(run: FleetRun) -> RetrySummary | None:
    """Return how often requests were sent again, None where no client does that."""
    attempts = run.result.attempts
    if attempts is None:
        return None
    again = attempts.num > 1
    return RetrySummary(
        num_attempts=int(attempts.num.sum()),
        num_requests_retried=int(again.sum()),
        num_recovered=int((again & (run.result.exit == Exit.COMPLETED)).sum()),
        num_attempts_by_exit={
            way.name.lower(): count for way, count in attempts.num_by_exit.items() if count
        },
    )


def infrastructure_parts(
    summary: InfrastructureSummary, retries: RetrySummary | None, *, num_cut_off: int = 0
) -> list[AnswerPart]:
    """Return what people read: GPU-hours and cost, the number of instances, failures and retries.

    ``num_cut_off``: transfers of KV that failures cut off.

    None where the number of instances is fixed, nothing has a price, and no client retries.
    """
    says_something = (
        summary["cost"],
        summary["unpriced"],
        summary["node_pools"],
        summary["scaling"],
        summary["num_failures"],
        retries,
    )
    if not any(says_something):
        return []
    cost = "" if summary["cost"] is None else f", cost {summary['cost']:,.2f}"
    if summary["unpriced"]:
        cost = f", cost unknown: no price for {', '.join(summary['unpriced'])}"
    terms = [("GPU-hours", f"{summary['gpu_hours']:,.3f}{cost}")]
    for nodes in summary["node_pools"]:
        terms.append(("nodes", f"{nodes['name']}: {nodes['num_nodes']:,}, {nodes['node_hours']:,.3f} hours"))
    if summary["scaling"]:
        mean = ", ".join(
            f"{each['instances_mean'] or 0:.2f} on average, {each['instances_most']} at most"
            + (f" ({each['name']})" if len(summary["pools"]) > 1 else "")
            for each in summary["pools"]
        )
        terms.append(("instances", f"{mean}; {len(summary['scaling']):,} changes"))
    if summary["num_failures"]:
        cut = f", {num_cut_off:,} transfers of KV cut off" if num_cut_off else ""
        terms.append(failures_term(summary, cut))
    return ["", TermRows([*terms, *([] if retries is None else [retries_term(retries)])])]


def failures_term(summary: InfrastructureSummary, cut: str = "") -> tuple[str, str]:
    """Return how often instances failed, and how long they were down."""
    return ("failures", f"{summary['num_failures']:,}, down {summary['down_frac']:.1%} of the time{cut}")


def retries_term(retries: RetrySummary) -> tuple[str, str]:
    """Return how many requests were sent again, and how many of them completed."""
    again = f"{retries['num_requests_retried']:,} requests sent again"
    return (
        "retries",
        f"{again}, {retries['num_recovered']:,} of them completed; {retries['num_attempts']:,} attempts",
    )
