"""The figures of each instance of a cluster: for the JSON of ``replay`` and ``run``, and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from replay.cluster.handoff import HandoffSummary, handoff_parts, summarize_handoff
from replay.cluster.infrastructure import (
    InfrastructureSummary,
    RetrySummary,
    infrastructure_parts,
    summarize_infrastructure,
    summarize_retries,
)
from replay.cluster.lives import spans_up
from replay.cluster.pathologies import Pathology, pathologies, pathology_parts
from replay.cluster.simulate import FleetRun, exit_name
from replay.cluster.waiting_causes import Resource
from replay.trace.group_summary import jain_fairness
from replay.trace.kv_offload import KvOffload, summarize_kv_offload
from replay.trace.measured_window import EVERYTHING, MeasuredPart, measured_rows
from replay.twin.cluster_section import routing_name
from sim import Int64s, Status
from sim.cluster import EXIT_MEANINGS, ClusterConfig, Exit, Instance
from traces import prompt_tokens
from traces.facts import AlignedRows, AnswerPart, Fact, TermRows, columns_of, count, four_digits_ms, frac

HARDLY_BUSY = 0.1
"""The share of their time that instances must be busy for an index of fairness."""
MOST_SHOWN = 14
"""Instances that the terminal's table shows."""


class InstanceSummary(TypedDict):
    """One instance. ``num_requests``: sent to it; ``num_ok``: finished. Times in µs, None where nothing is known.

    ``prefix_hit_frac``: as in the whole document, over its own requests. An instance that computes prompts for others
    has the latencies of their requests, and no output tokens. ``busy_frac``: its steps' time over the run's.
    ``kv_usage_frac``: share of its KV blocks in use, the mean over the run; None where its cache is unbounded, or
    it was not sampled. ``kv_offload``: its second KV tier, None without one. ``gpu_hours``: while it had its GPUs.
    """

    name: str
    num_requests: int
    num_ok: int
    output_tokens: int
    prefix_hit_frac: float | None
    num_preemptions: int
    num_kv_allocation_failures: int
    num_steps: int
    busy_frac: float | None
    kv_usage_frac: float | None
    kv_offload: KvOffload | None
    ttft_mean_us: float | None
    e2e_mean_us: float | None
    gpu_hours: float


class ClusterSummary(TypedDict):
    """What a cluster adds to the document.

    ``jain_fairness``: of requests per time up, over the instances that ever served, (sum x)^2 / (n sum x^2): 1 where
    all got as many, 1/n where one got all (Jain, Chiu, Hawe, "A quantitative measure of fairness", 1984); None where
    they were busy for less than a tenth of the time, and chance decides it. ``num_by_exit``: every way out that was
    taken.
    """

    routing_policy: str
    num_by_exit: dict[str, int]
    jain_fairness: float | None
    disaggregation: HandoffSummary | None
    infrastructure: InfrastructureSummary
    retries: RetrySummary | None
    instances: list[InstanceSummary]
    pathologies: list[Pathology]


def summarize_cluster(
    run: FleetRun,
    cluster: ClusterConfig,
    *,
    measured: MeasuredPart = EVERYTHING,
    kv_block_bytes: int | None = None,
    waited_us: Mapping[Resource, float] | None = None,
) -> ClusterSummary:
    """Return what a run adds to the document; its ways out add up to its requests.

    ``measured``: whose latencies, counts, tokens and hits instances have; all else is of the whole run. ``waited_us``:
    see ``pathologies``.
    """
    counted = measured_rows(run.trace, measured, duration_us=run.result.duration_us)
    instance = np.where(counted, run.result.instance, -1)
    split = run.result.split
    prefill = np.full(len(instance), -1) if split is None else np.where(counted, split.prefill_instance, -1)
    order = np.argsort(instance, kind="stable")
    numbers = np.arange(len(run.result.instances))
    starts, ends = (np.searchsorted(instance[order], numbers, side=side) for side in ("left", "right"))
    prompts, in_use = prompt_tokens(run.trace), _kv_usage_fracs(run)
    gpu_hours = run.result.infrastructure.gpu_hours_by_instance(len(run.result.instances))
    instances = [
        _instance(
            run,
            each,
            np.flatnonzero(prefill == number) if role == "prefill" else order[start:end],
            prompts=prompts,
            decodes=role != "prefill",
            gpu_hours=gpu_hours[number],
            kv_usage_frac=in_use[number],
        )
        for number, (each, role, start, end) in enumerate(
            zip(run.result.instances, cluster.role_of, starts, ends, strict=True)
        )
    ]
    _add_tiers(instances, run, cluster, instance, kv_block_bytes=kv_block_bytes)
    return ClusterSummary(
        routing_policy=routing_name(cluster.routing),
        num_by_exit={exit_name(way): count for way, count in run.result.num_by_exit.items() if count},
        jain_fairness=_jain_fairness(run, ends - starts, _serving(run, cluster)),
        disaggregation=summarize_handoff(run, cluster, counted),
        infrastructure=summarize_infrastructure(run, cluster),
        retries=summarize_retries(run),
        instances=instances,
        pathologies=pathologies(run, cluster, waited_us),
    )


