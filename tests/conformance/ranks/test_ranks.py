"""Ranks in step decide as vLLM's schedulers do that are told when to defer prompts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from tests.conformance.conventions import DEFAULTS
from tests.conformance.recording import case_of

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.json.gz"))
KEYS = (
    "t",
    "t_end",
    "P",
    "D",
    "sched",
    "preempted",
    "hits",
    "finished",
    "running",
    "waiting",
    "free",
    "free_end",
)
COLUMNS = {
    "num_outputs": "num_output_tokens",
    "first_sched_us": "scheduled_us",
    "first_token_us": "first_token_us",
    "num_preemptions": "num_preemptions",
    "cached_first": "num_cached_tokens",
}


def difference_of(recording: dict[str, Any]) -> str | None:
    """Return where the ranks first differ, both sides, None where they do not."""
    settings = DEFAULTS | recording["settings"]
    config, latency, requests = case_of(
        settings, recording["rows"], prefill_schedule_interval=settings["prefill_schedule_interval"]
    )
    pool = Pool(engine=config, latency=latency, instances=settings["num_ranks"])
    ours = simulate_cluster(
        ClusterWork(requests=requests), ClusterConfig(pools=(pool,), lockstep=True), record="steps"
    )
    for rank, (theirs, instance) in enumerate(zip(recording["steps"], ours.instances, strict=True)):
        mine = instance.written.steps()
        for number, (recorded, step) in enumerate(zip(theirs, mine, strict=False)):
            for key in KEYS:
                got = json.loads(json.dumps(getattr(step, key)))
                if recorded[key] != got:
                    return f"rank {rank}, step {number}, {key}: recorded {recorded[key]}, vtwin {got}"
        if len(theirs) != len(mine):
            return f"rank {rank}: recorded {len(theirs)} steps, vtwin {len(mine)}"
    for key, name in COLUMNS.items():
        found = getattr(ours.outcomes, name).tolist()
        for number, outcome in enumerate(recording["outcomes"]):
            expected = -1 if outcome[key] is None else outcome[key]
            if found[number] != expected:
                return f"request {number}, {key}: recorded {expected}, vtwin {found[number]}"
    return None


def read(path: Path) -> dict[str, Any]:
    """Return a recording."""
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.split(".")[0])
def test_every_step_of_every_rank_is_vllm_s(path: Path) -> None:
    assert difference_of(read(path)) is None


def test_the_interval_matters_in_most_recordings() -> None:
    recordings = [read(path) for path in RECORDINGS]
    for recording in recordings:
        recording["settings"]["prefill_schedule_interval"] = 1
    assert sum(difference_of(recording) is not None for recording in recordings) >= len(recordings) - 1 > 0
