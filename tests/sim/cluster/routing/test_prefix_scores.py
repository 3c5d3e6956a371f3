"""prefix-affinity beside the scores that the Gateway API's inference extension gave for the same requests."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.cluster.fleet import new_fleet, request_table
from sim.cluster.routing.router_state import new_router, with_room_for
from sim.cluster.routing.routing_policies import Weighted
from tests.sim.cluster.compiled_calls import NEEDS_ROOM, decide, settle
from tests.sim.cluster.worlds import requests_with

CASES = json.loads(gzip.decompress((Path(__file__).parent / "data/prefix_scores.json.gz").read_bytes()))
ROOMY = [case for case in CASES if case["capacity"] == 31_250]
FULL = [case for case in CASES if case["capacity"] < 31_250]


def block_ids(prompts: list[list[int]], block: int) -> list[list[int]]:
    """Return an id for each full block that two prompts share, with all before it; as in a trace, others have none."""
    starts = [[tuple(prompt[:end]) for end in range(block, len(prompt) + 1, block)] for prompt in prompts]
    count = Counter(start for some in starts for start in some)
    ids: dict[tuple[int, ...], int] = {}
    return [[ids.setdefault(start, len(ids)) for start in some if count[start] > 1] for some in starts]


def scores_here(case: dict[str, Any]) -> list[list[float]]:
    """Return the score of each pod before each request, every request sent where the recording sent it."""
    prompts = [row["prompt"] for row in case["rows"]]
    table = request_table(requests_with(block_ids(prompts, case["block"]), [len(some) for some in prompts]))
    fleet = new_fleet(case["pods"], block_size=case["block"])
    policy = Weighted(scorers={"prefix-affinity": 1.0}, prefix_capacity_blocks=case["capacity"])
    router, found = new_router(policy, fleet, table), []
    for request, row in enumerate(case["rows"]):
        while decide(router, fleet, table, request, 0) == NEEDS_ROOM:
            router = with_room_for(router, int(table.prompt_tokens[request]))
        found.append(router.scores.tolist())
        settle(router, fleet, table, request, row["to"])
    return found


@pytest.mark.parametrize("case", ROOMY, ids=lambda case: f"seed{case['seed']}")
def test_every_score_is_the_extensions(case: dict[str, Any]) -> None:
    np.testing.assert_allclose(scores_here(case), [row["scores"] for row in case["rows"]], rtol=1e-12)


def test_behind_a_forgotten_block_the_extension_alone_counts_on() -> None:
    """Where the index is full: the first block of a prompt is the oldest, and what follows it still counts there."""
    num_lower = num_all = 0
    for case in FULL:
        here = np.array(scores_here(case))
        there = np.array([row["scores"] for row in case["rows"]])
        assert np.all(here <= there + 1e-12)
        num_lower += int(np.sum(here < there - 1e-12))
        num_all += here.size
    assert 0 < num_lower < 0.1 * num_all