def _serving(run: FleetRun, cluster: ClusterConfig) -> NDArray[np.bool_]:
    """Return which instances were ever ready and decode."""
    served = {life.instance for life in run.result.infrastructure.lives if life.ready_us is not None}
    return np.array([role != "prefill" and number in served for number, role in enumerate(cluster.role_of)])


def _jain_fairness(run: FleetRun, counts: Int64s, serving: NDArray[np.bool_]) -> float | None:
    """Return Jain's index of the requests per time up, None where an instance is hardly ever busy.

    Which of several idle instances gets a request says nothing about the router.
    """
    end_us = run.result.duration_us
    up_us = np.zeros(len(counts))
    for life in run.result.infrastructure.lives:
        up_us[life.instance] += sum(max(0, up_to - up_from) for up_from, up_to in spans_up(life, end_us))
    served = serving & (up_us > 0)
    busy_us = np.array([each.busy_us for each in run.result.instances], np.float64)
    if not served.any() or busy_us[served].sum() < HARDLY_BUSY * up_us[served].sum():
        return None
    return jain_fairness(counts[served] / up_us[served])


def _add_tiers(
    instances: list[InstanceSummary],
    run: FleetRun,
    cluster: ClusterConfig,
    instance: Int64s,
    *,
    kv_block_bytes: int | None,
) -> None:
    """Add each instance's second KV tier; ``instance``: of each request that is counted, else -1."""
    prompts = prompt_tokens(run.trace)
    for number, (each, found) in enumerate(zip(run.result.instances, instances, strict=True)):
        found["kv_offload"] = summarize_kv_offload(
            each,
            run.result.outcomes,
            np.flatnonzero(instance == number),
            prompt_tokens=prompts,
            engine=cluster.pools[each.pool].engine,
            block_bytes=kv_block_bytes,
        )


def _instance(
    run: FleetRun,
    instance: Instance,
    rows: Int64s,
    *,
    prompts: Int64s,
    decodes: bool,
    gpu_hours: float,
    kv_usage_frac: float | None,
) -> InstanceSummary:
    """Return what an instance did; ``rows``: the requests sent to it, or whose prompts it computed for others."""
    outcomes = run.result.outcomes
    scheduled = rows[outcomes.scheduled_us[rows] >= 0]
    ok = rows[outcomes.status[rows] == Status.OK]
    num_prompt = float(prompts[scheduled].sum())
    cached = float(outcomes.num_cached_tokens[scheduled].sum())
    if (
        run.result.split is not None and decodes
    ):  # the requests' own hits are those of the instance that computed their prompts
        num_prompt, cached = float(instance.num_cache_queries), float(instance.num_cache_hits)
    return InstanceSummary(
        name=instance.name,
        num_requests=len(rows),
        num_ok=len(ok),
        output_tokens=int(outcomes.num_output_tokens[rows].sum()) if decodes else 0,
        prefix_hit_frac=cached / num_prompt if num_prompt else None,
        num_preemptions=instance.num_preemptions,
        num_kv_allocation_failures=instance.num_kv_allocation_failures,
        num_steps=instance.num_steps,
        busy_frac=_busy_frac(instance, run.result.duration_us),
        kv_usage_frac=kv_usage_frac,
        kv_offload=None,
        ttft_mean_us=_mean(outcomes.first_token_us[ok] - outcomes.arrival_us[ok]),
        e2e_mean_us=_mean(outcomes.last_token_us[ok] - outcomes.arrival_us[ok]),
        gpu_hours=gpu_hours,
    )


