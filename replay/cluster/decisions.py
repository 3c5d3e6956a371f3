"""Every routing decision with what the router saw of each instance, as JSON lines or Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from sim.cluster import AlwaysBusiest, DecisionLog, KvCost, LeastLoaded, VllmDp, Weighted
from traces import ConfigError, atomic_file

if TYPE_CHECKING:
    import pyarrow as pa

    from replay.cluster.simulate import FleetRun
    from sim.cluster import ClusterConfig

SCORING = (Weighted, LeastLoaded, AlwaysBusiest, VllmDp, KvCost)
"""Policies that give every candidate a score, the highest of which is chosen."""

SIGNALS = ("num_in_flight", "num_waiting", "num_running", "kv_usage")

SUFFIXES = (".jsonl", ".parquet")


def check_can_write(path: Path) -> None:
    """Raise ConfigError on a name with another ending than the two formats', and on a folder that does not exist."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"--decisions: got {path}, expected a name that ends in .jsonl or .parquet")
    if not path.parent.is_dir():
        raise ConfigError(f"--decisions: got {path}, expected a folder that exists: {path.parent} does not")


def has_scores(cluster: ClusterConfig) -> bool:
    """Return whether the policy scores its candidates."""
    return isinstance(cluster.routing, SCORING)


def write_decisions(path: Path, run: FleetRun, cluster: ClusterConfig) -> None:
    """Write every decision in the order in which they were taken. Raises ConfigError where the file cannot be written.

    A decision: ``time_us``, ``request_id``, ``instance`` (None: there was none), ``regret`` (``merits_of``: the best
    candidate's merit minus that of the chosen one; None where none was chosen), ``candidates``; of a candidate:
    ``instance``, ``rank`` by merit from 1, ``score`` (None where the policy gives none), and what the router saw of it,
    as stale as configured. Where KV can be moved also ``stage``: decode, the instance that answers; or prefill, the one
    that computes the prompt for it.
    """
    log = run.result.decisions
    assert log is not None  # noqa: S101 - the run recorded them
    ids = run.trace.cells("request_id").values
    names = np.array([*cluster.instance_names, None], dtype=object)
    asked = asked_of(log, cluster)
    with atomic_file(path, option="--decisions", is_durable=False) as temporary:
        if path.suffix == ".parquet":
            from traces import write_parquet  # every cluster's command imports this module

            write_parquet(_table(log, ids, names, asked), temporary)
            return
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(_lines(log, ids, names, asked))


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionScope:
    """What each decision chose among: ``is_candidate`` [decisions, instances], whether its policy scores, its stage."""

    is_candidate: NDArray[np.bool_]
    is_scored: NDArray[np.bool_]
    stage: tuple[str, ...] | None


def asked_of(log: DecisionLog, cluster: ClusterConfig) -> DecisionScope:
    """Return the candidates of each decision, whether its policy scores them, and its stage."""
    is_prefill = log.decisions["is_prefill"] == 1
    prefills = np.array([role == "prefill" for role in cluster.role_of])
    of_prompts = isinstance(cluster.prefill_routing or cluster.routing, SCORING)
    return DecisionScope(
        is_candidate=is_prefill[:, None] == prefills[None, :],
        is_scored=np.where(is_prefill, of_prompts, has_scores(cluster)),
        stage=tuple(np.where(is_prefill, "prefill", "decode")) if cluster.moves_kv else None,
    )


def merits_of(log: DecisionLog, asked: DecisionScope) -> NDArray[np.float64]:
    """Return each candidate's merit in each decision: [decisions, instances], minus infinity for non-candidates.

    Its score; where the policy gives none, minus its requests in flight, as BLIS scores for policies that do not
    (inference-sim, counterfactual regret).
    """
    merits = np.where(asked.is_scored[:, None], log.scores, -log.num_in_flight.astype(np.float64))
    return np.where(asked.is_candidate, merits, -np.inf)


