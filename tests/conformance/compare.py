"""Run the engine on a recording and name the first difference."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sim import Simulation, Status, Step, simulate
from tests.conformance.recording import Recording
from tests.conformance.ways import difference_of_jumps

NAMES = tuple(field.name for field in fields(Step))


def as_recorded(simulation: Simulation, *, has_blocks: bool) -> list[dict[str, Any]]:
    """Return the engine's steps under the recordings' keys."""
    steps = []
    for step in simulation.steps():
        row = {name: value for name in NAMES if (value := getattr(step, name)) is not None}
        row["sched"] = [list(entry) for entry in step.sched]
        for name in ("hits", "loads", "stores"):
            if name in row:
                row[name] = [list(pair) for pair in row[name]]
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


FINISHED = {"finished:length", "finished:stop"}
"""At max_tokens, or by itself before: which, the trace says."""


def outcomes_as_recorded(simulation: Simulation) -> list[dict[str, str]]:
    """Return the engine's outcomes under the names of requests.csv, empty where it never happened."""
    outcomes = simulation.outcomes
    columns = {
        "n_out": outcomes.num_output_tokens,
        "first_sched_us": outcomes.scheduled_us,
        "first_token_us": outcomes.first_token_us,
        "completion_us": outcomes.last_token_us,
        "preemptions": outcomes.num_preemptions,
        "cached_first": outcomes.num_cached_tokens,
    }
    rows = []
    for i, code in enumerate(outcomes.status):
        row = {name: str(column[i]) if column[i] >= 0 else "" for name, column in columns.items()}
        row["status"] = STATUS[Status(int(code))]
        if code != Status.OK:
            row["completion_us"] = ""
        rows.append(row)
    return rows


def difference_of_outcomes(recording: Recording, simulation: Simulation) -> str | None:
    """Return the first request whose outcome differs, both sides, None when all are equal."""
    ours = outcomes_as_recorded(simulation)
    for i, (theirs, mine) in enumerate(zip(recording.outcomes, ours, strict=True)):
        for name, value in mine.items():
            is_same = theirs[name] == value or (name == "status" and {theirs[name], value} <= FINISHED)
            if not is_same:
                return f"request {i}, {name}: recorded {theirs[name] or 'none'}, vtwin {value or 'none'}"
    return None


def compare(recording: Recording) -> str | None:
    """Return the first difference between vLLM and the engine on a recording, None when there is none."""
    record = "blocks" if recording.has_blocks else "steps"
    simulation = simulate(recording.requests, recording.config, recording.latency, record=record)
    ours = as_recorded(simulation, has_blocks=recording.has_blocks)
    if recording.has_blocks and "free_queue" not in recording.steps[0]:
        for step in ours:
            del step["free_queue"]
    found = difference_of_steps(recording.steps, ours)
    if found is None:
        found = difference_of_outcomes(recording, simulation)
    failed = recording.num_failed_allocations
    if found is None and failed not in (None, simulation.num_kv_allocation_failures):
        found = f"failed allocations: recorded {failed}, vtwin {simulation.num_kv_allocation_failures}"
    if found is None:
        found = difference_of_jumps(recording)
    return found
