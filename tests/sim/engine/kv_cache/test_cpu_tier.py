"""The KV cache's second tier against the same rule over the plain reference scheduler: every step and every block."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sim import Blackbox, Engine, EngineConfig, InvalidConfig, simulate
from tests.examples import examples
from tests.sim.engine.test_reference import KEYS, bounded, reference_outcomes
from tests.sim.reference import Batch, Blocks, Reference, Request
from tests.sim.strategies import Case, assert_same_outcomes, cases, requests_of


class TieredBlocks(Blocks):
    """A pool whose evicted contents may go to ``tier``: content to when it came, oldest first."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config.num_gpu_blocks)
        self.config, self.now_us = config, 0
        self.tier: OrderedDict[Hashable, int] = OrderedDict()
        self.num_offloads = 0

    def new(self) -> int:
        block, usable = self.free[0], self.config.num_gpu_blocks - 1
        num_used = usable - len(self.free) + 1
        content = self.contents.get(block)
        if num_used > int(self.config.kv_offload_threshold * usable) and self.holders.get(content) == [block]:
            self.tier.pop(content, None)
            if len(self.tier) == self.config.num_cpu_blocks:
                self.tier.popitem(last=False)
            self.tier[content] = self.now_us
            self.num_offloads += 1
        return super().new()

    def share(self, block: int) -> None:
        if block:
            super().share(block)


class Tiered(Reference):
    """The scheduler, with block 0 in a lookup for what the tier has."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.requests, case.config, case.latency, closed_loop=case.closed_loop)
        self.tiers = self.pool = TieredBlocks(case.config)
        self.num_reloads = self.num_thrashings = self.step_reloads = 0

    def schedule(self) -> Batch:
        self.tiers.now_us, self.step_reloads = self.clock, 0
        return super().schedule()

    def lookup(self, request: Request) -> list[int]:
        found: list[int] = []
        most = (request.num_tokens - 1) // self.config.block_size if self.config.enable_prefix_caching else 0
        while len(found) < most:
            content = request.content(len(found))
            if holders := self.pool.holders.get(content):
                found.append(holders[0])
            elif content in self.tiers.tier:
                found.append(0)
            else:
                break
        return found

    def allocate(self, request: Request, n: int) -> bool:
        missing = [i for i, block in enumerate(request.blocks) if block == 0]
        for i in missing:
            age_us = self.clock - self.tiers.tier.pop(request.content(i))
            self.num_thrashings += age_us < 1000
        for i in missing:
            request.blocks[i] = self.pool.new()
            self.pool.remember(request.blocks[i], request.content(i))
        self.num_reloads += len(missing)
        self.step_reloads += len(missing)
        return super().allocate(request, n)

    def describe(self, batch: Batch) -> None:
        super().describe(batch)
        moving = ceil(Fraction(self.config.block_size) / Fraction(repr(self.config.kv_transfer_bandwidth)))
        batch.row["dur"] += self.step_reloads * (self.config.kv_transfer_base_latency + moving)


@st.composite
def tiered_cases(draw: st.DrawFn) -> Case:
    """Draw cases with a CPU tier, small and large, eager and reluctant."""
    return bounded(draw(cases(closed=None))).under(
        enable_prefix_caching=True,
        num_cpu_blocks=draw(st.sampled_from((2, 5, 20, 1))),
        kv_offload_threshold=draw(st.sampled_from((0.0, 0.5, 0.9))),
        kv_transfer_bandwidth=draw(st.sampled_from((0.3, 1.0, 100.0))),
        kv_transfer_base_latency=draw(st.sampled_from((0, 7))),
    )


ONE_SLOT = Case(
    requests=requests_of(
        [
            {"arrival_us": 0, "prompt": prompt, "output": output, "priority": priority, "hash_ids": ids}
            for prompt, output, priority, ids in (
                (24, 38, 2, [0, 1, 2]),
                (2, 37, 1, [0]),
                (35, 40, 1, [3, 4, 5, 6]),
                (24, 10, 0, [3, 4, 5]),
                (1, 35, 2, []),
                (5, 8, 2, []),
                (8, 8, 1, [7]),
            )
        ]
    ),
    config=EngineConfig(
        max_num_seqs=8,
        max_num_batched_tokens=64,
        num_gpu_blocks=12,
        block_size=8,
        enable_chunked_prefill=False,
        long_prefill_token_threshold=5,
        scheduler_reserve_full_isl=False,
        watermark=0.3,
        scheduling_policy="sjf",
        async_scheduling=False,
        frontend="none",
        num_cpu_blocks=1,
        kv_offload_threshold=0.0,
        kv_transfer_bandwidth=0.3,
        kv_transfer_base_latency=0,
    ),
    latency=Blackbox(alpha0=33.5, alpha1=1, alpha2=7, beta1=33.5),
    closed_loop=(4, 1),
)
"""The tier's only slot is its last one, and is used again."""


