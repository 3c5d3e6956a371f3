"""An engine fed and paused at will gives the bits of one call to the end."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, Engine, EngineConfig, Requests, Status, simulate
from sim.resumable import FOREVER
from tests.examples import examples
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases

MANY_BLOCKS = 400


def feed(engine: Engine, requests: Requests, row: int) -> int:
    """Submit one row."""
    ids = requests.hash_ids[requests.hash_offsets[row] : requests.hash_offsets[row + 1]]
    return engine.submit(
        arrival_us=int(requests.arrival_us[row]),
        prompt_tokens=int(requests.prompt_tokens[row]),
        output_tokens=int(requests.output_tokens[row]),
        priority=int(requests.priority[row]),
        hash_ids=ids.tolist(),
    )


def bounded(case: Case) -> Case:
    """An engine that does not know its requests beforehand keeps a bounded cache, so compare bounded ones."""
    return case if case.config.num_gpu_blocks else case.under(num_gpu_blocks=MANY_BLOCKS)


def assert_ends_as(engine: Engine, case: Case) -> None:
    """Compare an engine that has been run to the end with ``simulate``."""
    simulation, outcomes = case.run(), engine.outcomes()
    outcomes.status[outcomes.status == Status.UNFINISHED] = Status.STUCK
    assert_same_outcomes(outcomes, simulation.outcomes)
    assert engine.view().num_steps == simulation.num_steps
    assert engine.view().num_preemptions == simulation.num_preemptions


@examples(100)
@given(cases(model=any_model), st.lists(st.integers(0, 3000), max_size=20))
def test_any_slices_of_time_end_as_one_call_does(case: Case, slices: list[int]) -> None:
    case = bounded(case)
    engine, now_us = Engine(case.config, case.latency), 0
    for row in range(len(case.requests)):
        feed(engine, case.requests, row)
    for length_us in slices:
        now_us += length_us
        engine.advance(now_us)
    engine.advance()
    assert_ends_as(engine, case)


@examples(100)
@given(cases(model=any_model))
def test_requests_may_come_when_their_time_comes(case: Case) -> None:
    """Each is submitted once the engine has been advanced to its arrival; tokens are taken on the way."""
    case = bounded(case)
    engine = Engine(case.config, case.latency, record="tokens")
    taken = [engine.take_tokens()]
    for row in range(len(case.requests)):
        engine.advance(int(case.requests.arrival_us[row]))
        taken.append(engine.take_tokens())
        assert feed(engine, case.requests, row) == row
    engine.advance()
    taken.append(engine.take_tokens())
    assert_ends_as(engine, case)
    request, time_us = (np.concatenate(columns) for columns in zip(*taken, strict=True))
    expected = case.run(record="tokens").tokens()
    np.testing.assert_array_equal(request, expected[0])
    np.testing.assert_array_equal(time_us, expected[1])


@examples(50)
@given(cases(model=any_model))
def test_waking_at_the_times_it_names_misses_nothing(case: Case) -> None:
    case = bounded(case)
    engine = Engine(case.config, case.latency)
    for row in range(len(case.requests)):
        feed(engine, case.requests, row)
    previous_us = -1
    while (next_us := engine.next_time_us()) is not None:
        assert next_us >= previous_us
        engine.advance(next_us + 1)
        previous_us = next_us
    assert_ends_as(engine, case)


@examples(100)
@given(cases(model=any_model), st.randoms(use_true_random=False))
def test_aborted_requests_leave_nothing_behind(case: Case, random: st.DataObject) -> None:
    case = bounded(case)
    engine, requests = Engine(case.config, case.latency), case.requests
    free = engine.view().num_free_blocks
    for row in range(len(requests)):
        feed(engine, requests, row)
    for row in random.sample(range(len(requests)), len(requests)):  # type: ignore[attr-defined]
        next_us = engine.next_time_us()
        engine.advance(0 if next_us is None else next_us + random.randint(0, 300))  # type: ignore[attr-defined]
        before = engine.outcomes().status[row]
        engine.abort(row)
        expected = Status.ABORTED if before == Status.UNFINISHED else before
        assert engine.outcomes().status[row] == expected
    engine.advance()
    view = engine.view()
    assert (view.num_running, view.num_waiting, view.num_free_blocks) == (0, 0, free)
    assert view.kv_cache_usage_frac == 0
    assert engine.next_time_us() is None
    assert Status.UNFINISHED not in engine.outcomes().status


@examples(50)
@given(cases(model=any_model), st.integers(0, 11))
def test_a_request_aborted_before_it_arrives_was_never_there(case: Case, victim: int) -> None:
    case = bounded(case)
    engine, requests = Engine(case.config, case.latency), case.requests
    for row in range(len(requests)):
        feed(engine, requests, row)
    victim %= len(requests)
    engine.abort(victim)
    engine.advance()
    kept = np.arange(len(requests)) != victim
    offsets, lengths = requests.hash_offsets, np.diff(requests.hash_offsets)
    others = Requests(
        arrival_us=requests.arrival_us[kept],
        prompt_tokens=requests.prompt_tokens[kept],
        output_tokens=requests.output_tokens[kept],
        priority=requests.priority[kept],
        hash_offsets=np.concatenate([[0], np.cumsum(lengths[kept])]),
        hash_ids=np.delete(requests.hash_ids, np.arange(offsets[victim], offsets[victim + 1])),
    )
    expected = Case(requests=others, config=case.config, latency=case.latency).run().outcomes
    np.testing.assert_array_equal(engine.outcomes().last_token_us[kept], expected.last_token_us)
    np.testing.assert_array_equal(engine.outcomes().num_cached_tokens[kept], expected.num_cached_tokens)


def test_a_number_that_was_never_given_cannot_be_aborted() -> None:
    engine = Engine(EngineConfig(), Blackbox())
    for number in (-1, 0, 7):
        with pytest.raises(IndexError, match="request"):
            engine.abort(number)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda engine: pickle.loads(pickle.dumps(engine))])  # noqa: S301
def test_a_copy_goes_on_by_itself(copied: Callable[[Engine], Engine]) -> None:
    engine = Engine(EngineConfig(), Blackbox(beta0=1000))
    engine.submit(arrival_us=0, prompt_tokens=30, output_tokens=50)
    engine.advance(20_000)
    other = copied(engine)
    other.advance()
    assert engine.outcomes().status.tolist() == [Status.UNFINISHED]
    assert engine.view().clock_us == 20_000
    assert other.outcomes().status.tolist() == [Status.OK]
    engine.advance()
    assert_same_outcomes(engine.outcomes(), other.outcomes())


def test_an_idle_engine_has_nothing_coming() -> None:
    engine = Engine(EngineConfig(), Blackbox(alpha0=5, beta0=10))
    assert engine.next_time_us() is None
    engine.submit(arrival_us=100, prompt_tokens=3, output_tokens=1)
    assert engine.next_time_us() == 105
    engine.advance(105)
    assert engine.view().num_steps == 0
    engine.advance(106)
    assert engine.view().num_steps > 0
    engine.advance(FOREVER)
    assert engine.next_time_us() is None
    assert engine.outcomes().last_token_us.tolist() == [115]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("num_gpu_blocks", [60, 400])
def test_an_engine_that_forgets_does_what_one_that_remembers_does_with_few_rows(
    is_async: bool, num_gpu_blocks: int
) -> None:
    """500 requests come by and by; who has all its tokens is forgotten at once. Prompts share and repeat contents."""
    random, n = np.random.default_rng(5), 500
    prompt = random.integers(1, 120, n)
    num_ids = prompt // 16
    offsets = np.concatenate([[0], np.cumsum(num_ids)])
    families = random.integers(0, 12, n)
    ids = [family * 20 + np.arange(number) for family, number in zip(families, num_ids, strict=True)]
    requests = Requests(
        arrival_us=np.cumsum(random.integers(1, 3000, n)),
        prompt_tokens=prompt,
        output_tokens=random.integers(1, 30, n),
        priority=np.zeros(n, np.int64),
        hash_offsets=offsets,
        hash_ids=np.concatenate(ids),
    )
    config = EngineConfig(
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_model_len=200,
        num_gpu_blocks=num_gpu_blocks,
        async_scheduling=is_async,
    )
    latency = Blackbox(alpha0=300, alpha1=1, alpha2=7, beta0=500, beta1=10, beta2=20)
    expected = simulate(requests, config, latency).outcomes
    engine = Engine(config, latency, record="tokens")
    row_of: dict[int, int] = {}
    left = requests.output_tokens.copy()
    seen = []
    last = np.zeros(n, np.int64)

    def take() -> None:
        numbers, times_us = engine.take_tokens()
        for number, time_us in zip(numbers.tolist(), times_us.tolist(), strict=True):
            row = row_of[number]
            left[row] -= 1
            last[row] = time_us
            if left[row] == 0:
                (status,) = engine.outcomes(slice(number, number + 1)).status
                seen.append((row, status))
                del row_of[number]
                engine.forget(number)

    for row in range(n):
        engine.advance(int(requests.arrival_us[row]))
        take()
        row_of[feed(engine, requests, row)] = row
    engine.advance()
    take()
    assert sorted(seen) == [(row, Status.OK) for row in range(n)]
    np.testing.assert_array_equal(last, expected.last_token_us)
    assert engine.view().num_preemptions == expected.num_preemptions.sum()
    assert engine.view().prefix_cache_hits == expected.num_cached_tokens.sum() or num_gpu_blocks == 60
    assert len(engine.outcomes().status) < 200
