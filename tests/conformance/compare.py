"""Run the engine on a recording and name the first difference."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from sim import Simulation, Status, simulate
from tests.conformance.recording import Recording


def as_recorded(simulation: Simulation, *, has_blocks: bool) -> list[dict[str, Any]]:
    """Return the engine's steps under the recordings' keys."""
    steps = []
    for step in simulation.steps():
        row = {key: value for key, value in asdict(step).items() if value is not None}
        row["sched"] = [list(entry) for entry in step.sched]
        row["hits"] = [list(hit) for hit in step.hits]
        if has_blocks:
            row["block_ids"] = {str(request): ids for request, ids in (step.block_ids or {}).items()}
        steps.append(row)
    return steps


def difference_of_steps(recorded: list[dict[str, Any]], ours: list[dict[str, Any]]) -> str | None:
    """Return the first step that differs, both sides, None when all are equal."""
    for number, (theirs, mine) in enumerate(zip(recorded, ours, strict=False)):
        for key in sorted(theirs.keys() | mine.keys()):
            if theirs.get(key) != mine.get(key):
                return f"step {number}, {key}: recorded {theirs.get(key)}, vtwin {mine.get(key)}"
    if len(recorded) != len(ours):
        return f"number of steps: recorded {len(recorded)}, vtwin {len(ours)}"
    return None


STATUS = {Status.OK: "finished:length", Status.REJECTED: "rejected", Status.STUCK: "stuck"}


def difference_of_outcomes(recording: Recording, simulation: Simulation) -> str | None:
    """Return the first request whose outcome differs, None when all are equal."""
    outcomes = simulation.outcomes
    for i, row in enumerate(recording.outcomes):
        status = Status(int(outcomes.status[i]))
        rejected = status == Status.REJECTED
        mine = {
            "status": STATUS[status],
            "n_out": outcomes.num_output_tokens[i],
            "first_sched_us": outcomes.scheduled_us[i],
            "first_token_us": outcomes.first_token_us[i],
            "completion_us": outcomes.last_token_us[i] if status == Status.OK else -1,
            "preemptions": outcomes.num_preemptions[i],
            "cached_first": outcomes.num_cached_tokens[i],
        }
        for key, value in mine.items():
            recorded: Any = row[key]
            if key != "status":
                recorded = int(recorded) if recorded != "" else -1
            if recorded != (value if not isinstance(value, np.integer) else int(value)) and not (
                rejected and key == "n_out"
            ):
                return f"request {i}, {key}: recorded {recorded}, vtwin {value}"
    return None


def compare(recording: Recording) -> str | None:
    """Return the first difference between vLLM and the engine on a recording, None when there is none."""
    record = "blocks" if recording.has_blocks else "steps"
    simulation = simulate(recording.requests, recording.config, recording.latency, record=record)
    found = difference_of_steps(recording.steps, as_recorded(simulation, has_blocks=recording.has_blocks))
    if found is None:
        found = difference_of_outcomes(recording, simulation)
    if found is None:
        found = difference_of_jumps(recording, simulation)
    return found


def difference_of_jumps(recording: Recording, stepped: Simulation) -> str | None:
    """Return where the engine that jumps differs from the one that takes every step, None when it does not."""
    jumped = simulate(recording.requests, recording.config, recording.latency)
    for name in ("status", "scheduled_us", "first_token_us", "last_token_us", "num_output_tokens", "num_preemptions"):
        one, other = getattr(stepped.outcomes, name), getattr(jumped.outcomes, name)
        if not np.array_equal(one, other):
            i = int(np.flatnonzero(one != other)[0])
            return f"coalesced: request {i}, {name}: {other[i]}, one by one {one[i]}"
    if jumped.num_steps != stepped.num_steps:
        return f"coalesced: {jumped.num_steps} steps, one by one {stepped.num_steps}"
    return None
