"""Run a prefill and a decode engine on a recording of vLLM's and name the first difference."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from sim import Blackbox, EngineConfig, Outcomes, Requests
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.results.finished import ClusterSimulation
from sim.cluster.transfer.disaggregation_config import Disaggregation
from tests.conformance.compare import NAMES, difference_of_steps
from tests.conformance.conventions import DEFAULTS
from tests.conformance.recording import SETTINGS, dense_hashes, read_json_lines

ROLES = ("prefill", "decode")

OF_THE_CONNECTOR = ("pulls", "received", "sent")
"""Keys of a recorded step that are compared as the transfers' times."""

OUTCOMES = {
    "n_out": "num_output_tokens",
    "first_token_us": "first_token_us",
    "completion_us": "last_token_us",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRecording:
    """One case: what two vLLM engines were given, and what each did."""

    name: str
    config: ClusterConfig
    requests: Requests
    steps: dict[str, list[dict[str, Any]]]
    outcomes: list[dict[str, str]]
    transfers: list[dict[str, str]]

    @property
    def has_blocks(self) -> bool:
        """Whether block ids and the free queue were recorded."""
        return "block_ids" in self.steps["decode"][0]


def pool_of(config: dict[str, Any], role: str) -> Pool:
    """Return one side of a case."""
    settings = DEFAULTS | config | config.get(role, {})
    engine = EngineConfig(**{name: settings[name] for name in SETTINGS}, scheduling_policy=settings["policy"])
    latency = Blackbox(beta0=settings["beta0"], beta1=settings["beta1"], beta2=settings["beta2"])
    return Pool(engine=engine, latency=latency, name=role, role="prefill" if role == "prefill" else "decode")


def read_pair(case: Path) -> PairRecording:
    """Return the recording in a folder."""
    config = json.loads((case / "config.json").read_text())
    rows = read_json_lines(case / "trace.jsonl")
    pools = tuple(pool_of(config, role) for role in ROLES)
    offsets, ids = dense_hashes(rows, pools[0].engine.block_size)
    requests = Requests(
        arrival_us=np.array([row["arrival_us"] for row in rows], np.int64),
        prompt_tokens=np.array([row["prompt_len"] for row in rows], np.int64),
        output_tokens=np.array([row["output_len"] for row in rows], np.int64),
        priority=np.array([row.get("priority") or 0 for row in rows], np.int64),
        hash_offsets=offsets,
        hash_ids=ids,
    )
    with (case / "decode" / "requests.csv").open(newline="") as file:
        outcomes = list(csv.DictReader(file))
    with (case / "transfers.csv").open(newline="") as file:
        transfers = list(csv.DictReader(file))
    return PairRecording(
        name=case.name,
        config=ClusterConfig(
            pools=pools, disaggregation=Disaggregation(**config["transfer"], contention=False)
        ),
        requests=requests,
        steps={role: read_json_lines(case / role / "steps.jsonl.gz") for role in ROLES},
        outcomes=outcomes,
        transfers=transfers,
    )


def steps_of(run: ClusterSimulation, number: int, *, has_blocks: bool) -> list[dict[str, Any]]:
    """Return an engine's steps under the recordings' keys."""
    steps = []
    for step in run.instances[number].written.steps():
        row = {name: value for name in NAMES if (value := getattr(step, name)) is not None}
        row["sched"] = [list(entry) for entry in step.sched]
        row["hits"] = [list(hit) for hit in step.hits]
        if has_blocks:
            row["block_ids"] = {str(request): ids for request, ids in (step.block_ids or {}).items()}
        steps.append(row)
    return steps


def difference_of_transfers(recording: PairRecording, run: ClusterSimulation) -> str | None:
    """Return the first transfer whose start, end or size differs."""
    assert run.split is not None
    split = run.split
    columns = {
        "start_us": split.transfer_start_us,
        "end_us": split.transfer_end_us,
        "blocks": split.transfer_blocks,
    }
    for row in recording.transfers:
        for name, column in columns.items():
            ours = int(column[int(row["request"])])
            if int(row[name]) != ours:
                return f"request {row['request']}, transfer's {name}: recorded {row[name]}, vtwin {ours}"
    if len(recording.transfers) != split.num_started:
        return f"transfers: recorded {len(recording.transfers)}, vtwin {split.num_started}"
    return None


def difference_of_outcomes(recording: PairRecording, run: ClusterSimulation) -> str | None:
    """Return the first request whose tokens came at other times."""
    for number, row in enumerate(recording.outcomes):
        for name, column in OUTCOMES.items():
            ours = int(getattr(run.outcomes, column)[number])
            if int(row[name] or -1) != ours:
                return f"request {number}, {name}: recorded {row[name] or 'none'}, vtwin {ours}"
    return None


def difference_of_jumps(recording: PairRecording, stepwise: ClusterSimulation) -> str | None:
    """Return the first column in which engines that take many steps at once differ from those that take each."""
    jumping = simulate_cluster(ClusterWork(requests=recording.requests), recording.config)
    for field in fields(Outcomes):
        ours, theirs = getattr(jumping.outcomes, field.name), getattr(stepwise.outcomes, field.name)
        if not np.array_equal(ours, theirs):
            return f"{field.name}: differs between jumps and single steps"
    return None


def compare_pair(recording: PairRecording) -> str | None:
    """Return the first difference between vLLM's two engines and vtwin's, None when there is none."""
    has_blocks = recording.has_blocks
    run = simulate_cluster(
        ClusterWork(requests=recording.requests),
        recording.config,
        record="blocks" if has_blocks else "steps",
    )
    for number, role in enumerate(ROLES):
        theirs = [
            {key: value for key, value in step.items() if key not in OF_THE_CONNECTOR}
            for step in recording.steps[role]
        ]
        found = difference_of_steps(theirs, steps_of(run, number, has_blocks=has_blocks))
        if found is not None:
            return f"{role}: {found}"
    return (
        difference_of_transfers(recording, run)
        or difference_of_outcomes(recording, run)
        or difference_of_jumps(recording, run)
    )
