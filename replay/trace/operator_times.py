"""How much of a run's step time each operator took: roofline, physics and profiled know of operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from replay.twin.config_write import name_of
from traces import ConfigError
from traces.facts import AlignedRows, AnswerPart

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from sim import Step
    from sim.cluster import Instance
    from sim.latency import LatencyModel


MOST_COLUMNS = 4
"""Instances with a column of their own in the table."""


class OperatorTime(TypedDict):
    """One operator's time in all steps, and its share of the time of all steps."""

    us: float
    frac: float | None


class OperatorTimes(TypedDict):
    """All steps' time, µs, and by operator, the longest first.

    ``rest_us``: rounding, scatter, and what settings of the engine add: blocks that come back, grammars, adapters,
    encoders, drafts. ``by_instance``: the same of each of several instances, whose sum this is; None of one server.
    """

    step_time_us: int
    by_operator: dict[str, OperatorTime]
    rest_us: float
    by_instance: dict[str, OperatorTimes] | None


def check_has_operators(twin: TwinConfig) -> None:
    """Raise ConfigError for a latency model, of any pool, that knows of no operators."""
    for pool in twin.cluster.pools:
        if not pool.latency.has_operators:
            raise ConfigError(
                f"--operator-times: got latency model {name_of(pool.latency)}, expected roofline, physics or profiled: "
                "its coefficients belong to no operator"
            )


def times_of(instances: Sequence[Instance], twin: TwinConfig) -> OperatorTimes:
    """Return what each operator took on all instances, which recorded their steps."""
    each = {one.name: _of_one(one, twin.cluster.pools[one.pool].latency) for one in instances}
    sums: Counter[str] = Counter()
    for _, parts in each.values():
        sums.update(parts)
    whole = _told(sum(total for total, _ in each.values()), sums)
    if not twin.is_plain_server:
        whole["by_instance"] = {name: _told(total, parts) for name, (total, parts) in each.items()}
    return whole


def _of_one(instance: Instance, latency: LatencyModel) -> tuple[int, dict[str, float]]:
    """Return the time of an instance's steps, and of each operator in them, µs."""
    batch, durations = instance.written.step_batches()
    parts = latency.operators(batch) or {}
    return int(durations.sum()), {name: float(part.sum()) for name, part in parts.items()}


def _told(total: int, sums: Mapping[str, float]) -> OperatorTimes:
    return OperatorTimes(
        step_time_us=total,
        by_operator={
            name: OperatorTime(us=round(us, 3), frac=us / total if total else None)
            for name, us in sorted(sums.items(), key=lambda item: -item[1])
            if us
        },
        rest_us=round(total - sum(sums.values()), 3),
        by_instance=None,
    )


def operators_of_steps(steps: Sequence[Step], latency: LatencyModel) -> list[dict[str, float]]:
    """Return what each operator took of each step, if anything, and the ``rest`` of its duration, µs."""
    from sim import batch_of_steps

    parts = latency.operators(batch_of_steps(steps)) or {}
    columns = {name: np.round(part, 3).tolist() for name, part in parts.items()}
    found = [{name: column[i] for name, column in columns.items() if column[i]} for i in range(len(steps))]
    for step, took in zip(steps, found, strict=True):
        took["rest"] = round(step.dur - sum(took.values()), 3)
    return found


def operator_grids(times: OperatorTimes) -> list[AnswerPart]:
    """Return a table: operator, seconds, share; of several instances a column of seconds for each, too."""
    total, of_each = times["step_time_us"], list((times["by_instance"] or {}).values())[:MOST_COLUMNS]
    names = list(times["by_instance"] or {})[:MOST_COLUMNS]
    took = {name: each["us"] for name, each in times["by_operator"].items()} | {"rest": times["rest_us"]}
    rows = [("operator", "seconds", "of steps", *names)]
    for name, us in took.items():
        each = [_seconds(_us_of(one, name)) for one in of_each]
        rows.append((name, _seconds(us), f"{us / total:z.1%}" if total else "-", *each))
    left_out = len(times["by_instance"] or {}) - len(names)
    more = [f"{left_out:,} more instances stand in --json"] if left_out > 0 else []
    return [AlignedRows(rows, (-20, 12, 12, *[max(12, len(name) + 2) for name in names])), *more]


def _us_of(times: OperatorTimes, name: str) -> float:
    took = times["by_operator"].get(name)
    return times["rest_us"] if name == "rest" else 0.0 if took is None else took["us"]


def _seconds(us: float) -> str:
    return f"{us / 1e6:z,.3f}"
