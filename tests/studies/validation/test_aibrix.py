"""The study of a measured cluster on its idle requests, which ship: the fit, the load, the router."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.cluster.routing.routing_policies import KubeProxy
from tests.studies.validation import aibrix

IDLE = Path(__file__).with_name("aibrix_idle.csv")


def test_a_prompt_and_a_decode_alone_take_what_was_measured() -> None:
    """One chunk after another, and a + b D^p: what the fit says must be what the figures say."""
    idle = aibrix.idle_of(aibrix.read(IDLE))
    latency = idle.latency(steps_per_prompt=3)
    pairs = aibrix.NUM_NEW_TOKENS * (aibrix.NUM_SHARED_BLOCKS * 16 + aibrix.NUM_NEW_TOKENS / 2)
    alone = float(latency.alpha0) + 3 * float(latency.beta0) + latency.beta4 * pairs
    alone += float(latency.beta1) * aibrix.NUM_NEW_TOKENS
    assert alone == pytest.approx(1e6 * idle.cold)
    for decodes, measured in zip((1, 2, 3), idle.tokens, strict=True):
        step = float(latency.beta0) + float(latency.beta2) * decodes ** (1 - latency.concavity)
        assert step == pytest.approx(1e6 * measured)


def test_idle_requests_take_as_long_as_measured() -> None:
    rows = aibrix.read(IDLE)
    latency = aibrix.idle_of(rows).latency(steps_per_prompt=3)
    draws = [aibrix.simulated(rows, aibrix.plain_engine(), latency, KubeProxy(), seed) for seed in range(3)]
    measured = rows.groupby("qps")["ttft"].mean()
    assert np.mean(draws, axis=0) == pytest.approx(measured.to_numpy(), rel=0.15)


def test_a_prompt_of_a_user_begins_as_his_last_one_and_goes_on_otherwise() -> None:
    load = aibrix.whole_load(aibrix.read(IDLE))
    requests = aibrix.requests_of(load)
    runs = [np.flatnonzero((load["user_id"] == 321) & (load["run"] == run))[0] for run in (0, 1)]
    (one, two) = (requests.hash_ids[requests.hash_offsets[r] : requests.hash_offsets[r + 1]] for r in runs)
    assert (one == two).sum() == aibrix.NUM_USER_BLOCKS < len(one)
    assert (load.groupby("run").size() == [2 * aibrix.WARM_UP_USERS + 30, 11, 55, 99]).all()


@dataclass
class Fleet:
    num_in_flight: np.ndarray[Any, Any]
    candidates: np.ndarray[Any, Any] = field(default_factory=lambda: np.arange(4))


@dataclass
class Request:
    hash_ids: np.ndarray[Any, Any]


def test_the_router_follows_a_prefix_unless_its_place_is_busier_than_most() -> None:
    choose: Any = aibrix.prefix_cache(0).choose
    first, other = Request(np.arange(30)), Request(np.arange(100, 130))
    assert choose(Fleet(np.array([1, 1, 0, 1])), first, 0) == 2
    assert choose(Fleet(np.array([0, 1, 1, 1])), first, 0) == 2  # mean 0.75, deviation 0.43
    assert choose(Fleet(np.array([0, 1, 3, 1])), other, 0) == 0
    assert choose(Fleet(np.array([1, 1, 4, 0])), first, 0) == 3  # more than 1.5 + 1.5
    assert (
        choose(Fleet(np.array([9, 9, 9, 0])), other, 0) == 3
    )  # further apart than 8: nobody looks at prefixes