@examples(200)
@given(tiered_cases())
@example(ONE_SLOT)
def test_every_step_and_every_block_follows_the_rule(case: Case) -> None:
    reference = Tiered(case)
    reference.run()
    simulation = case.run(record="blocks")
    for mine, theirs in zip(simulation.steps(), reference.steps, strict=True):
        assert {key: value for key in KEYS if (value := getattr(mine, key)) is not None} == theirs
    assert_same_outcomes(simulation.outcomes, reference_outcomes(reference))
    assert simulation.num_kv_offloads == reference.tiers.num_offloads
    assert simulation.num_kv_reloads == reference.num_reloads
    assert simulation.num_kv_thrashings == reference.num_thrashings


ROOMY = 2000
"""Blocks of which no drawn case uses up a part: none is ever handed out twice, so nothing is evicted."""


@examples(60)
@given(tiered_cases())
def test_the_tiered_engine_s_single_steps_are_the_jumps_of_one_whose_cache_never_fills(case: Case) -> None:
    """With a tier the engine takes every step; without one it jumps. Where nothing is evicted they must agree."""
    tiered = case.under(num_gpu_blocks=ROOMY).run()
    without = case.under(num_gpu_blocks=ROOMY, num_cpu_blocks=0).run()
    assert tiered.num_kv_offloads == tiered.num_jumps == 0
    assume(without.num_jumps > 0)
    assert_same_outcomes(tiered.outcomes, without.outcomes)
    assert tiered.num_steps == without.num_steps


@examples(40)
@given(cases(closed=None), st.sampled_from(({"num_gpu_blocks": 0}, {"enable_prefix_caching": False})))
def test_a_tier_that_nothing_can_reach_changes_nothing(case: Case, changes: dict[str, Any]) -> None:
    plain = case.under(**changes)
    tiered = plain.under(num_cpu_blocks=10, kv_offload_threshold=0.0)
    assert_same_outcomes(tiered.run().outcomes, plain.run().outcomes)
    assert tiered.run().num_jumps == plain.run().num_jumps


PROMPT = {"prompt": 65, "output": 1, "hash_ids": [0, 1, 2, 3]}
OTHER = {"prompt": 97, "output": 1}
TIERED = EngineConfig(
    num_gpu_blocks=9,
    num_cpu_blocks=8,
    kv_offload_threshold=0.0,
    kv_transfer_bandwidth=0.5,
    kv_transfer_base_latency=10,
    async_scheduling=False,
)
LATENCY = Blackbox(beta0=100, beta1=1)


def test_a_prefix_that_was_evicted_comes_back_for_the_price_of_its_transfer() -> None:
    """Of the first prompt's four blocks the second evicts some; the third finds all four and computes a token."""
    rows = [
        {**PROMPT, "arrival_us": 0},
        {**OTHER, "arrival_us": 10_000},
        {**PROMPT, "arrival_us": 20_000},
    ]
    simulation = simulate(requests_of(rows), TIERED, LATENCY)
    outcomes = simulation.outcomes
    assert simulation.num_kv_reloads > 0
    assert outcomes.num_cached_tokens[2] == 64
    transfer_us = simulation.num_kv_reloads * (10 + 16 * 2)
    assert outcomes.last_token_us[2] - outcomes.scheduled_us[2] == 100 + 1 + transfer_us
    without = simulate(requests_of(rows), replace(TIERED, num_cpu_blocks=0), LATENCY).outcomes
    assert without.num_cached_tokens[2] < 64


def test_coming_back_within_a_millisecond_is_thrashing() -> None:
    def thrashings(gap_us: int) -> int:
        rows = [
            {**PROMPT, "arrival_us": 0},
            {**OTHER, "arrival_us": 10_000},
            {**PROMPT, "arrival_us": 10_000 + gap_us},
        ]
        return simulate(requests_of(rows), TIERED, LATENCY).num_kv_thrashings

    assert thrashings(999) > 0
    assert thrashings(1000) == 0


def test_a_view_of_a_running_engine_has_the_counters() -> None:
    rows = [{**PROMPT, "arrival_us": 0}, {**OTHER, "arrival_us": 10_000}, {**PROMPT, "arrival_us": 20_000}]
    engine = Engine(requests_of(rows), replace(TIERED, max_model_len=128), LATENCY)
    engine.advance(15_000)
    assert engine.view().num_kv_offloads > 0
    assert engine.view().num_kv_reloads == 0
    engine.advance()
    assert engine.view().num_kv_reloads > 0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_cpu_blocks", -1, "num_cpu_blocks: got -1, expected an integer >= 0"),
        ("kv_offload_threshold", 1.1, "kv_offload_threshold: got 1.1, expected a fraction in [0, 1]"),
        ("kv_transfer_bandwidth", 0.0, "kv_transfer_bandwidth: got 0.0, expected a number > 0"),
    ],
)
def test_a_tier_that_cannot_be_is_refused(name: str, value: float, message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        EngineConfig(**{name: value})  # type: ignore[arg-type]
    assert str(error.value) == message
