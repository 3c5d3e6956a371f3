"""``compatibility: blis`` against the plain reference scheduler with the peer's deviations, and each one by example."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from sim import Blackbox, EngineConfig, InvalidConfig, Requests, Status, simulate
from tests.examples import examples
from tests.sim.engine.test_reference import KEYS, bounded, reference_outcomes
from tests.sim.reference import Batch, Blocks, Reference, Request
from tests.sim.strategies import Case, assert_same_outcomes, cases, requests_of


class _Whole(tuple[float, int, int]):
    """A place of which no part is left away: the reference drops the number where vLLM's victims tie."""

    def __getitem__(self, _: object) -> _Whole:  # type: ignore[override]
        return self


class PeersBlocks(Blocks):
    """Least recently used first, hashed or not."""

    def release(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.references[block] -= 1
            if self.references[block] == 0:
                self.free.append(block)


class Peer(Reference):
    """The scheduler with the deviations that ``sim/engine/optional/blis.py`` numbers."""

    def __init__(self, case: Case) -> None:
        config = replace(
            case.config, scheduler_reserve_full_isl=False, watermark=0.0, enable_chunked_prefill=True
        )
        super().__init__(case.requests, config, case.latency, closed_loop=case.closed_loop)
        self.pool = PeersBlocks(config.num_gpu_blocks)
        self.last_alone: tuple[int, int] | None = None  # who had finished and who was to come

    def _request(self, requests: Requests, i: int) -> Request:
        request = super()._request(requests, i)
        prompt, asked = int(requests.prompt_tokens[i]), int(requests.output_tokens[i])
        needed = -(-prompt // self.config.block_size)
        if prompt + asked > self.config.max_model_len or needed > self.config.num_gpu_blocks - 1:
            request.is_refused, request.status = True, Status.REJECTED
        request.max_tokens = max(1, min(asked, self.config.max_model_len - 1 - prompt))
        return request

    def schedule(self) -> Batch:
        self.has_finished = False
        batch = Batch(row={"preempted": [], "hits": []}, shares={}, samples=set())
        self.cap = self.config.long_prefill_token_threshold or 1 << 60
        self.budget = self.config.max_num_batched_tokens
        self.schedule_running(batch)
        if not batch.row["preempted"]:
            self.schedule_waiting(batch)
        self.describe(batch)
        return batch

    def lookup(self, request: Request) -> list[int]:
        found: list[int] = []
        most = request.num_tokens // self.config.block_size if self.config.enable_prefix_caching else 0
        while len(found) < most and (holders := self.pool.holders.get(request.content(len(found)))):
            found.append(holders[0])
        return found

    def preempt(self, victim: Request, batch: Batch) -> None:
        super().preempt(victim, batch)
        victim.num_tokens, victim.token_times = victim.num_prompt, []

    def urgency(self, request: Request) -> tuple[float, int, int]:
        return _Whole(super().urgency(request))

    def describe(self, batch: Batch) -> None:
        super().describe(batch)
        if batch.shares:
            batch.row["dur"] = max(1, batch.row["dur"] if batch.row["P"] + batch.row["D"] else 0)

    def preempts_without_end(self, *batches: Batch) -> bool:
        if not batches[-1].row["preempted"] or self.running:
            return False
        before = self.last_alone
        self.last_alone = (sum(r.status == Status.OK for r in self.requests), len(self.pending))
        return before == self.last_alone


def as_the_peer(case: Case) -> Case:
    return bounded(case).under(compatibility="blis", async_scheduling=False)


@examples(200)
@given(cases(closed=None))
def test_every_step_and_every_block_is_the_deviating_reference_s(case: Case) -> None:
    case = as_the_peer(case)
    reference = Peer(case)
    reference.run()
    simulation = case.run(record="blocks")
    for mine, theirs in zip(simulation.steps(), reference.steps, strict=True):
        assert {key: value for key in KEYS if (value := getattr(mine, key)) is not None} == theirs
    assert_same_outcomes(simulation.outcomes, reference_outcomes(reference))


@examples(100)
@given(cases(closed=None))
def test_jumps_change_nothing(case: Case) -> None:
    case = as_the_peer(case)
    jumped, stepped = case.run(record="tokens"), case.run(coalesce=False, record="tokens")
    assert_same_outcomes(jumped.outcomes, stepped.outcomes)
    np.testing.assert_array_equal(jumped.tokens(), stepped.tokens())


@examples(60)
@given(cases(closed=None))
def test_tokens_that_a_preemption_undid_are_nowhere(case: Case) -> None:
    case = as_the_peer(replace(case, latency=replace(case.latency, alpha2=0)))
    simulation = case.run(record="tokens")
    request, time_us = simulation.tokens()
    counts = np.bincount(request, minlength=len(case.requests))
    np.testing.assert_array_equal(counts, simulation.outcomes.num_output_tokens)
    gaps = case.run(record="spans").inter_token_latencies()
    for r in np.flatnonzero(counts > 1):
        assert gaps.mean_us[r] == pytest.approx(np.diff(time_us[request == r]).mean(), abs=0.001)
    assert gaps.counts.sum() == (counts[counts > 0] - 1).sum()


LATENCY = Blackbox(beta0=100, beta1=1)
PEER = EngineConfig(
    compatibility="blis",
    async_scheduling=False,
    max_model_len=128,
    num_gpu_blocks=7,
    max_num_batched_tokens=64,
)


def outcome_of(row: dict[str, int], config: EngineConfig) -> tuple[int, int]:
    outcomes = simulate(requests_of([row]), config, LATENCY).outcomes
    return int(outcomes.status[0]), int(outcomes.num_output_tokens[0])


def test_what_vllm_cuts_the_peer_drops() -> None:
    row = {"arrival_us": 0, "prompt": 60, "output": 69}
    vllm = replace(PEER, compatibility="vllm", num_gpu_blocks=100)
    assert outcome_of(row, vllm) == (Status.OK, 68)
    assert outcome_of(row, replace(PEER, num_gpu_blocks=100)) == (Status.REJECTED, 0)


def test_what_vllm_is_stuck_with_the_peer_drops() -> None:
    row = {"arrival_us": 0, "prompt": 97, "output": 1}
    assert outcome_of(row, replace(PEER, compatibility="vllm")) == (Status.STUCK, 0)
    assert outcome_of(row, PEER) == (Status.REJECTED, 0)


def test_a_sequence_ends_one_token_before_max_model_len() -> None:
    row = {"arrival_us": 0, "prompt": 60, "output": 68}
    assert outcome_of(row, replace(PEER, num_gpu_blocks=100)) == (Status.OK, 67)


def test_a_prompt_cached_whole_costs_a_step_of_one_microsecond() -> None:
    rows = [{"arrival_us": t, "prompt": 32, "output": 1, "hash_ids": [0, 1]} for t in (0, 1000)]
    outcomes = simulate(requests_of(rows), PEER, LATENCY).outcomes
    assert outcomes.num_cached_tokens.tolist() == [0, 32]
    assert outcomes.first_token_us.tolist() == [132, 1001]


def test_a_request_that_never_fits_ends_the_run_stuck_and_lets_the_others_through() -> None:
    rows = [
        {"arrival_us": 0, "prompt": 60, "output": 60},
        {"arrival_us": 1, "prompt": 20, "output": 2},
    ]
    outcomes = simulate(requests_of(rows), replace(PEER, num_gpu_blocks=7), LATENCY).outcomes
    assert outcomes.status.tolist() == [Status.STUCK, Status.OK]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"async_scheduling": True},
            "async_scheduling: got true with compatibility blis, expected false: it has none",
        ),
        (
            {"num_speculative_tokens": 2, "synthetic_acceptance_rates": (0.5,)},
            "num_speculative_tokens: got 2 with compatibility blis, expected 0: it has no speculative decoding",
        ),
    ],
)
def test_what_the_peer_does_not_have_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        replace(PEER, **changes)  # type: ignore[arg-type]
    assert str(error.value) == message
