"""Pinned KV of sessions against the plain scheduler of ``reference.py`` with pins in a list."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, InvalidConfig, Requests, Status, simulate
from sim.cluster import (
    ClusterConfig,
    ClusterWork,
    Disaggregation,
    Failures,
    Pool,
    simulate_cluster,
)
from tests.examples import examples
from tests.sim.cluster.test_cluster import alike, keeping_step
from tests.sim.engine.test_reference import KEYS, bounded, reference_outcomes
from tests.sim.reference import NEVER, Batch, Reference, Request
from tests.sim.strategies import Case, Pick, assert_same_outcomes, cases, picks

LATENCY = Blackbox(beta0=1000, beta1=10, beta2=10)


@dataclass(eq=False, slots=True)
class Pin:
    """The blocks that a request left pinned, and who goes on from it."""

    number: int
    blocks: list[int]
    expires_us: int
    began_us: int


class WithPins(Reference):
    """The scheduler with a list of pins, by when they were made."""

    def __init__(self, requests: Requests, *args: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(requests, *args, **options)
        assert requests.kv_number is not None
        assert requests.goes_on_from is not None
        self.number, self.parent = requests.kv_number.tolist(), requests.goes_on_from.tolist()
        self.pins: list[Pin] = []
        self.left = {number: self.parent.count(number) for number in set(self.parent)}
        self.in_time: set[Request] = set()
        self.began: dict[int, int] = {}

    def unpin(self, pin: Pin) -> None:
        self.pins.remove(pin)
        self.pool.release(pin.blocks)

    def is_kept(self, pin: Pin) -> bool:
        return any(self.parent[r.number] == pin.number for r in self.in_time)

    def schedule(self) -> Batch:
        for pin in list(self.pins):
            if pin.expires_us <= self.clock and not self.is_kept(pin):
                self.unpin(pin)
        return super().schedule()

    def join(self) -> None:
        before = {r.number for r in self.requests if r.taken_in_us != NEVER}
        super().join()
        for r in self.requests:
            if r.taken_in_us != NEVER and r.number not in before:
                mine = [pin for pin in self.pins if pin.number == self.parent[r.number]]
                if mine and r.queued_us < mine[0].expires_us:
                    self.in_time.add(r)

    def leave(self, request: Request) -> None:
        self.in_time.discard(request)
        parent = self.parent[request.number]
        self.left[parent] -= 1
        for pin in [pin for pin in self.pins if pin.number == parent and self.left[parent] == 0]:
            self.unpin(pin)

    def abort(self, request: Request) -> None:
        if request in self.waiting and request.scheduled_us == NEVER:
            self.leave(request)
        super().abort(request)

    def finish(self, request: Request, batch: Batch) -> None:
        named, number = (
            request.blocks[: min(request.num_cached, len(request.hash_ids))],
            self.number[request.number],
        )
        parent = self.parent[request.number]
        held = [self.pool.holders[self.pool.contents[block]][0] for block in named]
        super().finish(request, batch)
        if number == NEVER:
            return
        self.began[number] = self.began.get(parent, request.arrival_us)
        if held and self.left.get(number, 0) > 0:
            for block in held:
                self.pool.share(block)
            expires_us = self.clock + self.config.session_kv_ttl_us
            self.pins.append(Pin(number, held, expires_us, self.began[number]))

    def take_away(self, spared: int) -> bool:
        """Let the pin go of the session that began last, ``spared`` only when there is no other."""
        others = [pin for pin in self.pins if pin.number != spared] or self.pins
        if not others:
            return False
        self.unpin(max(reversed(others), key=lambda pin: pin.began_us))
        return True

    def allocate(self, request: Request, n: int) -> bool:
        while not super().allocate(request, n):
            if not self.take_away(NEVER):
                return False
        if request.scheduled_us == NEVER:
            self.leave(request)
        return True

    def fits(self, request: Request, hits: list[int], n: int) -> bool:
        while not super().fits(request, hits, n):
            if self.running or not self.take_away(self.parent[request.number]):
                return False
        return True


def with_lineage(pick: Pick, case: Case) -> Case:
    """Let some requests go on from others, with the same beginnings and more, a while after they began."""
    n, rows = len(case.requests), case.requests
    parent = [pick((NEVER, *range(i))) if i and pick((True, True, False)) else NEVER for i in range(n)]
    ids = [rows.hash_ids[rows.hash_starts[i] :][: rows.num_hashes[i]].tolist() for i in range(n)]
    arrival_us, prompts = rows.arrival_us.copy(), rows.prompt_tokens.copy()
    fresh = 1 + max((content for own in ids for content in own), default=0)
    for i, before in enumerate(parent):
        if before != NEVER:
            arrival_us[i] = max(arrival_us[i], arrival_us[before] + pick((0, 300, 3000, 20_000)))
            num_new = pick((0, 1, 3))
            ids[i] = [*ids[before][: pick((len(ids[before]), 1))], *range(fresh, fresh + num_new)]
            fresh += num_new
            prompts[i] = max(prompts[i], len(ids[i]) * case.config.block_size + pick((0, 1)))
    numbers = {before: number for number, before in enumerate(sorted(set(parent) - {NEVER}))}
    requests = replace(
        rows,
        arrival_us=arrival_us,
        prompt_tokens=prompts,
        hash_offsets=np.concatenate([[0], np.cumsum([len(own) for own in ids])]).astype(np.int64),
        hash_ids=np.array([content for own in ids for content in own], np.int64),
        hash_counts=None,
        kv_number=np.array([numbers.get(i, NEVER) for i in range(n)], np.int64),
        goes_on_from=np.array([numbers.get(before, NEVER) for before in parent], np.int64),
    )
    ttl_us = pick((1, 500, 5000, 50_000, 10**9))
    return replace(case, requests=requests).under(session_kv_ttl_us=ttl_us, enable_prefix_caching=True)


@st.composite
def pinning(draw: st.DrawFn) -> Case:
    """Draw a case whose requests go on from each other; a third of them with pipeline stages."""
    staged = draw(st.sampled_from([False, False, True]))
    return with_lineage(draw(picks()), bounded(draw(cases(impatient=True, costly=True, staged=staged))))


@examples(200)
@given(pinning())
def test_every_step_and_every_block_is_that_of_a_list_of_pins(case: Case) -> None:
    reference = WithPins(case.requests, case.config, case.latency).run()
    simulation = case.run(record="blocks")
    steps = simulation.steps()
    for mine, theirs in zip(steps, reference.steps, strict=False):
        assert {key: value for key in KEYS if (value := getattr(mine, key)) is not None} == theirs
    assert len(steps) == len(reference.steps)
    assert_same_outcomes(simulation.outcomes, reference_outcomes(reference))


@examples(200)
@given(pinning())
def test_many_steps_at_once_are_the_same_as_one_by_one(case: Case) -> None:
    assert_same_outcomes(case.run().outcomes, case.run(coalesce=False).outcomes)


@examples(50)
@given(pinning(), st.booleans())
def test_a_cluster_of_one_is_the_engine_ahead_of_its_clients_and_in_step_with_them(
    case: Case, keeps_step: bool
) -> None:
    work = ClusterWork(requests=case.requests, clients=keeping_step(case.requests) if keeps_step else None)
    assert_same_outcomes(simulate_cluster(work, alike(case)).outcomes, case.run().outcomes)


def session_beside_others(*, other_outputs: int, large_prompt: int) -> Requests:
    """Return two rounds of a session, a request that runs meanwhile, and a less urgent one that needs their blocks."""
    return Requests(
        arrival_us=np.array([0, 0, 50_000, 90_000], np.int64),
        prompt_tokens=np.array([64, 16, large_prompt, 80], np.int64),
        output_tokens=np.array([2, other_outputs, 2, 2], np.int64),
        priority=np.array([0, 0, 1, 0], np.int64),
        hash_offsets=np.array([0, 4, 4, 4, 9], np.int64),
        hash_ids=np.array([0, 1, 2, 3, 0, 1, 2, 3, 4], np.int64),
        kv_number=np.array([0, -1, -1, -1], np.int64),
        goes_on_from=np.array([-1, -1, -1, 0], np.int64),
    )


@pytest.mark.parametrize(
    ("ttl_us", "other_outputs", "large_prompt", "found"),
    [
        (0, 100, 100, 0),
        (20_000, 100, 100, 0),
        (100_000, 100, 100, 64),
        (100_000, 20, 100, 64),
        (100_000, 20, 190, 16),
    ],
)
def test_a_round_finds_its_blocks_while_they_are_pinned_unless_nobody_runs(
    ttl_us: int, other_outputs: int, large_prompt: int, found: int
) -> None:
    config = EngineConfig(
        num_gpu_blocks=14, async_scheduling=False, scheduling_policy="priority", session_kv_ttl_us=ttl_us
    )
    requests = session_beside_others(other_outputs=other_outputs, large_prompt=large_prompt)
    outcomes = simulate(requests, config, LATENCY).outcomes
    assert outcomes.status.tolist() == [Status.OK] * 4
    assert outcomes.num_cached_tokens[3] == found


def test_the_pin_of_the_session_that_began_last_goes_first() -> None:
    requests = Requests(
        arrival_us=np.array([0, 10_000, 50_000, 90_000, 120_000], np.int64),
        prompt_tokens=np.array([64, 64, 100, 80, 80], np.int64),
        output_tokens=np.full(5, 2),
        priority=np.zeros(5, np.int64),
        hash_offsets=np.array([0, 4, 8, 8, 13, 18], np.int64),
        hash_ids=np.array([0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 8, 4, 5, 6, 7, 9], np.int64),
        kv_number=np.array([0, 1, -1, -1, -1], np.int64),
        goes_on_from=np.array([-1, -1, -1, 0, 1], np.int64),
    )
    config = EngineConfig(num_gpu_blocks=14, async_scheduling=False, session_kv_ttl_us=10**9)
    outcomes = simulate(requests, config, LATENCY).outcomes
    assert outcomes.num_cached_tokens[3] == 64
    assert outcomes.num_cached_tokens[4] < 64


@pytest.mark.parametrize("name", ["kv_cache_groups", "num_cpu_blocks", "enable_prefix_caching"])
def test_what_pins_are_not_simulated_with_is_refused(name: str) -> None:
    beside: dict[str, Any] = {"num_cpu_blocks": 5, "enable_prefix_caching": False}
    if name == "kv_cache_groups":
        from sim import KVCacheGroup

        beside[name] = (KVCacheGroup(kind="sliding", window=32),)
    with pytest.raises(InvalidConfig, match=f"^session_kv_ttl_us: cannot be combined with {name} "):
        EngineConfig(session_kv_ttl_us=5, num_gpu_blocks=50, **{name: beside[name]})


def test_pools_that_hand_kv_on_and_instances_that_come_and_go_have_no_pins() -> None:
    engine = EngineConfig(session_kv_ttl_us=5, num_gpu_blocks=50)
    pools = tuple(
        Pool(engine=engine, latency=LATENCY, role=role, name=role) for role in ("prefill", "decode")
    )
    with pytest.raises(
        InvalidConfig, match=r"^session_kv_ttl_us: cannot be combined with prefill and decode"
    ):
        ClusterConfig(pools=pools, disaggregation=Disaggregation(kv_bytes_per_token=1))
    with pytest.raises(InvalidConfig, match=r"^session_kv_ttl_us: cannot be combined with autoscaler or"):
        ClusterConfig(pools=(Pool(engine=engine, latency=LATENCY),), failures=Failures(mtbf_us=10**6))
