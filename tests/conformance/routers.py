"""``python -m tests.conformance.routers DIR…``: replay decisions of real routers through the simulator's policies.

A DIR is a case or a folder of cases. After each decision is compared, the recorded one is taken, so that one
difference does not cause others. Prints "N of M decisions identical" per case. Exit codes: 0 all identical, 1 any
difference, 2 usage, 3 nothing to compare or a case that cannot be read.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer

from sim import InvalidConfig, Requests
from sim.cluster.fleet import Fleet, RequestTable, new_fleet, request_table
from sim.cluster.routing.router_state import Router, new_router, with_room_for
from sim.cluster.routing.routing_policies import RoutingPolicy, routing_policy
from tests.sim.cluster.compiled_calls import NEEDS_ROOM, decide, finish, refresh, settle

Event = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One router's run: its policy, its fleet, what happened, and which instance each request got."""

    policy: RoutingPolicy
    num_instances: int
    order: list[int]
    events: list[Event]
    decisions: list[int]


def lines_of(path: Path) -> list[Any]:
    """Return the documents of a JSONL file, compressed or not."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def find(case: Path, stem: str) -> Path | None:
    """Return a case's JSONL file of that name, compressed or not, None where it has none."""
    return next(
        (path for path in (case / f"{stem}.jsonl.gz", case / f"{stem}.jsonl") if path.is_file()), None
    )


def is_case(path: Path) -> bool:
    """Return whether a directory holds something to compare."""
    has_text_case = (path / "config.json").is_file() and (path / "decisions.json").is_file()
    return (has_text_case and find(path, "events") is not None) or find(path, "decisions") is not None


def recordings_in(case: Path) -> Iterator[Recording]:
    """Yield a case's recordings: one of a router in front of back-ends, or one per fleet of vLLM's balancer."""
    fleets, events, settings = find(case, "decisions"), find(case, "events"), case / "config.json"
    config = json.loads(settings.read_text()) if settings.is_file() else {}
    if fleets is not None:
        for fleet in lines_of(fleets):
            yield fleet_recording(fleet, config.get("routing", {"policy": "vllm-dp"}))
    elif events is not None:
        num_instances = config["instances"]
        yield Recording(
            policy=routing_policy(config["routing"]),
            num_instances=num_instances,
            order=config.get("order", list(range(num_instances))),
            events=lines_of(events),
            decisions=json.loads((case / "decisions.json").read_text()),
        )


def fleet_recording(fleet: dict[str, Any], routing: dict[str, Any]) -> Recording:
    """Return the recording of one fleet of ranks; ``routing`` may name the version of vLLM."""
    events: list[Event] = fleet["events"]
    return Recording(
        policy=routing_policy({**routing, "clients": fleet["clients"], "client": fleet["client"]}),
        num_instances=fleet["ranks"],
        order=list(range(fleet["ranks"])),
        events=events,
        decisions=decisions_of(events),
    )


def decisions_of(events: list[Event]) -> list[int]:
    """Return the rank of each request, by its number."""
    ranks = {event["add"]: event["rank"] for event in events if "add" in event}
    return [ranks.get(request, -1) for request in range(max(ranks, default=-1) + 1)]


def table_of(recording: Recording) -> RequestTable:
    """Return the requests: one character is one token, and one block."""
    texts = {event["add"]: event.get("text", "") for event in recording.events if "add" in event}
    ordered = [texts.get(request, "") for request in range(len(recording.decisions))]
    lengths = np.array([len(text) for text in ordered], np.int64)
    letters = np.frombuffer("".join(ordered).encode("utf-32-le", "surrogatepass"), np.uint32)
    zeros = np.zeros(len(ordered), np.int64)
    return request_table(
        Requests(
            arrival_us=zeros,
            prompt_tokens=lengths,
            output_tokens=zeros + 1,
            priority=zeros,
            hash_offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            hash_ids=letters.astype(np.int64),
        )
    )


def take_snapshot(fleet: Fleet, snapshot: list[list[float]]) -> None:
    """Let the fleet's reported state be a snapshot: waiting, running and KV usage of each rank."""
    for instance, (waiting, running, kv_usage) in zip(fleet.instances, snapshot, strict=True):
        instance.num_waiting, instance.num_running, instance.kv_usage = waiting, running, kv_usage


def num_identical(recording: Recording) -> int:
    """Return how many of a recording's decisions the simulator's policy takes too."""
    fleet = new_fleet(recording.num_instances, block_size=1, order=recording.order)
    table = table_of(recording)
    router: Router = new_router(recording.policy, fleet, table)
    identical = 0
    for event in recording.events:
        if "add" in event:
            request = event["add"]
            while (chosen := decide(router, fleet, table, request, 0)) == NEEDS_ROOM:
                router = with_room_for(router, int(table.prompt_tokens[request]))
            identical += chosen == recording.decisions[request]
            settle(router, fleet, table, request, recording.decisions[request])
        elif "end" in event:
            finish(router, fleet, table, event["end"], recording.decisions[event["end"]], 0)
        elif "snapshot" in event:
            take_snapshot(fleet, event["snapshot"])
            refresh(router, fleet)
        else:
            raise ValueError(f"event: got {event!r}, expected add, end or snapshot")
    return identical


def cases_in(directories: list[Path]) -> list[Path]:
    """Return every directory, or directory in one, that holds a case."""
    found = []
    for directory in directories:
        inside = [directory] if is_case(directory) else sorted(directory.glob("*/"))
        found += [case for case in inside if is_case(case)]
    return found


def compare_case(case: Path) -> tuple[int, int]:
    """Return (decisions that are identical, decisions) of a case."""
    identical = total = 0
    for recording in recordings_in(case):
        identical += num_identical(recording)
        total += sum("add" in event for event in recording.events)
    return identical, total


def main(arguments: list[str] | None = None) -> int:
    """Compare and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.routers", description=__doc__)
    parser.add_argument("directories", metavar="DIR", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    answers = []
    for case in cases_in(options.directories):
        try:
            identical, total = compare_case(case)
        except (KeyError, IndexError, TypeError, ValueError, OSError, InvalidConfig) as error:
            typer.echo(f"{case}: got {type(error).__name__}: {error}, expected a recording", err=True)
            return 3
        if total:
            typer.echo(f"{case.name}: {identical} of {total} decisions identical")
            answers.append(identical == total)
    if not answers:
        typer.echo(
            "nothing to compare: expected directories with config.json, events.jsonl[.gz] and decisions.json, "
            "or with decisions.jsonl[.gz]",
            err=True,
        )
        return 3
    return 0 if all(answers) else 1


if __name__ == "__main__":
    raise SystemExit(main())
