"""What holds in every step of every run: nothing is lost, time goes one way, nobody idles or jumps the queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from hypothesis import assume, given

from sim import Requests, Simulation, Status, Step
from tests.examples import examples
from tests.sim.strategies import Case, any_model, cases


def blocks_of(num_tokens: int, case: Case) -> int:
    """Return how many blocks so many tokens fill or begin."""
    return -(-min(num_tokens, case.config.max_model_len) // case.config.block_size)


@dataclass(slots=True)
class Holders:
    """Who holds which blocks, followed from step to step."""

    tables: dict[int, list[int]] = field(default_factory=dict)

    def see(self, step: Step) -> None:
        assert step.block_ids is not None
        for request in step.preempted:
            self.tables.pop(request, None)
        self.tables.update(step.block_ids)

    def see_end(self, step: Step) -> None:
        for request in step.finished:
            self.tables.pop(request, None)

    def held(self) -> set[int]:
        return {block for table in self.tables.values() for block in table}


def bounded(case: Case) -> Case:
    return case if case.config.num_gpu_blocks else case.under(num_gpu_blocks=200)


@examples(100)
@given(cases(closed=None, model=any_model))
def test_every_block_is_free_or_held_and_never_both(case: Case) -> None:
    """An async engine learns who finished in step k after it has scheduled step k + 1."""
    case = bounded(case)
    steps, holders, usable = (
        case.run(record="blocks").steps(),
        Holders(),
        set(range(1, case.config.num_gpu_blocks)),
    )
    for step, previous in zip(steps, [None, *steps], strict=False):
        holders.see(step)
        assert step.free_queue is not None
        assert len(step.free_queue) == len(set(step.free_queue)) == step.free
        assert set(step.free_queue) == usable - holders.held()
        late = previous if case.config.async_scheduling else step
        if late is not None:
            holders.see_end(late)


@examples(100)
@given(cases(model=any_model))
def test_in_the_end_only_the_stuck_hold_blocks(case: Case) -> None:
    case = bounded(case)
    simulation = case.run(record="steps")
    steps = simulation.steps()
    if steps and Status.STUCK not in simulation.outcomes.status:
        assert steps[-1].free_end == case.config.num_gpu_blocks - 1


@examples(100)
@given(cases(closed=None, model=any_model))
def test_every_request_ends_in_one_way_and_has_what_that_way_gives(case: Case) -> None:
    outcomes = case.run().outcomes
    assert len(outcomes.status) == len(case.requests)
    assert set(outcomes.status.tolist()) <= {Status.OK, Status.REJECTED, Status.STUCK}
    ok, refused = outcomes.status == Status.OK, outcomes.status == Status.REJECTED
    asked, prompt = case.requests.output_tokens, case.requests.prompt_tokens
    room = np.maximum(1, case.config.max_model_len - prompt)
    np.testing.assert_array_equal(outcomes.num_output_tokens[ok], np.minimum(asked, room)[ok])
    assert np.all(outcomes.num_output_tokens[refused] == 0)
    assert np.all(outcomes.scheduled_us[refused] == -1)
    assert np.all(outcomes.num_output_tokens <= np.maximum(asked, 0))


@examples(100)
@given(cases(model=any_model))
def test_every_request_that_has_joined_runs_waits_or_has_finished(case: Case) -> None:
    """A sync engine says so at each step; an async one knows of the finished a step later."""
    case = case.under(async_scheduling=False)
    simulation = case.run(record="steps")
    outcomes, num_finished = simulation.outcomes, 0
    joined_us = np.sort(outcomes.queued_us[outcomes.status != Status.REJECTED])
    for step in simulation.steps():
        num_joined = int(np.searchsorted(joined_us, step.t, side="right"))
        assert num_joined == step.running + step.waiting + num_finished
        num_finished += len(step.finished)
    assert num_finished == np.sum(outcomes.status == Status.OK)


@examples(100)
@given(cases(closed=None, model=any_model))
def test_the_clock_never_goes_back(case: Case) -> None:
    steps = case.run(record="steps").steps()
    starts, ends = [step.t for step in steps], [step.t_end for step in steps]
    assert [step.step for step in steps] == list(range(len(steps)))
    assert starts == sorted(starts)
    assert ends == sorted(ends)
    assert all(step.t <= step.t_end for step in steps)
    device = [step for step in steps if step.exec_start is not None and step.sched]
    for step, after in pairwise(device):
        assert step.exec_start is not None
        assert step.exec_end is not None
        assert after.exec_start is not None
        assert step.t <= step.exec_start <= step.exec_end <= after.exec_start


@examples(100)
@given(cases(closed=None, model=any_model))
def test_cause_comes_before_effect(case: Case) -> None:
    outcomes = case.run().outcomes
    arrived = outcomes.arrival_us >= 0
    scheduled, got_tokens = outcomes.scheduled_us >= 0, outcomes.num_output_tokens > 0
    assert np.all(outcomes.arrival_us[arrived] <= outcomes.queued_us[arrived])
    assert np.all(outcomes.queued_us[scheduled] <= outcomes.scheduled_us[scheduled])
    assert np.all(scheduled[got_tokens])
    assert np.all(outcomes.scheduled_us[got_tokens] <= outcomes.first_token_us[got_tokens])
    assert np.all(outcomes.first_token_us[got_tokens] <= outcomes.last_token_us[got_tokens])
    assert np.all(outcomes.num_cached_tokens[scheduled] < case.requests.prompt_tokens[scheduled])


@examples(100)
@given(cases(model=any_model))
def test_every_token_is_computed_once_per_life(case: Case) -> None:
    """From the hit at admission on, what was computed before a share is where the share before it ended."""
    computed: dict[int, int] = {}
    for step in case.run(record="steps").steps():
        for request in step.preempted:
            computed.pop(request, None)
        admitted = dict(step.hits)
        for request, num_tokens, before, _ in step.sched:
            assert num_tokens > 0
            assert before == admitted.get(request, computed.get(request))
            computed[request] = before + num_tokens
        assert len(step.sched) <= case.config.max_num_seqs
        assert step.P + step.D == sum(n for _, n, *_ in step.sched) <= case.config.max_num_batched_tokens


def may_lead_nowhere(step: Step) -> bool:
    """Return whether a step computed nothing, or preempted: in vain, it may be, as often before."""
    return not step.sched or bool(step.preempted)


@examples(150)
@given(cases(is_async=False, model=any_model))
def test_the_engine_never_idles_while_somebody_can_run(case: Case) -> None:
    """A step begins where the one before ended, unless nobody was left or nobody could run: then at an arrival."""
    simulation = case.run(record="steps")
    steps, queued_us = simulation.steps(), set(simulation.outcomes.queued_us.tolist())
    for step, after in pairwise(steps):
        num_left = step.running + step.waiting - len(step.finished)
        if num_left == 0 or may_lead_nowhere(step):
            assert after.t == step.t_end or after.t in queued_us
        else:
            assert after.t == step.t_end


def next_head(steps: list[Step], at: int) -> int | None:
    """Return who headed the queue after step ``at``: the next to be admitted, unless a preemption came before."""
    for step in steps[at + 1 :]:
        if step.preempted:
            return None
        if step.hits:
            return step.hits[0][0]
    return None


@examples(150)
@given(cases(model=any_model))
def test_whoever_waits_waits_for_a_seat_for_budget_or_for_blocks(case: Case) -> None:
    case = bounded(case).under(
        scheduling_policy="fcfs",
        enable_prefix_caching=False,
        enable_chunked_prefill=True,
        scheduler_reserve_full_isl=True,
    )
    steps = case.run(record="steps").steps()
    reserved = int(case.config.watermark * case.config.num_gpu_blocks)
    preempted: set[int] = set()  # these need room for their outputs too
    for at, step in enumerate(steps):
        preempted.update(step.preempted)
        has_seat = step.running < case.config.max_num_seqs
        has_budget = case.config.max_num_batched_tokens > step.P + step.D
        head = next_head(steps, at)
        if step.waiting and has_seat and has_budget and not step.preempted and head not in {None, *preempted}:
            needed = blocks_of(int(case.requests.prompt_tokens[head]), case)
            assert needed + (reserved if step.running else 0) > step.free


@examples(100)
@given(cases(model=any_model))
def test_first_come_is_first_admitted(case: Case) -> None:
    simulation = case.under(scheduling_policy="fcfs").run(record="steps")
    queued_us, seen = simulation.outcomes.queued_us, []
    for step in simulation.steps():
        seen += [request for request, _ in step.hits if request not in seen]
    assert seen == sorted(seen, key=lambda request: (queued_us[request], request))


@examples(100)
@given(cases(model=any_model))
def test_a_preemption_admits_nobody_and_takes_the_last_come_first(case: Case) -> None:
    """First come, first served: victims leave from the tail of the running ones."""
    running: list[int] = []
    for step in case.under(scheduling_policy="fcfs", async_scheduling=False).run(record="steps").steps():
        for victim in step.preempted:
            assert running.pop() == victim
            assert not step.hits
        running += [request for request, _ in step.hits]
        assert len(running) == step.running
        running = [request for request in running if request not in step.finished]


@examples(100)
@given(cases(closed=None, model=any_model))
def test_hits_and_preemptions_are_counted_as_the_steps_show_them(case: Case) -> None:
    simulation = case.run(record="steps")
    outcomes, steps = simulation.outcomes, simulation.steps()
    preempted = [request for step in steps for request in step.preempted]
    counts = np.bincount(np.array(preempted, np.int64), minlength=len(case.requests))
    np.testing.assert_array_equal(counts, outcomes.num_preemptions)
    assert simulation.num_preemptions == len(preempted)
    first_hits: dict[int, int] = {}
    for step in steps:
        for request, cached in step.hits:
            first_hits.setdefault(request, cached)
    expected = [first_hits.get(row, -1) for row in range(len(case.requests))]
    assert outcomes.num_cached_tokens.tolist() == expected


def without_hashes(requests: Requests) -> Requests:
    return Requests(
        arrival_us=requests.arrival_us,
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens,
        priority=requests.priority,
        hash_offsets=np.zeros(len(requests) + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


@examples(100)
@given(cases(model=any_model))
def test_a_prefix_cache_without_a_shared_block_or_a_preemption_changes_nothing(case: Case) -> None:
    plain = Case(requests=without_hashes(case.requests), config=case.config, latency=case.latency)
    cached, uncached = (plain.under(enable_prefix_caching=is_on).run() for is_on in (True, False))
    assume(cached.num_preemptions == 0)
    np.testing.assert_array_equal(cached.outcomes.last_token_us, uncached.outcomes.last_token_us)


@examples(100)
@given(cases(closed=None, model=any_model))
def test_a_cache_without_bound_ends_as_a_very_large_one(case: Case) -> None:
    unbounded, large = (case.under(num_gpu_blocks=n, watermark=0.0).run() for n in (0, 3000))
    assert_ends_alike(unbounded, large)


def assert_ends_alike(one: Simulation, other: Simulation) -> None:
    for name in ("status", "scheduled_us", "first_token_us", "last_token_us", "num_cached_tokens"):
        np.testing.assert_array_equal(getattr(one.outcomes, name), getattr(other.outcomes, name))
    assert one.num_preemptions == other.num_preemptions == 0