def _kv_usage_fracs(run: FleetRun) -> list[float | None]:
    """Return each instance's share of KV blocks in use over the run, None where it is unbounded, or was not sampled."""
    seen = run.result.over_time
    if seen is None or run.result.duration_us == 0:
        return [None] * len(run.result.instances)
    lengths = np.diff(seen.time_us, prepend=0).astype(np.float64)
    used = np.average(np.maximum(seen.num_blocks - seen.num_free_blocks, 0), axis=0, weights=lengths)
    return [
        float(in_use / blocks) if blocks > 0 else None
        for in_use, blocks in zip(used, seen.num_blocks, strict=True)
    ]


def _mean(values: Int64s) -> float | None:
    return float(values.mean()) if len(values) else None


def _busy_frac(instance: Instance, duration_us: int) -> float | None:
    """Return the share of the run in which an instance computed."""
    return None if duration_us == 0 else min(instance.busy_us / duration_us, 1.0)


WIDTHS = {"requests": 10, "prefix hits": 13, "preemptions": 13, "busy": 8, "KV used": 9, "KV full": 9}
"""Widths of an instance's columns in the terminal; the others are 10 wide."""


def cluster_parts(summary: ClusterSummary) -> list[AnswerPart]:
    """Return the terminal's text: the router, how even it was, a row per instance."""
    fairness = summary["jain_fairness"]
    even = "" if fairness is None else f", Jain's fairness of requests {fairness:.3f}"
    instances = summary["instances"]
    ways = [
        (name.replace("_", " "), f"{number:,} ({EXIT_MEANINGS[Exit[name.upper()]]})")
        for name, number in summary["num_by_exit"].items()
        if name != exit_name(Exit.COMPLETED)
    ]
    policy = summary["routing_policy"].rpartition("/")[2]  # of one's own function the file, not its folders
    parts: list[AnswerPart] = ["", TermRows([("routing", f"{policy}{even}"), *ways])]
    width = max(12, *(len(each["name"]) + 2 for each in instances))
    lacking = {
        "KV used": all(each["kv_usage_frac"] is None for each in instances),
        "KV full": not any(each["num_kv_allocation_failures"] for each in instances),
        "from CPU": all(each["kv_offload"] is None for each in instances),
    }
    used = [each for each in instances if each["num_requests"] or each["busy_frac"]] or instances
    columns = columns_of(map(_facts, used[:MOST_SHOWN]))
    if columns:  # with autoscaling from none, none may have come
        heads = [name for name in columns[0] if not lacking.get(name)]
        rows = [heads, *([each[name] for name in heads] for each in columns)]
        parts.append(AlignedRows(rows, [-width, *(WIDTHS.get(name, 10) for name in heads[1:])]))
    if len(used) > MOST_SHOWN:
        parts.append(f"… and {len(used) - MOST_SHOWN:,} instances more (--json has all)")
    if len(used) < len(instances):
        parts.append(f"and {len(instances) - len(used):,} without a request")
    parts += handoff_parts(summary["disaggregation"])
    handoff = summary["disaggregation"]
    num_cut_off = 0 if handoff is None else handoff["num_cut_off"]
    parts += infrastructure_parts(summary["infrastructure"], summary["retries"], num_cut_off=num_cut_off)
    return [*parts, *pathology_parts(summary["pathologies"])]


def _facts(each: InstanceSummary) -> list[Fact]:
    """Return an instance's cells."""
    offload = each["kv_offload"]
    return [
        Fact("name", "instance", each["name"]),
        Fact("num_requests", "requests", each["num_requests"], count),
        Fact("prefix_hit_frac", "prefix hits", each["prefix_hit_frac"], frac),
        Fact("kv_offload", "from CPU", None if offload is None else offload["hit_frac"], frac),
        Fact("num_preemptions", "preemptions", each["num_preemptions"], count),
        Fact("busy_frac", "busy", each["busy_frac"], frac),
        Fact("kv_usage_frac", "KV used", each["kv_usage_frac"], frac),
        Fact("num_kv_allocation_failures", "KV full", each["num_kv_allocation_failures"], count),
        Fact("ttft_mean_us", "TTFT, ms", each["ttft_mean_us"], four_digits_ms),
        Fact("e2e_mean_us", "E2E, ms", each["e2e_mean_us"], four_digits_ms),
    ]


def why_none_completed(run: FleetRun) -> str:
    """Return the line that says why no request of a cluster finished, by the ways in which they left."""
    ways = ((way, count) for way, count in run.result.num_by_exit.items() if count)
    parts = [f"{count:,} {exit_name(way).replace('_', ' ')} ({EXIT_MEANINGS[way]})" for way, count in ways]
    return f"no request finished: {', '.join(parts)}"
