"""The effect of one routing decision: the run simulated again with that decision changed, all else equal.

Random numbers are drawn by index, not in sequence, so every difference between the two runs follows from the decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from replay.cluster.decisions import has_scores
from sim import Int64s, Outcomes, Status
from sim.cluster import ClusterSimulation, simulate_cluster
from traces.facts import AlignedRows, AnswerPart

if TYPE_CHECKING:
    from replay.cluster.simulate import FleetRun
    from sim.cluster import ClusterConfig, DecisionLog

MEASURES = ("ttft_us", "e2e_us")


class Changed(TypedDict):
    """What changing the decision adds to a request's times, µs; None where it did not finish in both runs."""

    ttft_us: float | None
    e2e_us: float | None


class Counterfactual(TypedDict):
    """One decision: what was chosen, the runner-up, and what the other choice would have changed.

    ``score``, ``alternative_score``: None where the policy gives none. ``request``: of the request itself; ``all``:
    the mean over the requests that both runs finished; ``num_moved``: other requests that went elsewhere in turn.
    """

    time_us: int
    request_id: str
    instance: str
    alternative: str
    score: float | None
    alternative_score: float | None
    request: Changed
    all: Changed
    num_moved: int


def counterfactuals(run: FleetRun, cluster: ClusterConfig, *, num: int, seed: int) -> list[Counterfactual]:
    """Return what changes with each of ``num`` sampled decisions, in the order in which they were taken.

    The runner-up is the candidate with the next best score, or without scores that with the fewest in flight.
    """
    log = run.result.decisions
    assert log is not None  # noqa: S101 - the run recorded them
    eligible = np.flatnonzero((log.decisions["instance"] >= 0) & (log.decisions["is_prefill"] == 0))
    if sum(role != "prefill" for role in cluster.role_of) < 2:
        return []
    chosen = np.random.default_rng(seed).permutation(len(eligible))[:num]
    scored = has_scores(cluster)
    return list(_each(run, cluster, log, eligible[np.sort(chosen)], scored=scored))


def _each(
    run: FleetRun, cluster: ClusterConfig, log: DecisionLog, numbers: Int64s, *, scored: bool
) -> Iterator[Counterfactual]:
    ids = run.trace.cells("request_id").values
    names = cluster.instance_names
    for number in numbers:
        request, instance = int(log.decisions["request"][number]), int(log.decisions["instance"][number])
        other = runner_up(log, int(number), instance, scored=scored, roles=cluster.role_of)
        forced = np.full(len(run.work.requests), -1, np.int64)
        forced[request] = other
        changed = simulate_cluster(run.work, cluster, forced=forced, until_us=run.until_us)
        request_change, all_change = _changes(run, changed, request)
        moved = changed.instance != run.result.instance
        yield Counterfactual(
            time_us=int(log.decisions["time_us"][number]),
            request_id=str(ids[request]),
            instance=names[instance],
            alternative=names[other],
            score=float(log.scores[number, instance]) if scored else None,
            alternative_score=float(log.scores[number, other]) if scored else None,
            request=request_change,
            all=all_change,
            num_moved=int(moved.sum()) - int(moved[request]),
        )


def counterfactual_parts(found: list[Counterfactual]) -> list[AnswerPart]:
    """Return a row per decision: what the other choice would have changed; [] where there is none."""
    if not found:
        return []
    heads = ("to", "instead of", "its TTFT", "its E2E", "mean TTFT", "mean E2E", "moved")
    names = [name for each in found for name in (each["instance"], each["alternative"])]
    width = max(12, *(len(name) + 2 for name in names))
    rows: list[Sequence[str]] = [("other choice", *heads, "  (ms)")]
    for each in found:
        of_one, of_all = each["request"], each["all"]
        changes = (of_one["ttft_us"], of_one["e2e_us"], of_all["ttft_us"], of_all["e2e_us"])
        told = (each["alternative"], each["instance"], *map(_ms, changes), f"{each['num_moved']:,}")
        rows.append((f"at {each['time_us'] / 1e6:,.3f} s", *told, ""))
    return ["", AlignedRows(rows, [-14, *[width] * len(heads), 0])]


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e3:+,.3f}"


def runner_up(
    log: DecisionLog, number: int, instance: int, *, scored: bool, roles: Sequence[str] = ()
) -> int:
    """Return the instance that would have been next to decode; the first of several that are as good."""
    merit = log.scores[number].copy() if scored else -log.num_in_flight[number].astype(np.float64)
    merit[instance] = -np.inf
    merit[[number for number, role in enumerate(roles) if role == "prefill"]] = -np.inf
    return int(np.argmax(merit))


def _changes(run: FleetRun, changed: ClusterSimulation, request: int) -> tuple[Changed, Changed]:
    """Return what changed of the request, and on average of all that both runs finished."""
    before, after = run.result.outcomes, changed.outcomes
    both = (before.status == Status.OK) & (after.status == Status.OK)
    change = {name: _latency(after, name) - _latency(before, name) for name in MEASURES}
    of_one = {name: float(change[name][request]) if both[request] else None for name in MEASURES}
    of_all = {name: float(change[name][both].mean()) if both.any() else None for name in MEASURES}
    return (
        Changed(ttft_us=of_one["ttft_us"], e2e_us=of_one["e2e_us"]),
        Changed(ttft_us=of_all["ttft_us"], e2e_us=of_all["e2e_us"]),
    )


def _latency(outcomes: Outcomes, name: str) -> Int64s:
    """Return TTFT or E2E from the arrival; what never happened gives a number without meaning, which callers mask."""
    seen = outcomes.first_token_us if name == "ttft_us" else outcomes.last_token_us
    return seen - outcomes.arrival_us
