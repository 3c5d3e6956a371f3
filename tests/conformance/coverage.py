"""What a random run covered: how often each option was drawn, and what happened in vLLM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.draw import TRAITS, Case
from tests.conformance.recording import Recording

LEAST_PER_VALUE = 20
"""Of 200 cases; a run of fewer is not held to it."""

EVENTS = {
    "preemptions": "preemptions",
    "resumed from the cache": "resumptions that found blocks of their own in the prefix cache",
    "cache hits": "first schedules with a hit in the prefix cache",
    "hits inside blocks": "of both, hits that end inside a block",
    "split prefills": "prefills in more than one step",
    "mixed steps": "steps with prefill and decode tokens",
    "empty steps": "steps that could schedule nothing",
    "simultaneous arrivals": "requests that arrived together with another one",
    "clamped": "requests whose `max_tokens` the front end cut",
    "stopped at max_model_len": "requests that the scheduler stopped at `max_model_len`",
    "rejected": "requests that the front end rejected",
    "stuck": "requests that could never run on",
    "loads": "loads from host memory",
    "stores": "stores to host memory",
    "flushed": "stores that a step waited for",
}
"""What is counted, and the words for it."""


def events_of(recording: Recording) -> Counter[str]:
    """Return how often each of EVENTS happened in a recording."""
    events: Counter[str] = Counter()
    prefills: Counter[int] = Counter()
    admitted: set[int] = set()
    inside = recording.config.matches_inside_blocks
    for step in recording.steps:
        events["preemptions"] += len(step["preempted"])
        events["mixed steps"] += step["P"] > 0 and step["D"] > 0
        events["empty steps"] += not step["sched"]
        events["loads"] += len(step.get("loads", []))
        events["stores"] += len(step.get("stores", []))
        events["flushed"] += step.get("flushed", 0)
        for request, cached in step["hits"]:
            events["resumed from the cache" if request in admitted else "cache hits"] += cached > 0
            events["hits inside blocks"] += inside and cached % recording.config.block_size > 0
            admitted.add(request)
            prefills[request] = 0
        for request, _, _, kind in step["sched"]:
            prefills[request] += kind == "p"
            events["split prefills"] += kind == "p" and prefills[request] == 2
    arrivals = Counter(row["arrival_us"] for row in recording.outcomes)
    events["simultaneous arrivals"] = sum(number for number in arrivals.values() if number > 1)
    for row in recording.outcomes:
        is_done = row["status"].startswith("finished")
        events[row["status"]] += not is_done
        events["clamped"] += row["max_tokens"] not in {"", row["output_len"]}
        events["stopped at max_model_len"] += is_done and row["n_out"] != row["max_tokens"]
    return events


@dataclass(slots=True)
class Coverage:
    """Sums over the cases of a run."""

    num_cases: int = 0
    num_requests: int = 0
    num_steps: int = 0
    num_sharing: int = 0
    values: dict[str, Counter[str]] = field(default_factory=lambda: {trait: Counter() for trait in TRAITS})
    cases_with: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)

    def add(self, case: Case, recording: Recording) -> None:
        """Count a case in."""
        self.num_cases += 1
        self.num_requests += len(case.rows)
        self.num_steps += len(recording.steps)
        self.num_sharing += case.traits["sharing"] != "nothing"
        for trait, value in case.traits.items():
            self.values[trait][value] += 1
        events = events_of(recording)
        self.totals.update(events)
        self.cases_with.update(event for event, number in events.items() if number > 0)

    def shortages(self, *, without: Collection[str] = ()) -> list[str]:
        """Return what a run of this size should have covered and did not, a line each, traits left out passed over."""
        lines = []
        if self.cases_with["preemptions"] < self.num_cases / 5:
            lines.append(f"preemptions: in {self.cases_with['preemptions']} cases, expected a fifth")
        if self.num_sharing < self.num_cases / 2:
            lines.append(f"sharing: in {self.num_sharing} cases, expected a half")
        if self.num_cases >= 200:
            for trait in [name for name in TRAITS if name not in without]:
                lines += [
                    f"{trait}: {value} in {self.values[trait][value]} cases, expected {LEAST_PER_VALUE}"
                    for value in TRAITS[trait]
                    if self.values[trait][value] < LEAST_PER_VALUE
                ]
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return the sums for a JSON file."""
        return {
            "num_cases": self.num_cases,
            "num_requests": self.num_requests,
            "num_steps": self.num_steps,
            "num_cases_sharing": self.num_sharing,
            "values": {trait: dict(counts) for trait, counts in self.values.items()},
            "events": {
                event: {"cases": self.cases_with[event], "times": self.totals[event]} for event in EVENTS
            },
        }

    def as_markdown(self) -> str:
        """Return two tables: what was drawn, and what happened."""
        lines = ["| option | cases per value |", "|---|---|"]
        for trait, shares in TRAITS.items():
            counts = ", ".join(f"{value}: {self.values[trait][value]}" for value in shares)
            lines.append(f"| {trait.replace('_', ' ')} | {counts} |")
        lines += ["", "| what happened | cases | times |", "|---|---|---|"]
        lines += [
            f"| {words} | {self.cases_with[event]} | {self.totals[event]:,} |"
            for event, words in EVENTS.items()
        ]
        return "\n".join(lines) + "\n"