def ranks_of(merits: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return each candidate's place by merit, 1 the best; those that are as good have the same."""
    ranks = [1 + np.searchsorted(np.sort(-row), -row, side="left") for row in merits]
    return np.array(ranks, np.int64).reshape(merits.shape)


def regrets_of(log: DecisionLog, asked: DecisionScope) -> NDArray[np.float64]:
    """Return how much better than the chosen one the best candidate looked, at each decision; NaN of none chosen."""
    merits = merits_of(log, asked)
    chosen = log.decisions["instance"].astype(np.int64)
    own = merits[np.arange(len(merits)), np.maximum(chosen, 0)]
    found = merits.max(axis=1, initial=-np.inf) - own
    return np.where(chosen >= 0, found, np.nan)


class Regret(TypedDict):
    """How much better the best candidate looked, over all decisions that chose an instance; None without any.

    ``unit``: of the policy's score, or requests in flight where it gives none. ``best_frac``: decisions that took it.
    """

    unit: Literal["score", "requests in flight"]
    mean: float | None
    max: float | None
    best_frac: float | None


def summarize_regret(log: DecisionLog, cluster: ClusterConfig) -> Regret:
    """Return the regret of the decisions that were recorded."""
    found = regrets_of(log, asked_of(log, cluster))
    found = found[~np.isnan(found)]
    return Regret(
        unit="score" if has_scores(cluster) else "requests in flight",
        mean=float(found.mean()) if len(found) else None,
        max=float(found.max()) if len(found) else None,
        best_frac=float((found <= 0).mean()) if len(found) else None,
    )


def _lines(log: DecisionLog, ids: NDArray[Any], names: NDArray[Any], asked: DecisionScope) -> Iterator[str]:
    """Yield a line of JSON per decision."""
    regrets, ranks = regrets_of(log, asked), ranks_of(merits_of(log, asked))
    for number, decision in enumerate(log.decisions):
        candidates = [
            {
                "instance": names[i],
                "rank": int(ranks[number, i]),
                "score": float(log.scores[number, i]) if asked.is_scored[number] else None,
                "num_in_flight": int(log.num_in_flight[number, i]),
                "num_waiting": int(log.num_waiting[number, i]),
                "num_running": int(log.num_running[number, i]),
                "kv_usage": round(float(log.kv_usage[number, i]), 6),
            }
            for i in np.flatnonzero(asked.is_candidate[number])
        ]
        row = {
            "time_us": int(decision["time_us"]),
            "request_id": str(ids[decision["request"]]),
            "instance": names[decision["instance"]],
            **({"stage": str(asked.stage[number])} if asked.stage else {}),
            "regret": None if np.isnan(regrets[number]) else float(regrets[number]),
            "candidates": candidates,
        }
        yield json.dumps(row, separators=(",", ":")) + "\n"


def _table(log: DecisionLog, ids: NDArray[Any], names: NDArray[Any], asked: DecisionScope) -> pa.Table:
    """Return the decisions as a table; a candidate is an entry of a list, as in the JSON."""
    import pyarrow as pa

    chosen = asked.is_candidate
    scored = np.broadcast_to(asked.is_scored[:, None], chosen.shape)[chosen]
    values: dict[str, pa.Array] = {
        "instance": pa.array(np.broadcast_to(names[:-1], chosen.shape)[chosen], pa.string()),
        "rank": pa.array(ranks_of(merits_of(log, asked))[chosen]),
        "score": pa.array(log.scores[chosen], mask=~scored),
        **{name: pa.array(getattr(log, name)[chosen]) for name in SIGNALS},
    }
    offsets = pa.array(np.concatenate([[0], np.cumsum(chosen.sum(axis=1))]).astype(np.int32))
    candidates = pa.ListArray.from_arrays(
        offsets, pa.StructArray.from_arrays(list(values.values()), names=list(values))
    )
    regrets = regrets_of(log, asked)
    return pa.table(
        {
            "time_us": pa.array(np.ascontiguousarray(log.decisions["time_us"])),
            "request_id": pa.array(ids[log.decisions["request"]].astype(str)),
            "instance": pa.array(names[log.decisions["instance"]], pa.string()),
            **({"stage": pa.array(asked.stage, pa.string())} if asked.stage else {}),
            "regret": pa.array(regrets, mask=np.isnan(regrets)),
            "candidates": candidates,
        }
    )
